//go:build linux && (amd64 || arm64 || ppc64le || riscv64 || s390x)

package ptrace

import (
	"testing"

	"golang.org/x/sys/unix"

	"kprobe/internal/testprog"
	"kprobe/internal/tracee"
)

// A child of vfork may execute a program just while it is seized, and the kernel reports no exec
// then. The thread that waited for it goes on, and can be stopped like any other.
func TestChildExecutesWhileItIsSeized(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "vforks", "-O2"))
	prog.Send("1")
	prog.Expect("child")
	p, err := Attach(prog.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	stuck := func() (n int) {
		p.Run(func() {
			stops, err := p.Freeze()
			if err != nil {
				t.Error(err)
			}
			p.passOn(stops)
			n = p.Stuck()
		})
		return n
	}
	if n := stuck(); n != 1 {
		t.Fatalf("%d threads wait in vfork, not one", n)
	}
	p.Run(func() {
		child := p.threads[p.threads[prog.Pid].vfork]
		// Like a tracer that comes too late for it, we do not hear of the exec.
		if err := tracee.Request(unix.PTRACE_SETOPTIONS, child.tid, 0, seizeOptions&^unix.PTRACE_O_TRACEEXEC); err != nil {
			t.Error(err)
		}
		p.complete = false
		p.Thaw()
	})
	prog.Send("execute")
	prog.Expect("executed")
	if n := stuck(); n != 0 {
		t.Errorf("%d threads do not stop, though nobody waits in vfork any more", n)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	prog.Send("end")
	prog.Expect("ended 7")
}
