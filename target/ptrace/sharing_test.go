//go:build linux && (amd64 || arm64 || ppc64le || riscv64 || s390x)

package ptrace

import (
	"fmt"
	"os/exec"
	"syscall"
	"testing"

	"kprobe/internal/testprog"
	"kprobe/internal/tracee"

	"golang.org/x/sys/unix"
)

// A process that has ended shares no memory with others that have none: a recovery of it was
// refused for ever, since a thread of the kernel's could not be seized.
func TestEndedShareNoMemory(t *testing.T) {
	ended := func() int {
		c := exec.Command("true")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Wait() })
		testprog.AllIn(t, c.Process.Pid, "Z")
		return c.Process.Pid
	}
	p := &Process{pid: ended()}
	if p.sharesMemory(ended(), 0) {
		t.Error("two that have ended have the same memory")
	}
}

// A process that shared the memory when it was looked at, and has executed a program when it is
// seized, is let go again with the signal that it stopped for. It stayed a thread of the target's,
// in whose name calls are made and whose action for SIGTRAP is changed.
func TestStrangerIsLetGoWithItsSignal(t *testing.T) {
	sleeper := func() *exec.Cmd {
		c := exec.Command("sleep", "1000")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Process.Kill(); c.Wait() })
		testprog.Executed(t, c.Process.Pid, "sleep")
		testprog.AllIn(t, c.Process.Pid, "S") // before that it may be on its way through exec, and stop there
		return c
	}
	ours, stranger := sleeper(), sleeper()
	p, err := Attach(ours.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	pid := stranger.Process.Pid
	p.Run(func() {
		if err := tracee.Request(unix.PTRACE_SEIZE, pid, 0, seizeOptions); err != nil {
			t.Error(err)
			return
		}
		p.threads[pid] = &thread{tid: pid, tgid: pid}
		unix.Kill(pid, unix.SIGTERM)
		err := testprog.Await(pid, func() error {
			if state := taskState(pid, pid); state != 't' {
				return fmt.Errorf("the stranger's state is %q", state)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		if _, err := p.Freeze(); err != nil {
			t.Error(err)
		}
		if p.threads[pid] != nil {
			t.Error("the stranger is a thread of the target's")
		}
		p.Thaw()
	})
	if t.Failed() {
		return
	}
	stranger.Wait()
	if ws := stranger.ProcessState.Sys().(syscall.WaitStatus); ws.Signal() != syscall.SIGTERM {
		t.Errorf("it ended by %#x", ws)
	}
}
