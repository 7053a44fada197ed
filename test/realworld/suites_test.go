package realworld

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"kprobe"
	"kprobe/internal/testprog"
	"kprobe/test/harness"
)

// pythonSuites runs modules of the interpreter's own regression tests, those of each
// line in a round, and prints what became of them.
const pythonSuites = `
import sys, io, os, contextlib, importlib, unittest, time
import test.support
test.support.use_resources = []
out = os.fdopen(os.dup(1), 'w')
null = os.open(os.devnull, os.O_WRONLY)
print('ready', file=out, flush=True)
for line in sys.stdin:
    for name in line.split():
        os.dup2(null, 1)
        os.dup2(null, 2)
        log = io.StringIO()
        try:
            suite = unittest.defaultTestLoader.loadTestsFromModule(importlib.import_module('test.' + name))
            r = unittest.TextTestRunner(stream=log).run(suite)
            print(name, r.testsRun, 'tests', len(r.skipped), 'skipped', *sorted('FAILED ' + str(t) for t, why in r.failures + r.errors), file=out)
        except unittest.SkipTest as e:
            print(name, e, file=out)
    print('done', file=out, flush=True)
`

// The interpreter's own tests, run by an interpreter of which every function is under
// a probe, with all of its libraries: they have the outcome that they have without.
func TestSoakPythonsOwnTests(t *testing.T) {
	testprog.Long(t, "the gate does the same with another program")
	suites := []string{"test_grammar", "test_generators", "test_struct", "test_dict", "test_fork1"}
	if testprog.Soak(t, 0) > 0 {
		suites = append(suites, "test_json", "test_re", "test_exceptions", "test_zlib", "test_mmap", "test_posix", "test_os", "test_thread",
			"test_faulthandler", "test_subprocess", "test_pickle", "test_unicode", "test_float", "test_bytes", "test_set", "test_array",
			"test_weakref", "test_gc", "test_asyncgen", "test_coroutines", "test_queue", "test_select", "test_selectors", "test_sqlite3")
	}
	found, err := filepath.Glob("/usr/lib/python3*/test/test_grammar.py")
	harness.OK(t, err)
	elsewhere := os.Getenv("PYTHONPATH")
	testprog.Need(t, "Python's own tests (libpython3-testsuite)", len(found) > 0 || elsewhere != "")
	cmd := exec.Command("/usr/bin/python3", "-c", pythonSuites)
	cmd.Env = []string{"PYTHONHASHSEED=0", "LANG=C.UTF-8", "PATH=/usr/bin:/bin", "HOME=/", "PYTHONPATH=" + elsewhere}
	cmd.Dir = t.TempDir()
	p := testprog.StartCmd(t, cmd)
	p.Patience = 20 * time.Minute
	p.Expect("ready")
	line := strings.Join(suites, " ")
	want := p.Round("%s", line)
	s := harness.Attach(t, p.Pid, nil)
	ps := harness.CountEverything(t, s, codeFiles(t, p.Pid)...)
	harness.SameLines(t, p.Round("%s", line), want)
	n, hits := harness.Reached(ps)
	t.Logf("%d of them were reached, %d hits\n%s", n, hits, strings.Join(want, "\n"))
	if n < 1500 {
		t.Errorf("only %d reached", n)
	}
	harness.Detach(t, s)
	if r := p.Result(); !r.OK() {
		t.Error(r)
	}
}

// All that nginx's worker and its libraries have, counted by jumps: the answers are the
// same.
func TestNginxUnderJumps(t *testing.T) {
	n := harness.StartNginx(t)
	want := n.Work(t)
	pid := n.Worker(t)
	before := harness.RemainsOf(t, pid)
	s := harness.Attach(t, pid, nil)
	ps := harness.CountEverything(t, s, codeFiles(t, pid)...)
	for range 3 {
		harness.SameLines(t, n.Work(t), want)
	}
	reach, hits := harness.Reached(ps)
	t.Logf("%d of them were reached, %d hits", reach, hits)
	if reach < 300 {
		t.Errorf("only %d reached", reach)
	}
	harness.Detach(t, s)
	before.Check(t)
	harness.SameLines(t, n.Work(t), want)
	if n.Worker(t) != pid {
		t.Error("the worker was replaced")
	}
}

// gitWork is a day in the life of a repository. Times and names are given, so that all
// that is printed, hashes too, is the same every time.
const gitWork = `
set -e
git init -q -b main repo
cd repo
for i in 1 2 3; do
	seq 1 $((500 + i * 37)) > numbers
	mkdir dir$i && printf 'file %d\nof this\n' $i > dir$i/file
	git add . && git commit -q -m "commit $i"
done
git checkout -q -b side HEAD~1
echo side > side && git add side && git commit -q -m side
git merge -q -m merged main
git log --stat --format='%H %an %s'
git diff HEAD~1 HEAD -- numbers | tail -5
git gc -q
git fsck --full
git archive HEAD | git hash-object --stdin
`

// doGitWork has a shell do gitWork, followed if follow says how, and answers what it
// prints.
func doGitWork(t *testing.T, follow func(*kprobe.Session)) []string {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", "echo ready; read go\n"+gitWork)
	cmd.Dir = t.TempDir()
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + cmd.Dir, "LANG=C.UTF-8", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_AUTHOR_DATE=1700000000 +0000",
		"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b", "GIT_COMMITTER_DATE=1700000000 +0000"}
	p := testprog.StartCmd(t, cmd)
	p.Patience = 10 * time.Minute
	p.Expect("ready")
	if follow != nil {
		follow(harness.Attach(t, p.Pid, &kprobe.Options{Unlisted: true, Follow: follow}))
	}
	p.Send("go")
	r := p.Result()
	if !r.OK() {
		t.Fatal(r)
	}
	return r.Lines
}

