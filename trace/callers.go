package trace

import (
	"cmp"
	"encoding/binary"
	"errors"
	"slices"
	"syscall"

	"github.com/cilium/ebpf/asm"

	"kprobe"
	"kprobe/arch"
	"kprobe/bpf"
	"kprobe/event"
	"kprobe/internal/gen"
)

// Callers counts who calls a function that a Stat counts, inside the target, from when it was asked for. Its methods are
// not safe for concurrent use.
type Callers struct {
	st     *Stat
	probe  *kprobe.Kprobe
	counts *bpf.Map
	names  stackNames
}

// Caller is an instruction that calls the function.
type Caller struct {
	Frames []event.Frame // the code that it is in: where copies are inlined around it, several
	Calls  uint64
}

// mostCallers are counted. Beyond them the rarest are forgotten.
const mostCallers = 1024

// Callers counts who calls the function of a row's place. It has a probe of its own, beside the Stat's.
// Errors: EINVAL where that is no function's beginning, and what Register says.
func (st *Stat) Callers(place string) (*Callers, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	i := slices.IndexFunc(st.probes, func(t *traced) bool { return t.where() == place })
	if i < 0 || st.probes[i].at().Off != 0 || st.probes[i].kprobe().PlacedAt() == 0 {
		return nil, fail(syscall.EINVAL, "%s is no function that is counted", place)
	}
	t := st.probes[i]
	maps := []*bpf.MapSpec{{Name: "callers", Type: bpf.LRUHash, KeySize: 8, ValueSize: 8, MaxEntries: mostCallers}}
	_, machine := st.s.Target().(binder)
	insns, context, err := countCaller(st.s.Arch(), machine)
	if err != nil {
		return nil, err
	}
	p, err := bpf.FromAsm("callers", bpf.Kprobe, insns, maps)
	if err != nil {
		return nil, err
	}
	p.Context = context
	ps, err := st.s.Load(&bpf.Collection{Programs: []*bpf.Program{p}, Maps: maps})
	if err != nil {
		return nil, err
	}
	program, err1 := ps.Program(p.Name)
	counts, err2 := ps.Map("callers")
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	c := &Callers{st: st, counts: counts, names: newStackNames(st.s),
		probe: &kprobe.Kprobe{Addr: t.kprobe().PlacedAt(), Program: program}}
	return c, st.s.RegisterKprobe(c.probe)
}

// countCaller counts the address that the function returns to. It is on the stack, or in the link register.
func countCaller(a *arch.Arch, machine bool) (asm.Instructions, bpf.Context, error) {
	const key, one = -8, -16
	context, err := gen.ContextOf(a)
	if err != nil {
		return nil, context, fail(syscall.ENOTSUP, "who calls is not counted on %s", a.Name)
	}
	read := int32(bpf.FnProbeReadUser)
	if machine {
		read = bpf.FnProbeReadKernel
	}
	insns := asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.StoreMem(asm.RFP, key, asm.R0, asm.DWord)}
	if a.RetAddrOnStack {
		insns = append(insns,
			asm.LoadMem(asm.R3, asm.R1, int16(context.Word*context.SP), asm.DWord),
			asm.Mov.Reg(asm.R1, asm.RFP), asm.Add.Imm(asm.R1, key),
			asm.Mov.Imm(asm.R2, int32(a.PtrSize)),
			asm.BuiltinFunc(read).Call(),
			asm.JNE.Imm(asm.R0, 0, "out"),
		)
	} else {
		insns = append(insns,
			asm.LoadMem(asm.R3, asm.R1, int16(context.Word*context.Link), asm.DWord),
			asm.StoreMem(asm.RFP, key, asm.R3, asm.DWord),
		)
	}
	at := func(to asm.Register, off int32) asm.Instructions {
		return asm.Instructions{asm.Mov.Reg(to, asm.RFP), asm.Add.Imm(to, off)}
	}
	insns = append(insns, asm.LoadMapPtr(asm.R1, 0).WithReference("callers"))
	insns = append(insns, at(asm.R2, key)...)
	insns = append(insns,
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "new"),
		asm.Mov.Imm(asm.R1, 1),
		asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
		asm.Ja.Label("out"),
		asm.Mov.Imm(asm.R1, 1).WithSymbol("new"),
		asm.StoreMem(asm.RFP, one, asm.R1, asm.DWord),
		asm.LoadMapPtr(asm.R1, 0).WithReference("callers"),
	)
	insns = append(insns, at(asm.R2, key)...)
	insns = append(insns, at(asm.R3, one)...)
	return append(insns,
		asm.Mov.Imm(asm.R4, bpf.UpdateNoExist),
		asm.FnMapUpdateElem.Call(),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("out"),
		asm.Return(),
	), context, nil
}

// Most are the callers that have called most often so far, at most so many, and the calls of all.
func (c *Callers) Most(n int) (most []Caller, calls uint64) {
	for key, values := range c.counts.All() {
		k := Caller{Calls: binary.LittleEndian.Uint64(bpf.Sum(values)),
			Frames: []event.Frame{{Addr: arch.Addr(binary.LittleEndian.Uint64(key))}}}
		most, calls = append(most, k), calls+k.Calls
	}
	slices.SortFunc(most, func(a, b Caller) int {
		return cmp.Or(cmp.Compare(b.Calls, a.Calls), cmp.Compare(a.Frames[0].Addr, b.Frames[0].Addr))
	})
	most = most[:min(n, len(most))]
	for i := range most {
		most[i].Frames = c.names.caller(most[i].Frames[0].Addr, c.probe.PlacedAt())
	}
	return most, calls
}

// Close ends the counting.
func (c *Callers) Close() error { return c.st.s.UnregisterKprobe(c.probe) }
