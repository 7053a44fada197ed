package life

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"kprobe"
	"kprobe/internal/testprog"
	"kprobe/target/ptrace"
	"kprobe/test/harness"
)

// initial is the init process of a namespace, which faults when it is told: "fault", or "through" a pointer that its call
// reads. Its parent says how it ended.
const initial = `
#define _GNU_SOURCE
#include <sched.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static int *volatile nothing;
static void (**volatile table)(void);
PROBED void faults(void) { *nothing = 1; }
PROBED void through(void) { (*table)(); BARRIER(); }
int main(void)
{
	int status;
	pid_t pid = 0;

	if (unshare(CLONE_NEWPID) == 0 && (pid = fork()) > 0) {
		waitpid(pid, &status, 0);
		printf("ended by signal %d\n", WIFSIGNALED(status) ? WTERMSIG(status) : 0);
		return 0;
	}
	while (next())
		strcmp(line, "fault") ? through() : faults();
	return 0;
}
`

// A fault that ends a process does not end the init process of a namespace while that has a tracer: it would come again for
// ever. So it is let go, which is said, and dies of the fault as it does without probes.
func TestLifeOfInit(t *testing.T) {
	testprog.PIDNamespaces.Need(t)
	path := harness.Compile(t, "initial", initial)
	for _, command := range []string{"fault", "through"} {
		for _, inside := range []bool{false, true} {
			t.Run(fmt.Sprint(command, " inside ", inside), func(t *testing.T) {
				p := testprog.Start(t, path)
				p.Patience = 20 * time.Second // as long as the fault comes again
				children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", p.Pid, p.Pid))
				harness.OK(t, err)
				pid, err := strconv.Atoi(strings.TrimSpace(string(children)))
				harness.OK(t, err)
				told := make(chan string, 10)
				process, err := ptrace.Attach(pid)
				harness.OK(t, err)
				s, err := kprobe.Open(process, &kprobe.Options{Report: func(err error) { told <- err.Error() }})
				harness.OK(t, err)
				for _, fn := range harness.FuncsOf(t, pid, harness.ProgramOf(t, pid)) {
					if fn.Name != "faults" && fn.Name != "through" {
						continue
					}
					for _, at := range harness.Instructions(t, s, fn) {
						kp := &kprobe.Kprobe{Addr: at}
						if inside {
							kp.Program = kprobe.CountOnly
						} else {
							kp.PreHandler = func(*kprobe.Kprobe, *kprobe.Regs) int { return 0 }
						}
						harness.OK(t, s.RegisterKprobe(kp))
					}
				}
				p.Send("%s", command)
				if got := p.Expect("ended"); got != "ended by signal 11" {
					t.Error(got)
				}
				<-s.Done()
				if exit, ended := s.Exited(); ended {
					t.Errorf("it has ended under the session: %v", exit)
				}
				if why := <-told; !strings.Contains(why, "it is let go, without its probes") {
					t.Error(why)
				}
				harness.OK(t, s.Close())
				if r := p.Result(); !r.OK() {
					t.Error(r)
				}
			})
		}
	}
}
