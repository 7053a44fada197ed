package roles

import (
	"fmt"
	"slices"
	"sync/atomic"
	"syscall"

	"kprobe/arch"
	"kprobe/bpf"
	"kprobe/internal/calls"
	"kprobe/internal/errno"
	"kprobe/internal/inside"
	"kprobe/internal/kind"
	"kprobe/internal/probed"
	"kprobe/internal/returns"
	"kprobe/internal/segment"
	"kprobe/internal/within"
	"kprobe/symbol"
)

// Return is a return probe as a session has it. The zero value is ready for Prepare.
type Return struct {
	AskedReturn

	Hits, Missed atomic.Uint64 // by handlers

	entry   *Probe
	watch   calls.Probe[*Instance]
	account *inside.Owner // of its calls, while it is registered
	plan    *returns.Plan // since its function has been found
	exits   []*Probe      // on them
}

// AskedReturn has the caller's wishes.
type AskedReturn struct {
	MaxActive, DataSize   int
	Engine                returns.Engine
	Program, EntryProgram *Program
	Handlers              ReturnHandlers // without programs
}

// ReturnHandlers are a return probe's that run in the controller.
type ReturnHandlers interface {
	// Entered tells whether the return of a call that has begun is to be reported.
	Entered(*Call, *View) (wanted bool)
	// Returned is told of that return.
	Returned(*Instance, *View)
}

// Call is a call that is under way.
type Call = calls.Call[*Instance]

// Instance is a call as its return probe knows it.
type Instance struct {
	Of   *Return
	Own  any  // the handlers': that of an earlier call, perhaps, or nil
	Tail bool // the call has ended in a jump to another function
}

// Prepare has a probe be the entry of a function with a return probe. Errors: E2BIG, ENOTSUP, EINVAL.
func (rt *Return) Prepare(h *Home, entry *Probe, asked Asked, ret AskedReturn) error {
	most := kind.MaxData
	if ret.Program != nil {
		if err := h.On.Machine.WatchesCalls(); err != nil {
			return &errno.Error{Errno: syscall.ENOTSUP, Err: err}
		}
		if err := ret.Program.Fits(h, bpf.Kretprobe, ret.DataSize); err != nil {
			return err
		}
		if ret.EntryProgram != nil {
			if err := ret.EntryProgram.Fits(h, bpf.Kprobe, ret.DataSize); err != nil {
				return err
			}
		}
		most = h.On.Kind.CallData()
	}
	if ret.DataSize < 0 || ret.DataSize > most {
		return errno.New(syscall.E2BIG, "private data of %d bytes, at most %d are possible", ret.DataSize, most)
	}
	entry.Prepare(h, asked)
	rt.AskedReturn, rt.entry = ret, entry
	rt.account = &inside.Owner{Settled: rt.tally}
	rt.Hits.Store(0)
	rt.Missed.Store(0)
	rt.watch.Reset(rt.MaxActive, entry.Leaving.Load)
	entry.Role = asReturn{plain{entry}, rt}
	return nil
}

// Lost counts the calls of a return probe that were lost, by cause, and those that were missed.
func (rt *Return) Lost() (by [calls.Losses]uint64, missed uint64) {
	t := rt.counted()
	for i, n := range t.Lost {
		by[rt.insideLoss(i)] += n
	}
	for why := range by {
		by[why] += rt.watch.Lost(calls.Loss(why))
	}
	return by, rt.Missed.Load() + t.Missed
}

// Reported counts the returns that were reported.
func (rt *Return) Reported() uint64 { return rt.Hits.Load() + rt.counted().Hits }

// counted tells what was counted inside the target; nothing of one that was never prepared.
func (rt *Return) counted() (t inside.Tally) {
	if rt.entry == nil {
		return t
	}
	return rt.entry.Counted()
}

// tally adds to a return probe's own counts what was counted inside.
func (rt *Return) tally(t inside.Tally) {
	rt.Hits.Add(t.Hits)
	rt.Missed.Add(t.Missed)
	for why, n := range t.Lost {
		rt.watch.Lose(rt.insideLoss(why), n)
	}
}

