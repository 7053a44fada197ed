package bpf

import (
	"encoding/binary"
	"slices"
)

// bpf_send_signal becomes a record in a ring of its own, and the ring's reader sends the signal. A
// program in the target makes no system calls: a filter of the target's may answer one with death.

const (
	fnSendSignal       = 109
	fnSendSignalThread = 117
	lastSignal         = 64
	signalSize         = 16 // bytes of a record: the ids of process and thread, the signal, whether the thread's
)

// SignalsMap is the ring that has the signals which programs ask for, once AllowSignals was called.
const SignalsMap = ".signals"

// Signal is one that a program has asked for: for the thread that ran it, or for its process
// (Thread is 0).
type Signal struct{ Thread, Number int }

// AllowSignals lets programs send signals to the process that they run in (bpf_send_signal,
// bpf_send_signal_thread), before they are loaded. The caller has to read the ring SignalsMap
// (ParseSignal) and send them: a little later, and not as the kernel's own. A program is answered
// -EBUSY where the ring is full.
func (c *Collection) AllowSignals() error {
	if c.Map(SignalsMap) != nil {
		return nil
	}
	c.Maps = append(c.Maps, &MapSpec{Name: SignalsMap, Type: RingBuf, MaxEntries: MinRing})
	for _, p := range c.Programs {
		p.Maps = c.Maps
	}
	return c.lower()
}

// AllowWrites lets programs write to the memory of the process that they run in
// (bpf_probe_write_user), before they are loaded. The programs' author answers for the effect on
// the process.
func (c *Collection) AllowWrites() {
	for _, p := range c.Programs {
		p.Writes = true
	}
}

// ParseSignal reads a record of SignalsMap. The target can write there: the signal is for that
// process alone, whatever the record says. Errors: ErrInvalid.
func ParseSignal(record []byte) (Signal, error) {
	if len(record) != signalSize {
		return Signal{}, errno(EINVAL)
	}
	s := Signal{Thread: int(binary.LittleEndian.Uint32(record)), Number: int(binary.LittleEndian.Uint32(record[8:]))}
	if binary.LittleEndian.Uint32(record[12:]) == 0 {
		s.Thread = 0
	}
	if s.Number < 1 || s.Number > lastSignal {
		return Signal{}, errno(EINVAL)
	}
	return s, nil
}

// sendSignal looks at a call of either. Where they are not allowed it stays, for the verifier to
// refuse.
func (e *edit) sendSignal(pc int, helper int32) error {
	m := slices.IndexFunc(e.p.Maps, func(m *MapSpec) bool { return m.Name == SignalsMap })
	if m < 0 {
		return nil
	}
	return e.call(pc, HelperName(helper), func() []Insn { return sendSignal(m, helper == fnSendSignalThread) })
}

// sendSignal is send_signal(number), or send_signal_thread. Number 0 is none: the kernel only looks
// whether it could.
func sendSignal(m int, thread bool) []Insn {
	const record = -signalSize
	w := &coder{}
	whose := int32(0)
	if thread {
		whose = 1
	}
	w.put(Insn{Op: ClassALU | Mov | SrcX, Dst: R1, Src: R1})
	w.when(Jgt, R1, lastSignal, "wrong")
	w.when(Jeq, R1, 0, "none")
	w.put(storeTo(SizeW, R10, record+8, R1), storeNumber(SizeW, R10, record+12, whose))
	w.put(helping(FnGetCurrentPidTgid), storeTo(SizeDW, R10, record, R0))
	w.pointer(R1, m)
	w.put(movReg(R2, R10), addTo(R2, record), movTo(R3, signalSize), movTo(R4, 0), helping(FnRingbufOutput))
	w.when(Jeq, R0, 0, "none")
	w.answer(-EBUSY)
	w.label("none")
	w.answer(0)
	w.label("wrong")
	w.answer(-EINVAL)
	return w.code()
}
