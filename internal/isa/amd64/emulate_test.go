package amd64

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"kprobe/arch"
	"kprobe/internal/isa"
)

// Every condition with every combination of the flags that conditions look at,
// by emulation and from the slots, against the CPU.
func TestConditionsAgainstCPU(t *testing.T) {
	flags := []uint64{flagCF, flagPF, flagZF, flagSF, flagOF}
	w := highWorld
	n := w.open(t)
	s := w.random(n, rand.New(rand.NewPCG(7, 8)))
	for cc := range byte(16) {
		for set := range 1 << len(flags) {
			s.regs[arch.FLAGS] = 0x202
			for i, f := range flags {
				if set>>i&1 != 0 {
					s.regs[arch.FLAGS] |= f
				}
			}
			if _, err := w.trial(t, n, []byte{0x70 | cc, 0x20}, s); err != nil {
				t.Errorf("condition %x, flags %#x: %v", cc, s.regs[arch.FLAGS], err)
			}
		}
	}
}

// Every loop and jcxz with counters that only some widths see as 0 or 1.
func TestCountersAgainstCPU(t *testing.T) {
	counters := []uint64{0, 1, 2, 0x10000, 0x10001, 0xffff_ffff, 0x1_0000_0000, 0x1_0000_0001, ^uint64(0)}
	for _, w := range here(t, highWorld, world32) {
		n := w.open(t)
		s := w.random(n, rand.New(rand.NewPCG(11, 12)))
		for op := byte(0xe0); op <= 0xe3; op++ {
			for _, code := range [][]byte{{op, 0x20}, {0x67, op, 0x20}} {
				for _, zero := range []uint64{0, flagZF} {
					for _, c := range counters {
						s.regs[arch.FLAGS] = 0x202 | zero
						s.regs[arch.CX] = c & (^uint64(0) >> (64 - w.mode))
						if _, err := w.trial(t, n, code, s); err != nil {
							t.Errorf("%s: % x, counter %#x: %v", w.name, code, s.regs[arch.CX], err)
						}
					}
				}
			}
		}
	}
}

// noMemory fails where it is told to.
type noMemory struct {
	reads int // how many reads succeed
}

func (m *noMemory) ReadAt(_ arch.Addr, p []byte) error {
	if m.reads == 0 {
		return errUnmapped
	}
	m.reads--
	clear(p)
	return nil
}

func (m *noMemory) WriteAt(arch.Addr, []byte) error { return errUnmapped }

// An emulation that cannot be done must not have been begun.
func TestEmulateFailsWhole(t *testing.T) {
	for _, c := range []struct {
		name  string
		code  []byte
		reads int
	}{
		{"call rel32, stack unmapped", []byte{0xe8, 0, 1, 0, 0}, 0},
		{"call [rax], operand unmapped", []byte{0xff, 0x10}, 0},
		{"call [rax], stack unmapped", []byte{0xff, 0x10}, 1},
		{"jmp [rax]", []byte{0xff, 0x20}, 0},
		{"ret", []byte{0xc3}, 0},
		{"ret 8", []byte{0xc2, 8, 0}, 0},
		{"retf, the second word unmapped", []byte{0xcb}, 1},
		{"iretq, the last word unmapped", []byte{0x48, 0xcf}, 4},
		{"jmp fword [rax], the selector unmapped", []byte{0xff, 0x28}, 1},
	} {
		v, err := ISA.Place(c.code, 0x401000, 0x500000)
		if err != nil || v.Emulate == nil {
			t.Errorf("%s: %+v %v", c.name, v, err)
			continue
		}
		var before arch.Regs
		for r := range before {
			before[r] = 0x1000 * uint64(r+1)
		}
		before[arch.CS], before[arch.FLAGS] = linuxCS64, 0x202
		after := before
		m := &noMemory{reads: c.reads}
		if err := v.Emulate(&after, m); !errors.Is(err, errUnmapped) {
			t.Errorf("%s: error is %v", c.name, err)
		}
		if after != before {
			t.Errorf("%s: registers changed", c.name)
		}
	}
}

// Where the CPU faults before it jumps, emulation must leave it to the CPU.
func TestEmulateNotCanonical(t *testing.T) {
	const hole = 0x0000_8000_0000_0000
	for _, code := range [][]byte{{0xff, 0xe0}, {0xff, 0xd0}} { // jmp rax, call rax
		v, err := ISA.Place(code, 0x401000, 0x500000)
		if err != nil {
			t.Fatal(err)
		}
		var r arch.Regs
		r[arch.AX] = hole
		before := r
		if err := v.Emulate(&r, &noMemory{}); !errors.Is(err, errNotCanonical) || r != before {
			t.Errorf("% x: %v", code, err)
		}
		for _, ok := range []uint64{hole - 1, 0xffff_8000_0000_0000} {
			r[arch.AX] = ok
			if err := ISA.(*machine).setPC(&r, ok); err != nil {
				t.Errorf("%#x: %v", ok, err)
			}
		}
	}
}

// BenchmarkPlace measures the planning of one probe here, BenchmarkEmulate a hit on a branch.
func BenchmarkPlace(b *testing.B) {
	for _, code := range [][]byte{{0x55}, {0xe8, 0xfb, 0x0f, 0, 0}, {0x48, 0x8d, 0x3d, 1, 2, 3, 0}} {
		b.Run(fmt.Sprintf("%x", code), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if v, _ := ISA.Place(code, 0x401000, 0x500000); v.Kind != isa.Copy {
					b.Fatal(v.Kind)
				}
			}
		})
	}
}

func BenchmarkEmulate(b *testing.B) {
	v, err := ISA.Place([]byte{0x75, 0x10}, 0x401000, 0x500000)
	if err != nil {
		b.Fatal(err)
	}
	var r arch.Regs
	b.ReportAllocs()
	for b.Loop() {
		if err := v.Emulate(&r, nil); err != nil {
			b.Fatal(err)
		}
	}
}
