package inside

import (
	"encoding/binary"
	"fmt"
	"slices"

	"kprobe/arch"
	"kprobe/internal/inject"
	"kprobe/internal/patch"
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
	Near patch.Range // the module
	Code []byte      // of the instruction
	Jump *patch.Jump // what is known about a jump there

	Programs []Use
	Return   *Return // where the return address is swapped
	Enters   []Return
	Exits    []Exit
	Cond     byte // see inject.Detour
}

// Return is what happens when the function returns. Of an Enter, the programs for that are
// the exits'.
type Return struct {
	Owner           any // of the Returns; of an Enter
	MaxActive       int
	Entry, Programs []Use
	Veto            bool
	Data            int // private to a call, in bytes
}

// Exit is one of the places where that happens.
type Exit struct {
	Owner    any // as the Enter's
	Again    bool
	Programs []Use
}

// Detour is a place where probes' programs run, and then the instructions under
// them. A jump leads there, or a trap.
type Detour struct {
	*inject.Detour
	want Want

	// Jump is what is to be written at the site; no bytes where no jump can lead here,
	// and then Reason says why.
	Jump   patch.Write
	Span   patch.Range // what the jump depends on: no other probe may be in there
	Way    *patch.Way
	Reason string

	// Owner is the caller's.
	Owner any

	accounts []*Returns // that it counts in; the first is its own, if it has a Return

	in    *Inside
	place patch.Place
	size  int
	tail  *patch.Slot

	retired, vacant bool
}

// End is the first address behind the detour.
func (d *Detour) End() arch.Addr { return d.At + arch.Addr(d.size) }

// Optimizable tells whether a jump can lead here.
func (d *Detour) Optimizable() bool { return len(d.Jump.New) > 0 }

// Hides tells whether a probe at an address would be missed by who comes from the detour's, or
// whether one was there when the detour was planned, and it would have another form without.
func (d *Detour) Hides(addr arch.Addr) bool {
	if j := d.want.Jump; d.Way == nil {
		return j != nil && addr > d.Site && addr < d.Site+patch.LongestSpan
	}
	return addr > d.Site && addr < d.Span.End
}

// Copy is where in the detour the instruction runs that the program has at pc, which
// is under the jump; false where none begins there.
func (d *Detour) Copy(pc arch.Addr) (arch.Addr, bool) { return d.tail.Copy(pc) }

// Where tells how a thread stands that was stopped in the detour, or at its stub: there
// nothing has happened yet.
func (d *Detour) Where(r *arch.Regs, read inject.Reader) (*inject.Standing, error) {
	if d.place.Stub == 0 || arch.Addr(r[arch.IP]) != d.place.Stub {
		return d.Detour.Where(r, read)
	}
	at := &inject.Standing{Phase: inject.Before, Regs: *r, Resume: d.Site}
	at.Regs[arch.IP] = uint64(d.Site)
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
	d := &Detour{want: w, in: b.in, Detour: &inject.Detour{
		Site: w.Site, Area: a.Area, Key: b.in.cfg.Key, RedZone: b.in.cfg.RedZone, Goroutine: b.in.cfg.Goroutine, Cond: w.Cond,
	}}
	if b.in.cfg.traced != nil && b.in.cfg.traced(w.Site) {
		d.Dead, d.DeadFlags = inject.Scratch, true
	}
	if err := b.count(d); err != nil {
		return nil, err
	}
	b.made = append(b.made, d)
	if d.Detour.Programs, err = b.uses(a, w.Programs); err != nil {
		return nil, err
	}
	if r := w.Return; r != nil {
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
	for _, e := range w.Exits {
		if err := b.exit(d, a, e); err != nil {
			return nil, err
		}
	}
	return d, b.settle(d)
}

func (b *Batch) enter(d *Detour, a *area, e Return) error {
	r, err := b.returnsOf(e.Owner)
	if err != nil {
		return err
	}
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
			in.Seg.ClearCounter(c)
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
			Entry: c.at, Clobbers: u.code.Clobbers, Context: u.code.Context, Needs: u.code.Needs,
			FuncIP: u.FuncIP, Cookie: u.Cookie, Data: u.Data, Override: u.Overrides(),
		})
	}
	return out, nil
}

