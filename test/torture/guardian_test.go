package torture

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"kprobe"
	"kprobe/arch"
	"kprobe/internal/lifeline"
	"kprobe/internal/testprog"
	"kprobe/target/ptrace"
	"kprobe/test/harness"
)

func TestKilledControllerLeavesAHealthyTarget(t *testing.T) {
	times := 20
	if testing.Short() {
		times = 5
	}
	harness.KilledControllers(t, testprog.Start(t, testprog.Build(t, "rets", "-O2")), times, harness.Handled...)
}

// So does one whose probes are jumps: threads stand in its detours.
func TestKilledControllerOfJumps(t *testing.T) {
	times := 10
	if testing.Short() {
		times = 3
	}
	functions := []string{"count!ret_fib", "count!ret_ackermann", "count!ret_deep", "count!ret_nested", "count!ret_two", "count!ret_even"}
	t.Run("plain", func(t *testing.T) {
		harness.KilledControllers(t, testprog.Start(t, testprog.Build(t, "rets", "-O2")), times, functions...)
	})
	if runtime.GOARCH == "arm64" { // the jumps are behind landing pads
		t.Run("guarded", func(t *testing.T) {
			harness.KilledControllers(t, testprog.Start(t, testprog.Build(t, "rets", harness.PaddedFlags...)), times, functions...)
		})
	}
}

// A controller is not dead before its traps are gone, those in slots and on the way
// back from functions too: so no thread can meet one that nobody serves, whatever
// signals it blocks.
func TestNoTrapOutlivesItsController(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "rets", "-O2"))
	want := strings.Join(p.Round("20"), "\n")
	rounds := 10
	if testing.Short() {
		rounds = 3
	}
	for range rounds {
		c := harness.Controller(t, p.Pid, "ret_fib", "post!ret_ackermann", "ret_deep", "post!ret_nested")
		journals, err := lifeline.Journals(p.Pid)
		if err != nil || len(journals) != 1 {
			t.Fatalf("journals: %v, %v", journals, err)
		}
		j, err := lifeline.Load(journals[0])
		harness.OK(t, err)
		look, err := ptrace.Look(p.Pid)
		harness.OK(t, err)
		found, err := lifeline.Read(look.Arch(), j.Base, look.ReadAt)
		harness.OK(t, err)
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
		harness.Restored(t, p.Pid)
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
	p := testprog.Start(t, harness.Compile(t, "blocks", blocksProgram))
	s := harness.Attach(t, p.Pid, nil)
	kp := &kprobe.Kprobe{SymbolName: "pushes", PreHandler: harness.Pre(func(*kprobe.Regs) {})}
	for _, post := range []func(*kprobe.Kprobe, *kprobe.Regs, uint64){nil, func(*kprobe.Kprobe, *kprobe.Regs, uint64) {}} {
		kp.PostHandler = post
		harness.OK(t, s.RegisterKprobe(kp))
		const n = 50
		if got, want := p.Round("%d", n)[0], fmt.Sprint(4*(n*(n+1)/2+n)); got != want {
			t.Errorf("the sum is %s, want %s", got, want)
		}
		if kp.Hits() != 4*n {
			t.Errorf("%d hits of %d", kp.Hits(), 4*n)
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Pid))
		harness.OK(t, err)
		var caught uint64
		_, field, _ := strings.Cut(string(status), "SigCgt:")
		fmt.Sscanf(field, "%x", &caught)
		if caught&(1<<(syscall.SIGTRAP-1)) == 0 {
			t.Errorf("there is no handler for SIGTRAP any more: %#x are caught", caught)
		}
		harness.OK(t, s.UnregisterKprobe(kp))
	}
	harness.Detach(t, s)
	harness.Ends(t, p)
}
