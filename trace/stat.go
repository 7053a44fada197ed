package trace

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"syscall"

	"github.com/cilium/ebpf/asm"

	"kprobe"
	"kprobe/bpf"
	"kprobe/spec"
)

// Stat counts what definitions hit, inside the target, and measures how long the
// functions of its r lines take. There are no events. Its methods are not safe for
// concurrent use.
type Stat struct {
	s      *kprobe.Session
	probes []*traced
	times  *bpf.Map // a histogram for each r line's place
	timed  []*traced

	leftOut []LeftOut
}

// StatRow is what became of one place's hits so far.
type StatRow struct {
	Name, Place  string
	Hits, Missed uint64

	// Latency counts the calls by how long they took: element i those of 2^i to
	// 2^(i+1)-1 ns. Nil for a p line.
	Latency []uint64
}

// buckets of a histogram: a call may take 2^64 ns.
const buckets = 64

// NewStat puts definitions to work. They have no arguments that count. Places that cannot be
// counted are left out, if there are others, and LeftOut tells of them; strict refuses all
// then. Errors: as Tracer.Add; ENOTSUP where programs cannot run in the target, or not at
// a function's return.
func NewStat(s *kprobe.Session, strict bool, defs ...string) (*Stat, error) {
	st := &Stat{s: s}
	if err := s.Refresh(); err != nil {
		return nil, err
	}
	tr := New(s, nil)
	for _, def := range defs {
		sp, err := parse(tr.parser, def)
		if err != nil {
			return nil, err
		}
		if sp == nil {
			continue
		}
		if sp.If != nil {
			return nil, sp.ErrorAt(spec.BadCondition, spec.PartIf, errors.New("hits are counted whatever is true: trace has conditions"))
		}
		if sp.Kind != spec.Probe && sp.Kind != spec.Return {
			return nil, fail(syscall.EINVAL, "only p and r lines can be counted: %q", def)
		}
		ts, _, err := tr.prepare(sp)
		if err != nil {
			return nil, err
		}
		for _, t := range ts {
			if t.rp != nil {
				st.timed = append(st.timed, t)
			} else {
				t.kp.PreHandler, t.kp.Program = nil, kprobe.CountOnly
			}
		}
		st.probes = append(st.probes, ts...)
	}
	if len(st.probes) == 0 {
		return nil, fail(syscall.EINVAL, "no definitions given")
	}
	if err := st.measure(); err != nil {
		return nil, err
	}
	for _, t := range st.probes {
		t.kprobe().Optional = !strict
	}
	if err := tr.register(st.probes); err != nil {
		return nil, err
	}
	st.probes, st.leftOut = takeOut(st.probes)
	return st, nil
}

// LeftOut are the places that are not counted, for they cannot be.
func (st *Stat) LeftOut() []LeftOut { return st.leftOut }

// measure gives the r lines' probes their programs.
func (st *Stat) measure() error {
	if len(st.timed) == 0 {
		return nil
	}
	maps := []*bpf.MapSpec{
		{Name: "took", Type: bpf.PerCPUArray, KeySize: 4, ValueSize: 8, MaxEntries: uint32(len(st.timed) * buckets)},
	}
	began, err1 := bpf.FromAsm("began", bpf.Kprobe, beginCall(), maps)
	took, err2 := bpf.FromAsm("took", bpf.Kretprobe, endCall(), maps)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	ps, err := st.s.Load(&bpf.Collection{Programs: []*bpf.Program{began, took}, Maps: maps})
	if err != nil {
		return err
	}
	enter, err1 := ps.Program("began")
	leave, err2 := ps.Program("took")
	times, err3 := ps.Map("took")
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	st.times = times
	for i, t := range st.timed {
		t.rp.Handler, t.rp.EntryHandler = nil, nil
		t.rp.EntryProgram, t.rp.Program, t.rp.Kp.Cookie = enter, leave, uint64(i)
		t.timed = i
		t.rp.DataSize = word
	}
	return nil
}

// private gives a program the call's own data, a word.
func private() asm.Instructions {
	return asm.Instructions{asm.Mov.Imm(asm.R2, word), asm.BuiltinFunc(bpf.FnCallData).Call()}
}

const word = 8

// beginCall notes when a call began.
func beginCall() asm.Instructions {
	return append(private(),
		asm.Mov.Reg(asm.R6, asm.R0),
		asm.FnKtimeGetNs.Call(),
		asm.StoreMem(asm.R6, 0, asm.R0, asm.DWord),
		asm.Mov.Imm(asm.R0, 0),
		asm.Return(),
	)
}

// endCall adds how long it took to the histogram that the cookie tells.
func endCall() asm.Instructions {
	insns := append(asm.Instructions{asm.Mov.Reg(asm.R9, asm.R1)}, private()...)
	insns = append(insns,
		asm.LoadMem(asm.R6, asm.R0, 0, asm.DWord),
		asm.FnKtimeGetNs.Call(),
		asm.Mov.Reg(asm.R7, asm.R0),
		asm.Sub.Reg(asm.R7, asm.R6),
		asm.Mov.Imm(asm.R8, 0), // the logarithm of r7, bit by bit from the top
	)
	for shift := int32(32); shift > 0; shift /= 2 {
		next := "below" + string(rune('0'+bits.Len32(uint32(shift))))
		insns = append(insns,
			asm.Mov.Reg(asm.R1, asm.R7),
			asm.RSh.Imm(asm.R1, shift),
			asm.JEq.Imm(asm.R1, 0, next),
			asm.Mov.Reg(asm.R7, asm.R1),
			asm.Add.Imm(asm.R8, shift),
			asm.Mov.Reg(asm.R1, asm.R1).WithSymbol(next),
		)
	}
	return append(insns,
		asm.Mov.Reg(asm.R1, asm.R9),
		asm.FnGetAttachCookie.Call(),
		asm.LSh.Imm(asm.R0, int32(bits.Len(buckets-1))),
		asm.Add.Reg(asm.R0, asm.R8),
		asm.StoreMem(asm.RFP, -12, asm.R0, asm.Word),
		asm.LoadMapPtr(asm.R1, 0).WithReference("took"),
		asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -12),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "out"),
		asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord),
		asm.Add.Imm(asm.R1, 1),
		asm.StoreMem(asm.R0, 0, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("out"),
		asm.Return(),
	)
}

// Rows are the figures as of now, a row for each place, the definitions' order.
func (st *Stat) Rows() ([]StatRow, error) {
	var rows []StatRow
	for _, t := range st.probes {
		r := StatRow{Name: t.name, Place: placeOf(t.at())}
		if t.rp == nil {
			r.Hits, r.Missed = t.kp.Hits(), t.kp.NMissed()
			rows = append(rows, r)
			continue
		}
		r.Hits, r.Missed = t.rp.Hits(), t.rp.NMissed()
		r.Latency = make([]uint64, buckets)
		first := t.timed * buckets
		for i := 0; i < buckets && r.Hits > 0; i++ { // most of a library's functions are not called, and each bucket is a read
			key := binary.LittleEndian.AppendUint32(nil, uint32(first+i))
			sum, err := st.times.Lookup(key) // not Threads: there may be thousands, most of which have written nothing
			if err != nil {
				return nil, err
			}
			r.Latency[i] = binary.LittleEndian.Uint64(sum)
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// Close takes the definitions out of work. Rows tells the last figures still.
func (st *Stat) Close() error { return st.s.Unregister(probesOf(st.probes)...) }
