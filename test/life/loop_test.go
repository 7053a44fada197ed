package life

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"kprobe/internal/testprog"
	"kprobe/internal/tracee"
	"kprobe/target"
	"kprobe/target/ptrace"
	"kprobe/test/harness"
)

// A signal waits until a followed child has its probes: each run of its handler is seen, and the child is not kept waiting
// where nobody takes it out.
func TestLifeFollowSignalledChildren(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "signalled", "-O2"))
	_, f := followed(t, p.Pid, "handled")
	children := 12
	if testing.Short() {
		children = 2 // each is sent some thousand signals
	}
	got := strings.Join(p.Round(fmt.Sprint(children)), "\n")
	harness.Ends(t, p)
	n, hits := f.children(p.Pid)
	if want := fmt.Sprintf("statuses %d, handled %d", 99*children, hits["handled"]); n != children || got != want || hits["handled"] == 0 {
		t.Errorf("%d children were followed, with %v hits; the program says %q", n, hits, got)
	}
}

// A child that is to be followed, and that nobody comes for since its tracer has died, goes on by itself as it was.
func TestLifeFollowNobodyComes(t *testing.T) {
	waitInLoop(t, time.Second) // where it sleeps
	p := testprog.Start(t, testprog.Build(t, "signalled", "-O2"), "quiet")
	tgt, err := ptrace.Attach(p.Pid)
	harness.OK(t, err)
	p.Send("1")
	tgt.Run(func() {
		for {
			st, err := tgt.Wait()
			if err != nil {
				t.Errorf("wait: %v", err)
				return
			}
			if st.Kind == target.StopFork {
				if _, err := st.Child.(target.Follower).Follow(); err != nil {
					t.Errorf("follow: %v", err)
				}
			}
			tgt.Resume(st.Thread, st.Signal)
			if st.Kind == target.StopFork {
				return
			}
		}
	})
	harness.OK(t, tgt.Close())
	if got := p.Line(); got != "statuses 99, handled 0" {
		t.Errorf("the program says %q", got)
	}
	p.Expect("done")
	harness.Ends(t, p)
}

// waitInLoop has children wait for so long, on the machines where they sleep.
func waitInLoop(t *testing.T, long time.Duration) {
	was := tracee.LoopSleep
	tracee.LoopSleep = long
	t.Cleanup(func() { tracee.LoopSleep = was })
}

// sleepless is a program under a filter that kills it for poll, with children.
const sleepless = `
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

PROBED long work(long n) { BARRIER(); return n * 3; }

int main(void)
{
	struct sock_filter list[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 7, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog p = {sizeof list / sizeof *list, list};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p))
		_exit(9);
	while (next()) {
		for (int i = 0; i < 3; i++) {
			int status = -1;
			pid_t pid = fork();

			if (pid == 0)
				_exit((int)work(i + 1));
			waitpid(pid, &status, 0);
			printf("ended %x\n", status);
		}
	}
	return 0;
}
`

// A child that waits for its session makes no call that a filter kills it for.
func TestLifeFollowUnderAFilter(t *testing.T) {
	if !mayReadFilters(t) || runtime.GOARCH != "amd64" {
		return // it is not followed; poll is another call
	}
	p := testprog.Start(t, harness.Compile(t, "sleepless", sleepless))
	_, f := followed(t, p.Pid, "work")
	if got := p.Round("1"); !slices.Equal(got, []string{"ended 300", "ended 600", "ended 900"}) {
		t.Errorf("%q", got)
	}
	harness.Ends(t, p)
	if n, hits := f.children(p.Pid); n != 3 || hits["work"] != 3 {
		t.Errorf("%d children were followed, with %v hits", n, hits)
	}
}
