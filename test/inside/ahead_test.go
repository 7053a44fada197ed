package inside

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"kprobe"
	"kprobe/internal/testprog"
	"kprobe/test/harness"
)

// Two returns, each with an instruction behind it that is somebody else's, in a function that is
// called while timers look where it stands and children are born.
const aheadProgram = `
#include <dlfcn.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
extern char __executable_start;
long leaves(long n), behind(long n);
__asm__(".globl leaves\n.type leaves, @function\n"
"leaves: push %rbx\n"
"mov %rdi, %rbx\n"
"test $1, %dil\n"
"jne 1f\n"
"lea 1(%rbx), %rax\n" /* a jump is here, and one at 1 */
"pop %rbx\n"
"ret\n"
"1: lea 7(%rbx,%rbx), %rax\n"
"pop %rbx\n"
"ret\n"
".size leaves, . - leaves\n"
".globl behind\n.type behind, @function\n"
"behind: lea (%rdi,%rdi), %rax\n"
"ret\n"
".size behind, . - behind\n");

static volatile long lost;

static void look(int sig, siginfo_t *info, void *context)
{
	greg_t *r = ((ucontext_t *)context)->uc_mcontext.gregs;
	Dl_info where;

	(void)sig, (void)info;
	if (!dladdr((void *)r[REG_RIP], &where))
		lost++; // in nobody's code
	else if (r[REG_RIP] >= (long)leaves && r[REG_RIP] < (long)behind) {
		long off = r[REG_RIP] - (long)leaves, *sp = (long *)r[REG_RSP];

		if (off != 0 && off != 15 && off != 22)
			sp++; // rbx is on the stack
		if (!dladdr((void *)*sp, &where) || where.dli_fbase != (void *)&__executable_start)
			lost++; // the caller is the program
	}
}

int main(void)
{
	struct sigaction action = {.sa_sigaction = look, .sa_flags = SA_SIGINFO | SA_RESTART};
	struct itimerval once = {{0, 0}, {0, 50}};

	sigaction(SIGALRM, &action, NULL);
	while (next()) {
		long sum = 0, wrong = 0, n = atol(line);
		int alone = strstr(line, "alone") != NULL;

		lost = 0;
		for (long i = 0; i < n; i++) {
			if (!alone && i % 4 == 0) /* one at a time: on a busy machine there is no end to others */
				setitimer(ITIMER_REAL, &once, NULL);
			sum += leaves(i) + behind(i);
			if (!alone && i % 1000 == 499) {
				pid_t pid = fork();
				int status = 0;

				if (pid == 0)
					_exit(leaves(3) == 13 && leaves(4) == 5 ? 17 : 1);
				if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 17)
					wrong++;
			}
		}
		printf("%ld %ld %ld\n", sum, wrong, lost);
	}
	return 0;
}
`

