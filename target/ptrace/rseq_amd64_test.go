//go:build linux && amd64

package ptrace_test

import (
	"fmt"
	"syscall"
	"testing"

	"kprobe/arch"
	"kprobe/internal/testprog"
	"kprobe/target/ptrace"
)

// A thread that makes a call for us while it is in a restartable sequence does not go on in the middle of that, but where the
// kernel leads a thread that is interrupted there.
func TestCallFromARestartableSequence(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "sequence", "-O2"))
	prog.Send("1")
	var begin, end, abort arch.Addr
	if _, err := fmt.Sscanf(prog.Line(), "in %x %x %x", &begin, &end, &abort); err != nil {
		t.Fatal(err)
	}
	p, err := ptrace.Attach(prog.Pid)
	if err != nil {
		t.Fatal(err)
	}
	// at reads the address at which the process's only thread stands.
	at := func() arch.Addr {
		var r arch.Regs
		if err := p.Regs(p.Threads()[0], &r); err != nil {
			t.Error(err)
		}
		return r.Addr(arch.AMD64.PC)
	}
	testprog.Until(t, "the thread is in the sequence", prog.Pid, func() (in bool) {
		p.Run(func() {
			if _, err := p.Freeze(); err != nil {
				t.Error(err)
			}
			defer p.Thaw()
			if pc := at(); pc < begin || pc >= end {
				return
			}
			in = true
			const page = arch.Addr(0x10000000)
			if err := p.Alloc(page, 4096); err != nil {
				t.Error(err)
			}
			if pc := at(); pc != abort {
				t.Errorf("the thread stands at %v, not at %v", pc, abort)
			}
			if err := p.Free(page, 4096); err != nil {
				t.Error(err)
			}
		})
		return in
	})
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if err := prog.Signal(syscall.SIGUSR1); err != nil {
		t.Error(err)
	}
	prog.Expect("left 1")
	prog.Expect("done")
}
