package test

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"
	"time"

	"kprobe"
	"kprobe/internal/testprog"
)

// jumper(a, b) is a*3 + b; a round calls it with a's last result and 0, 1, 2 ...
func jumper(t testing.TB, o *kprobe.Options) (*testprog.Proc, *kprobe.Session) {
	t.Helper()
	p := testprog.Start(t, testprog.Build(t, "jumpers", "-O2"))
	return p, attach(t, p.Pid, o)
}

func sumOf(n int) (r uint64) {
	for i := range n {
		r = r*3 + uint64(i)
	}
	return r
}

func TestConformVectorChanges(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "args", "-O2"))
	s := attach(t, p.Pid, nil)
	half := &kprobe.Kprobe{SymbolName: "args_float", PreHandler: pre(func(regs *kprobe.Regs) {
		if f, err := regs.FloatArg(0); err != nil || f != 1.5 {
			t.Errorf("argument 0 is %v, %v", f, err)
		}
		v, err := regs.Vector(0)
		if err != nil {
			t.Error(err)
		}
		binary.LittleEndian.PutUint64(v[:], math.Float64bits(2.5))
		if err := regs.SetVector(0, v); err != nil {
			t.Error(err)
		}
	})}
	register(t, s, half)
	if got := round(t, s, p, "1"); !slices.Contains(got, "args_float 2.5 2.25 3 -4") {
		t.Errorf("%q", got)
	}
}

// Options.Concurrent: a handler that waits for a handler of another thread
// would wait for ever if they ran one after another.
func TestConformConcurrentHandlersMeet(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "threads", "-O2"), "2")
	want := p.Round("40")
	s := attach(t, p.Pid, &kprobe.Options{Concurrent: true})
	type visit struct {
		tid  int
		back chan int
	}
	meet := make(chan visit)
	kp := &kprobe.Kprobe{SymbolName: "hammer_add", PreHandler: pre(func(regs *kprobe.Regs) {
		me := visit{regs.Task().TID, make(chan int, 1)}
		select {
		case meet <- me:
			if <-me.back == me.tid {
				t.Error("a thread met itself")
			}
		case other := <-meet:
			other.back <- me.tid
			if other.tid == me.tid {
				t.Error("a thread met itself")
			}
		case <-t.Context().Done(): // the round does not end
		}
	})}
	register(t, s, kp)
	sameRound(t, s, p, want, "40")
	if kp.Hits() != 80 {
		t.Errorf("%d hits", kp.Hits())
	}
}

// While every thread of the target is in handlers all the time, a removal still
// comes to an end.
func TestConformUnregisterUnderLoad(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "threads", "-O2"), "4")
	s := attach(t, p.Pid, &kprobe.Options{Concurrent: true})
	slow := &kprobe.Kprobe{SymbolName: "hammer_add", PreHandler: pre(func(*kprobe.Regs) { time.Sleep(200 * time.Microsecond) })}
	register(t, s, slow)
	p.Send("1000")
	for i := range 20 {
		kp := &kprobe.Kprobe{SymbolName: "hammer_mul", PreHandler: pre(func(*kprobe.Regs) { time.Sleep(100 * time.Microsecond) })}
		register(t, s, kp)
		time.Sleep(time.Millisecond)
		start := time.Now()
		ok(t, s.UnregisterKprobe(kp))
		if d := time.Since(start); d > time.Minute {
			t.Fatalf("removal %d took %v", i, d)
		}
	}
	ok(t, s.DisableKprobe(slow))
	p.Expect("done")
	if slow.Hits() == 0 {
		t.Error("no hit")
	}
}
