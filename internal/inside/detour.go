package inside

import (
	"fmt"
	"slices"

	"kprobe/arch"
	"kprobe/internal/inject"
	"kprobe/internal/patch"
	"kprobe/internal/segment"
)

// Use is a program at work at some place.
type Use struct {
	*Program
	FuncIP arch.Addr
	Cookie uint64
	Data   int // where in the call's private data its own begins
}

// Want is what a detour is to be.
type Want struct {
	Site arch.Addr
	Near arch.Range  // the module
	Code []byte      // of the instruction
	Go   bool        // it is in a Go function
	Jump *patch.Jump // what is known about a jump there

	// Ahead is asked about one ahead of it where none can be there; nil where the code around it
	// is not known.
	Ahead func() *patch.Jump

	Programs []Use
	Return   *Return // where the return address is swapped
	Enters   []Return
	Exits    []Exit
	Gate     bool // see inject.Detour: it is no probe's
}

// Return is what happens when the function returns. Of an Enter, the programs for that are
// the exits'.
type Return struct {
	Owner           *Owner // of the Returns; of an Enter
	MaxActive       int
	Entry, Programs []Use
	Veto            bool
	Data            int // private to a call, in bytes
}

// Exit is one of the places where that happens.
type Exit struct {
	Owner    *Owner // as the Enter's
	Again    bool
	Programs []Use
}

// Detour is a place where probes' programs run, and then the instructions under
// them. A jump leads there, or a trap.
type Detour struct {
	*inject.Detour
	want Want

	// Jump is what is to be written at the site, or ahead of it; no bytes where no jump can lead
	// here, and then Reason says why.
	Jump   patch.Write
	Span   arch.Range // what the jump depends on: no other probe may be in there
	Way    *patch.Way
	Reason string

	accounts []*Returns // that it counts in; the first is its own, if it has a Return

	in    *Inside
	place patch.Place
	size  int
	head  *patch.Slot // nil: the jump comes with the state that the site has
	tail  *patch.Slot

	retired, vacant bool
}

// End is the first address behind the detour.
func (d *Detour) End() arch.Addr { return d.At + arch.Addr(d.size) }

// Optimizable tells whether a jump can lead here.
func (d *Detour) Optimizable() bool { return len(d.Jump.New) > 0 }

// Hides reports whether this detour would skip a probe placed at addr, because the
// instruction there runs as a copy inside the detour. It also reports true where a probe at
// addr was the only reason why the detour was planned smaller: removing that probe
// allows a bigger one.
func (d *Detour) Hides(addr arch.Addr) bool {
	switch {
	case addr == d.Site:
		return false
	case d.Way == nil:
		return d.want.Jump != nil && addr+Around > d.Site && addr < d.Site+patch.LongestSpan
	case d.Ahead(): // the jump of one in front may reach this one's
		return addr+patch.LongestSpan > d.Span.Start && addr < d.Span.End
	}
	return addr > d.Site && addr < d.Span.End
}

// Ahead tells whether the jump is ahead of the site.
func (d *Detour) Ahead() bool { return d.head != nil && d.Span.Start < d.Site }

// Entered finds where a thread goes on that stands at the jump itself, which is not there any more, and has come by
// what is in front of that and is the probe's: a landing pad.
func (d *Detour) Entered(pc arch.Addr) (arch.Addr, bool) {
	return d.place.To(), d.behind(pc)
}

// behind tells whether the jump stands at an address, behind a landing pad at the site.
func (d *Detour) behind(pc arch.Addr) bool {
	return d.Way != nil && d.Way.JumpAt() > 0 && pc == d.Site+arch.Addr(d.Way.JumpAt())
}

// Around is how far from a probe's address what its detour depends on can begin.
const Around = 2 * patch.LongestSpan

// ServeAt is where a thread goes on that stands at the site.
func (d *Detour) ServeAt() arch.Addr {
	if d.head == nil {
		return d.At
	}
	return d.At + arch.Addr(len(d.head.Code))
}

// Served is where the programs are done, and the instruction is not. ok is false where a thread may not come there: a program may
// give a result in place of the function, or the function returns into the detour. And it is false where the detour only counts, which
// is done without it as well.
func (d *Detour) Served() (at arch.Addr, ok bool) {
	counts := len(d.Programs)+len(d.Enters)+len(d.Exits) == 0
	overrides := slices.ContainsFunc(d.want.Programs, func(u Use) bool { return u.Overrides() })
	return d.tail.Addr, !counts && !overrides && !d.Returns()
}

