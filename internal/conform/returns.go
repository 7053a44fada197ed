package conform

import (
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"kprobe"
)

// fib(n) of conform.c calls itself: 2*fib(n+1)-1 calls in all.
var fibs = []uint64{0, 1, 1, 2, 3, 5, 8, 13}

const (
	fibRound = "fib 5"
	fibCalls = 2*8 - 1
)

// Calls beyond MaxActive are missed, and the entry-handler is not asked.
func maxActive(t *testing.T, v *Victim) {
	want := v.Start(t, fibRound)()
	s := v.Attach(t, nil)
	for _, c := range []struct{ max, hits int }{
		// The first is the outermost call; of two at a time, its own two calls too.
		{1, 1}, {2, 3}, {100, fibCalls},
	} {
		entries := 0
		rp := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "fib"}, MaxActive: c.max,
			EntryHandler: func(*kprobe.KretprobeInstance, *kprobe.Regs) int { entries++; return 0 }}
		ok(t, s.RegisterKretprobe(rp))
		v.same(t, s, want, fibRound)
		if int(rp.Hits()) != c.hits || int(rp.NMissed()) != fibCalls-c.hits || entries != c.hits {
			t.Errorf("MaxActive %d: %d returned, %d missed, %d entry-handlers; want %d, %d, %d",
				c.max, rp.Hits(), rp.NMissed(), entries, c.hits, fibCalls-c.hits, c.hits)
		}
		ok(t, s.UnregisterKretprobe(rp))
		if rp.Kp.Addr != 0 || rp.Kp.Registered() {
			t.Errorf("unregistered, and at %v", rp.Kp.Addr)
		}
		// The counts begin anew.
		ok(t, s.RegisterKretprobe(rp))
		if rp.Hits() != 0 || rp.NMissed() != 0 {
			t.Errorf("%d hits and %d misses at the start", rp.Hits(), rp.NMissed())
		}
		ok(t, s.UnregisterKretprobe(rp))
	}
	byDefault := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "deep"}}
	ok(t, s.RegisterKretprobe(byDefault))
	n := byDefault.MaxActive
	v.play(t, s, "deep %d", n+3)
	if n < 10 || int(byDefault.Hits()) != n || byDefault.NMissed() != 3 {
		t.Errorf("MaxActive is %d by default: %d returned, %d missed of 3 more", n, byDefault.Hits(), byDefault.NMissed())
	}
}

// A non-zero result of the entry-handler leaves this call alone; that is no miss.
func entryHandlerVeto(t *testing.T, v *Victim) {
	want := v.Start(t, fibRound)()
	s := v.Attach(t, nil)
	var odd, even, reported int
	rp := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "fib"}, MaxActive: 100}
	rp.EntryHandler = func(ri *kprobe.KretprobeInstance, regs *kprobe.Regs) int {
		if n, _ := regs.Arg(0); n%2 == 1 {
			odd++
			return 1
		}
		even++
		return 0
	}
	rp.Handler = func(*kprobe.KretprobeInstance, *kprobe.Regs) int { reported++; return 0 }
	ok(t, s.RegisterKretprobe(rp))
	v.same(t, s, want, fibRound)
	if reported != even || odd == 0 || even == 0 || odd+even != fibCalls || rp.NMissed() != 0 {
		t.Errorf("%d odd, %d even, %d reported, %d missed", odd, even, reported, rp.NMissed())
	}
}

// Private data of each instance, zero at the start.
func privateData(t *testing.T, v *Victim) {
	want := v.Start(t, fibRound)()
	s := v.Attach(t, nil)
	for _, size := range []int{0, 1, 8, kprobe.MaxData} {
		entered, wrong := 0, 0
		rp := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "fib"}, MaxActive: 20, DataSize: size}
		rp.EntryHandler = func(ri *kprobe.KretprobeInstance, regs *kprobe.Regs) int {
			entered++
			n, _ := regs.Arg(0)
			if len(ri.Data) != size || slices.ContainsFunc(ri.Data, func(b byte) bool { return b != 0 }) {
				wrong++
			}
			for i := range ri.Data {
				ri.Data[i] = byte(n + 1)
			}
			return 0
		}
		rp.Handler = func(ri *kprobe.KretprobeInstance, regs *kprobe.Regs) int {
			// What was kept of the argument tells which result it must be.
			if size > 0 && regs.ReturnValue() != fibs[ri.Data[size-1]-1] || regs.PC() != ri.RetAddr || ri.Rp != rp || ri.Entry != rp.Kp.Addr {
				wrong++
			}
			return 1 // is ignored
		}
		ok(t, s.RegisterKretprobe(rp))
		v.same(t, s, want, fibRound)
		if entered != fibCalls || wrong != 0 || int(rp.Hits()) != entered {
			t.Errorf("%d bytes: %d entered, %d returned, %d wrong", size, entered, rp.Hits(), wrong)
		}
		ok(t, s.UnregisterKretprobe(rp))
	}
	for _, size := range []int{kprobe.MaxData + 1, 1 << 30, -1} {
		rp := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "fib"}, DataSize: size}
		errno(t, s.RegisterKretprobe(rp), syscall.E2BIG)
		if rp.Kp.Registered() || rp.Kp.Addr != 0 {
			t.Errorf("%d bytes: registered", size)
		}
	}
}