// insideLoss names a loss inside the target.
func (rt *Return) insideLoss(why int) calls.Loss {
	if why == segment.LostUnwound && !rt.watch.Unwinds.Load() {
		return calls.Longjmp
	}
	return [segment.Losses]calls.Loss{calls.Unwound, calls.Goexit, calls.Exited}[why]
}

// Told tells how returns are noticed, and why so.
func (rt *Return) Told() string { return rt.plan.Told(len(rt.exits)) }

// Swaps tells whether they are by a swapped return address.
func (rt *Return) Swaps() bool { return rt.plan.Swaps() }

// Exits are the points where the function is left.
func (rt *Return) Exits() (pts []*probed.Point) {
	for _, x := range rt.exits {
		pts = append(pts, x.Point)
	}
	return pts
}

// Sighted is called before the probe is switched on again.
func (rt *Return) Sighted() { rt.entry.home.Calls.Sighted(&rt.watch) }

// WithExits adds to some probes those on the exits of the return probes among them.
func WithExits(ps []*Probe) []*Probe {
	all := slices.Clone(ps)
	for _, p := range ps {
		if rt := p.As().Return(); rt != nil {
			all = append(all, rt.exits...)
		}
	}
	return all
}

// IdleExits are the exits of the return probes among some that have no calls under way.
func IdleExits(ps []*Probe) (exits []*Probe) {
	for _, p := range ps {
		rt, h := p.As().Return(), p.home
		if rt != nil && len(rt.exits) > 0 && h.Calls.Blind(&rt.watch) && (!h.Within.Some() || h.Within.Active(rt.account) == 0) {
			exits = append(exits, rt.exits...)
		}
	}
	return exits
}

// CountEnded gives up the calls that are over although they did not return, as the stacks of
// the frozen target show; stands tells where its threads stand. Of the probes that leave, more is asked.
func (h *Home) CountEnded(leaving []*Probe, stands func(yield func(calls.Stand) bool)) {
	if !h.On.Kind.OnCPUs() {
		h.Calls.CountEnded(stands)
	}
	for _, p := range leaving {
		if rt := p.As().Return(); rt != nil {
			h.Calls.TakenOff(&rt.watch)
			over, under := h.Within.Sweep(rt.account)
			rt.tally(over)
			rt.watch.Lose(calls.Unregistered, under)
		}
	}
}

// entered has a call be watched that has begun.
func (rt *Return) entered(v *View) {
	h, wanted := rt.entry.home, rt.wanted(v)
	if rt.Swaps() {
		rt.note(h.Calls.Swap(&rt.watch, v.Spot(), wanted))
	} else {
		rt.note(h.Calls.Enter(&rt.watch, v.Spot(), h.On.Arch.Link(&v.R), wanted))
	}
}

// note counts a call that is not watched although it should be.
func (rt *Return) note(o calls.Outcome) {
	if o == calls.Missed {
		rt.Missed.Add(1)
		rt.entry.Missed.Add(1)
	}
}

// wanted runs the entry handler, and tells whether the call's return is to be reported.
func (rt *Return) wanted(v *View) func(*Call) bool {
	return func(c *Call) bool {
		if c.Instance == nil {
			c.Instance = &Instance{Of: rt}
		}
		c.Instance.Tail = false
		return rt.Handlers.Entered(c, v)
	}
}

// asReturn is the role of a probe at the entry of a function with a return probe.
type asReturn struct {
	plain
	rt *Return
}

func (asReturn) Letter() byte             { return 'r' }
func (r asReturn) Return() *Return        { return r.rt }
func (r asReturn) Swaps() bool            { return r.rt.plan.Swaps() }
func (asReturn) Misses() bool             { return true }
func (r asReturn) Account() *inside.Owner { return r.rt.account }

func (r asReturn) Release() {
	r.p.Role = r.plain
	r.p.home.Within.Settle(r.rt.account)
	r.p.home.Calls.Orphan(&r.rt.watch)
}

func (r asReturn) Unwound() {
	if r.Swaps() {
		r.rt.watch.Lose(calls.Unwound, 1)
	}
}

func (r asReturn) work() (program, entry *Program) { return r.rt.Program, r.rt.EntryProgram }

func (r asReturn) before(v *View) (moved bool) {
	if r.rt.Program == nil {
		r.rt.entered(v)
	}
	return false
}

