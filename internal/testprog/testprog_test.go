package testprog

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// programs are the ones that answer a numbered round with results that depend on
// nothing else, with the count that makes a quick round, and the ways to build
// each beyond the optimization level.
var programs = []struct {
	name  string
	round int
	built [][]string
}{
	{"insns", 200, [][]string{{"-static"}, {"-no-pie"}, {"-fPIE", "-pie", "-fcf-protection"}, {"CC=musl-gcc"}}},
	{"threads", 1000, [][]string{{"-static"}, {"-no-pie"}, {"CC=musl-gcc"}, {"-m32", "-fno-pic"}}},
	{"faults", 3, [][]string{{"-static"}, {"-no-pie"}}},
	{"rets", 20, [][]string{{"-static"}, {"-no-pie"}, {"-fcf-protection"}, {"-fomit-frame-pointer"}}},
	{"args", 2, [][]string{{"-no-pie"}, {"-m32"}, {"CC=musl-gcc", "-static"}}},
	{"forks", 3, [][]string{{"-static"}, {"CC=musl-gcc"}}},
	{"signals", 100000, [][]string{{"-static"}, {"-no-pie"}}},
	{"throws", 50, [][]string{{"-static"}, {"-no-pie"}}},
	{"manyfns", 3, [][]string{{"-static"}, {"-no-pie"}}},
	{"jumpers", 1000, [][]string{{"-static"}, {"-m32"}, {"CC=musl-gcc"}}},
}

// deterministic drops the lines that tell a time.
func deterministic(lines []string) []string {
	return slices.DeleteFunc(lines, func(l string) bool {
		return strings.HasPrefix(l, "ns ") || strings.HasPrefix(l, "timers ")
	})
}

// The same program gives the same results however it was built, and in every
// round: else a probed run could not be judged by an unprobed one.
func TestSameResultsFromEveryBuild(t *testing.T) {
	for _, prog := range programs {
		builds := append([][]string{{"-O0"}, {"-O2"}}, prog.built...)
		want := map[string][]string{}
		for i, flags := range builds {
			if i >= 2 {
				flags = append([]string{"-O2"}, flags...)
			}
			t.Run(prog.name+strings.Join(flags, ""), func(t *testing.T) {
				p := Start(t, Build(t, prog.name, flags...))
				first := deterministic(p.Round("%d", prog.round))
				again := deterministic(p.Round("%d", prog.round))
				if r := p.Result(); !r.OK() {
					t.Fatalf("%s", r)
				}
				if len(first) == 0 || !slices.Equal(first, again) {
					t.Errorf("two rounds differ:\n%q\n%q", first, again)
				}
				// A long has another size there: its own results are held.
				model := ""
				if slices.Contains(flags, "-m32") {
					model = "ilp32"
				}
				if want[model] == nil {
					want[model] = first
				} else if !slices.Equal(first, want[model]) {
					t.Errorf("got  %q\nwant %q", first, want[model])
				}
			})
		}
	}
}

func TestGoProgram(t *testing.T) {
	var want []string
	for _, flags := range [][]string{nil, {"-buildmode=pie"}, {"-ldflags=-s -w"}, {"-gcflags=-N -l"}} {
		p := Start(t, Build(t, "goprog", flags...))
		got := p.Round("1000")
		if r := p.Result(); !r.OK() {
			t.Fatal(r)
		}
		if want == nil {
			want = got
		}
		if len(got) != 4 || !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", flags, got, want)
		}
	}
}

// A program of Go's that hangs tells what its goroutines do; of another there is nothing to be told.
func TestGoroutinesOfAHang(t *testing.T) {
	hangs := Start(t, Build(t, "goprog"))
	if told := hangs.goroutines(); !strings.Contains(told, "goroutine 1 ") || !strings.Contains(told, "main.main()") {
		t.Errorf("a program that waits for a line says %q", told)
	}
	if told := StartCmd(t, exec.Command("cat")).goroutines(); told != "" {
		t.Errorf("cat says %q", told)
	}
}