// Several on one function, a kprobe and a jprobe beside them; a result changed.
func returnsTogether(t *testing.T, v *Victim) {
	s := v.Attach(t, nil)
	var order []string
	note := func(name string) *kprobe.Kretprobe {
		return &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "jumper"},
			EntryHandler: func(*kprobe.KretprobeInstance, *kprobe.Regs) int { order = append(order, "enter "+name); return 0 },
			Handler: func(ri *kprobe.KretprobeInstance, regs *kprobe.Regs) int {
				if regs.PC() != ri.RetAddr {
					t.Errorf("%s: return address %v, PC %v", name, ri.RetAddr, regs.PC())
				}
				order = append(order, "leave "+name)
				if name == "b" {
					regs.SetReturnValue(regs.ReturnValue() + 1000)
				}
				return 0
			}}
	}
	a, b := note("a"), note("b")
	k := &kprobe.Kprobe{SymbolName: "jumper", PreHandler: pre(func(*kprobe.Regs) { order = append(order, "k") }),
		PostHandler: func(*kprobe.Kprobe, *kprobe.Regs, uint64) { order = append(order, "post k") }}
	j := &kprobe.Jprobe{Kp: kprobe.Kprobe{SymbolName: "jumper"}, Entry: func(a, b uint64) { order = append(order, "j") }}
	ok(t, s.RegisterJprobe(j))
	ok(t, s.RegisterKretprobe(a))
	register(t, s, k)
	ok(t, s.RegisterKretprobe(b))
	if got := v.sum(t, s, 1); got != 1000 {
		t.Errorf("the result is %d, not what the handler made of it", got)
	}
	if got := strings.Join(order, ", "); got != "enter b, k, enter a, j, post k, leave a, leave b" &&
		got != "enter b, k, enter a, j, post k, leave b, leave a" {
		t.Errorf("order: %s", got)
	}
	ok(t, s.DisableKretprobe(b))
	order = nil
	if got := v.sum(t, s, 1); got != 0 || slices.Contains(order, "enter b") {
		t.Errorf("disabled: result %d, %q", got, order)
	}
	ok(t, s.EnableKretprobe(b))
	if got := v.sum(t, s, 1); got != 1000 {
		t.Errorf("enabled: result %d", got)
	}
}

// What happens to a call that is under way when its probe goes.
func callsUnderWay(t *testing.T, v *Victim) {
	for _, c := range []struct {
		name string
		do   func(s *kprobe.Session, rp *kprobe.Kretprobe) error
		hits int64
	}{
		{"unregister", func(s *kprobe.Session, rp *kprobe.Kretprobe) error { return s.UnregisterKretprobe(rp) }, 0},
		{"disable", func(s *kprobe.Session, rp *kprobe.Kretprobe) error { return s.DisableKretprobe(rp) }, 1},
		{"switch off", func(s *kprobe.Session, rp *kprobe.Kretprobe) error { return s.SetEnabled(false) }, 1},
		{"close", func(s *kprobe.Session, rp *kprobe.Kretprobe) error { return s.Close() }, 0},
		{"nothing", func(s *kprobe.Session, rp *kprobe.Kretprobe) error { return nil }, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := v.Text(t)
			s := v.Attach(t, nil)
			var ran atomic.Int64
			rp := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "waits"},
				Handler: func(*kprobe.KretprobeInstance, *kprobe.Regs) int { ran.Add(1); return 0 }}
			ok(t, s.RegisterKretprobe(rp))
			v.Start(t, "enter")()
			ok(t, c.do(s, rp))
			if c.name == "close" && !slices.Equal(before, v.Text(t)) {
				t.Error("the text is not what it was")
			}
			if got := v.Start(t, "leave")(); !slices.Equal(got, []string{"returned 42"}) {
				t.Error(got)
			}
			if n := ran.Load(); n != c.hits {
				t.Errorf("the handler ran %d times, want %d", n, c.hits)
			}
			if c.name == "unregister" {
				// The probe is as new: its instance did not stay behind.
				rp.MaxActive = 1
				ok(t, s.RegisterKretprobe(rp))
				v.Start(t, "enter")()
				v.play(t, s, "leave")
				if rp.Hits() != 1 || rp.NMissed() != 0 {
					t.Errorf("registered again: %d returned, %d missed", rp.Hits(), rp.NMissed())
				}
			}
			if c.name != "close" {
				ok(t, s.Close()) // for the next
			}
		})
	}
}

// Only a function's entry has returns, and a probe belongs to one struct.
func returnRefused(t *testing.T, v *Victim) {
	s := v.Attach(t, nil)
	at, _ := where(t, s, "fib")
	for _, c := range []struct {
		kp    *kprobe.Kretprobe
		errno syscall.Errno
	}{
		{&kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "fib", Offset: uint64(at[2] - at[0])}}, syscall.EINVAL},
		{&kprobe.Kretprobe{Kp: kprobe.Kprobe{Addr: at[2]}}, syscall.EINVAL},
		{&kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "fibb"}}, syscall.ENOENT},
		{&kprobe.Kretprobe{}, syscall.EINVAL},
		{nil, syscall.EINVAL},
	} {
		errno(t, s.RegisterKretprobe(c.kp), c.errno)
	}
	rp := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "fib"}}
	ok(t, s.RegisterKretprobe(rp))
	errno(t, s.RegisterKretprobe(rp), syscall.EINVAL)
	errno(t, s.RegisterKprobe(&rp.Kp), syscall.EINVAL) // it belongs to the return probe
}