// Under tells whether the jump would be, or is, in the way of who stands at an address. That is
// not so at its own, nor at the site.
func (d *Detour) Under(pc arch.Addr) bool {
	return pc > d.Span.Start && pc < d.Span.End && pc != d.Site
}

// Copy is where in the detour the instruction runs that the program has at pc, which
// is under the jump; false where none begins there.
func (d *Detour) Copy(pc arch.Addr) (arch.Addr, bool) { return d.copy(pc, (*patch.Slot).Copy) }

// copyFor is Copy for a thread with registers: one that is in a system call must find the call where the kernel looks for it.
func (d *Detour) copyFor(r *arch.Regs) (arch.Addr, bool) {
	pc := r.Addr(d.in.arch.PC)
	if d.in.arch.InSyscall(r) {
		return d.copy(pc, (*patch.Slot).CopyOfCall)
	}
	return d.Copy(pc)
}

func (d *Detour) copy(pc arch.Addr, in func(*patch.Slot, arch.Addr) (arch.Addr, bool)) (arch.Addr, bool) {
	if d.Ahead() {
		if at, ok := in(d.head, pc); ok {
			return at, true
		}
	}
	return in(d.tail, pc)
}

// Where tells how a thread stands that was stopped in the detour, or at its stub: there
// nothing has happened yet.
func (d *Detour) Where(r *arch.Regs, read inject.Reader) (*inject.Standing, error) {
	if d.place.Stub == 0 || r.Addr(d.in.arch.PC) != d.place.Stub {
		return d.Detour.Where(r, read)
	}
	at := &inject.Standing{Phase: inject.Before, Regs: *r, Resume: d.Site}
	at.Regs[d.in.arch.PC] = uint64(d.Site)
	return at, nil
}

// Returns tells whether functions return into the detour.
func (d *Detour) Returns() bool { return d.Detour.Return != nil }

// Counts are the hits of the detour's probes and what they have missed. A thread for which
// there was no room counts as missed.
func (d *Detour) Counts() (hits, missed uint64) {
	hits, missed = d.in.Seg.Counter(d.Hits)
	if d.Missed != inject.NoCounter {
		n, lost := d.in.Seg.Counter(d.Missed)
		missed += n + lost
	}
	return hits, missed
}

// Tally is that of the return probe whose functions return into the detour.
func (d *Detour) Tally() Tally { return d.in.tally(d.accounts[0]) }

// Detour plans one.
func (b *Batch) Detour(w Want) (*Detour, error) {
	a, err := b.area(w.Near)
	if err != nil {
		return nil, err
	}
	cfg := &b.in.cfg
	d := &Detour{want: w, in: b.in, Detour: &inject.Detour{
		Site: w.Site, Area: a.Area, Key: cfg.Key, RedZone: cfg.RedZone, Goroutine: cfg.Goroutine,
	}}
	if w.Go {
		d.RedZone = cfg.GoRedZone
	}
	if b.in.cfg.traced != nil && b.in.cfg.traced(w.Site) {
		d.Dead, d.DeadFlags = inject.Scratch, true
	}
	if w.Gate {
		d.Detour.Gate, d.Detour.Hits, d.Detour.Missed = true, inject.NoCounter, inject.NoCounter
		b.made = append(b.made, d)
		return d, b.settle(d)
	}
	if err := b.count(d); err != nil {
		return nil, err
	}
	b.made = append(b.made, d)
	if d.Detour.Programs, err = b.uses(a, w.Programs); err != nil {
		return nil, err
	}
	if r := w.Return; r != nil {
		if err = b.data(r.Data); err != nil {
			return nil, err
		}
		if d.Detour.Return.Entry, err = b.uses(a, r.Entry); err != nil {
			return nil, err
		}
		if d.Detour.Return.Programs, err = b.uses(a, r.Programs); err != nil {
			return nil, err
		}
		d.Detour.Return.Max, d.Detour.Return.Veto, d.Detour.Return.Data = int32(r.MaxActive), r.Veto, r.Data
	}
	for _, e := range w.Enters {
		if err := b.enter(d, a, e); err != nil {
			return nil, err
		}
	}
	if len(w.Exits) > 0 {
		d.Cond, _ = b.in.cfg.Machine.Detours.Leaves(w.Code)
	}
	for _, e := range w.Exits {
		if err := b.exit(d, a, e); err != nil {
			return nil, err
		}
	}
	return d, b.settle(d)
}