func TestLoadsAndUnloads(t *testing.T) {
	lib := Build(t, "dlib", "-shared", "-fPIC", "-O2")
	p := Start(t, Build(t, "dl", "-O2"), lib)
	if got := p.Round("open"); !slices.Equal(got, []string{"opened"}) {
		t.Error(got)
	}
	loaded := func() bool {
		ms, err := Mappings(p.Pid)
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(ms, func(m Mapping) bool { return m.Path == lib && m.Executable() })
	}
	if !loaded() {
		t.Error("the library is not in the maps")
	}
	if got := p.Round("call 20"); !slices.Equal(got, []string{"called 20 141"}) {
		t.Error(got)
	}
	p.Round("close")
	if loaded() {
		t.Error("the library is still in the maps")
	}
	if got := p.Round("cycle 10"); !slices.Equal(got, []string{"cycled 10 1100"}) {
		t.Error(got)
	}
	if r := p.Result(); !r.OK() {
		t.Error(r)
	}
}

func TestSleepersWake(t *testing.T) {
	p := Start(t, Build(t, "sleepers", "-O2"))
	for range 3 {
		if got := p.Round("wake"); !slices.Equal(got, []string{"woken 9"}) {
			t.Error(got)
		}
	}
	if r := p.Result(); !r.OK() {
		t.Error(r)
	}
}

// A check that fails must be seen in the status.
func TestSleepersReportAnInterruption(t *testing.T) {
	p := Start(t, Build(t, "sleepers", "-O2"))
	p.Round("wake")
	// A stop and a continue: what an attach that does not mend it amounts to.
	AllIn(t, p.Pid, "S")
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	AllIn(t, p.Pid, "T")
	if err := p.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if p.Expect("epoll_wait") != "epoll_wait EINTR" {
		t.Error("no EINTR told")
	}
	if r := p.Result(); r.OK() {
		t.Errorf("%s", r)
	}
}

func TestBuildIsCached(t *testing.T) {
	a := Build(t, "jumpers", "-O2")
	from, err := os.Stat(a)
	if err != nil {
		t.Fatal(err)
	}
	b := Build(t, "jumpers", "-O2")
	again, err := os.Stat(b)
	if err != nil {
		t.Fatal(err)
	}
	if a != b || !from.ModTime().Equal(again.ModTime()) {
		t.Errorf("%s was built again", a)
	}
	if other := Build(t, "jumpers", "-O1"); other == a {
		t.Errorf("other flags, same program: %s", other)
	}
	if filepath.Base(a) != "jumpers" {
		t.Errorf("named %s", a)
	}
}

func TestStatusesAndOutput(t *testing.T) {
	sh := func(script string) Result {
		p := StartCmd(t, exec.Command("/bin/sh", "-c", script))
		return p.Result()
	}
	if r := sh("echo out; echo err >&2; exit 3"); r.OK() || r.Status.ExitStatus() != 3 ||
		!slices.Equal(r.Lines, []string{"out"}) || r.Stderr != "err\n" {
		t.Errorf("%+v", r)
	}
	if r := sh("kill -ABRT $$"); r.OK() || !r.Status.Signaled() || r.Status.Signal() != syscall.SIGABRT {
		t.Errorf("%+v", r)
	}
	if r := sh("exit 0"); !r.OK() {
		t.Errorf("%+v", r)
	}
}

// The test must be a stranger to the target, or it could not be its tracer and
// have the exit status too.
func TestTargetIsNotOurChild(t *testing.T) {
	p := Start(t, Build(t, "jumpers", "-O2"))
	if _, err := syscall.Wait4(p.Pid, nil, syscall.WNOHANG, nil); err != syscall.ECHILD {
		t.Errorf("wait: %v", err)
	}
}

