package life

import (
	"syscall"
	"testing"

	"kprobe"
	"kprobe/internal/testprog"
	"kprobe/target/ptrace"
	"kprobe/test/harness"
)

// A process whose first thread has ended, and others not, is as good as any other: it can be probed, told what becomes of it, and
// restored. Its number is a zombie's then, of which the kernel tells no program, no memory and no mappings.

// leaderless is a program of lives.c without its first thread.
func leaderless(t *testing.T) *testprog.Proc {
	t.Helper()
	p := testprog.Start(t, testprog.Build(t, "lives", "-O2"))
	leaderLeaves(p)
	return p
}

func leaderLeaves(p *testprog.Proc) {
	p.Send("leader_leaves")
	p.Expect("done") // says the thread that speaks from now on
}

func TestLeaderlessIsProbed(t *testing.T) {
	p := leaderless(t)
	s := harness.Attach(t, p.Pid, nil)
	kp := &kprobe.Kprobe{SymbolName: "live_work", PreHandler: func(*kprobe.Kprobe, *kprobe.Regs) int { return 0 }}
	inside := &kprobe.Kprobe{SymbolName: "live_work", Program: kprobe.CountOnly}
	rp := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "live_work"}}
	harness.Register(t, s, kp)
	harness.Register(t, s, inside)
	harness.OK(t, s.RegisterKretprobe(rp))
	if got := p.Round("work 100")[0]; got != worked(100) {
		t.Error(got)
	}
	// The thread executes the program anew, and is the first one from then on.
	p.Send("thread_exec")
	p.Expect("ready")
	if got := p.Round("work 100")[0]; got != worked(100) {
		t.Error(got)
	}
	harness.Settle(t, s)
	if kp.Hits() != 200 || inside.Hits() != 200 || rp.Hits() != 200 {
		t.Errorf("%d and %d hits, %d returns", kp.Hits(), inside.Hits(), rp.Hits())
	}
	harness.Ends(t, p)
}

func TestLeaderlessEndsUnderProbes(t *testing.T) {
	p := leaderless(t)
	s := harness.Attach(t, p.Pid, nil)
	kp := &kprobe.Kprobe{SymbolName: "live_work", PreHandler: func(*kprobe.Kprobe, *kprobe.Regs) int { return 0 }}
	harness.Register(t, s, kp)
	p.Send("exit_group")
	exited(t, p.Wait(), 7)
	over(t, s, 7, 0)
}

// Its controller is killed, and the guardian, or a recovery, finds what there is to restore.
func TestLeaderlessIsRestored(t *testing.T) {
	for _, alone := range []bool{false, true} {
		p := testprog.Start(t, testprog.Build(t, "lives", "-O2"))
		c := harness.Controller(t, p.Pid, "live_work", "post!live_work")
		guardian := harness.GuardianOf(t, c.Process.Pid)
		leaderLeaves(p)
		if alone {
			syscall.Kill(guardian, syscall.SIGKILL)
		}
		c.Process.Kill()
		c.Wait()
		if alone {
			if got := p.Round("work 50")[0]; got != worked(50) {
				t.Error(got)
			}
			done, err := ptrace.Recover(p.Pid)
			if err != nil || len(done) != 1 || done[0].Err != nil {
				t.Fatalf("recovery: %v, %v", done, err)
			}
		}
		harness.Restored(t, p.Pid)
		if got := p.Round("work 100")[0]; got != worked(100) {
			t.Error(got)
		}
		harness.Ends(t, p)
	}
}
