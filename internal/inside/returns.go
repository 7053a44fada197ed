package inside

import (
	"slices"
	"sync"

	"kprobe/arch"
	"kprobe/internal/segment"
	"kprobe/target"
)

// Returns is the account of one return probe: its counters. Detours at the function's entry and
// at its exits share it, and calls that are under way outlive any of these.
type Returns struct {
	owner *Owner
	first int // counter: inject.Counters of them, then returns, then calls that were not watched

	most  uint32 // calls that can be under way
	tried uint64 // how many were not watched when Reclaim last looked
}

const (
	returnsHits = segment.Counters + iota
	returnsMissed

	returnsCounters
)

// Owner is the return probe that an account is of. Its address tells it from others.
type Owner struct {
	Settled func(Tally) // told what the account had when it is closed
}

// accounts are those of an Inside. They are planned with by one and read by others.
type accounts struct {
	mu     sync.Mutex
	of     map[*Owner]*Returns
	over   []*Returns // their calls are still to be taken off the lists
	unused []int      // first counters of those that were given back
}

func (r *Returns) id() uint32  { return uint32(r.first) }
func (r *Returns) hits() int   { return r.first + returnsHits }
func (r *Returns) missed() int { return r.first + returnsMissed }

// Tally is what became of the calls of a return probe.
type Tally struct {
	Hits, Missed uint64
	Lost         [segment.Losses]uint64
}

// Add adds another.
func (t *Tally) Add(u Tally) {
	t.Hits, t.Missed = t.Hits+u.Hits, t.Missed+u.Missed
	for i, n := range u.Lost {
		t.Lost[i] += n
	}
}

// tally reads an account's counters.
func (in *Inside) tally(r *Returns) (t Tally) {
	var lost uint64
	t.Hits, _ = in.Seg.Counter(r.hits())
	t.Missed, lost = in.Seg.Counter(r.missed())
	t.Missed += lost // of threads that there was no room for
	for i := range t.Lost {
		t.Lost[i], _ = in.Seg.Counter(r.first + i)
	}
	return t
}

// newReturns opens an account. There can be as many as there are counters.
func (in *Inside) newReturns(owner *Owner) (*Returns, error) {
	r := &Returns{owner: owner}
	if n := len(in.returns.unused); n > 0 {
		r.first = in.returns.unused[n-1]
		in.returns.unused = in.returns.unused[:n-1]
		return r, nil
	}
	var err error
	r.first, err = in.counters(returnsCounters)
	return r, err
}

// closeReturns takes the counters of accounts back, which nothing refers to any more.
func (in *Inside) closeReturns(rs ...*Returns) {
	counters := make([]int, 0, returnsCounters*len(rs))
	for _, r := range rs {
		for i := range returnsCounters {
			counters = append(counters, r.first+i)
		}
		in.returns.unused = append(in.returns.unused, r.first)
	}
	in.Seg.ClearCounters(counters...)
}

// returnsOf finds or opens the account of a probe whose exits are probed.
func (b *Batch) returnsOf(owner *Owner) (*Returns, error) {
	rs := &b.in.returns
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if r := rs.of[owner]; r != nil {
		return r, nil
	}
	r, err := b.in.newReturns(owner)
	if err != nil {
		return nil, err
	}
	if rs.of == nil {
		rs.of = make(map[*Owner]*Returns)
	}
	rs.of[owner] = r
	b.opened = append(b.opened, r)
	return r, nil
}

// undoReturns closes the accounts that a batch has opened.
func (b *Batch) undoReturns() {
	rs := &b.in.returns
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, r := range b.opened {
		delete(rs.of, r.owner)
		b.in.closeReturns(r)
	}
}

// Tally is that of a probe whose exits are probed. ok is false where it has no account.
func (in *Inside) Tally(owner *Owner) (t Tally, ok bool) {
	in.returns.mu.Lock()
	defer in.returns.mu.Unlock()
	r := in.returns.of[owner]
	if r == nil {
		return t, false
	}
	return in.tally(r), true
}

// Accounts are the owners of all accounts.
func (in *Inside) Accounts() (owners []*Owner) {
	in.returns.mu.Lock()
	defer in.returns.mu.Unlock()
	for o := range in.returns.of {
		owners = append(owners, o)
	}
	return owners
}

