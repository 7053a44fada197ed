//go:build linux && (amd64 || arm64 || ppc64le || riscv64 || s390x)

package ptrace

import (
	"kprobe/internal/tracee"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A process that has ended shares no memory with others that have none: a recovery of it was refused for ever, since a thread of
// the kernel's could not be seized.
func TestEndedShareNoMemory(t *testing.T) {
	ended := func() int {
		c := exec.Command("true")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Wait() })
		for end := time.Now().Add(time.Minute); taskState(c.Process.Pid, c.Process.Pid) != 'Z'; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("it does not end")
			}
		}
		return c.Process.Pid
	}
	p := &Process{pid: ended()}
	if p.sharesMemory(ended(), 0) {
		t.Error("two that have ended have the same memory")
	}
}

// A process that shared the memory when it was looked at, and has executed a program when it is seized, is let go again with the signal
// that it stopped for. It stayed a thread of the target's, in whose name calls are made and whose action for SIGTRAP is changed.
func TestStrangerIsLetGoWithItsSignal(t *testing.T) {
	sleeper := func() *exec.Cmd {
		c := exec.Command("sleep", "1000")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Process.Kill(); c.Wait() })
		for taskState(c.Process.Pid, c.Process.Pid) != 'S' { // before that it may be on its way through exec, and stop there
			time.Sleep(time.Millisecond)
		}
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
		for taskState(pid, pid) != 't' {
			time.Sleep(time.Millisecond)
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
