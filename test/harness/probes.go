package harness

import (
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"

	"kprobe"
	"kprobe/arch"
	"kprobe/internal/testprog"
	"kprobe/symbol"
)

// EntryProbes makes a probe on every function. Its handler holds what it is
// given to where it is; Hits has the rest.
func EntryProbes(t testing.TB, funcs []symbol.Symbol) []*kprobe.Kprobe {
	var ps []*kprobe.Kprobe
	for _, fn := range funcs {
		ps = append(ps, &kprobe.Kprobe{
			Addr: arch.Addr(fn.Addr),
			PreHandler: func(p *kprobe.Kprobe, regs *kprobe.Regs) int {
				if regs.PC() != p.Addr {
					t.Errorf("the handler of %s at %v is told of %v", fn.Label(), p.Addr, regs.PC())
				}
				return 0
			},
		})
	}
	return ps
}

// ReturnProbes makes a return probe on every function.
func ReturnProbes(t testing.TB, funcs []symbol.Symbol) []*kprobe.Kretprobe {
	var rps []*kprobe.Kretprobe
	for _, fn := range funcs {
		rps = append(rps, &kprobe.Kretprobe{
			Kp: kprobe.Kprobe{Addr: arch.Addr(fn.Addr)},
			Handler: func(ri *kprobe.KretprobeInstance, regs *kprobe.Regs) int {
				if regs.PC() != ri.RetAddr || ri.Entry != arch.Addr(fn.Addr) {
					t.Errorf("%s returned to %v, told is %v; entered at %v", fn.Label(), ri.RetAddr, regs.PC(), ri.Entry)
				}
				return 0
			},
			MaxActive: 100,
		})
	}
	return rps
}

// CountingProbes makes a probe on every function that counts inside the target.
func CountingProbes(funcs []symbol.Symbol) (ps []*kprobe.Kprobe) {
	for _, fn := range funcs {
		ps = append(ps, &kprobe.Kprobe{Addr: arch.Addr(fn.Addr), Program: kprobe.CountOnly})
	}
	return ps
}

// refusals are the reasons that a probe on a function of a C library or program
// may be refused for. Whatever else an error says is a failure.
var refusals = []string{
	// of any probe
	"unwinders know signal frames by its bytes",
	"a trap in a restartable sequence restarts it for ever",
	"the program has a trap of its own", // a function that is nothing but one
	// of return probes
	"a return probe must be at a function's entry", // a second unwind entry, half way in a function
	"it is the program's start",
	"it is not called, and returns to nobody",
	"it returns more than once, or on another stack",
	"it looks at its return address to learn who called it",
	"it unwinds the stack from its own return address",
	"it calls back into code that may throw through it",
	"exceptions may unwind through it",
}

// RegisterEntries registers what can be probed in one batch.
func RegisterEntries(t testing.TB, s *kprobe.Session, ps []*kprobe.Kprobe) []*kprobe.Kprobe {
	t.Helper()
	for {
		err := s.RegisterKprobes(ps)
		var b *kprobe.BatchError
		switch {
		case err == nil:
			t.Logf("%d probes, target stopped for %v", len(ps), s.LastStop())
			return ps
		case !errors.As(err, &b) || !errors.Is(err, syscall.EINVAL) ||
			!slices.ContainsFunc(refusals, func(why string) bool { return strings.Contains(b.Err.Error(), why) }):
			t.Fatalf("refused for no good reason: %v", err)
		}
		t.Logf("refused: %v", b.Err)
		ps = slices.Delete(ps, b.Index, b.Index+1)
	}
}

// RegisterReturns registers the return probes that the engine accepts in one
// batch. Which these are is asked beforehand, of the plan: it must agree.
func RegisterReturns(t testing.TB, s *kprobe.Session, rps []*kprobe.Kretprobe) []*kprobe.Kretprobe {
	t.Helper()
	refused := make(map[string]int)
	rps = slices.DeleteFunc(rps, func(rp *kprobe.Kretprobe) bool {
		plan := s.Plan(rp)
		if plan.Verdict != kprobe.VerdictRefuse {
			return false
		}
		i := slices.IndexFunc(refusals, func(why string) bool { return strings.Contains(plan.Reason, why) })
		if i < 0 {
			t.Errorf("refused for no good reason: %v", plan)
			return true
		}
		refused[refusals[i]]++
		return true
	})
	if err := s.RegisterKretprobes(rps); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d return probes, target stopped for %v; refused: %v", len(rps), s.LastStop(), refused)
	return rps
}