// gitCalls are functions of libc that git calls, or the shell that runs it.
var gitCalls = strings.Fields(`malloc calloc realloc free read write open64 close getenv snprintf vsnprintf fwrite
	fputs fflush strtol qsort getpid waitpid pipe dup2 fork execve _exit opendir readdir64 closedir mmap64 munmap sigaction`)

// Git, and the shell that runs it: each of their many processes from its first
// instruction on, by jumps that are made anew in each program that is executed.
func TestGitUnderJumps(t *testing.T) {
	testprog.Long(t, "the gate does the same with another program")
	want := doGitWork(t, nil)
	var mu sync.Mutex
	var ended sync.WaitGroup
	processes, jumps, hits := 0, 0, make(map[string]uint64)
	got := doGitWork(t, func(s *kprobe.Session) {
		var ps []*kprobe.Kprobe
		for _, name := range gitCalls {
			ps = append(ps, &kprobe.Kprobe{SymbolName: "libc.so.6:" + name, Program: kprobe.CountOnly})
		}
		if err := s.RegisterKprobes(ps); err != nil {
			t.Errorf("process %d: %v", s.Target().PID(), err)
		}
		s.WaitOptimized()
		mu.Lock()
		processes, jumps = processes+1, jumps+harness.Optimized(s)
		mu.Unlock()
		ended.Go(func() {
			<-s.Done()
			mu.Lock()
			defer mu.Unlock()
			for i, p := range ps {
				hits[gitCalls[i]] += p.Hits()
			}
			if err := s.Close(); err != nil && !strings.Contains(err.Error(), "closed") {
				t.Error(err)
			}
		})
	})
	harness.SameLines(t, got, want)
	ended.Wait()
	t.Logf("%d processes, %d jumps; hits: %v", processes, jumps, hits)
	for _, name := range []string{"malloc", "free", "read", "write", "open64", "execve", "fork", "qsort"} {
		if hits[name] == 0 {
			t.Errorf("%s was not reached", name)
		}
	}
	if hits["execve"] < uint64(processes-1) { // all but the shell were executed
		t.Errorf("%d processes by %d calls of execve", processes, hits["execve"])
	}
	if processes < 20 || jumps < processes*len(gitCalls)*97/100 {
		t.Errorf("%d processes, %d jumps", processes, jumps)
	}
}

// spent is the processor time that a process has used, in ticks.
func spent(t testing.TB, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	harness.OK(t, err)
	_, after, _ := strings.Cut(string(b), ") ")
	f := strings.Fields(after)
	user, err := strconv.Atoi(f[11])
	harness.OK(t, err)
	system, err := strconv.Atoi(f[12])
	harness.OK(t, err)
	return user + system
}

// How much more of the processor a program uses with a probe on each of its functions,
// in a soak its libraries' included: the same work with all probes disabled and enabled, in
// turn. What is held is that the disabled ones count nothing and the others all.
func TestSoakSlowdown(t *testing.T) {
	testprog.Long(t, "the gate does the same with another program")
	redis := func(t *testing.T) (int, func(), func() uint64, string) {
		r := harness.StartRedis(t)
		c := r.Connect(t)
		n := 200
		if testprog.Soak(t, 0) > 0 {
			n = 20000
		}
		return r.Pid, func() { r.Benchmark(t, n) }, func() uint64 { return c.Calls(t) }, "redis-server:call"
	}
	python := func(t *testing.T) (int, func(), func() uint64, string) {
		p := harness.StartPython(t)
		const line = "repeatable 20"
		p.Round(line)
		return p.Pid, func() {
			for range 100 {
				p.Round(line)
			}
		}, nil, ""
	}
	programs := map[string]func(*testing.T) (int, func(), func() uint64, string){"redis": redis}
	if testprog.Soak(t, 0) > 0 {
		programs["python"] = python
	}
	for name, start := range programs {
		t.Run(name, func(t *testing.T) {
			pid, work, calls, function := start(t)
			files := []string{harness.ProgramOf(t, pid)}
			if testprog.Soak(t, 0) > 0 {
				files = codeFiles(t, pid)
			}
			s := harness.Attach(t, pid, nil)
			ps := harness.CountEverything(t, s, files...)
			least := [2]int{math.MaxInt, math.MaxInt}
			for range testprog.Rounds(t, 0, 1) {
				for on := range 2 {
					change := s.DisableKprobes
					if on == 1 {
						change = s.EnableKprobes
					}
					harness.OK(t, change(ps))
					s.WaitOptimized()
					_, before := harness.Reached(ps)
					var own, ours uint64
					if calls != nil {
						own, ours = calls(), harness.ProbeOf(t, s, ps, function).Hits()
					}
					used := spent(t, pid)
					work()
					used = spent(t, pid) - used
					if calls != nil {
						own, ours = calls()-own, harness.ProbeOf(t, s, ps, function).Hits()-ours
						if on == 1 && own != ours {
							t.Errorf("the server has executed %d commands, we counted %d", own, ours)
						}
					}
					if _, after := harness.Reached(ps); (after > before) != (on == 1) {
						t.Errorf("%d hits, enabled %v", after-before, on == 1)
					}
					least[on] = min(least[on], used)
				}
			}
			t.Logf("%d ticks without, %d with: %.2f times", least[0], least[1], float64(least[1])/float64(max(1, least[0])))
		})
	}
}
