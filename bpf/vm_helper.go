package bpf

import (
	"encoding/binary"
	"fmt"
	"slices"

	"kprobe/bpf/layout"
	"kprobe/bpf/printk"
)

// A helperCall is a helper's call under way.
type helperCall struct {
	*HelperCall
	vm  *VM
	r   *[11]uint64 // arguments in R1 to R5, the answer in R0
	bad string      // ends the program
}

// helpers are the helpers by their numbers.
var helpers = map[int32]func(*helperCall){
	FnMapLookupElem: (*helperCall).mapLookup,
	FnMapUpdateElem: (*helperCall).mapUpdate,
	FnMapDeleteElem: (*helperCall).mapDelete,
	FnMapWalk:       (*helperCall).mapWalk,
	FnMapNext:       (*helperCall).mapNext,

	FnProbeRead:          (*helperCall).probeRead,
	FnProbeReadUser:      (*helperCall).probeRead,
	FnProbeReadKernel:    (*helperCall).probeRead,
	FnProbeReadStr:       (*helperCall).probeReadText,
	FnProbeReadUserStr:   (*helperCall).probeReadText,
	FnProbeReadKernelStr: (*helperCall).probeReadText,
	FnProbeWriteUser:     (*helperCall).probeWrite,

	FnKtimeGetNs:        (*helperCall).time,
	FnKtimeGetBootNs:    (*helperCall).time,
	FnKtimeGetCoarseNs:  (*helperCall).time,
	FnGetPrandomU32:     func(h *helperCall) { h.r[R0] = uint64(h.vm.Env.Random()) },
	FnGetSmpProcessorID: func(h *helperCall) { h.r[R0] = uint64(h.vm.Env.CPU) },
	FnGetCurrentPidTgid: func(h *helperCall) { h.r[R0] = h.vm.Env.PidTgid },
	FnGetCurrentUidGid:  func(h *helperCall) { h.r[R0] = h.vm.Env.UidGid },
	FnGetCurrentTask:    func(h *helperCall) { h.r[R0] = h.vm.Env.Task },
	FnGetFuncIP:         func(h *helperCall) { h.r[R0] = h.vm.Env.FuncIP },
	FnGetAttachCookie:   func(h *helperCall) { h.r[R0] = h.vm.Env.Cookie },
	FnGetCurrentComm:    (*helperCall).comm,
	FnCallData:          (*helperCall).callData,
	FnCallWord:          (*helperCall).callWord,
	FnVector:            (*helperCall).vector,
	FnGetStackid:        (*helperCall).stackID,
	FnOverrideReturn:    (*helperCall).override,

	FnTracePrintk:     (*helperCall).printk,
	FnTraceVprintk:    (*helperCall).printk,
	FnPerfEventOutput: (*helperCall).perfOutput,
	FnRingbufOutput:   (*helperCall).ringOutput,
	FnRingbufReserve:  (*helperCall).ringReserve,
	FnRingbufSubmit:   (*helperCall).ringFinish,
	FnRingbufDiscard:  (*helperCall).ringFinish,
}

// call runs a helper.
func (vm *VM) call(slot int) (bad string) {
	c := vm.Proof.Calls[slot]
	if c == nil {
		return "a call that was not proved"
	}
	run := helpers[c.Helper.ID]
	if run == nil {
		return c.Helper.Name + " is not there"
	}
	h := helperCall{HelperCall: c, vm: vm, r: &vm.regs}
	run(&h)
	return h.bad
}

// answer is 0, or an error as a negative number.
func (h *helperCall) answer(e errno) { h.r[R0] = uint64(-int64(e)) }

// mem is memory that an argument points to.
func (h *helperCall) mem(addr, n uint64) []byte {
	b := h.vm.own(addr, n)
	if b == nil {
		h.bad = fmt.Sprintf("%s: %d bytes at %#x are no memory of the program", h.Helper.Name, n, addr)
		return make([]byte, min(n, 1<<20))
	}
	return b
}

// mapAt is the map that an argument points to; nil where none is there.
func (h *helperCall) mapAt(addr uint64) *Map {
	if m := h.vm.mapOf(addr); m != nil && m.Addr == addr {
		return m
	}
	h.bad = fmt.Sprintf("%s: no map at %#x", h.Helper.Name, addr)
	return nil
}

