package test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"kprobe"
	"kprobe/arch"
	"kprobe/internal/testprog"
	"kprobe/symbol"
)

// Programs that nobody wrote to be probed, with probes wherever they will go.
// What is held in every one of these tests: the program's answers are those it
// gives alone, and after the session nothing tells that there ever was one.

// remains is what a session must leave as it was, besides the text.
type remains struct {
	pid  int
	code []string // executable mappings
}

func remainsOf(t testing.TB, pid int) remains {
	t.Helper()
	ms, err := testprog.Mappings(pid)
	if err != nil {
		t.Fatal(err)
	}
	r := remains{pid: pid}
	for _, m := range ms {
		if m.Executable() {
			r.code = append(r.code, m.String())
		}
	}
	return r
}

// check holds a program whose session is over to what it was before.
func (r remains) check(t testing.TB) {
	t.Helper()
	for _, m := range remainsOf(t, r.pid).code {
		if !slices.Contains(r.code, m) {
			t.Errorf("left mapped: %s", m)
		}
	}
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", r.pid))
	if err != nil || len(tasks) == 0 {
		t.Errorf("tasks of %d: %v, %v", r.pid, tasks, err)
	}
	for _, task := range tasks {
		status, err := os.ReadFile(task)
		if err == nil && !strings.Contains(string(status), "\nTracerPid:\t0\n") {
			t.Errorf("%s: still traced, or stopped", task)
		}
	}
	diffs, err := testprog.TextDiff(r.pid)
	if err != nil {
		t.Error(err)
	}
	for _, d := range diffs {
		t.Errorf("text differs: %s", d)
	}
}

// mappedFile finds the path of a file of which a process runs code.
func mappedFile(t testing.TB, pid int, base string) string {
	t.Helper()
	ms, err := testprog.Mappings(pid)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range ms {
		if m.Executable() && m.File() && filepath.Base(m.Path) == base {
			return m.Path
		}
	}
	t.Fatalf("process %d runs no code of %s", pid, base)
	return ""
}

// entries lists the functions of a file in a process, one for each address.
// Stubs that only jump to another file are not functions of this one.
func entries(t testing.TB, pid int, path string) []symbol.Symbol {
	t.Helper()
	seen := make(map[uint64]bool)
	return slices.DeleteFunc(funcsOf(t, pid, path), func(fn symbol.Symbol) bool {
		again := seen[fn.Addr]
		seen[fn.Addr] = true
		return again || fn.Source == symbol.Plt
	})
}

// entryProbes makes a probe on every function. Its handler holds what it is
// given to where it is; Hits has the rest.
func entryProbes(t testing.TB, funcs []symbol.Symbol) []*kprobe.Kprobe {
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

// returnProbes makes a return probe on every function.
func returnProbes(t testing.TB, funcs []symbol.Symbol) []*kprobe.Kretprobe {
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

// registerReturns registers the return probes that the engine accepts in one
// batch. Which these are is asked beforehand, of the plan: it must agree.
func registerReturns(t testing.TB, s *kprobe.Session, rps []*kprobe.Kretprobe) []*kprobe.Kretprobe {
	t.Helper()
	refused := make(map[string]int)
	rps = slices.DeleteFunc(rps, func(rp *kprobe.Kretprobe) bool {
		plan := s.Plan(rp)
		if plan.Verdict != "refuse" {
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

// registerEntries registers what can be probed in one batch.
func registerEntries(t testing.TB, s *kprobe.Session, ps []*kprobe.Kprobe) []*kprobe.Kprobe {
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

// reached counts the probes that were hit, and all hits.
func reached(ps []*kprobe.Kprobe) (probes int, hits uint64) {
	for _, p := range ps {
		if n := p.Hits(); n > 0 {
			probes++
			hits += n
		}
	}
	return probes, hits
}

// programOf is the path of a process's program.
func programOf(t testing.TB, pid int) string {
	t.Helper()
	path, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// accounted checks that every call under return probes has its outcome. The
// program waits for its next input, so all but a few calls are over; only the
// functions that leaves names end in another way than by returning.
func accounted(t testing.TB, rps []*kprobe.Kretprobe, funcs []symbol.Symbol, leaves ...string) {
	t.Helper()
	name := make(map[arch.Addr]symbol.Symbol)
	for _, fn := range funcs {
		name[arch.Addr(fn.Addr)] = fn
	}
	var calls, returns, abandoned, under uint64
	for _, rp := range rps {
		fn := name[rp.Kp.Addr]
		c, r, a := rp.Kp.Hits(), rp.Hits(), rp.Abandoned()
		if n := rp.NMissed(); n != 0 {
			t.Errorf("%s: %d returns missed", fn.Label(), n)
		}
		if a > 0 && !slices.Contains(leaves, fn.Name) {
			t.Errorf("%s: %d of %d calls never returned", fn.Label(), a, c)
		}
		if c < r+a {
			t.Errorf("%s: %d calls, but %d returns and %d calls that never returned", fn.Label(), c, r, a)
			continue
		}
		calls, returns, abandoned, under = calls+c, returns+r, abandoned+a, under+c-r-a
	}
	t.Logf("%d calls, %d returns; %d never return, %d are under way", calls, returns, abandoned, under)
	if calls == 0 || under > 20 {
		t.Errorf("of %d calls %d have no outcome", calls, under)
	}
}
