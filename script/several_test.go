package script_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"kprobe"
	"kprobe/internal/testprog"
	"kprobe/script"
	"kprobe/target/ptrace"
)

// several is a script at work in several processes.
type several struct {
	t           *testing.T
	run         *script.Run
	out, errors bytes.Buffer
	told        string // what shall be in errors at the end
	ended       chan error
	cancel      context.CancelFunc
}

func startSeveral(t *testing.T, text string, newcomers bool) *several {
	t.Helper()
	s := &several{t: t, ended: make(chan error, 1)}
	c, err := script.Compile(text, script.Options{Several: true, Newcomers: newcomers, Output: &s.out, Errors: &s.errors, Quiet: true})
	ok(t, err)
	s.run, err = c.Start(nil)
	ok(t, err)
	return s
}

// join attaches to a process, whose children are followed.
func (s *several) join(pid int) *kprobe.Session {
	s.t.Helper()
	p, err := ptrace.Attach(pid)
	ok(s.t, err)
	follow := func(child *kprobe.Session) {
		if err := s.run.Join(child); err != nil {
			s.t.Error(err)
		}
	}
	session, err := kprobe.Open(p, &kprobe.Options{Follow: follow, Mapped: s.run.Remap, Report: func(err error) { s.t.Error(err) }})
	ok(s.t, err)
	ok(s.t, s.run.Join(session))
	return session
}

func (s *several) wait() {
	ctx, cancel := context.WithCancel(testprog.Context(s.t, "the script ends", testprog.Here))
	s.cancel = cancel
	go func() { s.ended <- s.run.Wait(ctx) }()
}

// close ends it, and answers what it has printed.
func (s *several) close() string {
	s.t.Helper()
	s.cancel()
	ok(s.t, <-s.ended)
	_, err := s.run.Close()
	ok(s.t, err)
	if told := s.errors.String(); told != s.told {
		s.t.Errorf("told: %q, not %q", told, s.told)
	}
	return s.out.String()
}

// Several processes have one set of maps: what they count together is exact, values that mean nothing without their
// process are shown by it, what begin and intervals do is for all, and the end of one is not the script's.
func TestSeveral(t *testing.T) {
	program := testprog.Build(t, "threads", "-O2")
	text := strings.ReplaceAll(`begin { @k[1] = 5; @n = (uint64)100; }
	uprobe:THREADS:hammer_add { @all = count(); @by[pid] = count(); @low[arg1 & 1] = count(); @sum = sum(arg1); @max = max(arg1); @n++; @k[1]++; @f[func] = count(); }
	uretprobe:THREADS:hammer_m* { @r = count(); @h = hist(1) }
	uprobe:THREADS:churner { @s[usym(func), ustack(1)] = count(); printf("%d %s\n", pid, usym(func)) }
	interval:ms:20 { @seen = (uint64)@all; }
	end { print((uint64)@all); clear(@seen); }`, "THREADS", program)
	s := startSeveral(t, text, false)
	all := []*testprog.Proc{testprog.Start(t, program, "3"), testprog.Start(t, program, "2")}
	first := s.join(all[0].Pid)
	s.join(all[1].Pid)
	s.wait()
	const n = 2000
	want := []int{0, 0, 0}
	work := func(threads ...int) {
		var wg sync.WaitGroup
		for i, th := range threads {
			if th > 0 {
				want[i] += th * n
				wg.Go(func() { all[i].Round(fmt.Sprint(n)) })
			}
		}
		wg.Wait()
	}
	work(3, 2)
	all = append(all, testprog.Start(t, program, "4"))
	s.join(all[2].Pid)
	work(3, 2, 4)
	ok(t, all[0].Signal(syscall.SIGKILL))
	s.told = fmt.Sprintf("WARNING: the process %d was killed by signal 9\n", all[0].Pid)
	all[0].Wait()
	work(0, 2, 4)
	<-first.Done()
	work(0, 2, 4)
	out := s.close()
	total := want[0] + want[1] + want[2]
	for i, p := range all {
		for _, line := range []string{fmt.Sprintf("@by[%d]: %d\n", p.Pid, want[i]), fmt.Sprintf("%d churner\n", p.Pid)} {
			if !strings.Contains(out, line) {
				t.Errorf("not printed: %s", line)
			}
		}
	}
	for _, line := range []string{
		fmt.Sprintf("\n%d\n", total), fmt.Sprintf("@all: %d\n", total), fmt.Sprintf("@n: %d\n", total+100), fmt.Sprintf("@k[1]: %d\n", total+5), fmt.Sprintf("@r: %d\n", total),
		fmt.Sprintf("@low[0]: %d\n", total/2), fmt.Sprintf("@sum: %d\n", total*(n-1)/2), fmt.Sprintf("@max: %d\n", n-1),
		fmt.Sprintf("[1]%21d |@", total),
	} {
		if !strings.Contains(out, line) {
			t.Errorf("not printed: %s", line)
		}
	}
	if got := strings.Count(out, "@s[churner, \n        churner+0\n]: "); got != 3 {
		t.Errorf("%d processes have stacks of churner by name", got)
	}
	if got := strings.Count(out, "@f[hammer_add]: "); got != 3 {
		t.Errorf("%d processes have hammer_add by name", got)
	}
	if t.Failed() {
		t.Log(out)
	}
}

