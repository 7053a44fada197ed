package testprog

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"kprobe/internal/patience"
)

// Here is the subject of a wait for the test's own goroutines.
const Here = 0

// Until waits until cond holds, and fails the test where it does not: the one way to wait for something.
//
// The subject is the process that brings it about. What Patience counts is time in which that process, with its threads
// and descendants, runs or has nothing to do. Time in which it is ready to run and others have the CPUs does not count,
// so a busy machine fails no test.
func Until(t testing.TB, what string, subject int, cond func() bool) {
	t.Helper()
	UntilNil(t, what, subject, func() error {
		if cond() {
			return nil
		}
		return errNotYet
	})
}

var errNotYet = errors.New("it does not come")

// UntilNil is Until for a condition that tells what is missing yet: the failure has its last error.
func UntilNil(t testing.TB, what string, subject int, cond func() error) {
	t.Helper()
	if err := Await(subject, cond); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// Await is UntilNil for callers that tell of the failure themselves.
func Await(subject int, cond func() error) error { return AwaitFor(Patience, subject, cond) }

// AwaitFor is Await with another patience.
func AwaitFor(most time.Duration, subject int, cond func() error) error {
	p := patience.Of(subject, most)
	for pause := shortest; ; pause = min(2*pause, longest) {
		err := cond()
		if err == nil {
			return nil
		}
		if p.Spent() {
			return fmt.Errorf("%w, after %v\n%s", err, p.Took().Round(time.Second), tell(subject))
		}
		time.Sleep(pause)
	}
}

// Receive waits for a value of a channel, or for its end, as Until does.
func Receive[T any](t testing.TB, what string, subject int, ch <-chan T) (v T) {
	t.Helper()
	Until(t, what, subject, func() bool {
		select {
		case v = <-ch:
			return true
		default:
			return false
		}
	})
	return v
}

// Context is cancelled when the test ends, or fails since its subject has taken longer than Until would wait.
func Context(t testing.TB, what string, subject int) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() {
		defer close(over)
		defer cancel()
		err := Await(subject, func() error {
			if ctx.Err() != nil {
				return nil
			}
			return errNotYet
		})
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}()
	t.Cleanup(func() { cancel(); <-over })
	return ctx
}

// Patience is how long a subject may take for what takes it less than seconds.
const Patience = 3 * time.Minute

const (
	shortest = 100 * time.Microsecond // between two looks, at first
	longest  = 10 * time.Millisecond  // and later
)

// tell tells what the subject of a wait does.
func tell(subject int) string {
	if subject != Here {
		return States(subject)
	}
	stacks := make([]byte, 1<<20)
	return string(stacks[:runtime.Stack(stacks, true)]) + States(os.Getpid())
}

// Ran waits until a process, with its threads and descendants, has run for so long: what was under way goes on meanwhile.
// It must be one that has something to do.
func Ran(t testing.TB, pid int, long time.Duration) {
	t.Helper()
	before := patience.Ran(pid)
	Until(t, fmt.Sprintf("process %d runs for %v", pid, long), pid, func() bool { return patience.Ran(pid)-before >= long })
}

// Blocked waits until a goroutine is in a function, by a part of its name, and waits there for something.
func Blocked(t testing.TB, function string) {
	t.Helper()
	Until(t, "a goroutine waits in "+function, Here, func() bool {
		stacks := make([]byte, 1<<20)
		for stack := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
			if waiting.MatchString(stack) && strings.Contains(stack, function) {
				return true
			}
		}
		return false
	})
}

// waiting fits the stack of a goroutine that waits.
var waiting = regexp.MustCompile(`^goroutine \d+ .*\[(chan|select|sync|semacquire|IO wait|sleep|syscall)`)
