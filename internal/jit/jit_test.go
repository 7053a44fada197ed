package jit

import (
	"math/bits"
	"strings"
	"testing"

	"kprobe/arch"
	"kprobe/bpf"
	"kprobe/bpf/bpftest"
	"kprobe/bpf/verify"
	"kprobe/internal/asm/x86"
)

// The clock, between two looks at the counter itself.
func TestClock(t *testing.T) {
	m := harness(t)
	proof, err := verify.Program(&bpf.Program{Name: "now", Insns: bpftest.MustAssemble("call ktime_get_ns\nexit")})
	if err != nil {
		t.Fatal(err)
	}
	counter := Clock{Mult: 1 << 62, Shift: 62}
	for _, clock := range []Clock{
		{Mult: 1 << 31, Shift: 32},
		{Base: 1 << 60, Mult: 0xfedcba9876543210, Shift: 63},
		{Base: 12345, Mult: 3, Shift: 1},
	} {
		var runs []*run
		for _, c := range []Clock{counter, clock, counter} {
			code, err := AMD64.Compile(proof, &Env{Clock: &c})
			if err != nil {
				t.Fatal(err)
			}
			if len(code.Calls) != 0 {
				t.Fatal("it calls the helper")
			}
			runs = append(runs, &run{proof: proof, code: code, text: code.Bytes, world: &world{}})
		}
		m.execute(t, runs)
		at := func(r *run) uint64 {
			hi, lo := bits.Mul64(r.job.Regs[x86.RAX], clock.Mult)
			return clock.Base + (hi<<(64-clock.Shift) | lo>>clock.Shift)
		}
		if now := runs[1].job.Regs[x86.RAX]; now < at(runs[0]) || now > at(runs[2]) {
			t.Errorf("%+v: %d is not between %d and %d", clock, now, at(runs[0]), at(runs[2]))
		}
	}
}

// A program that cannot be compiled or linked is refused with a reason.
func TestRefusals(t *testing.T) {
	compile := func(p *bpf.Program, env *Env) (*Code, error) {
		t.Helper()
		proof, err := verify.Program(p)
		if err != nil {
			t.Fatal(err)
		}
		return AMD64.Compile(proof, env)
	}
	said := func(err error, want string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
	spec := &bpf.MapSpec{Name: "counts", Type: bpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 4}
	other := *spec
	empty := bpftest.MustAssemble("r0 = 0\nexit")

	_, err := compile(&bpf.Program{Name: "a", Insns: empty, Context: bpf.I386}, &Env{})
	said(err, `program "a" has a context of 17 registers of 4 bytes`)
	_, err = compile(&bpf.Program{Name: "b", Insns: empty, Maps: []*bpf.MapSpec{spec}}, &Env{})
	said(err, `program "b": map 0 ("counts") is not in its place`)
	_, err = compile(&bpf.Program{Name: "c", Insns: empty, Maps: []*bpf.MapSpec{spec}}, &Env{Layout: mapWorld(t, &other).layout})
	said(err, `program "c": map 0 ("counts") is not in its place`)

	code, err := compile(&bpf.Program{Name: "d", Insns: bpftest.MustAssemble("call get_prandom_u32\nexit")}, &Env{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = code.Link(0, func(int32) (arch.Addr, bool) { return 0, false })
	said(err, "no routine for helper 7")
	for _, far := range []struct {
		at, to arch.Addr
		ok     bool
	}{
		{0x10000, 0x10005 + 1<<31 - 1, true}, {0x10000, 0x10005 + 1<<31, false},
		{1 << 33, 1<<33 + 5 - 1<<31, true}, {1 << 33, 1<<33 + 4 - 1<<31, false},
	} {
		_, err := code.Link(far.at, func(int32) (arch.Addr, bool) { return far.to, true })
		if far.ok && err != nil {
			t.Errorf("%v to %v: %v", far.at, far.to, err)
		} else if !far.ok {
			said(err, "out of reach")
		}
	}
}