func TestCleanupKillsTheProgram(t *testing.T) {
	var pid int
	t.Run("inner", func(t *testing.T) {
		p := StartCmd(t, exec.Command("sleep", "1000"))
		pid = p.Pid
		if err := syscall.Kill(pid, 0); err != nil {
			t.Fatal(err)
		}
	})
	if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
		t.Errorf("pid %d after the test: %v", pid, err)
	}
}

func TestAsUser(t *testing.T) {
	p := StartCmd(t, AsUser(t, Build(t, "jumpers", "-O2")))
	p.Expect("ready")
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Pid))
	if err != nil {
		t.Fatal(err)
	}
	uid := os.Getuid()
	if uid == 0 {
		uid = Nobody
	}
	if want := fmt.Sprintf("Uid:\t%d\t%[1]d\t%[1]d\t%[1]d\n", uid); !strings.Contains(string(status), want) {
		t.Errorf("no %q in\n%s", want, status)
	}
	if got := p.Round("10"); !strings.HasPrefix(got[0], "jumper 10 ") {
		t.Error(got)
	}
}

func TestTextDiff(t *testing.T) {
	for _, prog := range []*Proc{
		Start(t, Build(t, "jumpers", "-O2")),
		Start(t, Build(t, "jumpers", "-O2", "-static")),
		Start(t, Build(t, "goprog")),
		StartCmd(t, exec.Command("sleep", "1000")),
	} {
		diffs, err := TextDiff(prog.Pid)
		if err != nil {
			t.Fatal(err)
		}
		if len(diffs) != 0 {
			t.Errorf("untouched: %q", diffs)
		}
	}
}

// What TextDiff is for: bytes in the text that the file does not have.
func TestTextDiffSeesPatches(t *testing.T) {
	path := Build(t, "jumpers", "-O2")
	p := Start(t, path)
	ms, err := Mappings(p.Pid)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(ms, func(m Mapping) bool { return m.Path == path && m.Executable() })
	if i < 0 {
		t.Fatalf("no text of %s in %v", path, ms)
	}
	// Writing through /proc/PID/mem ignores the page's protection.
	mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", p.Pid), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	text := make([]byte, 32)
	if _, err := mem.ReadAt(text, int64(ms[i].Start)); err != nil {
		t.Fatal(err)
	}
	patch := []byte{^text[8], ^text[9]}
	for _, at := range []uint64{8, 20} {
		if _, err := mem.WriteAt([]byte{^text[at], ^text[at+1]}, int64(ms[i].Start+at)); err != nil {
			t.Fatal(err)
		}
	}
	diffs, err := TextDiff(p.Pid)
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("%#x %s+%#x: % x, file has % x", ms[i].Start+8, path, ms[i].Offset+8, patch, text[8:10])
	if len(diffs) != 2 || diffs[0] != want {
		t.Errorf("got %q, want first %q", diffs, want)
	}
	if _, err := mem.WriteAt(text, int64(ms[i].Start)); err != nil {
		t.Fatal(err)
	}
	if diffs, err := TextDiff(p.Pid); err != nil || len(diffs) != 0 {
		t.Errorf("after undoing: %q, %v", diffs, err)
	}
}

// A program that was replaced on disk still has its own file to be compared with.
func TestTextDiffOfDeletedFile(t *testing.T) {
	Need(t, "root, to open deleted files through /proc", os.Getuid() == 0)
	b, err := os.ReadFile(Build(t, "jumpers", "-O2"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "a name with spaces")
	if err := os.WriteFile(path, b, 0o755); err != nil {
		t.Fatal(err)
	}
	p := Start(t, path)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	ms, err := Mappings(p.Pid)
	if err != nil || ms[0].Path != path+" (deleted)" {
		t.Errorf("%v, %v", ms[0], err)
	}
	if diffs, err := TextDiff(p.Pid); err != nil || len(diffs) != 0 {
		t.Errorf("%q, %v", diffs, err)
	}
}
