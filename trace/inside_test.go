package trace_test

import (
	"runtime"
	"testing"

	"kprobe"
	"kprobe/event"
	"kprobe/internal/testprog"
	"kprobe/target/ptrace"
	"kprobe/trace"
)

// Who closes a session and never asks its tracer for the rest has the events nevertheless, and nobody
// looks for more: the memory may be another session's by then.
func TestTracerEndsWithItsSession(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "jumpers", "-O2"))
	before := runtime.NumGoroutine()
	target, err := ptrace.Attach(p.Pid)
	if err != nil {
		t.Fatal(err)
	}
	s, err := kprobe.Open(target, &kprobe.Options{Unlisted: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	events := make(chan *event.Event, 100)
	tr := trace.New(s, func(e *event.Event) { events <- e })
	tr.Inside = true
	if err := tr.Add("p:hit jumper n=$arg2"); err != nil {
		t.Fatal(err)
	}
	s.WaitOptimized()
	p.Round("10")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		testprog.Receive(t, "an event", p.Pid, events)
	}
	testprog.Until(t, "the goroutines of the session end", testprog.Here, func() bool { return runtime.NumGoroutine() <= before })
}
