package calls

import (
	"testing"

	"kprobe/arch"
	"kprobe/internal/patch"
)

// A call ends in another, both are probed here and by the target itself, and what the target keeps of the first is
// not found: by a task that ends, a kernel keeps it off its lists. Both come back all the same, to the right places.
// A call of the slot that is new, and was never the target's, ends them.
func TestKeptUnseen(t *testing.T) {
	w := newWorld()
	u := New[int](w, arch.AMD64)
	u.SetTrampoline(trampolineAt)
	var first, last Probe[int]
	for _, p := range []*Probe[int]{&first, &last} {
		p.Reset(1, func() bool { return false })
	}
	const slot = stacksAt + 0x100
	swap := func(p *Probe[int]) {
		t.Helper()
		if outcome := u.Swap(p, Spot{Thread: 1, SP: slot}, func(*Call[int]) bool { return true }); outcome != Watched {
			t.Fatalf("outcome %d", outcome)
		}
	}
	returns := func(p *Probe[int], next arch.Addr) {
		t.Helper()
		r, ok := u.Returned(slot + 8)
		if !ok {
			t.Fatalf("a call is not known that comes back to %v", next)
		}
		if r.Next != next || len(r.Calls) != 1 || r.Calls[0].Probe != p {
			t.Fatalf("%+v, want one call to %v", r, next)
		}
		u.Done(r.Calls[0])
	}

	w.mem[slot] = sitesAt
	swap(&first)
	w.mem[slot] = foreignAt // and where ours is, nobody sees
	swap(&last)
	w.mem[slot] = foreignAt
	w.mem[slot] = trampolineAt
	returns(&last, foreignAt)
	w.mem[slot] = trampolineAt
	returns(&first, sitesAt)

	w.mem[slot] = sitesAt
	swap(&first)
	w.mem[slot] = foreignAt
	w.mem[slot] = sitesAt + 8
	swap(&last)
	if n := first.Lost(Longjmp); n != 1 {
		t.Errorf("%d calls are lost, want the one whose slot was used anew", n)
	}
	returns(&last, sitesAt+8)
}

// Two probes see a call by its exits. One is taken off them: what its call is lost by is that, whatever the other
// sees of the stack until the first is somebody's again.
func TestTakenOffExits(t *testing.T) {
	w := newWorld()
	u := New[int](w, arch.AMD64)
	var goes, stays Probe[int]
	leaving := false
	goes.Reset(2, func() bool { return leaving })
	stays.Reset(2, func() bool { return false })
	const outer, inner = stacksAt + 0x100, stacksAt + 0x80
	for _, slot := range []arch.Addr{outer, inner} {
		w.mem[slot] = sitesAt
		for _, p := range []*Probe[int]{&goes, &stays} {
			if outcome := u.Enter(p, Spot{Thread: 1, SP: slot}, 0, func(*Call[int]) bool { return true }); outcome != Watched {
				t.Fatalf("outcome %d", outcome)
			}
		}
	}
	leaving = true
	u.TakenOff(&goes)
	for _, slot := range []arch.Addr{inner, outer} {
		if c, tail, ok := u.Leave(&stays, Exit{Spot: Spot{Thread: 1, SP: slot}, Kind: patch.Ret, Leads: true, Next: sitesAt}); !ok || tail {
			t.Errorf("its call at %v: %v, tail %v, %v", slot, c, tail, ok)
		} else {
			u.Done(c)
		}
	}
	u.Orphan(&goes)
	if goes.Lost(Unregistered) != 2 || goes.Lost(Longjmp) != 0 {
		t.Errorf("%d lost by unregistering, %d by longjmp; want 2 and none", goes.Lost(Unregistered), goes.Lost(Longjmp))
	}
}

// A handler that is on its way when nothing stands at the exits any more begins no call, and one that has begun loses it: nobody would
// see its end, and the next call in its place would be told from it.
func TestUnseenExits(t *testing.T) {
	const slot = stacksAt + 0x100
	for _, c := range []struct {
		name      string
		blind     func(*UnderWay[int], *Probe[int]) bool
		meanwhile Outcome
	}{
		{"one probe", func(u *UnderWay[int], p *Probe[int]) bool { return u.Blind(p) }, Watched},
		{"all", func(u *UnderWay[int], _ *Probe[int]) bool { u.See(false); return true }, Missed},
		{"one that leaves", func(u *UnderWay[int], p *Probe[int]) bool { u.TakenOff(p); return true }, Missed},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld()
			w.mem[slot] = sitesAt
			u := New[int](w, arch.AMD64)
			var p Probe[int]
			p.Reset(2, func() bool { return false })
			at := Spot{Thread: 1, SP: slot}
			wanted := func(*Call[int]) bool { return true }
			if u.Enter(&p, at, 0, func(*Call[int]) bool { c.blind(u, &p); return true }); u.exits.Len() > 0 != (c.meanwhile == Watched) {
				t.Errorf("%d calls are watched where one began meanwhile", u.exits.Len())
			}
			if c.meanwhile == Watched {
				call, _, ok := u.Leave(&p, Exit{Spot: at, Kind: patch.Ret, Leads: true, Next: sitesAt})
				if !ok {
					t.Fatal("its return is not seen")
				}
				u.Done(call)
			}
			if !c.blind(u, &p) {
				t.Error("calls are said to be under way")
			}
			if o := u.Enter(&p, at, 0, wanted); o != Missed || u.exits.Len() > 0 {
				t.Errorf("a call that nobody sees end: outcome %d", o)
			}
			u.See(true)
			u.Sighted(&p)
			if o := u.Enter(&p, at, 0, wanted); o != Watched {
				t.Errorf("when the exits are seen again: outcome %d", o)
			}
			if n := p.Lost(Longjmp); n > 0 {
				t.Errorf("%d calls are told to have ended without returning", n)
			}
		})
	}
}
