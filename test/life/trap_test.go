package life

import (
	"slices"
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

// A program may set its handler of SIGTRAP while it is probed, and the handler may call what is probed. While it runs the kernel blocks
// the signal, and a trap that is met then would take the handler from the program, unless it is ours that is called first.
func TestTrapHandlerSetWhileProbedMeetsTraps(t *testing.T) {
	path := testprog.Build(t, "sigtraps", "-O2", "-pthread")
	lines := func(p *testprog.Proc, first string, then ...string) string {
		p.Round("%s", first)
		for _, line := range then {
			p.Send("%s", line)
			if !p.Until("done") {
				break
			}
		}
		return p.Result().String()
	}
	for _, how := range []string{"raise", "kill", "break"} {
		for _, c := range []struct {
			name string
			then []string
		}{
			{"itself", []string{how + " state", "work short", how + " state", "break state", "raise state"}},
			{"a child", []string{"fork " + how + " state work break state raise state", how + " state", "break state"}},
			{"after a child", []string{how + " state", "fork " + how + " state break state", "break state"}},
		} {
			t.Run(c.name+" "+how, func(t *testing.T) {
				unprobed := lines(testprog.Start(t, path), "handle nest", c.then...)
				for _, family := range []bool{false, true} {
					p := testprog.Start(t, path)
					if family {
						followed(t, p.Pid, "traps_work", "traps_short")
					} else {
						s := harness.Attach(t, p.Pid, nil)
						trapProbe(t, s, "traps_work", 0)
						trapProbe(t, s, "traps_short", 0)
					}
					if got := lines(p, "handle nest", c.then...); got != unprobed {
						t.Errorf("unprobed:\n%s\nprobed (followed: %v):\n%s", unprobed, family, got)
					}
				}
			})
		}
	}
}

// trapCourse has a program do what some lines say, and be probed before the last of them. It answers all that the program leaves.
func trapCourse(t *testing.T, path string, probe func(pid int), before, after []string) string {
	p := testprog.Start(t, path)
	for i, line := range append(slices.Clone(before), after...) {
		if i == len(before) {
			probe(p.Pid)
		}
		p.Send("%s", line)
		if !p.Until("done") {
			break
		}
	}
	return p.Result().String()
}

// sameTrapCourse holds a program that is probed to what it does unprobed.
func sameTrapCourse(t *testing.T, before, after []string) {
	t.Helper()
	path := testprog.Build(t, "sigtraps", "-O2", "-pthread")
	unprobed := trapCourse(t, path, func(int) {}, before, after)
	if got := trapCourse(t, path, func(pid int) {
		s := harness.Attach(t, pid, nil)
		trapProbe(t, s, "traps_work", 0)
		trapProbe(t, s, "traps_short", 0)
	}, before, after); got != unprobed {
		t.Errorf("unprobed:\n%s\nprobed:\n%s", unprobed, got)
	}
}

// A child of vfork has an action of its own, in its parent's memory. What it sets is not its parent's.
func TestTrapActionOfVforkChild(t *testing.T) {
	for _, action := range []string{"handle", "default", "ignore"} {
		t.Run(action, func(t *testing.T) {
			sameTrapCourse(t, []string{action}, []string{"vfork", "work", "raise state", "vfork", "work", "raise state"})
		})
	}
}

// A handler that is set for one signal is not called for the next, whether it was set before the probes or after.
func TestTrapHandlerForOnce(t *testing.T) {
	for _, nest := range []string{"", " nest"} {
		for _, word := range []string{"raise", "break"} {
			once, then := "once"+nest, []string{"work", word + " state", "work short", word + " state"}
			t.Run("before "+word+nest, func(t *testing.T) { sameTrapCourse(t, []string{once}, then) })
			t.Run("after "+word+nest, func(t *testing.T) { sameTrapCourse(t, []string{"default"}, append([]string{once}, then[1:]...)) })
		}
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