// mapAndKey are the first two arguments of a helper of a map's element.
func (h *helperCall) mapAndKey() (m *Map, key []byte, ok bool) {
	if m = h.mapAt(h.r[R1]); m == nil {
		return nil, nil, false
	}
	key = slices.Clone(h.mem(h.r[R2], uint64(m.Spec.KeySize)))
	return m, key, h.bad == ""
}

func (h *helperCall) mapLookup() {
	m, key, ok := h.mapAndKey()
	if !ok {
		return
	}
	h.r[R0] = 0
	if elem, ok := m.find(key); ok {
		h.r[R0] = m.Addr + m.valueOff(elem, h.vm.Env.Slot%int(m.slots))
	}
}

func (h *helperCall) mapUpdate() {
	m, key, ok := h.mapAndKey()
	if !ok {
		return
	}
	if value := slices.Clone(h.mem(h.r[R3], uint64(m.Spec.ValueSize))); h.bad == "" {
		h.answer(m.update(key, value, h.r[R4], h.vm.Env.Slot, false))
	}
}

func (h *helperCall) mapDelete() {
	if m, key, ok := h.mapAndKey(); ok {
		h.answer(m.remove(key))
	}
}

// mapWalk steps to the next element that is there: its position and its key are the program's memory.
func (h *helperCall) mapWalk() {
	m := h.mapAt(h.r[R1])
	if m == nil {
		return
	}
	position, key := h.mem(h.r[R2], 8), h.mem(h.r[R3], uint64(m.Spec.KeySize))
	h.r[R0] = 0
	for h.bad == "" {
		elem := binary.LittleEndian.Uint64(position)
		if elem >= uint64(m.elems) {
			return
		}
		binary.LittleEndian.PutUint64(position, elem+1)
		if m.keyAt(uint32(elem), key) {
			h.r[R0] = m.Addr + m.valueOff(uint32(elem), h.vm.Env.Slot%int(m.slots))
			return
		}
	}
}

func (h *helperCall) mapNext() {
	m := h.mapAt(h.r[R1])
	if m == nil {
		return
	}
	if to := h.mem(h.r[R2], h.r[R3]); h.bad == "" {
		h.r[R0] = m.next(to, h.r[R4])
	}
}

func (h *helperCall) probeRead() {
	h.answer(0)
	if to := h.mem(h.r[R1], h.r[R2]); h.bad == "" && (h.vm.beside(h.HelperCall) || !h.vm.read(h.r[R3], to)) {
		clear(to)
		h.answer(EFAULT)
	}
}

func (h *helperCall) probeReadText() {
	to := h.mem(h.r[R1], h.r[R2])
	if h.bad != "" {
		return
	}
	n, ok := h.vm.readString(h.r[R3], to)
	h.r[R0] = uint64(n)
	if !ok || h.vm.beside(h.HelperCall) {
		clear(to)
		h.answer(EFAULT)
	}
}

func (h *helperCall) probeWrite() {
	h.answer(0)
	write, from := h.vm.Env.Write, h.mem(h.r[R2], h.r[R3])
	if h.bad == "" && len(from) > 0 && (write == nil || write(h.r[R1], from) != nil) {
		h.answer(EFAULT)
	}
}

func (h *helperCall) time() { h.r[R0] = h.vm.Env.Now(h.Helper.ID) }

func (h *helperCall) comm() {
	if to := h.mem(h.r[R1], h.r[R2]); h.bad == "" {
		clear(to)
		copy(to[:len(to)-1], h.vm.Env.Comm)
		h.answer(0)
	}
}

func (h *helperCall) callData() {
	h.r[R0] = h.vm.Env.CallDataAddr
	if has := len(h.vm.Env.CallData); h.r[R2] > uint64(has) {
		h.bad = fmt.Sprintf("call_data: %d bytes, and the call has %d", h.r[R2], has)
	}
}

func (h *helperCall) callWord() {
	h.r[R0] = h.vm.Env.CallDataAddr
	if has := len(h.vm.Env.CallData); has < 8 {
		h.bad = fmt.Sprintf("call_word: the call has %d bytes", has)
	}
}

