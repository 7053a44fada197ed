package realworld

import (
	"slices"
	"testing"

	"kprobe/internal/testprog"
	"kprobe/test/harness"
)

// codeFiles are the files that a process runs code of.
func codeFiles(t testing.TB, pid int) (paths []string) {
	t.Helper()
	ms, err := testprog.Mappings(pid)
	harness.OK(t, err)
	for _, m := range ms {
		if m.Executable() && m.File() && !slices.Contains(paths, m.Path) {
			paths = append(paths, m.Path)
		}
	}
	return paths
}

// Everything that Python and libc have, counted by jumps: Python answers as ever, whatever it
// does with signals, processes and threads.
func TestPythonUnderJumps(t *testing.T) {
	testprog.Long(t, "the gate does the same with another program")
	p := harness.StartPython(t)
	p.Round("allofit 2")
	const work = "allofit 1"
	want := p.Round(work)
	before := harness.RemainsOf(t, p.Pid)
	s := harness.Attach(t, p.Pid, nil)
	ps := harness.CountEverything(t, s, harness.ProgramOf(t, p.Pid), harness.MappedFile(t, p.Pid, "libc.so.6"))
	for range 5 {
		harness.SameLines(t, p.Round(work), want)
	}
	n, hits := harness.Reached(ps)
	t.Logf("%d of them were reached, %d hits", n, hits)
	if n < 500 {
		t.Errorf("only %d reached", n)
	}
	harness.Detach(t, s)
	before.Check(t)
	harness.SameLines(t, p.Round(work), want)
	if r := p.Result(); !r.OK() {
		t.Error(r)
	}
}

// Everything that redis and its seventeen libraries have, counted by jumps: the answers
// are the same, and the counts are those that the server itself keeps.
func TestRedisUnderJumps(t *testing.T) {
	r := harness.StartRedis(t)
	c := r.Connect(t)
	want := c.MustWork(t, "k")
	before := harness.RemainsOf(t, r.Pid)
	s := harness.Attach(t, r.Pid, nil)
	ps := harness.CountEverything(t, s, codeFiles(t, r.Pid)...)
	for range 3 {
		harness.SameLines(t, c.MustWork(t, "k"), want)
		c.Saves(t)
	}
	call := harness.ProbeOf(t, s, ps, "redis-server:call")
	before0, hits0 := c.Calls(t), call.Hits()
	r.Benchmark(t, 200)
	if calls, hits := c.Calls(t)-before0, call.Hits()-hits0; calls != hits || calls < 20*200 {
		t.Errorf("the server has executed %d commands, we counted %d", calls, hits)
	}
	n, hits := harness.Reached(ps)
	t.Logf("%d of them were reached, %d hits", n, hits)
	if n < 800 {
		t.Errorf("only %d reached", n)
	}
	harness.Detach(t, s)
	before.Check(t)
	if _, err := c.Do("FLUSHALL"); err != nil {
		t.Fatal(err)
	}
	harness.SameLines(t, c.MustWork(t, "k"), want)
}
