package conform

import (
	"sync/atomic"
	"testing"

	"kprobe"
	"kprobe/internal/testprog"
	"kprobe/test/harness"
)

// A probe whose program cannot run where it is to be is one with handlers, where it has said how; and it is refused where
// it has not. That one batch finds out: nobody has to ask before.
func TestOtherwiseHandlers(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "jumpers", "-O2"))
	s := harness.Attach(t, p.Pid, nil)
	ps := harness.Load(t, s, nil, nil, map[string]string{"works": "r0 = 0\nexit"})
	works, err := ps.Program("works") // for a kprobe
	harness.OK(t, err)

	var hits, returns, others atomic.Int64
	inside := &kprobe.Kprobe{SymbolName: "jumper", Program: works}
	inside.Otherwise = func(why error) { t.Errorf("a program that can run: %v", why) }

	// The program of another kind is seen before the place is.
	kind := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "jumper"}, Program: works}
	refused := s.Register(kind)
	if refused == nil {
		t.Fatal("a program of another kind is taken")
	}
	kind.Kp.Otherwise = func(why error) {
		kind.Program = nil
		kind.Handler = func(*kprobe.KretprobeInstance, *kprobe.Regs) int { returns.Add(1); return 0 }
	}

	// That another swaps the return address with another MaxActive is seen at the place, beside the rest of the batch.
	one := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "jumper"}, Engine: kprobe.EngineSwap, Program: kprobe.CountOnly, MaxActive: 4}
	two := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "jumper"}, Engine: kprobe.EngineSwap, Program: kprobe.CountOnly, MaxActive: 8}
	if err := s.Register(one, two); err == nil {
		t.Fatal("two that cannot share the calls are taken")
	}
	two.Kp.Otherwise = func(why error) {
		two.Program = nil
		two.Handler = func(*kprobe.KretprobeInstance, *kprobe.Regs) int { others.Add(1); return 0 }
	}
	handled := &kprobe.Kprobe{SymbolName: "jumper", PreHandler: func(*kprobe.Kprobe, *kprobe.Regs) int { hits.Add(1); return 0 }}
	harness.OK(t, s.Register(inside, kind, one, two, handled))
	p.Round("10")
	want := handled.Hits()
	if want == 0 || hits.Load() != int64(want) {
		t.Fatalf("%d hits, %d of the handler", want, hits.Load())
	}
	for name, got := range map[string]uint64{"inside": inside.Hits(), "kind": kind.Hits(), "one": one.Hits(), "two": two.Hits(),
		"handler of kind": uint64(returns.Load()), "handler of two": uint64(others.Load())} {
		if got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
	harness.OK(t, s.Unregister(inside, kind, one, two, handled))
}
