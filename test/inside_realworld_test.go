package test

import (
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"kprobe"
	"kprobe/arch"
	"kprobe/internal/testprog"
	"kprobe/symbol"
)

// countingProbes makes a probe on every function that counts inside the target.
func countingProbes(funcs []symbol.Symbol) (ps []*kprobe.Kprobe) {
	for _, fn := range funcs {
		ps = append(ps, &kprobe.Kprobe{Addr: arch.Addr(fn.Addr), Program: kprobe.CountOnly})
	}
	return ps
}

// optimized counts the probes that jumps lead to.
func optimized(s *kprobe.Session) (n int) {
	for _, e := range s.List() {
		if e.Optimized {
			n++
		}
	}
	return n
}

// countEverything puts counting probes on every function of a process's files, in one
// batch, and answers when what can be a jump is one: nearly all of them.
func countEverything(t testing.TB, s *kprobe.Session, paths ...string) []*kprobe.Kprobe {
	t.Helper()
	var funcs []symbol.Symbol
	for _, path := range paths {
		funcs = append(funcs, entries(t, s.Target().PID(), path)...)
	}
	ps := registerEntries(t, s, countingProbes(funcs))
	s.WaitOptimized()
	jumps := optimized(s)
	t.Logf("%d of %d probes are jumps; target stopped for %v", jumps, len(ps), s.LastStop())
	if jumps < len(ps)*97/100 {
		t.Errorf("only %d of %d are jumps", jumps, len(ps))
	}
	return ps
}

// codeFiles are the files that a process runs code of.
func codeFiles(t testing.TB, pid int) (paths []string) {
	t.Helper()
	ms, err := testprog.Mappings(pid)
	ok(t, err)
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
	p := startPython(t)
	p.Round("allofit 2")
	const work = "allofit 1"
	want := p.Round(work)
	before := remainsOf(t, p.Pid)
	s := attach(t, p.Pid, nil)
	ps := countEverything(t, s, programOf(t, p.Pid), mappedFile(t, p.Pid, "libc.so.6"))
	for range 5 {
		sameLines(t, p.Round(work), want)
	}
	n, hits := reached(ps)
	t.Logf("%d of them were reached, %d hits", n, hits)
	if n < 500 {
		t.Errorf("only %d reached", n)
	}
	detach(t, s)
	before.check(t)
	sameLines(t, p.Round(work), want)
	if r := p.Result(); !r.OK() {
		t.Error(r)
	}
}

// Everything that redis and its seventeen libraries have, counted by jumps: the answers
// are the same, and the counts are those that the server itself keeps.
func TestRedisUnderJumps(t *testing.T) {
	r := startRedis(t)
	c := r.connect(t)
	want := c.mustWork(t, "k")
	before := remainsOf(t, r.Pid)
	s := attach(t, r.Pid, nil)
	ps := countEverything(t, s, codeFiles(t, r.Pid)...)
	for range 3 {
		sameLines(t, c.mustWork(t, "k"), want)
		c.saves(t)
	}
	call := probeOf(t, s, ps, "redis-server:call")
	before0, hits0 := c.calls(t), call.Hits()
	r.benchmark(t, 200)
	if calls, hits := c.calls(t)-before0, call.Hits()-hits0; calls != hits || calls < 20*200 {
		t.Errorf("the server has executed %d commands, we counted %d", calls, hits)
	}
	n, hits := reached(ps)
	t.Logf("%d of them were reached, %d hits", n, hits)
	if n < 800 {
		t.Errorf("only %d reached", n)
	}
	detach(t, s)
	before.check(t)
	if _, err := c.do("FLUSHALL"); err != nil {
		t.Fatal(err)
	}
	sameLines(t, c.mustWork(t, "k"), want)
}

// probeOf finds the probe on a function among many.
func probeOf(t testing.TB, s *kprobe.Session, ps []*kprobe.Kprobe, name string) *kprobe.Kprobe {
	t.Helper()
	loc, err := s.Lookup(name)
	ok(t, err)
	i := slices.IndexFunc(ps, func(p *kprobe.Kprobe) bool { return p.Addr == arch.Addr(loc.Addr) })
	if i < 0 {
		t.Fatalf("no probe on %s", name)
	}
	return ps[i]
}

// calls is how many commands the server has executed, as it counts itself.
func (c *redisClient) calls(t testing.TB) uint64 {
	t.Helper()
	info, err := c.do("INFO", "stats")
	ok(t, err)
	_, rest, _ := strings.Cut(info, "total_commands_processed:")
	digits, _, _ := strings.Cut(rest, `\r`)
	n, err := strconv.ParseUint(digits, 10, 64)
	ok(t, err)
	return n
}

// benchmark runs all tests of redis-benchmark, n requests each, and answers what it
// prints: requests a second.
func (r redisServer) benchmark(t testing.TB, n int) string {
	t.Helper()
	path, err := exec.LookPath("redis-benchmark")
	testprog.Need(t, fmt.Sprintf("redis-benchmark: %v", err), err == nil)
	out, err := exec.Command(path, "-s", r.socket, "-q", "--csv", "-r", "1000", "-n", strconv.Itoa(n)).CombinedOutput()
	if err != nil || strings.Contains(string(out), "rror") {
		t.Fatalf("redis-benchmark: %v\n%s", err, out)
	}
	return string(out)
}