// Of a family nothing is missed: the children of a shell, and what these and the shell itself execute, places by name, by pattern and
// static probes.
func TestSeveralFollow(t *testing.T) {
	threads, statics := testprog.Build(t, "threads", "-O2"), testprog.Build(t, "statics", "-O2")
	s := startSeveral(t, fmt.Sprintf(`uprobe:%s:hammer_add { @add = count(); } uprobe:%[1]s:hammer_m*, uprobe:%[1]s:ch*er { @[func, pid] = count(); @f = count(); }
		usdt:%s:statics:guarded { @static = count(); }`, threads, statics), true)
	p := testprog.StartCmd(t, exec.Command("/bin/sh"))
	p.Send("echo up")
	p.Expect("up")
	s.join(p.Pid)
	s.wait()
	const rounds = 3
	for range rounds {
		p.Send("echo 50 | %s 2 >/dev/null; echo done", threads)
		p.Expect("done")
	}
	p.Send("(echo 3 | %s >/dev/null); echo over", statics)
	p.Expect("over")
	p.Send("exec %s 1", threads)
	p.Expect("ready")
	p.Round("70")
	add, static := rounds*2*50+70, 3
	if out := s.close(); !strings.Contains(out, fmt.Sprintf("@add: %d\n", add)) || !strings.Contains(out, fmt.Sprintf("@f: %d\n", add+rounds+1)) || !strings.Contains(out, fmt.Sprintf("@static: %d\n", static)) {
		t.Errorf("want %d of hammer_add, %d of the patterns, %d static\n%s", add, add+rounds+1, static, out)
	}
	p.Round("70")
}

// copied is a program that no other test runs.
func copied(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(testprog.Build(t, name, "-O2"))
	ok(t, err)
	path := filepath.Join(t.TempDir(), name)
	ok(t, os.WriteFile(path, text, 0o755))
	return path
}

// The newcomers among the processes that have mapped a file are found, each once.
func TestUsers(t *testing.T) {
	program := copied(t, "threads")
	if script.UsersOf("x", "begin { exit() }") != nil {
		t.Error("a script without files has users")
	}
	u := script.UsersOf("x", "uprobe:"+program+":hammer_add { }")
	defer u.Close()
	if want, err := filepath.EvalSymlinks(program); err != nil || len(u.Files) != 1 || u.Files[0] != want {
		t.Fatalf("files %q, %v", u.Files, err)
	}
	for i := range 3 {
		p := testprog.Start(t, program)
		pids, err := u.Look()
		if err != nil || len(pids) != 1 || pids[0] != p.Pid {
			t.Errorf("look %d: %v, want %d, %v", i, pids, p.Pid, err)
		}
		if pids, err = u.Look(); err != nil || len(pids) != 0 {
			t.Errorf("look %d again: %v, %v", i, pids, err)
		}
	}
	testprog.StartCmd(t, exec.Command("/bin/bash", "-c", "exec -a kprobe-guardian "+program)).Expect("ready")
	if pids, err := u.Look(); err != nil || len(pids) != 0 {
		t.Errorf("a guardian: %v, %v", pids, err)
	}
	p := testprog.StartCmd(t, exec.Command("/bin/sh"))
	p.Send("echo up")
	p.Expect("up")
	if pids, err := u.Look(); err != nil || len(pids) != 0 {
		t.Errorf("a shell: %v, %v", pids, err)
	}
	p.Send("exec %s 1", program)
	p.Expect("ready")
	if pids, err := u.Look(); err != nil || len(pids) != 1 || pids[0] != p.Pid {
		t.Errorf("the shell has executed it: %v, %v", pids, err)
	}
}

