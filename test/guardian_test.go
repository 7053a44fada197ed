package test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"kprobe"
	"kprobe/arch"
	"kprobe/internal/lifeline"
	"kprobe/internal/testprog"
	"kprobe/target/ptrace"
)

// TestMain plays the controller that a test kills, or a program to be probed,
// where it is called as one.
func TestMain(m *testing.M) {
	os.Setenv("DEBUGINFOD_URLS", "") // no test asks servers for debug data
	for variable, play := range map[string]func(string) error{
		"KPROBE_TEST_CONTROLLER": playController,
		orderVariable:            playTortured,
		crampedVariable:          playCramped,
		serverVariable:           serve,
	} {
		if arg := os.Getenv(variable); arg != "" {
			if err := play(arg); err != nil {
				fmt.Println("failed:", err)
				os.Exit(1)
			}
			return
		}
	}
	os.Exit(m.Run())
}

// playController puts entry and return probes on functions of a process, says
// so, and waits to be killed.
func playController(pid string) error {
	n, err := strconv.Atoi(pid)
	if err != nil {
		return err
	}
	p, err := ptrace.Attach(n)
	if err != nil {
		return err
	}
	s, err := kprobe.Open(p, nil)
	if err != nil {
		return err
	}
	for _, name := range strings.Fields(os.Getenv("KPROBE_TEST_FUNCTIONS")) {
		if data, ok := strings.CutPrefix(name, "watch!"); ok {
			w := &kprobe.Watchpoint{Kp: kprobe.Kprobe{SymbolName: data}, Len: 8}
			if err := s.RegisterWatchpoint(w); err != nil {
				return err
			}
			continue
		}
		if data, ok := strings.CutPrefix(name, "churn!"); ok {
			fmt.Println("armed")
			return churn(s, data)
		}
		if counted, ok := strings.CutPrefix(name, "count!"); ok {
			kp := &kprobe.Kprobe{SymbolName: counted, Program: kprobe.CountOnly}
			if err := s.RegisterKprobe(kp); err != nil {
				return err
			}
			if s.WaitOptimized(); optimized(s) == 0 {
				return fmt.Errorf("%s has no jump", counted)
			}
			continue
		}
		if left, ok := strings.CutPrefix(name, "exits!"); ok {
			rp := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: left}, Engine: kprobe.EngineExits, Program: kprobe.CountOnly}
			if err := s.RegisterKretprobe(rp); err != nil {
				return err
			}
			s.WaitOptimized()
			if probed, jumps := rp.Exits(); jumps == 0 {
				return fmt.Errorf("%s has no jump at %d exits", left, probed)
			}
			continue
		}
		kp := &kprobe.Kprobe{SymbolName: name, PreHandler: func(*kprobe.Kprobe, *kprobe.Regs) int { return 0 }}
		if strings.HasPrefix(name, "post!") {
			kp.SymbolName = name[5:]
			kp.PostHandler = func(*kprobe.Kprobe, *kprobe.Regs, uint64) {}
		}
		if err := s.RegisterKprobe(kp); err != nil {
			return err
		}
		rp := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: kp.SymbolName}}
		if err := s.RegisterKretprobe(rp); err != nil {
			return err
		}
	}
	fmt.Println("armed")
	select {}
}

// controller starts one and waits until its probes are in place.
func controller(t testing.TB, pid int, functions ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("KPROBE_TEST_CONTROLLER=%d", pid),
		"KPROBE_TEST_FUNCTIONS="+strings.Join(functions, " "))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if line != "armed\n" {
		t.Fatalf("the controller said %q (%v)", line, err)
	}
	return cmd
}

// restored waits until the guardian has put the text back and has gone.
func restored(t testing.TB, pid int) {
	t.Helper()
	testprog.Restored(t, pid, lifeline.Journals)
}

func TestKilledControllerLeavesAHealthyTarget(t *testing.T) {
	times := 20
	if testing.Short() {
		times = 5
	}
	killedControllers(t, testprog.Start(t, testprog.Build(t, "rets", "-O2")), times, handled...)
}

// So does one whose probes are jumps: threads stand in its detours.
func TestKilledControllerOfJumps(t *testing.T) {
	times := 10
	if testing.Short() {
		times = 3
	}
	functions := []string{"count!ret_fib", "count!ret_ackermann", "count!ret_deep", "count!ret_nested", "count!ret_two", "count!ret_even"}
	t.Run("plain", func(t *testing.T) {
		killedControllers(t, testprog.Start(t, testprog.Build(t, "rets", "-O2")), times, functions...)
	})
	if runtime.GOARCH == "arm64" { // the jumps are behind landing pads
		t.Run("guarded", func(t *testing.T) {
			killedControllers(t, testprog.Start(t, testprog.Build(t, "rets", paddedFlags...)), times, functions...)
		})
	}
}

// handled are functions as a controller that is to be killed is told of them.
var handled = []string{"ret_fib", "post!ret_ackermann", "ret_deep", "ret_nested", "ret_two", "ret_even"}

