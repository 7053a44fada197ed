package test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"kprobe/arch"
	"kprobe/internal/lifeline"
	"kprobe/internal/testprog"
)

// Controllers are killed by SIGKILL while their target is at work, at any moment
// from attaching to having closed: after each, the target has its own text, nobody
// traces it, and every answer that it gave in the meantime is right.
func TestSoakKilledControllers(t *testing.T) {
	usual := 5 // rounds with each victim
	if testing.Short() {
		usual = 2
	}
	soaks := testprog.Soak(t, 0) > 0
	rnd := testprog.Rand(t)
	var total atomic.Int64
	for range testprog.Rounds(t, 0, 1) {
		for _, name := range slices.Sorted(maps.Keys(victims)) {
			rounds := usual
			switch {
			case soaks:
				rounds = 25
			case name == blocking:
				continue
			}
			t.Run(name, func(t *testing.T) { total.Add(int64(torture(t, victims[name](t), rounds, rnd))) })
		}
		if t.Failed() {
			break
		}
	}
	t.Logf("%d rounds", total.Load())
}

// torture kills controllers of a working victim, and answers how many.
func torture(t *testing.T, v victim, rounds int, rnd *rand.Rand) int {
	t.Helper()
	order := tortureOrder{PID: v.pid}
	order.Entries, order.Returns = acceptable(t, v)
	w := startWork(t, v)
	defer w.stop()
	for i := range rounds {
		order.Seed = rnd.Uint64()
		c := startTortured(t, &order)
		// Short delays find what is short; the rest of a phase has long ones.
		phase := phases[rnd.IntN(len(phases))]
		delay := time.Duration(math.Exp(rnd.Float64()*math.Log(20e6)) * float64(time.Nanosecond))
		moment := fmt.Sprintf("round %d, controller %d killed %v after it said %q", i, c.Process.Pid, delay, phase)
		if err := c.until(phase); err != nil {
			t.Fatalf("%s: %v", moment, err)
		}
		time.Sleep(delay)
		c.Process.Kill()
		c.Wait()
		if err := healthy(v.pid, w); err != nil {
			t.Fatalf("%s: %v; %s", moment, err, outcome(v.proc))
		}
		if out := c.complaints(); len(out) > 0 {
			t.Errorf("%s: it said %q", moment, out)
		}
	}
	w.stop()
	t.Logf("%d rounds, %d entry and %d return probes, %d times work", rounds, len(order.Entries), len(order.Returns), w.done.Load())
	if w.done.Load() == 0 {
		t.Error("the program did no work")
	}
	return rounds
}

// acceptable asks the engine once where probes can be.
func acceptable(t *testing.T, v victim) (entries, returns []arch.Addr) {
	t.Helper()
	s := attach(t, v.pid, nil)
	for _, p := range registerEntries(t, s, entryProbes(t, v.funcs)) {
		entries = append(entries, p.Addr)
	}
	if v.returns {
		for _, rp := range registerReturns(t, s, returnProbes(t, v.funcs)) {
			returns = append(returns, rp.Kp.Addr)
		}
	}
	detach(t, s)
	return entries, returns
}

// work is what goes on with a victim all the time.
type work struct {
	done atomic.Int64
	over chan struct{}
	all  sync.WaitGroup
	once sync.Once
	fail chan error
}

func startWork(t testing.TB, v victim) *work {
	w := &work{over: make(chan struct{}), fail: make(chan error, len(v.work))}
	for _, f := range v.work {
		w.all.Go(func() {
			ended := true
			defer func() {
				if ended { // what f stands on has failed the test
					w.fail <- fmt.Errorf("the work has ended, done %d times", w.done.Load())
				}
			}()
			for {
				select {
				case <-w.over:
					ended = false
					return
				default:
				}
				if err := f(); err != nil {
					t.Errorf("after %d times of work: %v", w.done.Load(), err)
					return
				}
				w.done.Add(1)
			}
		})
	}
	return w
}

// await waits for a condition of a working victim, or for its first wrong answer.
func (w *work) await(pid int, cond func() error) (err error) {
	var wrong error
	err = testprog.Await(pid, func() error {
		select {
		case wrong = <-w.fail:
			return nil
		default:
			return cond()
		}
	})
	return errors.Join(wrong, err)
}

// goesOn waits until a victim has done its work so often again.
func (w *work) goesOn(pid int, times int64) error {
	more := w.done.Load() + times
	return w.await(pid, func() error {
		if w.done.Load() < more {
			return errors.New("no work is done any more")
		}
		return nil
	})
}

func (w *work) stop() {
	w.once.Do(func() { close(w.over) })
	w.all.Wait()
}

// healthy waits until a victim whose controller was killed is as it was, and
// has done some work since.
func healthy(pid int, w *work) error {
	if err := w.await(pid, func() error { return restoredNow(pid) }); err != nil {
		return err
	}
	return w.goesOn(pid, 1)
}

// restoredNow tells what there still is of a session.
func restoredNow(pid int) error {
	if left, err := lifeline.Journals(pid); err != nil || len(left) > 0 {
		return fmt.Errorf("journals are left: %v, %v", left, err)
	}
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(tasks) == 0 {
		return fmt.Errorf("tasks of %d: %v, %v", pid, tasks, err)
	}
	for _, task := range tasks {
		status, err := os.ReadFile(task)
		if err == nil && !strings.Contains(string(status), "\nTracerPid:\t0\n") {
			return fmt.Errorf("%s: still traced", task)
		}
	}
	fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, fd := range fds {
		if to, _ := os.Readlink(fd); strings.HasPrefix(to, "/memfd:kprobe") {
			return fmt.Errorf("descriptor %s is left: %s", filepath.Base(fd), to)
		}
	}
	diffs, err := testprog.TextDiff(pid)
	if err == nil && len(diffs) > 0 {
		err = fmt.Errorf("not restored: %v", diffs)
	}
	return err
}

// tortured is a controller at work.
type tortured struct {
	*exec.Cmd
	lines chan string
	rest  []string
}

func startTortured(t *testing.T, o *tortureOrder) *tortured {
	t.Helper()
	b, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "order")
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
	c := &tortured{Cmd: exec.Command(os.Args[0]), lines: make(chan string, 1000)}
	c.Env = append(os.Environ(), orderVariable+"="+name)
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Process.Kill(); c.Wait() })
	go func() {
		defer close(c.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			c.lines <- s.Text()
		}
	}()
	return c
}

// until waits for a phase.
func (c *tortured) until(phase string) error {
	var line string
	more := true
	for more && line != phase {
		err := testprog.Await(c.Process.Pid, func() error {
			select {
			case line, more = <-c.lines:
				return nil
			default:
				return errors.New("the controller says nothing more")
			}
		})
		if err != nil {
			c.Process.Signal(syscall.SIGQUIT) // its goroutines tell on standard error where they are
			return err
		}
		if more && !slices.Contains(phases, line) {
			c.rest = append(c.rest, line)
		}
	}
	if !more {
		return fmt.Errorf("the controller has ended: %q", c.rest)
	}
	return nil
}

// complaints is what it said that is no phase.
func (c *tortured) complaints() []string {
	for line := range c.lines {
		if !slices.Contains(phases, line) {
			c.rest = append(c.rest, line)
		}
	}
	return c.rest
}
