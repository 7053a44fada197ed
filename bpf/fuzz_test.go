package bpf_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"kprobe/bpf"
	"kprobe/bpf/bpftest"
	"kprobe/bpf/verify"
)

func FuzzUnmarshal(f *testing.F) {
	f.Add([]byte{0xb7, 0, 0, 0, 1, 0, 0, 0, 0x95, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{1, 2, 3})
	f.Fuzz(func(t *testing.T, b []byte) {
		insns, err := bpf.Unmarshal(b)
		if err != nil {
			return
		}
		if again := bpf.Marshal(insns); !bytes.Equal(again, b) {
			t.Errorf("%x came back as %x", b, again)
		}
		for _, i := range insns {
			_ = i.String()
		}
	})
}

// Every program that the verifier accepts runs without a fault.
func FuzzVerify(f *testing.F) {
	for seed := range 20 {
		r := rand.New(rand.NewPCG(uint64(seed), 3))
		p := bpftest.Random(r, bpftest.Options{Size: 10, Maps: bpftest.Maps(), Helpers: plainHelpers, Memory: pageEdge})
		f.Add(bpf.Marshal(p.Insns), context(r))
	}
	f.Fuzz(func(t *testing.T, code, ctx []byte) {
		if len(code) > 4096 {
			return
		}
		insns, err := bpf.Unmarshal(code)
		if err != nil {
			return
		}
		p := &bpf.Program{Name: "fuzz", Insns: insns, Maps: bpftest.Maps()}
		proof, err := verify.Program(p)
		if err != nil {
			return
		}
		vm := bpftest.Machine(t, proof)
		vm.MaxSteps = verify.MaxStates
		regs := make([]byte, bpf.AMD64.Size())
		copy(regs, ctx)
		if _, err := vm.Run(regs); err != nil {
			t.Fatalf("%v\n%s", err, bpftest.Listing(p))
		}
	})
}

func FuzzLoad(f *testing.F) {
	for _, file := range []string{"testdata/hist.bpf.c", "testdata/top.bpf.c"} {
		f.Add(clang(f, file, "v3"))
	}
	f.Add([]byte("\x7fELF"))
	f.Fuzz(func(t *testing.T, object []byte) {
		c, err := bpf.Load(bytes.NewReader(object))
		if err != nil {
			return
		}
		_, _ = c.Type("none")
		_, _ = c.Type("local")
		_, _ = c.Record(24)
		for _, p := range c.Programs {
			_, _ = verify.Program(p)
		}
	})
}
