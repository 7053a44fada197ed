package life

import (
	"syscall"
	"testing"

	"kprobe"
	"kprobe/internal/testprog"
	"kprobe/target/ptrace"
	"kprobe/test/harness"
)

// A handler for SIGTRAP that a program sets while it is probed takes the place of ours. It stays when the session ends, in a child that is
// let go, and when a controller that was killed is cleaned up after: what was there before the probes is not put back over it.
func TestTrapHandlerSetWhileProbed(t *testing.T) {
	caught := func(p *testprog.Proc, want string) {
		t.Helper()
		if got := p.Round("trap")[0]; got != want {
			t.Error(got)
		}
	}
	t.Run("closed", func(t *testing.T) {
		p, s, _, _ := living(t)
		p.Round("catch_traps")
		if got := p.Round("child_trap")[0]; got != "child_trap 900" {
			t.Error(got)
		}
		harness.OK(t, s.Close())
		caught(p, "trapped 1")
	})
	for name, alone := range map[string]bool{"guarded": false, "alone": true} {
		t.Run(name, func(t *testing.T) {
			p := testprog.Start(t, testprog.Build(t, "lives", "-O2"))
			c := harness.Controller(t, p.Pid, "live_work")
			guardian := harness.GuardianOf(t, c.Process.Pid)
			p.Round("catch_traps")
			if alone {
				syscall.Kill(guardian, syscall.SIGKILL)
			}
			c.Process.Kill()
			c.Wait()
			if alone {
				if done, err := ptrace.Recover(p.Pid); err != nil || len(done) != 1 || done[0].Err != nil {
					t.Fatalf("recovery: %v, %v", done, err)
				}
			}
			harness.Restored(t, p.Pid)
			caught(p, "trapped 1")
		})
	}
}

// A program inherits that a signal is ignored. It does so, too, where a handler of ours was in the place of that until then.
func TestIgnoredTrapIsInherited(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "lives", "-O2"))
	p.Round("ignore_traps")
	s := harness.Attach(t, p.Pid, nil)
	kp := &kprobe.Kprobe{SymbolName: "live_work", PreHandler: func(*kprobe.Kprobe, *kprobe.Regs) int { return 0 }}
	harness.Register(t, s, kp)
	for range 2 {
		p.Send("thread_exec")
		p.Expect("ready")
		if got := p.Round("work 10")[0]; got != worked(10) {
			t.Error(got)
		}
		if got := p.Round("trap")[0]; got != "trapped 0" {
			t.Error(got)
		}
	}
	if kp.Hits() != 20 {
		t.Errorf("%d hits", kp.Hits())
	}
	harness.OK(t, s.Close())
	if got := p.Round("trap")[0]; got != "trapped 0" {
		t.Error(got)
	}
	harness.Ends(t, p)
}