// settle finds the detour its place and writes it. Where a jump could lead
// depends on the place; without one any will do.
func (b *Batch) settle(d *Detour) error {
	if j := d.want.Jump; j != nil && len(j.Ways) > 0 {
		size, err := b.sizeWith(d, j)
		if err != nil {
			return err
		}
		if p, ok := b.in.places.Put(j, d.refersTo(), size); ok {
			b.placed = append(b.placed, p)
			d.place, d.Way = p, p.Way
			d.Jump, d.Span = j.Write(p.Way, p.To()), j.Span(p.Way)
			if p.Stub != 0 {
				b.write(p.Stub, stub(p.Stub, p.Detour))
			}
			return b.emit(d, p.Detour, func(at arch.Addr) (*patch.Slot, error) { return j.Emit(p.Way, at) })
		}
		d.Reason = "nowhere that the jump could lead is memory free"
	} else if j != nil {
		d.Reason = j.Reason
	}
	alone := func(at arch.Addr) (*patch.Slot, error) {
		v, err := b.in.cfg.ISA.Place(d.want.Code, d.Site, at)
		if err == nil && len(v.Code) == 0 {
			err = fmt.Errorf("no program can run at %v: %s", d.Site, v.Reason)
		}
		return &patch.Slot{Addr: at, Code: v.Code, Marks: v.Marks, BreakAt: -1}, err
	}
	size, err := sizeOf(d, alone)
	if err != nil {
		return err
	}
	at, err := b.place(d.refersTo(), size)
	if err != nil {
		return err
	}
	d.place = b.placed[len(b.placed)-1]
	return b.emit(d, at, alone)
}

// refersTo are the addresses that the detour's code refers to, all of which must
// be in its reach: the module may be between two of them.
func (d *Detour) refersTo() patch.Range {
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

// stub is a jump from an address to another.
func stub(at, to arch.Addr) []byte {
	const jmpRel32, length = 0xe9, 5
	return binary.LittleEndian.AppendUint32([]byte{jmpRel32}, uint32(to-at-length))
}

// slack is for what takes a few bytes more at one address than at another.
const slack = 16

// sizeWith is room enough for whichever way the jump goes.
func (b *Batch) sizeWith(d *Detour, j *patch.Jump) (size int, err error) {
	for i := range j.Ways {
		w := &j.Ways[i]
		if i > 0 && w.Displaced <= j.Ways[i-1].Displaced {
			continue
		}
		n, err := sizeOf(d, func(at arch.Addr) (*patch.Slot, error) { return j.Emit(w, at) })
		if err != nil {
			return 0, err
		}
		size = max(size, n)
	}
	return size, nil
}

func sizeOf(d *Detour, tail func(arch.Addr) (*patch.Slot, error)) (int, error) {
	trial := *d.Detour
	trial.At, trial.Tail = d.Area.Addr+1<<12, asTail(tail)
	code, err := trial.Code()
	return len(code) + slack, err
}

func asTail(emit func(arch.Addr) (*patch.Slot, error)) func(arch.Addr) (inject.Tail, error) {
	return func(at arch.Addr) (inject.Tail, error) {
		s, err := emit(at)
		if err != nil {
			return inject.Tail{}, err
		}
		return inject.Tail{Code: s.Code, Marks: s.Marks}, nil
	}
}

// emit writes the detour at its place.
func (b *Batch) emit(d *Detour, at arch.Addr, tail func(arch.Addr) (*patch.Slot, error)) error {
	d.At, d.Tail = at, asTail(tail)
	code, tailAt, err := d.Emit()
	if err != nil {
		return err
	}
	if len(code) > d.place.Size {
		return fmt.Errorf("the detour of %v takes %d bytes, %d were planned", d.Site, len(code), d.place.Size)
	}
	d.size = len(code)
	if d.tail, err = tail(tailAt); err != nil {
		return err
	}
	b.write(at, code)
	return nil
}

func (b *Batch) write(at arch.Addr, code []byte) {
	b.Writes = append(b.Writes, patch.Write{Addr: at, New: code})
}
