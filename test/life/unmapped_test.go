package life

import (
	"sync/atomic"
	"testing"

	"kprobe"
	"kprobe/event"
	"kprobe/internal/testprog"
	"kprobe/target/ptrace"
	"kprobe/test/harness"
	"kprobe/trace"
)

// A library comes and goes all the time. Whatever is done to probes in it, at whatever moment: a probe whose code has just been unmapped
// waits for it. That is no error, nothing is reported, and nothing stays behind.
func TestLibraryGoesMeanwhile(t *testing.T) {
	rounds := 200
	if testing.Short() {
		rounds = 25
	}
	lib := testprog.Build(t, "dlib", "-shared", "-fPIC", "-O2")
	p := testprog.Start(t, testprog.Build(t, "dl", "-O2"), lib)
	w := harness.StartWork(t, harness.Victim{Proc: p, PID: p.Pid, Work: []func() error{harness.Repeat(p, "cycle 20")}})
	defer w.Stop()
	var hits atomic.Int64
	for round := range rounds {
		proc, err := ptrace.Attach(p.Pid)
		if err != nil {
			t.Fatal(err)
		}
		what := "attach"
		var tr *trace.Tracer
		ready := make(chan struct{})
		s, err := kprobe.Open(proc, &kprobe.Options{
			Unlisted: true,
			Report:   func(err error) { t.Errorf("round %d, %s: reported: %v", round, what, err) },
			Mapped: func(*kprobe.Session) {
				<-ready
				if left, err := tr.Remap(); err != nil || len(left) > 0 {
					t.Errorf("round %d: %v %v", round, left, err)
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		do := func(step string, f func() error) {
			if what = step; !t.Failed() {
				if err := f(); err != nil {
					t.Errorf("round %d, %s: %v", round, step, err)
				}
			}
		}
		tr = trace.New(s, func(*event.Event) { hits.Add(1) })
		tr.Inside = round%2 == 0
		close(ready)
		do("one function", func() error { return tr.Add("p dlib.so:dlib_inner", "r dlib.so:dlib_call $retval") })
		do("a pattern", func() error { return tr.Add("p:all/ dlib.so:dlib_*") })
		do("all off", func() error { return s.SetEnabled(false) })
		do("all on", func() error { return s.SetEnabled(true) })
		kp := &kprobe.Kprobe{SymbolName: "dlib.so:dlib_inner", Patient: true, PreHandler: func(*kprobe.Kprobe, *kprobe.Regs) int { return 0 }}
		do("register", func() error { return s.RegisterKprobe(kp) })
		do("disable", func() error { return s.DisableKprobe(kp) })
		do("enable", func() error { return s.EnableKprobe(kp) })
		do("unregister", func() error { return s.UnregisterKprobe(kp) })
		if round%4 < 2 {
			do("deletion", func() error { return tr.Add("-:p_dlib_so_dlib_inner_0") })
		}
		what = "close"
		if err := s.Close(); err != nil {
			t.Errorf("round %d, close: %v", round, err)
		}
		if t.Failed() {
			break
		}
	}
	w.Stop()
	if hits.Load() == 0 {
		t.Error("no hit")
	}
	harness.Ends(t, p)
}
