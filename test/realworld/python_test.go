package realworld

import (
	"slices"
	"strings"
	"testing"

	"kprobe/internal/testprog"
	"kprobe/test/harness"
)

func TestPythonUnderProbesOnAllOfLibc(t *testing.T) {
	testprog.Long(t, "the gate does the same with another program")
	p := harness.StartPython(t)
	p.Round("allofit 2") // whatever is imported late, and cached
	want := p.Round("allofit 3")
	if again := p.Round("allofit 3"); !slices.Equal(again, want) {
		t.Fatalf("two rounds differ:\n%s\n%s", strings.Join(want, "\n"), strings.Join(again, "\n"))
	}
	before := harness.RemainsOf(t, p.Pid)
	s := harness.Attach(t, p.Pid, nil)
	funcs := harness.Entries(t, p.Pid, harness.MappedFile(t, p.Pid, "libc.so.6"))
	ps := harness.RegisterEntries(t, s, harness.EntryProbes(t, funcs))
	if len(ps) < 2000 || len(ps) < len(funcs)-10 {
		t.Errorf("only %d probes on %d functions", len(ps), len(funcs))
	}
	harness.SameLines(t, p.Round("allofit 3"), want)
	n, hits := harness.Reached(ps)
	t.Logf("%d of them were reached, %d hits", n, hits)
	if n < 200 {
		t.Errorf("only %d functions were reached", n)
	}
	harness.Detach(t, s)
	before.Check(t)
	harness.SameLines(t, p.Round("allofit 3"), want)
	if r := p.Result(); !r.OK() {
		t.Error(r)
	}
}

func TestPythonUnderReturnProbesOnAllOfLibc(t *testing.T) {
	p := harness.StartPython(t)
	p.Round("allofit 2")
	want := p.Round("allofit 2")
	before := harness.RemainsOf(t, p.Pid)
	s := harness.Attach(t, p.Pid, nil)
	funcs := harness.Entries(t, p.Pid, harness.MappedFile(t, p.Pid, "libc.so.6"))
	rps := harness.RegisterReturns(t, s, harness.ReturnProbes(t, funcs))
	if len(rps) < len(funcs)-60 {
		t.Errorf("only %d return probes on %d functions", len(rps), len(funcs))
	}
	harness.SameLines(t, p.Round("allofit 2"), want)
	harness.SameLines(t, p.Round("allofit 2"), want)
	// The first function of a thread has no name in a stripped libc.
	accounted(t, rps, funcs, "", "execv", "execve", "_exit")
	harness.Detach(t, s)
	before.Check(t)
	harness.SameLines(t, p.Round("allofit 2"), want)
	if r := p.Result(); !r.OK() {
		t.Error(r)
	}
}

// The interpreter's own functions: thousands, hit for every byte code.
func TestPythonUnderProbesOnItself(t *testing.T) {
	p := harness.StartPython(t)
	p.Round("allofit 2")
	const work = "allofit 1"
	want := p.Round(work)
	before := harness.RemainsOf(t, p.Pid)
	s := harness.Attach(t, p.Pid, nil)
	ps := harness.RegisterEntries(t, s, harness.EntryProbes(t, harness.Entries(t, p.Pid, harness.ProgramOf(t, p.Pid))))
	harness.SameLines(t, p.Round(work), want)
	n, hits := harness.Reached(ps)
	t.Logf("%d of them were reached, %d hits", n, hits)
	if len(ps) < 5000 || n < 300 {
		t.Errorf("only %d probes, %d reached", len(ps), n)
	}
	harness.Detach(t, s)
	before.Check(t)
	harness.SameLines(t, p.Round(work), want)
	if r := p.Result(); !r.OK() {
		t.Error(r)
	}
}
