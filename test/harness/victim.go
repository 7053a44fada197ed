package harness

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"kprobe/internal/lifeline"
	"kprobe/internal/testprog"
	"kprobe/symbol"
)

// A victim is a program that works while its controllers are killed.
type Victim struct {
	Proc  *testprog.Proc
	PID   int             // of it, or of a child of its
	Funcs []symbol.Symbol // where to put probes
	// Returns may be put on a function too, where the engine does not refuse.
	Returns bool
	// Work asks the program for something and checks the answer. It is called
	// from goroutines of its own, one at a time for each.
	Work []func() error
}

// Work goes on with a victim all the time.
type Work struct {
	Done atomic.Int64
	over chan struct{}
	all  sync.WaitGroup
	once sync.Once
	Fail chan error
}

// StartWork has a victim work until Stop.
func StartWork(t testing.TB, v Victim) *Work {
	w := &Work{over: make(chan struct{}), Fail: make(chan error, len(v.Work))}
	for _, f := range v.Work {
		w.all.Go(func() {
			ended := true
			defer func() {
				if ended { // what f stands on has failed the test
					w.Fail <- fmt.Errorf("the work has ended, done %d times", w.Done.Load())
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
					t.Errorf("after %d times of work: %v", w.Done.Load(), err)
					return
				}
				w.Done.Add(1)
			}
		})
	}
	return w
}

// Await waits for a condition of a working victim, or for its first wrong answer.
func (w *Work) Await(pid int, cond func() error) (err error) {
	var wrong error
	err = testprog.Await(pid, func() error {
		select {
		case wrong = <-w.Fail:
			return nil
		default:
			return cond()
		}
	})
	return errors.Join(wrong, err)
}

// GoesOn waits until a victim has done its work so often again.
func (w *Work) GoesOn(pid int, times int64) error {
	more := w.Done.Load() + times
	return w.Await(pid, func() error {
		if w.Done.Load() < more {
			return errors.New("no work is done any more")
		}
		return nil
	})
}

// Stop ends the work.
func (w *Work) Stop() {
	w.once.Do(func() { close(w.over) })
	w.all.Wait()
}

// Healthy waits until a victim whose controller was killed is as it was, and
// has done some work since.
func Healthy(pid int, w *Work) error {
	if err := w.Await(pid, func() error { return restoredNow(pid) }); err != nil {
		return err
	}
	return w.GoesOn(pid, 1)
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

// Repeat gives a program that answers rounds one after the other. What it says
// must be what it said the first time.
func Repeat(p *testprog.Proc, round string) func() error {
	p.Round(round)
	want := p.Round(round)
	return func() error { return Differ(p.Round(round), want) }
}

// Differ tells answers that are not those that were wanted.
func Differ(got, want []string) error {
	if slices.Equal(got, want) {
		return nil
	}
	return fmt.Errorf("the answers are\n%s\nand not\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
}
