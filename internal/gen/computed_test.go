package gen

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"kprobe/arch"
	"kprobe/bpf"
	"kprobe/event"
	"kprobe/spec"
)

// What debug data computes comes to the same in a program as at a stop, for every operation.
func TestComputed(t *testing.T) {
	reg := func(name string) *spec.Fetch { return &spec.Fetch{Op: spec.Reg, Name: name} }
	r := rand.New(rand.NewPCG(5, 5))
	h := &hit{memory: newTarget(r)}
	h.regs[arch.DX] = 0x10300
	numbers := []uint64{0, 1, 5, 63, 64, ^uint64(0), 1 << 63, 1<<63 - 1, ^uint64(6), 0x12345678_9abcdef0}
	two := []string{"and", "or", "xor", "plus", "minus", "mul", "div", "mod", "shl", "shr", "shra", "eq", "ne", "lt", "le", "gt", "ge"}
	for _, op := range append([]string{"abs", "neg", "not", "load1", "load2", "load4"}, two...) {
		f := spec.Fetch{Op: spec.Compute, Name: op, Inner: reg("di"), Other: reg("si")}
		var size int64
		if n, _ := fmt.Sscanf(op, "load%d", &size); n == 1 {
			f.Name, f.N, f.Inner = "load", size, &spec.Fetch{Op: spec.Deref, N: 1, Inner: reg("dx")}
		}
		deep := spec.Fetch{Op: spec.Compute, Name: "xor", Inner: &f, Other: &spec.Fetch{Op: spec.Compute, Name: "minus", Inner: &f, Other: reg("di")}}
		args := []spec.Arg{
			{Name: "v", Fetch: f, Type: spec.Type{Written: "x64", Base: spec.Hex, Size: 8}},
			{Name: "deep", Fetch: deep, Type: spec.Type{Written: "s32", Base: spec.Signed, Size: 4}},
			{Name: "at", Fetch: spec.Fetch{Op: spec.Deref, Inner: &spec.Fetch{Op: spec.Plus, N: 0x10300, Inner: &spec.Fetch{Op: spec.Compute, Name: "and", Inner: &f, Other: &spec.Fetch{Op: spec.Imm, N: 15}}}},
				Type: spec.Type{Written: "u8", Base: spec.Unsigned, Size: 1}},
		}
		c, err := event.Compile(args, arch.AMD64, h.memory)
		if err != nil {
			t.Fatal(err)
		}
		tr, err := Compile("e", bpf.Kprobe, arch.AMD64, c, Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range numbers {
			for _, b := range numbers {
				h.regs[arch.DI], h.regs[arch.SI] = a, b
				want := c.Run(&event.Context{Regs: &h.regs, Mem: h.memory})
				got, ok := h.run(t, tr)
				for i := range want {
					if !ok || got[i].Fault != want[i].Fault || got[i].Bits != want[i].Bits {
						t.Fatalf("%s of %#x and %#x: %v in a program, %v at a stop", op, a, b, got, want)
					}
				}
				if faulty := (op == "div" || op == "mod") && b == 0; want[0].Fault != faulty {
					t.Errorf("%s of %#x and %#x: %v", op, a, b, want[0])
				}
			}
		}
	}
}

// A vector register's halves are the same in a program as at a stop, alone and in what is computed.
func TestVectors(t *testing.T) {
	h := &hit{memory: newTarget(rand.New(rand.NewPCG(5, 5)))}
	vector := func(n int) (v [16]byte, err error) {
		for i := range v {
			v[i] = byte(16*n + i)
		}
		return v, nil
	}
	h.vector = func(n uint64) uint64 {
		v, _ := vector(int(n / 2))
		return binary.LittleEndian.Uint64(v[n%2*8:])
	}
	var args []spec.Arg
	for n := range int64(32) {
		half := spec.Fetch{Op: spec.Vector, N: n}
		upper := spec.Fetch{Op: spec.Compute, Name: "shr", Inner: &half, Other: &spec.Fetch{Op: spec.Imm, N: 32}}
		args = append(args, spec.Arg{Name: fmt.Sprintf("v%d", n), Fetch: half, Type: spec.Type{Written: "x64", Base: spec.Hex, Size: 8}},
			spec.Arg{Name: fmt.Sprintf("f%d", n), Fetch: upper, Type: spec.Type{Written: "f32", Base: spec.Float, Size: 4}})
	}
	c, err := event.Compile(args, arch.AMD64, h.memory)
	if err != nil {
		t.Fatal(err)
	}
	tr, err := Compile("e", bpf.Kprobe, arch.AMD64, c, Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := c.Run(&event.Context{Regs: &h.regs, Mem: h.memory, Vector: vector})
	got, ok := h.run(t, tr)
	for i := range want {
		if !ok || want[i].Fault || got[i].Fault || got[i].Bits != want[i].Bits {
			t.Errorf("%s: %v in a program, %v at a stop", args[i].Name, got, want)
		}
	}
	if v := want[4].Bits; v != 0x1716151413121110 {
		t.Errorf("the lower half of the second is %#x", v)
	}
	if _, err := Compile("e", bpf.Kprobe, arch.I386, c, Options{}); err == nil {
		t.Error("a program of i386 reads them")
	}
}
