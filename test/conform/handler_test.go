package conform

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"
	"time"

	"kprobe"
	"kprobe/internal/testprog"
	"kprobe/test/harness"
)

func TestConformVectorChanges(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "args", "-O2"))
	s := harness.Attach(t, p.Pid, nil)
	half := &kprobe.Kprobe{SymbolName: "args_float", PreHandler: harness.Pre(func(regs *kprobe.Regs) {
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
	harness.Register(t, s, half)
	if got := harness.Round(t, s, p, "1"); !slices.Contains(got, "args_float 2.5 2.25 3 -4") {
		t.Errorf("%q", got)
	}
}

// Options.Concurrent: a handler that waits for a handler of another thread
// would wait for ever if they ran one after another.
func TestConformConcurrentHandlersMeet(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "threads", "-O2"), "2")
	want := p.Round("40")
	s := harness.Attach(t, p.Pid, &kprobe.Options{Concurrent: true})
	type visit struct {
		tid  int
		back chan int
	}
	meet := make(chan visit)
	kp := &kprobe.Kprobe{SymbolName: "hammer_add", PreHandler: harness.Pre(func(regs *kprobe.Regs) {
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
	harness.Register(t, s, kp)
	harness.SameRound(t, s, p, want, "40")
	if kp.Hits() != 80 {
		t.Errorf("%d hits", kp.Hits())
	}
}

// While every thread of the target is in handlers all the time, a removal still
// comes to an end.
func TestConformUnregisterUnderLoad(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "threads", "-O2"), "4")
	s := harness.Attach(t, p.Pid, &kprobe.Options{Concurrent: true})
	slow := &kprobe.Kprobe{SymbolName: "hammer_add", PreHandler: harness.Pre(func(*kprobe.Regs) { time.Sleep(200 * time.Microsecond) })}
	harness.Register(t, s, slow)
	p.Send("1000")
	for i := range 20 {
		kp := &kprobe.Kprobe{SymbolName: "hammer_mul", PreHandler: harness.Pre(func(*kprobe.Regs) { time.Sleep(100 * time.Microsecond) })}
		harness.Register(t, s, kp)
		time.Sleep(time.Millisecond)
		start := time.Now()
		harness.OK(t, s.UnregisterKprobe(kp))
		if d := time.Since(start); d > time.Minute {
			t.Fatalf("removal %d took %v", i, d)
		}
	}
	harness.OK(t, s.DisableKprobe(slow))
	p.Expect("done")
	if slow.Hits() == 0 {
		t.Error("no hit")
	}
}