func killedControllers(t *testing.T, p *testprog.Proc, times int, functions ...string) {
	t.Helper()
	start := time.Now()
	want := strings.Join(p.Round("20"), "\n")
	round := time.Since(start)
	own := ownText(t, p.Pid)
	for i := range times {
		c := controller(t, p.Pid, functions...)
		p.Send("20")
		time.Sleep(round * time.Duration(i) / 4)
		c.Process.Kill()
		c.Wait()
		var got []string
		for line := p.Line(); line != "done"; line = p.Line() {
			got = append(got, line)
		}
		if g := strings.Join(got, "\n"); g != want {
			t.Fatalf("round %d: results differ:\n%s\nwithout probes:\n%s", i, g, want)
		}
		restored(t, p.Pid)
		if now := ownText(t, p.Pid); now > own {
			t.Errorf("round %d: %d KiB of its text are its own, and before the probes %d", i, now, own)
		}
	}
}

// A controller is not dead before its traps are gone, those in slots and on the way
// back from functions too: so no thread can meet one that nobody serves, whatever
// signals it blocks.
func TestNoTrapOutlivesItsController(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "rets", "-O2"))
	want := strings.Join(p.Round("20"), "\n")
	for range 10 {
		c := controller(t, p.Pid, "ret_fib", "post!ret_ackermann", "ret_deep", "post!ret_nested")
		journals, err := lifeline.Journals(p.Pid)
		if err != nil || len(journals) != 1 {
			t.Fatalf("journals: %v, %v", journals, err)
		}
		j, err := lifeline.Load(journals[0])
		ok(t, err)
		look, err := ptrace.Look(p.Pid)
		ok(t, err)
		found, err := lifeline.Read(look.Arch(), j.Base, look.ReadAt)
		ok(t, err)
		p.Send("20")
		c.Process.Kill()
		c.Wait()
		traps := []arch.Addr{found.Return}
		for _, e := range found.Entries {
			traps = append(traps, e.Addr)
		}
		if len(traps) < 4+2+1 || found.Return == 0 {
			t.Fatalf("%d traps are known, the trampoline at %v", len(traps), found.Return)
		}
		for _, at := range traps {
			var b [1]byte
			if look.ReadAt(at, b[:]) == nil && b[0] == arch.AMD64.Break[0] { // else it was in code of ours that is gone
				t.Errorf("a trap is left at %v", at)
			}
		}
		look.Close()
		var got []string
		for line := p.Line(); line != "done"; line = p.Line() {
			got = append(got, line)
		}
		if g := strings.Join(got, "\n"); g != want {
			t.Fatalf("results differ:\n%s\nwithout probes:\n%s", g, want)
		}
		restored(t, p.Pid)
	}
}

const blocksProgram = `
#include <signal.h>
long pushes(long n); /* its first instruction is as short as a trap */
__asm__(".globl pushes\n.type pushes, @function\npushes: push %rdi\npop %rax\ninc %rax\nret\n.size pushes, . - pushes\n");
int main(void)
{
	sigset_t all, old;
	sigfillset(&all);
	while (next()) {
		long sum = 0;
		for (long i = atol(line); i > 0; i--) {
			sigprocmask(SIG_BLOCK, &all, &old);
			sum += pushes(i);
			sum += pushes(i);
			sigprocmask(SIG_BLOCK, &all, NULL);
			sum += pushes(i);
			sigprocmask(SIG_SETMASK, &old, NULL);
			sum += pushes(i);
		}
		printf("%ld\n", sum);
	}
	return 0;
}
`

// When a thread that blocks SIGTRAP meets a trap, the kernel takes the process's
// handler away. It is put back each time, and the hit is served like any other.
func TestHitsWithSignalsBlocked(t *testing.T) {
	p := testprog.Start(t, compile(t, "blocks", blocksProgram))
	s := attach(t, p.Pid, nil)
	kp := &kprobe.Kprobe{SymbolName: "pushes", PreHandler: pre(func(*kprobe.Regs) {})}
	for _, post := range []func(*kprobe.Kprobe, *kprobe.Regs, uint64){nil, func(*kprobe.Kprobe, *kprobe.Regs, uint64) {}} {
		kp.PostHandler = post
		ok(t, s.RegisterKprobe(kp))
		const n = 50
		if got, want := p.Round("%d", n)[0], fmt.Sprint(4*(n*(n+1)/2+n)); got != want {
			t.Errorf("the sum is %s, want %s", got, want)
		}
		if kp.Hits() != 4*n {
			t.Errorf("%d hits of %d", kp.Hits(), 4*n)
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Pid))
		ok(t, err)
		var caught uint64
		_, field, _ := strings.Cut(string(status), "SigCgt:")
		fmt.Sscanf(field, "%x", &caught)
		if caught&(1<<(syscall.SIGTRAP-1)) == 0 {
			t.Errorf("there is no handler for SIGTRAP any more: %#x are caught", caught)
		}
		ok(t, s.UnregisterKprobe(kp))
	}
	detach(t, s)
	ends(t, p)
}
