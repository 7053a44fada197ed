package stub

import (
	"fmt"
	"os"
	"testing"

	"kprobe/arch"
	"kprobe/internal/isa"
	"kprobe/internal/machine"
	"kprobe/symbol"
	"kprobe/target"
)

// What is done on the registers is what the machine does: a program is stepped, and each
// instruction that would be emulated is, beside.
func TestEmulation(t *testing.T) {
	steps := 1500
	if testing.Short() {
		steps = 600
	}
	for _, m := range subjects {
		t.Run(m.arch.Name, func(t *testing.T) {
			path := m.program(t, "conform")
			run, g := m.dial(t, path)
			run.p.Send("fib 6")
			rec, err := machine.Of(m.arch)
			if err != nil {
				t.Fatal(err)
			}
			// Before it there are loops over relocations, and little else.
			if err := g.SetBreak(symbolOf(t, path, "fib")); err != nil {
				t.Fatal(err)
			}
			if st, err := g.Wait(); err != nil || st.Kind != target.StopTrap {
				t.Fatalf("%+v, %v", st, err)
			}
			kinds := map[isa.Flow]int{}
			late := false // a jump takes effect now
			for range steps {
				th := g.Threads()[0]
				var r, after arch.Regs
				if err := g.Regs(th, &r); err != nil {
					t.Fatal(err)
				}
				pc := r.Addr(m.arch.PC)
				code := make([]byte, m.arch.MaxInsn)
				if err := g.ReadAt(pc, code); err != nil {
					t.Fatal(err)
				}
				in, err := rec.ISA.Decode(code, pc)
				v, err2 := rec.ISA.Place(code, pc, pc)
				if err != nil || err2 != nil {
					t.Fatalf("% x at %v: %v, %v", code, pc, err, err2)
				}
				want := r
				if v.Kind == isa.Emulate {
					if err := v.Emulate(&want, g); err != nil {
						t.Fatalf("% x at %v: %v", code, pc, err)
					}
				}
				if err := g.Step(th); err != nil {
					t.Fatal(err)
				}
				if err := g.Regs(th, &after); err != nil {
					t.Fatal(err)
				}
				switch next := after.Addr(m.arch.PC); {
				case v.Kind == isa.Emulate && after != want:
					t.Errorf("% x at %v: %s", code[:in.Len], pc, differ(m.arch, &r, &after, &want))
				case late:
				case in.Flow == isa.Next && next != pc+arch.Addr(in.Len):
					t.Errorf("% x at %v, which goes on, has led to %v", code[:in.Len], pc, next)
				case in.Flow == isa.Jump && !in.Delayed && next != in.Target:
					t.Errorf("% x at %v, which leads to %v, has led to %v", code[:in.Len], pc, in.Target, next)
				}
				kinds[in.Flow]++
				late = in.Delayed
			}
			t.Log(kinds)
			for _, f := range []isa.Flow{isa.Next, isa.CondJump, isa.Return} {
				if kinds[f] < 20 {
					t.Errorf("%d instructions of flow %v", kinds[f], f)
				}
			}
		})
	}
}

func differ(a *arch.Arch, from, got, want *arch.Regs) (s string) {
	for i, name := range a.RegNames {
		if got[i] != want[i] {
			s += fmt.Sprintf(" %s from %#x to %#x, emulated %#x", name, from[i], got[i], want[i])
		}
	}
	return s
}

func symbolOf(t *testing.T, path, name string) arch.Addr {
	r, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	f, err := symbol.Open(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range f.Lookup(name) {
		return arch.Addr(s.Addr)
	}
	t.Fatalf("no %s in %s", name, path)
	return 0
}
