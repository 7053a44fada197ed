package segment

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// Keys come and go; those alive always have a state of their own, as long as
// there are enough.
func TestKeysComeAndGo(t *testing.T) {
	const threads = 100
	l := Layout{Threads: threads, Counters: 1}
	s, err := New(wide, l, 0x10000, make([]byte, l.Size()), 77)
	if err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	var keys []uint64         // of threads that are alive
	alive := map[uint64]int{} // their states
	rounds := 50000
	if testing.Short() {
		rounds = 5000
	}
	for range rounds {
		key := 0x7f0000000000 + rnd.Uint64N(1<<24)<<6
		_, known := alive[key]
		switch {
		case len(alive) == threads || rnd.IntN(2) == 0:
			if i := rnd.IntN(len(keys) + 1); i < len(keys) {
				if keys[i]%128 == 0 {
					s.Release(keys[i])
				} else {
					s.Forget(alive[keys[i]] + 1000)
				}
				delete(alive, keys[i])
				keys = slices.Delete(keys, i, i+1)
			}
		case !known:
			n := s.Assign(Thread{Key: key})
			if n < 0 {
				t.Fatalf("no state with %d of %d in use", len(alive), threads)
			}
			if again := s.Assign(Thread{Key: key, TID: 1000 + n}); again != n {
				t.Fatalf("state %d, then %d", n, again)
			}
			alive[key] = n
			keys = append(keys, key)
		}
		used := map[int]bool{}
		for k, n := range alive {
			if used[n] || s.Find(k) != n {
				t.Fatalf("key %#x has state %d, not %d, or not alone", k, s.Find(k), n)
			}
			used[n] = true
		}
	}
}

// Two threads turn out to have one thread pointer. Whatever the first of them had looked up before,
// or looks up now, it has one state; the second never gets that.
func TestSharedPointer(t *testing.T) {
	l := Layout{Threads: 100, Counters: 1}
	s, err := New(wide, l, 0x10000, make([]byte, l.Size()), 77)
	if err != nil {
		t.Fatal(err)
	}
	s.SetReadsBase()
	alone := func(uint64) int { return 1 }
	for n := range 3 * maxShared { // more than there is room for
		pointer, first, second := uint64(0x1000*(n+1)), 1000+2*n, 1001+2*n
		i := s.Assign(Thread{Key: s.KeyOf(pointer, false, first), TID: first})
		s.Share(pointer, first)
		j := s.Assign(Thread{Key: s.KeyOf(pointer, false, second), TID: second})
		if i < 0 || j < 0 || i == j || s.Find(s.IDKey(first)) != i || s.Find(s.IDKey(second)) != j {
			t.Fatalf("pair %d: states %d and %d; by their ids they have %d and %d", n, i, j, s.Find(s.IDKey(first)), s.Find(s.IDKey(second)))
		}
		if found := s.Find(pointer); found != i && n < maxShared {
			t.Fatalf("pair %d: who was on its way by the pointer finds %d, not %d", n, found, i)
		}
		if n == maxShared/2 {
			s.Settle(func(uint64) int { return 2 })
			if !s.shared(pointer) || s.Find(pointer) >= 0 || s.Find(s.IDKey(first)) != i {
				t.Errorf("settled, the pointer leads to %d and the id to %d", s.Find(pointer), s.Find(s.IDKey(first)))
			}
		}
		if n%3 == 0 { // the first ends, and its state is another's
			s.Forget(first)
			if s.Find(pointer) >= 0 || s.Find(s.IDKey(first)) >= 0 {
				t.Fatalf("pair %d: a dead thread's keys lead to states %d and %d", n, s.Find(pointer), s.Find(s.IDKey(first)))
			}
		}
		s.Forget(second)
	}
	s.Settle(alone)
	if !s.Settled() || s.shared(0x1000) {
		t.Error("a pointer of one thread is not its key again")
	}
}