// Fits decides how the returns of the function are noticed.
func (r asReturn) Fits(b *Batch, loc symbol.Loc) (err error) {
	rt, h := r.rt, r.p.home
	if !h.On.Image.IsEntry(loc) {
		return errno.New(syscall.EINVAL, "a return probe must be at a function's entry, and %s is not", loc)
	}
	rt.plan, err = h.Within.PlanReturns(loc, within.Asked{Site: b.Site, Engine: rt.Engine,
		Program: rt.Program != nil, Result: rt.Program.result(), Overrides: rt.EntryProgram.overrides(), Beside: rt.besideAnother(b, loc)})
	rt.watch.Unwinds.Store(err == nil && rt.plan.Unwinds)
	return err
}

// besideAnother tells whether a return probe with a program is to be on a function where another one has its
// program at swapped return addresses, and they cannot share the calls: each has as many at a time as
// it asks for, and its entry program has a say in its own only, unless the swap is asked for. Exits serve any
// number of probes.
func (rt *Return) besideAnother(b *Batch, loc symbol.Loc) bool {
	if rt.Program == nil {
		return false
	}
	return slices.ContainsFunc(b.Others(loc.Addr), func(p *probed.Probe) bool {
		o := Of(p).As().Return()
		return p.Swaps() && o.Program != nil && (o.MaxActive != rt.MaxActive ||
			rt.Engine == returns.None && (o.EntryProgram != nil || rt.EntryProgram != nil))
	})
}

func (r asReturn) Join(b *Batch, loc symbol.Loc) error {
	if err := r.plain.Join(b, loc); err != nil {
		return err
	}
	return r.rt.JoinExits(b)
}

func (r asReturn) Want(w *inside.Want, entry arch.Addr) error {
	rt, cookie := r.rt, r.p.Cookie
	ret := inside.Return{Owner: rt.account, MaxActive: rt.MaxActive, Data: rt.insideData(), Entry: use(rt.EntryProgram, entry, cookie)}
	ret.Veto = len(ret.Entry) > 0
	if !rt.Swaps() {
		w.Enters = append(w.Enters, ret)
		return nil
	}
	ret.Programs = use(rt.Program, entry, cookie)
	if o := w.Return; o != nil { // one call for all, and each probe has its part of the data; see besideAnother
		for _, us := range [][]inside.Use{ret.Entry, ret.Programs} {
			for i := range us {
				us[i].Data = o.Data
			}
		}
		ret.Entry, ret.Programs = slices.Concat(o.Entry, ret.Entry), slices.Concat(o.Programs, ret.Programs)
		ret.Veto, ret.Data = ret.Veto || o.Veto, ret.Data+o.Data
		if ret.Data > kind.MaxData {
			return fmt.Errorf("the return probes there have %d bytes of private data together, at most %d are possible", ret.Data, kind.MaxData)
		}
	}
	w.Return = &ret
	return nil
}

// insideData tells how much private data a call has for programs; none, where they ask for none.
func (rt *Return) insideData() int {
	if rt.Program.CallData()+rt.EntryProgram.CallData() == 0 {
		return 0
	}
	return (rt.DataSize + 7) &^ 7
}

func (asReturn) Tally(d *inside.Detour) inside.Tally { return d.Tally() }

// Fold: the account of calls whose exits are probed outlives detours.
func (r asReturn) Fold(d *inside.Detour) {
	if r.rt.Swaps() {
		r.rt.tally(d.Tally())
	}
}

// JoinExits adds the probes on a function's exits to the batch that its
// entry is in.
func (rt *Return) JoinExits(b *Batch) error {
	rt.exits = nil
	if rt.Swaps() {
		return nil
	}
	h := rt.entry.home
	for _, x := range rt.plan.Exits.Sites {
		loc, ok := h.On.Image.Space.At(x.Addr)
		if !ok {
			return errno.New(syscall.EINVAL, "the exit at %v is in no code", x.Addr)
		}
		pt, err := b.Point(loc)
		if err == nil && pt.Site.Emulate == nil {
			err = errno.New(syscall.ENOTSUP, "where the exit at %v leads cannot be told", x.Addr)
		}
		if err != nil {
			return err
		}
		p := newExit(rt, x, pt)
		rt.exits = append(rt.exits, p)
		b.Add(&p.Probe, pt)
	}
	return nil
}
