//go:build linux && (amd64 || arm64 || ppc64le || riscv64 || s390x)

package ptrace

import (
	"fmt"
	"kprobe/internal/tracee"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A program may probe a child of its own, and wait for it as well (os/exec.Cmd.Wait). The kernel
// gives such a wait the child's stops, too, since the tracer is a thread of the same process: the
// wait ends as if the child had, and the owner thread would wait for ever for a report that is
// gone, with the child stopped. So a wait that is under way is refused, and for later ones the
// owner thread looks now and then whether a task has stopped without a report.

// looksForStolen is the time between two such looks.
const looksForStolen = 20 * time.Millisecond

// ownChild tells whether a process is a child of this very program.
func ownChild(pid int) bool {
	parent, err := statusField(pid, pid, "PPid")
	return err == nil && parent == fmt.Sprint(os.Getpid())
}

// alarm wakes the owner thread now and then, until it ends.
func (p *Process) alarm() {
	for tick := time.NewTicker(looksForStolen); ; {
		select {
		case <-tick.C:
			p.kick()
		case <-p.quit:
			tick.Stop()
			return
		}
	}
}

// stolen finds a thread that should run, and has stopped without a report.
func (p *Process) stolen() (tid int, ws unix.WaitStatus, ok bool) {
	if !p.ours {
		return 0, 0, false
	}
	for _, t := range p.threads {
		if t.state == running {
			if ws, ok := tracee.StolenReport(t.tid); ok {
				return t.tid, ws, true
			}
		}
	}
	return 0, 0, false
}
