//go:build linux && amd64

package ptrace_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"kprobe/arch"
	"kprobe/internal/faults"
	"kprobe/internal/proc"
	"kprobe/internal/testprog"
	"kprobe/target"
	"kprobe/target/ptrace"
)

// A process whose only thread waits in vfork can do nothing for us, and the error says for whom it
// waits. It is let go as it was.
func TestNobodyButAThreadInVfork(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "vforked", "-O2"))
	prog.Send("1")
	prog.Expect("child")
	testprog.Until(t, "the other thread ends", prog.Pid, func() bool {
		tids, err := proc.Process(prog.Pid).Threads()
		return err == nil && len(tids) == 1
	})
	p, err := ptrace.Attach(prog.Pid)
	if err != nil {
		t.Fatal(err)
	}
	p.Run(func() {
		stops, e := p.Freeze()
		if e != nil || len(stops) != 0 {
			t.Errorf("the target stopped for %v, %v", stops, e)
		}
		err = p.Alloc(arch.Addr(0x10000000), 4096)
		p.Thaw()
	})
	says := fmt.Sprintf("thread %d waits in vfork for its child ", prog.Pid)
	if !errors.Is(err, target.ErrNotNow) || !strings.Contains(err.Error(), says) {
		t.Errorf("%v, which does not say %q", err, says)
	}
	prog.Send("go on")
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	prog.Expect("outer 5")
}

// A kick that comes before the wait that it is meant for is lost; the freeze does not wait for ever
// then for a thread that cannot stop.
func TestFreezeSurvivesALostKick(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "vforked", "-O2"))
	prog.Send("1")
	prog.Expect("child")
	testprog.Until(t, "the other thread ends", prog.Pid, func() bool {
		tids, err := proc.Process(prog.Pid).Threads()
		return err == nil && len(tids) == 1
	})
	p, err := ptrace.Attach(prog.Pid)
	if err != nil {
		t.Fatal(err)
	}
	late := false
	faults.Inject = func(c faults.Call) error {
		if c.Name == "waitid" && !late {
			late = true
			time.Sleep(100 * time.Millisecond) // on a busy machine, the way into the call takes longer than to the first kick
		}
		return nil
	}
	frozen := make(chan error, 1)
	go p.Run(func() {
		_, err := p.Freeze()
		p.Thaw()
		frozen <- err
	})
	err = testprog.Receive(t, "the target is frozen", prog.Pid, frozen)
	faults.Inject = nil
	if err != nil || !late {
		t.Errorf("%v, after a wait: %v", err, late)
	}
	prog.Send("go on")
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	prog.Expect("outer 5")
}
