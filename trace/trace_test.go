package trace_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"kprobe"
	"kprobe/event"
	"kprobe/internal/testprog"
	"kprobe/spec"
	"kprobe/target/ptrace"
	"kprobe/trace"
)

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func attach(t testing.TB, pid int, o *kprobe.Options) *kprobe.Session {
	t.Helper()
	p, err := ptrace.Attach(pid)
	ok(t, err)
	s, err := kprobe.Open(p, o)
	ok(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// Events of several threads at the same time: each has its own arguments.
func TestConformConcurrentEvents(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "threads", "-O2"), "4")
	want := p.Round("200")
	s := attach(t, p.Pid, &kprobe.Options{Concurrent: true})
	var mu sync.Mutex
	events, wrong := 0, 0
	tr := trace.New(s, func(e *event.Event) {
		in, out := e.Args[0].Bits, e.Args[1].Bits
		mu.Lock()
		defer mu.Unlock()
		events++
		if out != in*2862933555777941757+3037000493 { // hammer_mul
			wrong++
		}
	})
	ok(t, tr.Add("r100:mul hammer_mul in=$arg1:u64 out=$retval:u64"))
	if got := p.Round("200"); !slices.Equal(got, want) {
		t.Errorf("probed, a round gives %q, want %q", got, want)
	}
	mu.Lock()
	defer mu.Unlock()
	if events != 800 || wrong != 0 {
		t.Errorf("%d events, %d with another call's argument", events, wrong)
	}
	ok(t, tr.Close())
}

// A definition whose file comes later knows its place then.
func TestConformPendingDefinition(t *testing.T) {
	lib := testprog.Build(t, "dlib", "-shared", "-fPIC", "-O2")
	p := testprog.Start(t, testprog.Build(t, "dl", "-O2"), lib)
	s := attach(t, p.Pid, &kprobe.Options{Report: func(error) {}})
	var mu sync.Mutex
	var lines []string
	tr := trace.New(s, func(e *event.Event) {
		mu.Lock()
		defer mu.Unlock()
		lines = append(lines, string(e.AppendText(nil)))
	})
	ok(t, tr.Add("p:inner dlib.so:dlib_inner a=%di:s32"))
	place := func() string { return tr.Counts()[0].Place }
	if got := place(); got != "dlib.so:dlib_inner (not mapped)" {
		t.Errorf("place %q", got)
	}
	p.Round("open")
	p.Round("call 20")
	mu.Lock()
	defer mu.Unlock()
	if len(lines) != 1 || !strings.Contains(lines[0], "inner: (dlib_inner+0x0/") || !strings.HasSuffix(lines[0], "a=20") {
		t.Errorf("%q", lines)
	}
	if got := place(); !slices.Contains([]string{"dlib.so:dlib_inner", "dlib.so:dlib_inner+0x0"}, got) {
		t.Errorf("place %q", got)
	}
}

// Batches of definitions are all or nothing, deletions included.
func TestAddIsOneBatch(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "threads", "-O2"), "1")
	s := attach(t, p.Pid, nil)
	tr := trace.New(s, func(*event.Event) {})
	ok(t, tr.Add("p:one hammer_mul", "r:two hammer_mul $retval"))
	var bad *spec.SyntaxError
	if err := tr.Add("-:one", "p:three hammer_mul", "p:four no_such_function"); !errors.As(err, &bad) || bad.Code != spec.BadProbeAddr {
		t.Errorf("got %v", err)
	}
	if got := tr.Definitions(); len(got) != 2 || !strings.HasPrefix(got[1], "r:kprobes/two ") {
		t.Errorf("after a refused batch: %q", got)
	}
	ok(t, tr.Add("-:one", "p:three hammer_mul"))
	if got := s.List(); len(got) != 2 {
		t.Errorf("%d probes in the list: %v", len(got), got)
	}
	ok(t, tr.Close())
	if got := s.List(); len(got) != 0 {
		t.Errorf("left after Close: %v", got)
	}
}

// A plan is what registering would do, and does nothing.
func TestPlan(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "threads", "-O2"), "1")
	s := attach(t, p.Pid, nil)
	watch := "watch  debug register  (8 bytes, w)"
	if !testprog.Watches.On(t) {
		watch = "refuse"
	}
	for def, want := range map[string]string{
		"p hammer_mul":          "trap",
		"r hammer_mul":          "return address swapped",
		"p libnone.so:function": "pending",
		"p 0x10":                "refuse",
		"w w@rounds:8":          watch,
		"w r@rounds:8":          "refuse",
	} {
		es, err := trace.Plan(s, def)
		ok(t, err)
		if len(es) != 1 || !strings.Contains(es[0].String(), want) {
			t.Errorf("%s: %v, want %q", def, es, want)
		}
	}
	if got := s.List(); len(got) != 0 {
		t.Errorf("planning registered %v", got)
	}
}