// Reached counts the probes that were hit, and all hits.
func Reached(ps []*kprobe.Kprobe) (probes int, hits uint64) {
	for _, p := range ps {
		if n := p.Hits(); n > 0 {
			probes++
			hits += n
		}
	}
	return probes, hits
}

// ProbeOf finds the probe on a function among many.
func ProbeOf(t testing.TB, s *kprobe.Session, ps []*kprobe.Kprobe, name string) *kprobe.Kprobe {
	t.Helper()
	loc, err := s.Lookup(name)
	OK(t, err)
	i := slices.IndexFunc(ps, func(p *kprobe.Kprobe) bool { return p.Addr == loc.Addr })
	if i < 0 {
		t.Fatalf("no probe on %s", name)
	}
	return ps[i]
}

// CountEverything puts counting probes on every function of a process's files, in one
// batch, and answers when what can be a jump is one: nearly all of them.
func CountEverything(t testing.TB, s *kprobe.Session, paths ...string) []*kprobe.Kprobe {
	t.Helper()
	var funcs []symbol.Symbol
	for _, path := range paths {
		funcs = append(funcs, Entries(t, s.Target().PID(), path)...)
	}
	ps := RegisterEntries(t, s, CountingProbes(funcs))
	s.WaitOptimized()
	jumps := Optimized(s)
	t.Logf("%d of %d probes are jumps; target stopped for %v", jumps, len(ps), s.LastStop())
	if jumps < len(ps)*97/100 {
		t.Errorf("only %d of %d are jumps", jumps, len(ps))
	}
	return ps
}

// IsProbedFunc tells the functions that are there to be probed from those that
// drive and check them, which loop over all of the memory that those write.
func IsProbedFunc(name string) bool {
	return strings.HasPrefix(name, "c_") || strings.HasPrefix(name, "i_") ||
		slices.Contains([]string{"fib", "tail_b", "cet_leaf", "make_big"}, name)
}

// EveryInstruction makes probes on all instructions of the functions named.
func EveryInstruction(t testing.TB, s *kprobe.Session, funcs []symbol.Symbol, want func(string) bool, post bool) []*kprobe.Kprobe {
	t.Helper()
	var ps []*kprobe.Kprobe
	seen := make(map[arch.Addr]bool)
	for _, fn := range funcs {
		if !want(fn.Name) || fn.Size == 0 || fn.Source == symbol.Plt {
			continue
		}
		for _, at := range Instructions(t, s, fn) {
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

// RegisterAll registers what can be probed in one batch, and checks of the rest
// that it was refused for a reason that allows for it.
func RegisterAll(t testing.TB, s *kprobe.Session, ps []*kprobe.Kprobe) []*kprobe.Kprobe {
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

// EveryInstructionOfLibc probes all instructions of the functions of libc that a round of insns reaches.
func EveryInstructionOfLibc(t *testing.T, p *testprog.Proc) {
	t.Helper()
	want := p.Round("1")
	funcs := Entries(t, p.Pid, MappedFile(t, p.Pid, "libc.so.6"))
	s := Attach(t, p.Pid, nil)

	at := make(map[arch.Addr]symbol.Symbol)
	for _, fn := range funcs {
		at[arch.Addr(fn.Addr)] = fn
	}
	scouts := RegisterEntries(t, s, EntryProbes(t, funcs))
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
		ps := RegisterAll(t, s, EveryInstruction(t, s, run, func(string) bool { return true }, post))
		got := p.Round("1")
		if !slices.Equal(got, want) {
			t.Errorf("results differ:\n%s\nwithout probes:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if err := s.UnregisterKprobes(ps); err != nil {
			t.Fatal(err)
		}
		hit, hits := Reached(ps)
		t.Logf("%d functions, %d instructions probed, %d of them executed, %d hits", len(run), len(ps), hit, hits)
		if hit < least {
			t.Errorf("only %d instructions were executed", hit)
		}
	}
}