func (h *helperCall) vector() {
	h.answer(0)
	if value := h.vm.Env.Vector; value != nil {
		h.r[R0] = value(h.r[R1] - 1)
	}
}

func (h *helperCall) stackID() {
	m, flags := h.mapAt(h.r[R2]), h.r[R3]
	if h.bad != "" {
		return
	}
	if flags&^(stackSkip|stackUser|stackFast|stackReuse|StackEntry) != 0 {
		h.answer(EINVAL)
		return
	}
	ips := h.vm.trail(int(flags&stackSkip), int(m.Spec.ValueSize/8), flags&StackEntry != 0)
	if len(ips) == 0 {
		h.answer(EFAULT)
		return
	}
	id, e := m.trace(ips, flags)
	if h.r[R0] = uint64(id); e != 0 {
		h.answer(e)
	}
}

func (h *helperCall) override() {
	h.vm.res.Override, h.vm.res.Return = true, h.r[R2]
	h.answer(0)
}

// printk prints a line of a format and values: three at most by trace_printk, more by trace_vprintk.
func (h *helperCall) printk() {
	env := &h.vm.Env
	p := Printk{Thread: uint32(env.PidTgid), Format: printk.CString(h.mem(h.r[R1], min(h.r[R2], MaxPrintk)))}
	if h.Helper.ID == FnTracePrintk {
		p.Args = make([]uint64, 3)
		copy(p.Args[:h.Set-2], h.r[R3:])
	} else {
		for b := h.mem(h.r[R3], min(h.r[R4], 8*MaxPrintkOf)); len(b) >= 8; b = b[8:] {
			p.Args = append(p.Args, binary.LittleEndian.Uint64(b))
		}
	}
	if h.bad == "" && env.Trace != nil {
		p.Texts = h.vm.texts(&p)
		env.Trace(p)
	}
	h.r[R0] = h.r[R2]
}

func (h *helperCall) perfOutput() {
	m, data := h.mapAt(h.r[R2]), h.mem(h.r[R4], h.r[R5])
	switch {
	case h.bad != "":
	case h.r[R3]>>32 != 0:
		h.answer(EINVAL)
	case !m.output(h.vm.Env.Slot, data):
		h.answer(ENOSPC)
	default:
		h.answer(0)
	}
}

func (h *helperCall) ringOutput() {
	m, data := h.mapAt(h.r[R1]), h.mem(h.r[R2], h.r[R3])
	switch {
	case h.bad != "":
	case h.r[R3] > uint64(m.ringSize)-layout.RecordHeader:
		h.answer(E2BIG)
	case !m.output(h.vm.Env.Slot, data):
		h.answer(EAGAIN)
	default:
		h.answer(0)
	}
}

func (h *helperCall) ringReserve() {
	m := h.mapAt(h.r[R1])
	if m == nil {
		return
	}
	off, ok := m.reserve(h.vm.Env.Slot, h.r[R2])
	h.r[R0] = 0
	if ok {
		h.r[R0] = m.Addr + off
		h.vm.records = append(h.vm.records, openRecord{m, off, h.r[R2]})
	}
}

// ringFinish ends a record that ringReserve began.
func (h *helperCall) ringFinish() {
	records := h.vm.records
	i := slices.IndexFunc(records, func(o openRecord) bool { return o.m.Addr+o.off == h.r[R1] })
	if i < 0 {
		h.bad = fmt.Sprintf("%s: no record at %#x", h.Helper.Name, h.r[R1])
		return
	}
	records[i].m.finish(records[i].off, h.Helper.ID == FnRingbufDiscard)
	h.vm.records = slices.Delete(records, i, i+1)
}

// texts reads those that a printed line asks for.
func (vm *VM) texts(p *Printk) (texts []string) {
	n := 0
	for c := range printk.Conversions(p.Format) {
		if n == len(p.Args) {
			break
		}
		if c.Verb == 's' {
			b := make([]byte, PrintkText)
			if _, ok := vm.readString(p.Args[n], b); ok {
				texts = append(texts, printk.CString(b))
			} else {
				texts = append(texts, printk.Unreadable)
			}
		}
		n++
	}
	return texts
}
