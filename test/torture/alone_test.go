package torture

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"kprobe/arch"
	"kprobe/internal/lifeline"
	"kprobe/internal/testprog"
	"kprobe/target/ptrace"
	"kprobe/test/harness"
)

// abandoned arms probes on a working victim, and kills who put them there and
// who would restore it.
func abandoned(t *testing.T, v harness.Victim) *harness.Work {
	t.Helper()
	order := tortureOrder{PID: v.PID, Hold: true}
	order.Entries, order.Returns = acceptable(t, v)
	w := harness.StartWork(t, v)
	t.Cleanup(w.Stop)
	abandon(t, &order)
	return w
}

func abandon(t *testing.T, order *tortureOrder) {
	t.Helper()
	c := startTortured(t, order)
	if err := c.until("armed"); err != nil {
		t.Fatal(err)
	}
	guardian := harness.GuardianOf(t, c.Process.Pid)
	time.Sleep(rand.N(armedFor))
	if err := syscall.Kill(guardian, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	c.Process.Kill()
	c.Wait()
}

// With nobody left, the program works on with all the probes in place; then
// Recover restores it.
func TestTargetLivesOnAlone(t *testing.T) {
	names := []string{"rets", "threads", "go", "redis", "throws", "nginx"}
	if testing.Short() {
		names = []string{"threads", "go", "redis"}
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			v := victims[name](t)
			w := abandoned(t, v)
			harness.OK(t, w.GoesOn(v.PID, 10))
			if diffs, err := testprog.TextDiff(v.PID); err != nil || len(diffs) == 0 {
				t.Fatalf("there are no probes in it: %v", err)
			}
			done, err := ptrace.Recover(v.PID)
			if err != nil || len(done) != 1 || done[0].PID != v.PID || done[0].Err != nil {
				t.Fatalf("recovery: %v, %v", done, err)
			}
			if err := harness.Healthy(v.PID, w); err != nil {
				t.Fatal(err)
			}
			if done, err := ptrace.Recover(v.PID); err != nil || len(done) != 0 {
				t.Errorf("another recovery found %v, %v", done, err)
			}
		})
	}
}

// With nobody left, a fork makes two of the calls that it comes in, one of which nobody takes out of the session's code: in
// parent and child they return right.
func TestForkWithNobodyLeft(t *testing.T) {
	for _, how := range []string{"stat", "trace --stops", "trace", "stat -m32"} {
		if testing.Short() && how == "trace" {
			continue
		}
		t.Run(how, func(t *testing.T) {
			verb, narrow := strings.CutSuffix(how, " -m32")
			flags := []string{"-O2"}
			if narrow {
				flags = append(flags, "-m32")
			}
			p := testprog.Start(t, testprog.Build(t, "lives", flags...))
			args := append(strings.Fields(verb), "-p", strconv.Itoa(p.Pid), "r lives:live_forks", "r lives:live_around", "r libc.so.6:fork")
			k := testprog.StartCmd(t, exec.Command(testprog.Command(t, "kprobe/cmd/kprobe"), args...))
			testprog.UntilNil(t, "it is armed", p.Pid, func() error {
				diffs, err := testprog.TextDiff(p.Pid)
				harness.OK(t, err)
				if len(diffs) < 3 { // all three: traps, of which some have become jumps
					return fmt.Errorf("changes are %q, and kprobe runs: %v", diffs, k.Alive())
				}
				return nil
			})
			p.Send("fork_within")
			p.Expect("within")
			harness.OK(t, syscall.Kill(harness.GuardianOf(t, k.Pid), syscall.SIGKILL))
			harness.OK(t, k.Signal(syscall.SIGKILL))
			k.Wait()
			p.Send("")
			if got := p.Expect("fork_within"); got != "fork_within 6" {
				t.Error(got)
			}
			if done, err := ptrace.Recover(p.Pid); err != nil || len(done) != 1 || done[0].Err != nil {
				t.Errorf("recovery: %v, %v", done, err)
			}
			harness.Ends(t, p)
		})
	}
}

// A journal about another process that had the pid, or another program that the
// process executed, or about memory that is not a session's, leaves it alone.
func TestRecoverTouchesNobodyElse(t *testing.T) {
	v := victims["rets"](t)
	w := abandoned(t, v)
	paths, err := lifeline.Journals(v.PID)
	if err != nil || len(paths) != 1 {
		t.Fatalf("journals: %v, %v", paths, err)
	}
	real, err := lifeline.Load(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	before, err := testprog.TextDiff(v.PID)
	if err != nil {
		t.Fatal(err)
	}
	os.Remove(paths[0])
	for what, change := range map[string]func(*lifeline.Journal){
		"start time": func(j *lifeline.Journal) { j.Start++ },
		"program":    func(j *lifeline.Journal) { j.BuildID += "0" },
		"session":    func(j *lifeline.Journal) { j.ID++ },
		"place":      func(j *lifeline.Journal) { j.Base += 4096 },
		"nowhere":    func(j *lifeline.Journal) { j.Base = arch.Addr(4096) },
	} {
		wrong := lifeline.Journal{PID: real.PID, Start: real.Start, BuildID: real.BuildID, Base: real.Base,
			ID: real.ID, Controller: real.Controller, ControllerStart: real.ControllerStart}
		change(&wrong)
		if err := wrong.Save(); err != nil {
			t.Fatal(err)
		}
		done, err := ptrace.Recover(v.PID)
		if err != nil || len(done) != 1 || !errors.Is(done[0].Err, ptrace.ErrNothing) {
			t.Errorf("with another %s: %v, %v", what, done, err)
		}
		if diffs, err := testprog.TextDiff(v.PID); err != nil || fmt.Sprint(diffs) != fmt.Sprint(before) {
			t.Errorf("with another %s, the text changed: %v, %v", what, diffs, err)
		}
		if _, err := os.Stat(wrong.Path()); err == nil {
			t.Errorf("with another %s, the journal is still there", what)
			os.Remove(wrong.Path())
		}
	}
	if err := real.Save(); err != nil {
		t.Fatal(err)
	}
	if done, err := ptrace.Recover(v.PID); err != nil || len(done) != 1 || done[0].Err != nil {
		t.Errorf("the true journal: %v, %v", done, err)
	}
	if err := harness.Healthy(v.PID, w); err != nil {
		t.Error(err)
	}
}
