package bench

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"kprobe"
	"kprobe/event"
	"kprobe/internal/testprog"
	"kprobe/target/ptrace"
	"kprobe/trace"
)

// forks is how many programs the script executes.
const forks = 60

var forkScript = fmt.Sprintf("i=0; while [ $i -lt %d ]; do /bin/true; i=$((i+1)); done", forks)

// forkOnlyScript forks as often, and executes nothing.
var forkOnlyScript = fmt.Sprintf("i=0; while [ $i -lt %d ]; do (:); i=$((i+1)); done", forks)

// BenchmarkFollow is what following costs: a shell script and all its children have a probe on malloc. The
// figure is processor time of everybody, the script's and the guardians' included, for one child; beside it that of
// a tracer that lets everything go on.
func BenchmarkFollow(b *testing.B) {
	for _, c := range []struct{ name, aim, script string }{
		{"a followed fork and exec", "3 ms", forkScript},
		{"a followed fork", "3 ms", forkOnlyScript},
	} {
		b.Run(strings.ReplaceAll(c.name, " ", "-"), func(b *testing.B) {
			var ours, bare []float64
			for b.Loop() {
				bare = append(bare, processorTime(func() { bareFollow(b, c.script) }))
				ours = append(ours, processorTime(func() { follow(b, c.script) }))
			}
			b.ReportMetric(median(ours)*1e3, "ns/op")
			b.ReportMetric(median(bare)/1e3, "floor-ms")
			leastOf(c.name, c.aim, scaled(ours), scaled(bare))
		})
	}
}

// scaled makes microseconds what leastOf takes.
func scaled(us []float64) (ns []float64) {
	for _, v := range us {
		ns = append(ns, v*1e3)
	}
	return ns
}

// processorTime is what f takes of it, its own processes' included, in microseconds a child.
func processorTime(f func()) float64 {
	used := func() (us float64) {
		for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
			var r unix.Rusage
			if unix.Getrusage(who, &r) == nil {
				us += float64(r.Utime.Nano()+r.Stime.Nano()) / 1e3
			}
		}
		return us
	}
	before := used()
	f()
	return (used() - before) / forks
}

// family is a program and its children, all with the same probe.
type family struct {
	b       *testing.B
	mu      sync.Mutex
	members int // that were followed
	alive   sync.WaitGroup
}

func (f *family) follow(s *kprobe.Session) {
	tr := f.trace(s)
	f.mu.Lock()
	f.members++
	f.mu.Unlock()
	f.alive.Go(func() {
		<-s.Done()
		tr.Flush()
		s.Close()
	})
}

func (f *family) trace(s *kprobe.Session) *trace.Tracer {
	tr := trace.New(s, func(*event.Event) {})
	tr.Patient, tr.Inside = true, true
	if err := tr.Add("p libc.so.6:malloc"); err != nil {
		f.b.Error(err)
	}
	return tr
}

func (f *family) start(script string) *kprobe.Session {
	p, err := ptrace.Start([]string{"sh", "-c", script}, nil)
	if err != nil {
		f.b.Fatal(err)
	}
	s, err := kprobe.Open(p, &kprobe.Options{Follow: f.follow})
	if err != nil {
		f.b.Fatal(err)
	}
	return s
}

func follow(b *testing.B, script string) {
	f := &family{b: b}
	s := f.start(script)
	tr := f.trace(s)
	s.Continue()
	<-s.Done()
	f.alive.Wait()
	tr.Flush()
	s.Close()
	if f.members != forks {
		b.Errorf("%d were followed of %d", f.members, forks)
	}
	awaitGuardians(b)
}

// awaitGuardians gives those of sessions that are closed the time to end: then their processor time is known.
func awaitGuardians(b *testing.B) {
	b.Helper()
	testprog.Until(b, "the guardians end", testprog.Here, func() bool {
		children, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/children", os.Getpid()))
		return err != nil || len(strings.Fields(string(children))) == 0
	})
}

// bareFollow runs a script under a tracer that has all its children traced from their birth on, and lets
// everybody go on from every stop.
func bareFollow(b *testing.B, script string) {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		done <- trackAll(exec.Command("sh", "-c", script))
	}()
	if err := <-done; err != nil {
		b.Fatal(err)
	}
}

func trackAll(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	pid := cmd.Process.Pid
	defer cmd.Process.Release()
	var ws unix.WaitStatus
	if _, err := unix.Wait4(pid, &ws, unix.WALL, nil); err != nil {
		return err
	}
	const options = unix.PTRACE_O_TRACEFORK | unix.PTRACE_O_TRACEVFORK | unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACEEXEC
	if err := unix.PtraceSetOptions(pid, options); err != nil {
		return err
	}
	if err := unix.PtraceCont(pid, 0); err != nil {
		return err
	}
	for {
		tid, err := unix.Wait4(-1, &ws, unix.WALL|unix.WNOTHREAD, nil)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return err
		case !ws.Stopped():
			if tid == pid {
				return nil
			}
			continue
		}
		signal := 0
		if int(ws)>>16 == 0 && ws.StopSignal() != unix.SIGTRAP && ws.StopSignal() != unix.SIGSTOP {
			signal = int(ws.StopSignal())
		}
		if err := unix.PtraceCont(tid, signal); err != nil && err != unix.ESRCH {
			return err
		}
	}
}

// BenchmarkFamily is the controller's memory while it follows a family of 200 live processes.
func BenchmarkFamily(b *testing.B) {
	const members = 200
	var least float64
	for b.Loop() {
		debug.FreeOSMemory() // what is left of the round before is none of this one's
		before := residentMB()
		f := &family{b: b}
		s := f.start(fmt.Sprintf("i=0; while [ $i -lt %d ]; do sleep 1000 & i=$((i+1)); done; echo; wait", members))
		tr := f.trace(s)
		s.Continue()
		testprog.Until(b, "all are followed", s.Target().PID(), func() bool {
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.members >= members
		})
		runtime.GC()
		took := residentMB() - before
		if least == 0 || took < least {
			least = took
		}
		unix.Kill(-s.Target().PID(), unix.SIGKILL)
		for _, pid := range childrenOf(s.Target().PID()) {
			unix.Kill(pid, unix.SIGKILL)
		}
		unix.Kill(s.Target().PID(), unix.SIGKILL)
		<-s.Done()
		f.alive.Wait()
		tr.Flush()
		s.Close()
		awaitGuardians(b)
	}
	b.ReportMetric(least, "MB")
	note("memory for a family of 200", func(r *row) { r.unit, r.ours = "MB", least })
}

func childrenOf(pid int) (pids []int) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	for _, f := range strings.Fields(string(text)) {
		var child int
		if _, err := fmt.Sscan(f, &child); err == nil {
			pids = append(pids, child)
		}
	}
	return pids
}

// residentMB is this process's memory that exists, what it shares with targets included.
func residentMB() float64 {
	var pages, resident float64
	text, _ := os.ReadFile("/proc/self/statm")
	fmt.Sscan(string(text), &pages, &resident)
	return resident * float64(os.Getpagesize()) / (1 << 20)
}