// Active is how many calls of a probe are under way, in detours that probe its exits. Where a thread may
// be just about to begin one, in a retired detour, that counts as one.
func (in *Inside) Active(owner *Owner) int {
	in.returns.mu.Lock()
	defer in.returns.mu.Unlock()
	r := in.returns.of[owner]
	if r == nil {
		return 0
	}
	n := in.Seg.Active(r.id())
	for _, d := range in.retired {
		if slices.Contains(d.accounts, r) {
			n++
		}
	}
	return n
}

// Settle closes a probe's account, if it has one.
func (in *Inside) Settle(owner *Owner) {
	if t, ok := in.closeAccount(owner); ok {
		owner.Settled(t)
	}
}

func (in *Inside) closeAccount(owner *Owner) (t Tally, ok bool) {
	in.returns.mu.Lock()
	defer in.returns.mu.Unlock()
	r := in.returns.of[owner]
	if r == nil {
		return t, false
	}
	delete(in.returns.of, owner)
	in.returns.over = append(in.returns.over, r)
	return in.tally(r), true
}

// Over is how many of a probe's calls are lost though they are still on its lists: their goroutine has
// ended, or their return address is not in its place any more. The others are under way. The target is frozen,
// and nothing is at the probe's exits from now on, so that the same is not asked twice.
func (in *Inside) Over(owner *Owner, ended func(g arch.Addr, id uint64) bool, word func(arch.Addr) (uint64, error)) (t Tally, under uint64) {
	in.returns.mu.Lock()
	defer in.returns.mu.Unlock()
	r := in.returns.of[owner]
	if r == nil || in.Seg.Slots { // where a kernel's calls are, others may have put another address
		return t, 0
	}
	for _, u := range in.Seg.Under(r.id()) {
		if u.Goroutine != 0 {
			if ended(u.Goroutine, u.ID) {
				t.Lost[segment.LostGoexit]++
			} else {
				under++
			}
			continue
		}
		if !in.arch.RetAddrOnStack { // it is in a register, or wherever the function has put it
			under++
			continue
		}
		slot := arch.Addr(u.Place)
		if w, err := word(slot); err != nil || arch.Addr(w) != u.Ret && !in.leadsTo(slot, arch.Addr(w), u.Ret) {
			t.Lost[segment.LostUnwound]++
		} else {
			under++
		}
	}
	return t, under
}

// Exhausted tells whether calls of a kernel's were not watched because so many seem to be under way, since it was last
// asked.
func (in *Inside) Exhausted() bool {
	in.returns.mu.Lock()
	defer in.returns.mu.Unlock()
	for _, r := range in.returns.of {
		if missed := in.tally(r).Missed; missed != r.tried && in.Seg.Slots && in.Seg.Entered(r.id()) >= r.most {
			return true
		}
	}
	return false
}

// Reclaim gives up the calls of a kernel's whose tasks have ended, and tells how many they were: over knows that of the
// stack slot of a return address. The target is frozen; nothing is done where one of its CPUs is in a detour.
func (in *Inside) Reclaim(t target.Target, over func(slot arch.Addr) bool) (n int) {
	for _, th := range t.Threads() {
		var r arch.Regs
		if t.Regs(th, &r) != nil || in.Find(r.Addr(in.arch.PC)) != nil || in.Busy(r.Addr(in.arch.PC)) {
			return 0
		}
	}
	in.returns.mu.Lock()
	defer in.returns.mu.Unlock()
	for _, r := range in.returns.of {
		n += in.Seg.Reclaim(r.id(), func(u segment.Under) bool {
			if over(arch.Addr(u.Place)) {
				return true
			}
			word, err := in.word(t, arch.Addr(u.Place))
			return err != nil || word != u.Ret && !slices.Contains(in.cfg.carriers, word) && word != in.Seg.Other()
		})
		r.tried = in.tally(r).Missed
	}
	return n
}

// purge takes what closed accounts have left off the lists, if no detour can come to refer to
// it. The target is frozen, and none of its threads is in a routine.
func (in *Inside) purge() {
	in.returns.mu.Lock()
	defer in.returns.mu.Unlock()
	if len(in.returns.over) == 0 {
		return
	}
	used := make(map[*Returns]bool)
	for _, d := range in.detours {
		if d.vacant {
			continue
		}
		for _, r := range d.accounts {
			used[r] = true
		}
	}
	var over, left []*Returns
	for _, r := range in.returns.over {
		if used[r] {
			left = append(left, r)
			continue
		}
		in.Seg.Purge(r.id())
		over = append(over, r)
	}
	in.closeReturns(over...)
	in.returns.over = left
}
