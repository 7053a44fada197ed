package test

import (
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"

	"kprobe"
	"kprobe/arch"
	"kprobe/internal/machine"
	"kprobe/internal/testprog"
	"kprobe/symbol"
)

// funcsOf lists the functions of a program's own file, with run-time addresses.
func funcsOf(t testing.TB, pid int, path string) []symbol.Symbol {
	t.Helper()
	ms, err := testprog.Mappings(pid)
	if err != nil {
		t.Fatal(err)
	}
	f := openELF(t, path)
	var bias uint64
	for _, m := range ms {
		if m.Path == path && m.Executable() {
			v, ok := f.VaddrOf(m.Offset)
			if !ok {
				t.Fatalf("%s: offset %#x is in no segment", path, m.Offset)
			}
			bias = m.Start - v
			break
		}
	}
	var funcs []symbol.Symbol
	for _, fn := range f.Funcs() {
		fn.Addr += bias
		funcs = append(funcs, fn)
	}
	return funcs
}

// instructions decodes a function and lists the addresses of its instructions.
func instructions(t testing.TB, s *kprobe.Session, fn symbol.Symbol) []arch.Addr {
	t.Helper()
	code := make([]byte, fn.Size)
	if err := s.ReadMem(arch.Addr(fn.Addr), code); err != nil {
		t.Fatal(err)
	}
	m, err := machine.Of(s.Arch())
	ok(t, err)
	var at []arch.Addr
	for off := 0; off < len(code); {
		in, err := m.ISA.Decode(code[off:], arch.Addr(fn.Addr)+arch.Addr(off))
		if err != nil {
			t.Fatalf("%s+%#x: %v: % x", fn.Name, off, err, code[off:min(off+15, len(code))])
		}
		at = append(at, arch.Addr(fn.Addr)+arch.Addr(off))
		off += in.Len
	}
	return at
}

// everyInstruction makes probes on all instructions of the functions named.
func everyInstruction(t testing.TB, s *kprobe.Session, funcs []symbol.Symbol, want func(string) bool, post bool) []*kprobe.Kprobe {
	t.Helper()
	var ps []*kprobe.Kprobe
	seen := make(map[arch.Addr]bool)
	for _, fn := range funcs {
		if !want(fn.Name) || fn.Size == 0 || fn.Source == symbol.Plt {
			continue
		}
		for _, at := range instructions(t, s, fn) {
			if seen[at] {
				continue
			}
			seen[at] = true
			p := &kprobe.Kprobe{Addr: at, PreHandler: func(*kprobe.Kprobe, *kprobe.Regs) int { return 0 }}
			if post {
				p.PostHandler = func(*kprobe.Kprobe, *kprobe.Regs, uint64) {}
			}
			ps = append(ps, p)
		}
	}
	return ps
}

// registerAll registers what can be probed in one batch, and checks of the rest
// that it was refused for a reason that allows for it.
func registerAll(t testing.TB, s *kprobe.Session, ps []*kprobe.Kprobe) []*kprobe.Kprobe {
	t.Helper()
	for {
		err := s.RegisterKprobes(ps)
		var b *kprobe.BatchError
		if !errors.As(err, &b) {
			if err != nil {
				t.Fatal(err)
			}
			return ps
		}
		if !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.EBUSY) {
			t.Fatalf("%v", err)
		}
		t.Logf("refused: %v", b.Err)
		ps = slices.Delete(ps, b.Index, b.Index+1)
	}
}

func TestEveryInstructionOfEveryClass(t *testing.T) {
	for _, build := range []struct {
		name  string
		flags []string
	}{
		{"O2", []string{"-O2"}},
		{"O0", []string{"-O0"}},
		{"cet", []string{"-O2", "-fcf-protection=full"}},
		{"static", []string{"-O2", "-static", "-no-pie"}},
	} {
		for _, post := range []bool{false, true} {
			name := build.name
			if post {
				name += "/post"
			}
			t.Run(name, func(t *testing.T) {
				path := testprog.Build(t, "insns", build.flags...)
				p := testprog.Start(t, path)
				want := p.Round("1")
				s := attach(t, p.Pid, nil)
				ps := everyInstruction(t, s, funcsOf(t, p.Pid, path), isProbedFunc, post)
				if len(ps) < 500 {
					t.Fatalf("only %d instructions found", len(ps))
				}
				ps = registerAll(t, s, ps)
				t.Logf("%d probes, target stopped for %v", len(ps), s.LastStop())
				got := p.Round("1")
				if !slices.Equal(got, want) {
					t.Errorf("results differ:\n%s\nwithout probes:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
				hit := 0
				for _, p := range ps {
					if p.Hits() > 0 {
						hit++
					}
				}
				t.Logf("%d of %d instructions were executed", hit, len(ps))
				if hit < len(ps)*9/10 {
					t.Errorf("only %d of %d instructions were executed", hit, len(ps))
				}
				if err := s.UnregisterKprobes(ps); err != nil {
					t.Error(err)
				}
				if got := p.Round("1"); !slices.Equal(got, want) {
					t.Errorf("results differ after removal:\n%s", strings.Join(got, "\n"))
				}
			})
		}
	}
}

// isProbedFunc tells the functions that are there to be probed from those that
// drive and check them, which loop over all of the memory that those write.
func isProbedFunc(name string) bool {
	return strings.HasPrefix(name, "c_") || strings.HasPrefix(name, "i_") ||
		slices.Contains([]string{"fib", "tail_b", "cet_leaf", "make_big"}, name)
}

// Real functions, not written to be probed: every function of libc that the
// program reaches, each at every instruction, all at once. Among them are
// printf's with their jump tables, and the string functions in the
// vector instructions of this machine's choice.
func TestEveryInstructionOfWhatLibcRuns(t *testing.T) {
	everyInstructionOfLibc(t, testprog.Start(t, testprog.Build(t, "insns", "-O2")))
}

func everyInstructionOfLibc(t *testing.T, p *testprog.Proc) {
	t.Helper()
	want := p.Round("1")
	funcs := entries(t, p.Pid, mappedFile(t, p.Pid, "libc.so.6"))
	s := attach(t, p.Pid, nil)

	at := make(map[arch.Addr]symbol.Symbol)
	for _, fn := range funcs {
		at[arch.Addr(fn.Addr)] = fn
	}
	scouts := registerEntries(t, s, entryProbes(t, funcs))
	p.Round("1")
	var run []symbol.Symbol
	for _, kp := range scouts {
		if kp.Hits() > 0 {
			run = append(run, at[kp.Addr])
		}
	}
	if err := s.UnregisterKprobes(scouts); err != nil {
		t.Fatal(err)
	}
	least := 1000
	if testing.Short() { // every fourth of the functions
		k := 0
		run = slices.DeleteFunc(run, func(symbol.Symbol) bool { k++; return k%4 != 1 })
		least /= 8
	}
	for _, post := range []bool{false, true} {
		ps := registerAll(t, s, everyInstruction(t, s, run, func(string) bool { return true }, post))
		got := p.Round("1")
		if !slices.Equal(got, want) {
			t.Errorf("results differ:\n%s\nwithout probes:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if err := s.UnregisterKprobes(ps); err != nil {
			t.Fatal(err)
		}
		hit, hits := reached(ps)
		t.Logf("%d functions, %d instructions probed, %d of them executed, %d hits", len(run), len(ps), hit, hits)
		if hit < least {
			t.Errorf("only %d instructions were executed", hit)
		}
	}
}