// An exit that has no room for a jump has one ahead of it. Other probes come and go around it, on
// each instruction, with programs and with handlers; jumps come and go; signals and children meet
// them: each call is seen to end, once, and the program sees nothing.
func TestJumpsAhead(t *testing.T) {
	n := uint64(4_000)
	if testing.Short() {
		n = 1_000
	}
	p := testprog.Start(t, harness.Compile(t, "ahead", aheadProgram, "-ldl"))
	round := fmt.Sprint(n)
	want := []string{fmt.Sprintf("%d 0 0", n/2*(n/2-1)+n/2+2*(n/2)*(n/2)+7*(n/2)+n*(n-1))}
	s := harness.Attach(t, p.Pid, nil)
	harness.SameRound(t, s, p, want, round)
	loc, err := s.Lookup("leaves")
	harness.OK(t, err)
	start := loc.Addr
	own := harness.RawMem(t, p.Pid, start, int(loc.Func.Size))

	in := watchInside(t, s, kprobe.EngineExits, []string{"leaves"})
	calls := uint64(0)
	check := func(what string) {
		t.Helper()
		harness.SameRound(t, s, p, want, round)
		calls += n
		row := in.row(t, 0)
		if row[bookEntries] != calls || row[bookReturns] != calls || in.rps[0].Hits() != calls || in.rps[0].NMissed() != 0 || in.rps[0].Abandoned() != 0 {
			t.Fatalf("%s: %d entries and %d returns of %d; %d counted, %d missed, %d abandoned", what,
				row[bookEntries], row[bookReturns], calls, in.rps[0].Hits(), in.rps[0].NMissed(), in.rps[0].Abandoned())
		}
		read := make([]byte, len(own))
		if harness.OK(t, s.ReadMem(start, read)); !bytes.Equal(read, own) {
			t.Errorf("%s: the code reads % x, not % x", what, read, own)
		}
	}
	jumps := func(what string, want int) {
		t.Helper()
		s.WaitOptimized()
		if probed, jumps := in.rps[0].Exits(); probed != 2 || jumps != want {
			t.Fatalf("%s: %d exits, %d by jumps, want 2 and %d", what, probed, jumps, want)
		}
	}
	jumps("alone", 2)
	const lea1, pop1, ret1, lea2, pop2, ret2 = 10, 14, 15, 16, 21, 22
	for _, ahead := range [][2]int{{lea1, ret1}, {lea2, ret2}} {
		there := harness.RawMem(t, p.Pid, start, len(own))
		if there[ahead[0]] != 0xe9 || there[ahead[1]] != 0xcc {
			t.Fatalf("there is no jump at +%d, or no trap at +%d: % x", ahead[0], ahead[1], there)
		}
	}
	check("alone")
	for _, c := range []struct {
		off  int
		hits uint64
	}{
		{0, n}, {1, n}, {4, n}, {8, n}, {lea1, n / 2}, {pop1, n / 2}, {ret1, n / 2}, {lea2, n / 2}, {pop2, n / 2}, {ret2, n / 2},
	} {
		for _, program := range []*kprobe.Program{nil, kprobe.CountOnly} {
			kp := &kprobe.Kprobe{SymbolName: "leaves", Offset: uint64(c.off), Program: program}
			if program == nil {
				kp.PreHandler = func(*kprobe.Kprobe, *kprobe.Regs) int { return 0 }
			}
			what := fmt.Sprintf("with a probe at +%d, inside %v", c.off, program != nil)
			harness.Register(t, s, kp)
			s.WaitOptimized()
			check(what)
			if kp.Hits() != c.hits {
				t.Errorf("%s: %d hits, not %d", what, kp.Hits(), c.hits)
			}
			harness.OK(t, s.UnregisterKprobe(kp))
			jumps("after one at "+what, 2)
		}
	}
	check("alone again")

	// While it runs.
	for range 5 {
		p.Send(round)
		harness.OK(t, s.SetOptimization(false))
		jumps("switched off", 0)
		harness.OK(t, s.SetOptimization(true))
		jumps("switched on", 2)
		if got := p.Line(); got != want[0] {
			t.Fatalf("%q, want %q", got, want)
		}
		p.Expect("done")
		calls += n
	}
	check("in the end")
	harness.OK(t, s.UnregisterKretprobes(in.rps))
	harness.OK(t, s.Close())
	if diff, err := testprog.TextDiff(p.Pid); err != nil || len(diff) > 0 {
		t.Errorf("%v, %v", diff, err)
	}
	harness.Ends(t, p)
}

// A controller that is killed leaves such jumps, and the traps behind them, in order, at whatever
// moment.
func TestKilledControllerOfJumpsAhead(t *testing.T) {
	const n = 4_000
	p := testprog.Start(t, harness.Compile(t, "ahead", aheadProgram, "-ldl"))
	round := fmt.Sprint(n, " alone")
	want := p.Round(round)
	times := 10
	if testing.Short() {
		times = 4
	}
	for i := range times {
		c := harness.Controller(t, p.Pid, "exits!leaves")
		p.Send(round)
		time.Sleep(time.Duration(i) * 3 * time.Millisecond)
		c.Process.Kill()
		c.Wait()
		if got := p.Line(); got != want[0] {
			t.Fatalf("round %d: %q, want %q", i, got, want[0])
		}
		p.Expect("done")
		harness.Restored(t, p.Pid)
	}
	harness.Ends(t, p)
}
