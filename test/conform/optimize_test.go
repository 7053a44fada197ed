package conform

import (
	"testing"

	"kprobe"
	"kprobe/internal/testprog"
	"kprobe/test/harness"
)

const waitsInVfork = `
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
PROBED long work(long a) { BARRIER(); return 3 * a + 1; }
int main(void)
{
	char line[16];
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		int status = -1, pid = syscall(SYS_clone, CLONE_VFORK | SIGCHLD, NULL, NULL, NULL, NULL); // with memory of its own
		if (pid == 0)
			_exit(write(1, "child\n", 6) == 6 && read(0, line, sizeof line) > 0 ? 0 : 2);
		waitpid(pid, &status, 0);
		printf("worked %ld %d\ndone\n", work(atol(line)), status);
		fflush(stdout);
	}
	return 0;
}
`

// A thread that waits in vfork may stand under a jump, so none is made. When its child has gone there is one, without another
// call.
func TestJumpsAfterVfork(t *testing.T) {
	p := testprog.Start(t, harness.Compile(t, "waitsinvfork", waitsInVfork))
	s := harness.Attach(t, p.Pid, nil)
	harness.OK(t, s.SetOptimization(false))
	harness.Register(t, s, &kprobe.Kprobe{SymbolName: "work", Program: kprobe.CountOnly})
	p.Send("5")
	p.Expect("child")
	harness.OK(t, s.SetOptimization(true))
	for range 3 { // and what the switch has begun has looked, too
		harness.OK(t, s.WaitOptimized())
	}
	if n := harness.Optimized(s); n != 0 {
		t.Errorf("%d jumps beside a thread that may be under one", n)
	}
	p.Send("5")
	p.Expect("worked 16 0")
	p.Expect("done")
	testprog.Until(t, "a jump", p.Pid, func() bool { return harness.Optimized(s) == 1 })
	harness.Ends(t, p)
}