// data has memory be there for so much private data of calls.
func (b *Batch) data(size int) error {
	if size == 0 {
		return nil
	}
	return b.in.needs(segment.DataPart)
}

func (b *Batch) enter(d *Detour, a *area, e Return) error {
	if err := b.data(e.Data); err != nil {
		return err
	}
	r, err := b.returnsOf(e.Owner)
	if err != nil {
		return err
	}
	r.most = uint32(max(e.MaxActive, 0))
	programs, err := b.uses(a, e.Entry)
	d.accounts = append(d.accounts, r)
	d.Enters = append(d.Enters, inject.Enter{
		ID: r.id(), Max: int32(e.MaxActive), Missed: r.missed(), Programs: programs, Veto: e.Veto, Data: e.Data,
	})
	return err
}

func (b *Batch) exit(d *Detour, a *area, e Exit) error {
	r, err := b.returnsOf(e.Owner)
	if err != nil {
		return err
	}
	programs, err := b.uses(a, e.Programs)
	d.accounts = append(d.accounts, r)
	d.Exits = append(d.Exits, inject.Exit{ID: r.id(), Again: e.Again, Hits: r.hits(), Programs: programs})
	return err
}

// count gives a detour its counters.
func (b *Batch) count(d *Detour) (err error) {
	d.Detour.Hits, d.Detour.Missed = inject.NoCounter, inject.NoCounter
	if d.Detour.Hits, err = b.in.counter(); err != nil {
		return err
	}
	if len(d.want.Programs) > 0 || d.want.Return != nil {
		if d.Detour.Missed, err = b.in.counter(); err != nil {
			return err
		}
	}
	if d.want.Return != nil {
		r, err := b.in.newReturns(nil)
		if err != nil {
			return err
		}
		d.accounts = []*Returns{r}
		d.Detour.Return = &inject.Return{ID: r.id(), Hits: r.hits(), Missed: r.missed()}
	}
	return nil
}

// giveUp takes a detour's counters back.
func (in *Inside) giveUp(d *Detour) {
	for _, c := range []int{d.Detour.Hits, d.Detour.Missed} {
		if c != inject.NoCounter {
			in.Seg.ClearCounters(c)
			in.unused = append(in.unused, c)
		}
	}
	if d.Detour.Return != nil {
		in.closeReturns(d.accounts[0])
	}
}

// uses are programs as a detour calls them.
func (b *Batch) uses(a *area, us []Use) ([]inject.Program, error) {
	var out []inject.Program
	for _, u := range us {
		c, err := b.code(u.Program, a)
		if err != nil {
			return nil, err
		}
		out = append(out, inject.Program{
			Entry: c.at, Clobbers: u.code.Clobbers, Context: u.context(), Needs: u.code.Needs,
			FuncIP: u.FuncIP, Cookie: u.Cookie, Data: u.Data, Override: u.Overrides(),
		})
	}
	return out, nil
}

// settle finds the detour its place and writes it. Where a jump could lead
// depends on the place; without one any will do.
func (b *Batch) settle(d *Detour) error {
	alone := func(at arch.Addr) (*patch.Slot, error) {
		v, err := b.in.cfg.Machine.ISA.Place(d.want.Code, d.Site, at)
		if err == nil && len(v.Code) == 0 {
			err = fmt.Errorf("no program can run at %v: %s", d.Site, v.Reason)
		}
		return &patch.Slot{Addr: at, Code: v.Code, Marks: v.Marks, BreakAt: -1}, err
	}
	if j := d.want.Jump; j != nil {
		// Where the jump could lead is mostly given at some sites. Those to which nothing leads but what is
		// in front of them have a choice there.
		there := func() (bool, error) { return b.settleAt(d, j, nil) }
		ahead := func() (bool, error) {
			if d.want.Ahead == nil {
				return false, nil
			}
			return b.settleAt(d, d.want.Ahead(), alone)
		}
		tries := []func() (bool, error){there, ahead}
		if j.Passed() {
			slices.Reverse(tries)
		}
		for _, try := range tries {
			if done, err := try(); done || err != nil {
				return err
			}
		}
		d.Reason = j.Reason
		if len(j.Ways) > 0 {
			d.Reason = "nowhere that the jump could lead is memory free"
		}
	}
	size, err := sizeOf(d, nil, alone)
	if err != nil {
		return err
	}
	at, err := b.place(d.refersTo(), size)
	if err != nil {
		return err
	}
	d.place = b.placed[len(b.placed)-1]
	return b.emit(d, at, nil, alone)
}