// A process may have mapped the file by another name, such as a link: it is probed, too. A name in
// another namespace of mounts is found the same way.
func TestUsersOfALinkedFile(t *testing.T) {
	program := copied(t, "threads")
	link := filepath.Join(filepath.Dir(program), "linked")
	ok(t, os.Link(program, link))
	text := "uprobe:" + program + ":hammer_add { @[probe] = count() }"
	u := script.UsersOf("x", text)
	defer u.Close()
	p := testprog.Start(t, link)
	if pids, err := u.Look(); err != nil || len(pids) != 1 || pids[0] != p.Pid {
		t.Fatalf("found: %v, want %d, %v", pids, p.Pid, err)
	}
	s := startSeveral(t, text, true)
	s.join(p.Pid)
	s.wait()
	p.Round("10")
	if out := s.close(); !strings.HasPrefix(out, "@[uprobe:"+program+":hammer_add]: ") && !strings.Contains(out, "\n@[uprobe:"+program+":hammer_add]: ") {
		t.Errorf("prints %q", out)
	}
}

// A process that runs for long, and maps the file only now, is found, too.
func TestUsersWhoMapLater(t *testing.T) {
	lib := testprog.Build(t, "dlib", "-O2", "-shared", "-fPIC")
	u := script.UsersOf("x", "uprobe:"+lib+":dlib_call { }")
	defer u.Close()
	p := testprog.Start(t, testprog.Build(t, "dl", "-O2"), lib)
	if pids, err := u.Look(); err != nil || len(pids) != 0 {
		t.Fatalf("found: %v, %v", pids, err)
	}
	u.Settle()
	p.Round("open")
	ctx := testprog.Context(t, "who has mapped the file is found", testprog.Here)
	for found := false; !found; {
		if u.Wait(ctx); ctx.Err() != nil {
			t.Fatal("it was not found")
		}
		pids, err := u.Look()
		ok(t, err)
		found = len(pids) == 1 && pids[0] == p.Pid
	}
}

// A newcomer is told of as soon as it opens the file.
func TestUsersAreTold(t *testing.T) {
	program := copied(t, "threads")
	u := script.UsersOf("x", "uprobe:"+program+":hammer_add { }")
	defer u.Close()
	ctx := testprog.Context(t, "a newcomer is found", testprog.Here)
	p := testprog.Start(t, program)
	for found := false; !found; {
		if u.Wait(ctx); ctx.Err() != nil {
			t.Fatal("it was not found")
		}
		pids, err := u.Look()
		ok(t, err)
		found = len(pids) == 1 && pids[0] == p.Pid
	}
}

// A library is unmapped and mapped again all the time, and in the end made anew: each call counts.
func TestEveryLoadOfALibrary(t *testing.T) {
	lib := filepath.Join(t.TempDir(), "libcomes.so")
	install := func(flag string) {
		b, err := os.ReadFile(testprog.Build(t, "dlib", flag, "-shared", "-fPIC"))
		ok(t, err)
		ok(t, os.WriteFile(lib+".new", b, 0o755))
		ok(t, os.Rename(lib+".new", lib))
	}
	install("-O2")
	for _, at := range []string{"dlib_call", "dlib_cal*"} {
		s := startSeveral(t, fmt.Sprintf("uprobe:%s:%s { @calls = count(); } uretprobe:%[1]s:%[2]s { @returns = count(); }", lib, at), true)
		p := testprog.Start(t, testprog.Build(t, "dl", "-O2"), lib)
		s.join(p.Pid)
		s.wait()
		p.Round("cycle 20")
		install("-O0")
		p.Round("cycle 20")
		if out := s.close(); !strings.Contains(out, "@calls: 40\n") || !strings.Contains(out, "@returns: 40\n") {
			t.Errorf("%s: prints %q", at, out)
		}
		install("-O2")
	}
}
