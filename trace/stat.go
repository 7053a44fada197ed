package trace

import (
	"errors"
	"math/bits"
	"slices"
	"sync"
	"syscall"

	"github.com/cilium/ebpf/asm"

	"kprobe"
	"kprobe/bpf"
	"kprobe/spec"
)

// Stat counts what definitions hit, inside the target, and measures how long the
// functions of its r lines take. There are no events. Its methods are not safe for
// concurrent use, but for Remap.
type Stat struct {
	s      *kprobe.Session
	tr     *Tracer // finds places
	strict bool
	probes []*traced
	specs  []*spec.Spec

	mu      sync.Mutex // Remap comes at any time
	waiting []*spec.Spec
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
	st := &Stat{s: s, strict: strict, tr: New(s, nil)}
	st.tr.Strict = strict
	if err := s.Refresh(); err != nil {
		return nil, err
	}
	var specs []*spec.Spec
	for _, def := range defs {
		sp, err := parse(st.tr.parser, def)
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
		specs = append(specs, sp)
	}
	if len(specs) == 0 {
		return nil, fail(syscall.EINVAL, "no definitions given")
	}
	st.specs = specs
	_, err := st.add(specs, func(err error) bool { return false })
	return st, err
}

// add puts definitions to work, or has them wait for their files, and answers the places that are left out. One that fails is passed
// over where that is allowed.
func (st *Stat) add(specs []*spec.Spec, passed func(error) bool) (left []LeftOut, err error) {
	var fresh, timed []*traced
	var waiting []*spec.Spec
	for _, sp := range specs {
		ts, out, err := st.tr.prepare(sp)
		switch {
		case waits(st.s, err):
			if !has(st.probes, sp) { // else those wait
				waiting = append(waiting, sp)
			}
		case err != nil && !passed(err):
			return nil, err
		case err != nil && slices.Contains(st.waiting, sp):
			st.specs = slices.DeleteFunc(slices.Clone(st.specs), func(o *spec.Spec) bool { return o == sp })
		}
		left = append(left, out...)
		ts = unprobed(ts, st.probes)
		for _, t := range ts {
			t.kprobe().Optional = !st.strict
			if t.rp != nil {
				timed = append(timed, t)
			} else {
				t.kp.PreHandler, t.kp.Program = nil, kprobe.CountOnly
			}
		}
		fresh = append(fresh, ts...)
	}
	st.waiting = waiting
	st.tr.loads.look(st.tr.space)
	if err := st.measure(timed); err != nil {
		return nil, err
	}
	if len(fresh) > 0 {
		if err := st.tr.register(fresh); err != nil {
			return nil, err
		}
	}
	fresh, refused := takeOut(fresh)
	left = append(left, refused...)
	st.probes, st.leftOut = append(st.probes, fresh...), append(st.leftOut, left...)
	return left, nil
}

// Remap is for kprobe.Options.Mapped, as Tracer.Remap is.
func (st *Stat) Remap() (left []LeftOut, err error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	look(st.probes)
	if err := st.s.Refresh(); err != nil {
		return nil, ended(st.s, err)
	}
	var over []*traced
	if st.probes, over = surplus(st.probes); len(over) > 0 {
		err = st.s.Unregister(probesOf(over)...)
	}
	placed := slices.DeleteFunc(slices.Clone(st.specs), func(sp *spec.Spec) bool { return slices.Contains(st.waiting, sp) })
	specs := slices.Concat(st.waiting, grown(st.tr.space, st.tr.loads.look(st.tr.space), placed, st.probes))
	if len(specs) == 0 {
		return nil, ended(st.s, err)
	}
	left, failed := st.add(specs, func(e error) bool { err = errors.Join(err, e); return true })
	return left, ended(st.s, errors.Join(err, failed))
}

// Waiting are the places that have been in no mapped file so far, each once.
func (st *Stat) Waiting() []Awaited {
	st.mu.Lock()
	defer st.mu.Unlock()
	return waiting(st.s, st.waiting, st.probes)
}

// LeftOut are the places that are not counted, for they cannot be.
func (st *Stat) LeftOut() []LeftOut {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.leftOut
}

// measure gives the r lines' probes their programs, and a map of histograms. Probes that come later get another map.
func (st *Stat) measure(timed []*traced) error {
	if len(timed) == 0 {
		return nil
	}
	maps := []*bpf.MapSpec{
		{Name: "took", Type: bpf.PerCPUArray, KeySize: 4, ValueSize: 8, MaxEntries: uint32(len(timed) * buckets)},
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
	for i, t := range timed {
		t.rp.Handler, t.rp.EntryHandler = nil, nil
		t.rp.EntryProgram, t.rp.Program, t.rp.Kp.Cookie = enter, leave, uint64(i)
		t.times, t.timed = times, i
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
	st.mu.Lock()
	defer st.mu.Unlock()
	var rows []StatRow
	for _, t := range st.probes {
		r := StatRow{Name: t.name, Place: t.where()}
		for _, o := range t.all() {
			if err := r.add(o); err != nil {
				return nil, err
			}
		}
		rows = append(rows, r)
	}
	for _, c := range notMapped(st.waiting) {
		rows = append(rows, StatRow{Name: c.Name, Place: c.Place})
	}
	return rows, nil
}

// add adds what became of a probe's hits.
func (r *StatRow) add(t *traced) error {
	if t.rp == nil {
		r.Hits, r.Missed = r.Hits+t.kp.Hits(), r.Missed+t.kp.NMissed()
		return nil
	}
	hits := t.rp.Hits()
	r.Hits, r.Missed = r.Hits+hits, r.Missed+t.rp.NMissed()
	if err := t.readTimes(hits); err != nil {
		return err
	}
	if r.Latency == nil {
		r.Latency = make([]uint64, buckets)
	}
	for i, calls := range t.latency {
		r.Latency[i] += calls
	}
	return nil
}

// readTimes reads the histogram again where it is not that of so many calls. Most of a pattern's functions are not called
// in an interval.
func (t *traced) readTimes(calls uint64) error {
	if t.latency == nil {
		t.latency = make([]uint64, buckets)
	}
	known := uint64(0)
	for _, n := range t.latency {
		known += n
	}
	if known == calls {
		return nil
	}
	return t.times.Words(uint32(t.timed*buckets), t.latency)
}

// Close takes the definitions out of work. Rows tells the last figures still.
func (st *Stat) Close() error {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.s.Unregister(probesOf(st.probes)...)
}
