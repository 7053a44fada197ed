//go:build linux && (amd64 || arm64 || ppc64le || riscv64 || s390x)

package ptrace

import (
	"os/exec"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"kprobe/internal/testprog"
	"kprobe/internal/tracee"
)

// A signal that comes between the look at woken and the wait ends no wait: another one does.
func TestWakeIsNotLost(t *testing.T) {
	woken := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		armWakeSignal()
		child := exec.Command("sleep", "1000") // of this thread: else it has nothing to wait for
		err := child.Start()
		if err == nil {
			defer child.Wait()
			defer child.Process.Kill()
		}
		p := &Process{owner: unix.Gettid()}
		p.waiting.Store(inWait)
		p.Wake() // this thread is not in its wait, and has the signal before Wake returns
		for err == nil {
			_, _, err = tracee.WaitReportBy(unix.P_PID, child.Process.Pid, unix.WEXITED|unix.WSTOPPED|unix.WNOWAIT)
		}
		p.waiting.Store(busy)
		woken <- err
	}()
	if err := testprog.Receive(t, "the wait is over", testprog.Here, woken); err != unix.EINTR {
		t.Errorf("the wait ended with %v", err)
	}
}
