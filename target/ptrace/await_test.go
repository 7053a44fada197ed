//go:build linux && (amd64 || arm64 || ppc64le || riscv64 || s390x)

package ptrace

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"kprobe/internal/testprog"
	"kprobe/target"
)

// A process of several threads is killed while its first makes a call for us: that one's end is told only when the others' have
// been taken. The call has failed, and the end comes.
func TestEndOfTheFirstThreadInACall(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "sleepers", "-O2"))
	p, err := Attach(prog.Pid)
	if err != nil {
		t.Fatal(err)
	}
	killed := make(chan error, 1)
	go func() {
		killed <- testprog.Await(prog.Pid, func() error {
			call, err := os.ReadFile(fmt.Sprintf("/proc/%d/syscall", prog.Pid))
			if err != nil || !strings.HasPrefix(string(call), fmt.Sprintf("%d 0x0 0x0 0x0 ", unix.SYS_PPOLL)) {
				return fmt.Errorf("it is not in the call: %q, %v", call, err)
			}
			return unix.Kill(prog.Pid, unix.SIGKILL)
		})
	}()
	p.Run(func() {
		if _, err := p.Freeze(); err != nil {
			t.Error(err)
		}
		if err := p.remote(p.threads[p.pid], unix.SYS_PPOLL, 0, 0, 0, 0); !errors.Is(err, target.ErrGone) {
			t.Errorf("the call: %v", err)
		}
		if err := <-killed; err != nil {
			t.Error(err)
		}
		p.Thaw()
		for {
			st, err := p.Wait()
			if err != nil {
				t.Error(err)
				return
			}
			if st.Kind == target.StopExit {
				if st.Status != (target.Exit{Code: -1, Signal: int(unix.SIGKILL)}) {
					t.Errorf("it ended with %v", st.Status)
				}
				return
			}
		}
	})
	p.Close()
}
