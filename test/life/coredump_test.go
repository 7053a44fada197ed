package life

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"kprobe"
	"kprobe/arch"
	"kprobe/internal/testprog"
	"kprobe/symbol"
	"kprobe/target"
	"kprobe/target/ptrace"
	"kprobe/test/harness"
)

// dies is a program that dies in the depth of probed calls, which its other threads make
// too, of what it is told: "abort", "segv", or a signal from outside ("wait").
const dies = `
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
static __thread const char *command = ""; // of the main thread
static volatile int depth = 5;
static int *volatile nothing;
PROBED int leaf(int n) { BARRIER(); return n * 3; }
PROBED int deep(int n)
{
	int r;

	BARRIER();
	if (n > 0)
		r = deep(n - 1);
	else if (!strcmp(command, "abort"))
		abort();
	else if (!strcmp(command, "segv"))
		r = *nothing;
	else if (!strcmp(command, "wait"))
		for (puts("waits"), fflush(stdout);;)
			pause();
	else
		r = leaf(n);
	BARRIER();
	return r + 1;
}
static void *others(void *p) { for (;;) if (deep(1) == 77) return p; }
int main(void)
{
	pthread_t t;

	while (next()) {
		command = line;
		for (int i = 0; i < 3 && !*command; i++)
			pthread_create(&t, 0, others, 0);
		printf("%d\n", deep(depth));
	}
	return 0;
}
`

// deathbed is a process that is looked at when a thread goes on with a signal.
type deathbed struct {
	*ptrace.Process
	look func(th target.Thread, signal int)
}

func (d deathbed) Resume(th target.Thread, signal int) error {
	if signal != 0 {
		d.look(th, signal)
	}
	return d.Process.Resume(th, signal)
}

// A program that dies of a signal is what it would be without probes, to who looks at the core
// file: its text, the return addresses on its stacks, the threads that were in code of ours.
func TestCoreFileIsThePrograms(t *testing.T) {
	path := harness.Compile(t, "dies", dies, "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls")
	traps := func(s *kprobe.Session) {
		harness.OK(t, s.Register(
			&kprobe.Kprobe{SymbolName: "leaf", PreHandler: func(*kprobe.Kprobe, *kprobe.Regs) int { return 0 }},
			&kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "deep"}, MaxActive: 100,
				Handler: func(*kprobe.KretprobeInstance, *kprobe.Regs) int { return 0 }}))
	}
	jumps := func(s *kprobe.Session) {
		harness.OK(t, s.Register(
			&kprobe.Kprobe{SymbolName: "leaf", Program: kprobe.CountOnly},
			&kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "deep"}, Program: kprobe.CountOnly, MaxActive: 100}))
		s.WaitOptimized()
	}
	for _, tt := range []struct {
		name, command string
		signal        syscall.Signal
		register      func(*kprobe.Session)
	}{
		{"abort, traps", "abort", syscall.SIGABRT, traps},
		{"abort, jumps", "abort", syscall.SIGABRT, jumps},
		{"fault, traps", "segv", syscall.SIGSEGV, traps},
		{"fault, jumps", "segv", syscall.SIGSEGV, jumps},
		{"from outside, jumps", "wait", syscall.SIGQUIT, jumps},
	} {
		if testing.Short() && (tt.name == "abort, jumps" || tt.name == "fault, traps") {
			continue // each signal once, and traps once
		}
		t.Run(tt.name, func(t *testing.T) {
			cmd := exec.Command(path)
			cmd.Dir = t.TempDir()
			p := testprog.StartCmd(t, cmd)
			harness.OK(t, unix.Prlimit(p.Pid, unix.RLIMIT_CORE, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}, nil))
			p.Expect("ready")
			process, err := ptrace.Attach(p.Pid)
			harness.OK(t, err)
			looked, deep := 0, symbol.Loc{}
			s, err := kprobe.Open(deathbed{process, func(th target.Thread, signal int) {
				if syscall.Signal(signal) != tt.signal {
					return
				}
				looked++
				if diff, err := testprog.TextDiff(p.Pid); err != nil || len(diff) > 0 {
					t.Errorf("in the text: %v, %v", diff, err)
				}
				if n := returnsInto(t, process, th, deep); n < 5 {
					t.Errorf("%d addresses on the stack are in deep, which has called itself 5 times", n)
				}
			}}, &kprobe.Options{Report: func(err error) { t.Errorf("reported: %v", err) }})
			harness.OK(t, err)
			deep, err = s.Lookup("deep")
			harness.OK(t, err)
			tt.register(s)
			p.Round("") // now the others run, too
			p.Send("%s", tt.command)
			if tt.command == "wait" {
				p.Expect("waits")
				harness.OK(t, unix.Tgkill(p.Pid, p.Pid, tt.signal)) // no other thread may get it
			}
			status := p.Wait()
			harness.Detach(t, s)
			if !status.Signaled() || status.Signal() != tt.signal || looked != 1 {
				t.Errorf("ended with %#x, seen %d times", status, looked)
			}
			cores, err := filepath.Glob(filepath.Join(cmd.Dir, "core*"))
			harness.OK(t, err)
			if len(cores) != 1 {
				t.Logf("%d core files here: the machine puts them elsewhere", len(cores))
				return
			}
			info, err := os.Stat(cores[0])
			harness.OK(t, err)
			out, err := exec.Command("gdb", "-batch", "-nx", "-ex", "thread apply all bt", path, cores[0]).CombinedOutput()
			_, main, _ := strings.Cut(string(out), "\nThread 1 ") // who died
			if n := strings.Count(main, " deep (n="); err != nil || n != 6 || strings.Contains(string(out), "?? ()") {
				t.Errorf("gdb: %v, %d calls of deep\n%s", err, n, out)
			}
			if info.Size() > 64<<20 {
				t.Errorf("the core file has %d bytes", info.Size())
			}
		})
	}
}

// returnsInto counts the return addresses on a thread's stack that lie in a function.
func returnsInto(t *testing.T, p *ptrace.Process, th target.Thread, loc symbol.Loc) (n int) {
	var r arch.Regs
	if err := p.Regs(th, &r); err != nil {
		t.Error(err)
	}
	stack := make([]byte, 4096)
	for i := range stack { // its end may be near
		if p.ReadAt(r.Addr(arch.SP)+arch.Addr(i), stack[i:i+1]) != nil {
			break
		}
	}
	for ; len(stack) > 0; stack = stack[8:] {
		if a := arch.Addr(binary.LittleEndian.Uint64(stack)); a > loc.Addr && a < loc.End() {
			n++
		}
	}
	return n
}