// maker makes instructions as they run at an address.
type maker func(at arch.Addr) (*patch.Slot, error)

// settleAt is settle where a jump can lead, if anywhere. alone makes the probed instruction
// where the jump is ahead of it.
func (b *Batch) settleAt(d *Detour, j *patch.Jump, alone maker) (done bool, err error) {
	size := 0
	made := func(w *patch.Way) (head, tail maker) {
		if alone != nil {
			return func(at arch.Addr) (*patch.Slot, error) { return j.Head(w, at) }, alone
		}
		if j.Undoing(w, 0) != nil {
			head = func(at arch.Addr) (*patch.Slot, error) { return j.Undoing(w, at), nil }
		}
		return head, func(at arch.Addr) (*patch.Slot, error) { return j.Emit(w, at) }
	}
	for i := range j.Ways { // room enough for whichever way the jump goes
		if i > 0 && j.Ways[i].Displaced <= j.Ways[i-1].Displaced {
			continue
		}
		head, tail := made(&j.Ways[i])
		n, err := sizeOf(d, head, tail)
		if err != nil {
			return false, err
		}
		size = max(size, n)
	}
	p, ok := patch.Place{}, false
	if len(j.Ways) > 0 {
		p, ok = b.in.places.Put(j, d.refersTo(), size)
	}
	if !ok {
		return false, nil
	}
	b.placed = append(b.placed, p)
	d.place, d.Way = p, p.Way
	d.Jump, d.Span = j.Write(p.Way, p.To()), j.Span(p.Way)
	if p.Stub != 0 {
		stub, err := b.in.cfg.Machine.ISA.Jump(p.Stub, p.Detour)
		if err != nil {
			return false, err
		}
		b.write(p.Stub, stub)
	}
	head, tail := made(p.Way)
	return true, b.emit(d, p.Detour, head, tail)
}

// refersTo are the addresses that the detour's code refers to, all of which must
// be in its reach: the module may be between two of them.
func (d *Detour) refersTo() arch.Range {
	all := around(d.want.Near, d.Area.Addr, d.Area.Size())
	programs := d.Programs
	if r := d.Return; r != nil {
		programs = slices.Concat(programs, r.Entry, r.Programs)
	}
	for _, e := range d.Enters {
		programs = slices.Concat(programs, e.Programs)
	}
	for _, e := range d.Exits {
		programs = slices.Concat(programs, e.Programs)
	}
	for _, p := range programs {
		all = around(all, p.Entry, 1)
	}
	return all
}

// slack is for what takes a few bytes more at one address than at another.
const slack = 16

func sizeOf(d *Detour, head, tail maker) (int, error) {
	trial := *d.Detour
	trial.At, trial.Head, trial.Tail = d.Area.Addr+1<<12, head.part(), tail.part()
	code, err := trial.Code()
	return len(code) + slack, err
}

// part is what it makes as package inject wants it.
func (m maker) part() func(arch.Addr) (inject.Tail, error) {
	if m == nil {
		return nil
	}
	return func(at arch.Addr) (inject.Tail, error) {
		s, err := m(at)
		if err != nil {
			return inject.Tail{}, err
		}
		return inject.Tail{Code: s.Code, Marks: s.Marks}, nil
	}
}

// emit writes the detour at its place.
func (b *Batch) emit(d *Detour, at arch.Addr, head, tail maker) error {
	d.At, d.Head, d.Tail = at, head.part(), tail.part()
	code, tailAt, err := d.Emit()
	if err != nil {
		return err
	}
	if len(code) > d.place.Size {
		return fmt.Errorf("the detour of %v takes %d bytes, %d were planned", d.Site, len(code), d.place.Size)
	}
	d.size = len(code)
	if head != nil {
		if d.head, err = head(at); err != nil {
			return err
		}
	}
	if d.tail, err = tail(tailAt); err != nil {
		return err
	}
	b.write(at, code)
	return nil
}

func (b *Batch) write(at arch.Addr, code []byte) {
	b.Writes = append(b.Writes, patch.Write{Addr: at, New: code})
}
