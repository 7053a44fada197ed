package inject

import (
	"fmt"
	"slices"

	"kprobe/arch"
	"kprobe/internal/segment"
)

// Phase is how far a thread that stands in a detour has come.
type Phase uint8

const (
	// Before: nothing has happened yet. The thread can be put back to the probe's
	// address, and will come again.
	Before Phase = iota

	// Running: the probe is being served, and that has effects already. It is bounded: let it
	// run on, or make a program come back to TrapExit.
	Running

	// After: the probe has been served; the instructions under it have not run.
	After

	// Displaced: the thread is among the displaced instructions, and the probe has been
	// served, unless they are those in front of it (Detour.Head). Regs has the PC in the original code that
	// corresponds to it.
	Displaced

	// Returning: the function has returned into the detour, and the return
	// address is the detour's own affair for a few instructions. Step on, or
	// let run: what follows is Returned.
	Returning

	// Returned: the real return address is back on the stack, and Regs has it as
	// its PC.
	Returned
)

func (p Phase) String() string {
	return [...]string{"before", "running", "after", "displaced", "returning", "returned"}[p]
}

// Frame says where the program's registers are at some point of a detour.
type Frame struct {
	Phase    Phase
	Reg      [32]Place // by arch.Reg
	Flags    FlagsAt
	SP       int      // what the detour has added to the program's stack pointer
	Stack    StackAt  // where the program's stack pointer is, before what was added to it
	State    arch.Reg // holds the thread's state, once it is known; else NoReg
	Busy     bool     // the state's busy flag is ours
	FlagsOff int      // FlagsOnStack
	Plain    bool     // the call is not watched: what is left are the displaced instructions
	More     bool     // programs that run are not the last
	Tried    bool     // whether it has been counted, Machine.Status tells: the phase is After if so
	Returned bool     // to the program, the PC is the return address in front of its stack pointer
}

// Served is the phase of a thread whose programs are done.
func (f *Frame) Served() Phase {
	if f.More {
		return Running
	}
	if f.Returned {
		return Returned
	}
	return After
}

// Shift tells that the program's stack pointer counts as by bytes higher from here on.
func (f *Frame) Shift(by int) {
	f.SP -= by
	f.FlagsOff -= by
	for i := range f.Reg {
		if f.Reg[i].Kind == OnStack {
			f.Reg[i].Off -= by
		}
	}
}

// Place is one register's place: in itself, or in memory.
type Place struct {
	Kind PlaceKind
	Off  int // OnStack: from the program's own stack pointer; InState: from the state; Swapped: the register
}

// PlaceKind says what a register's place counts from.
type PlaceKind uint8

const (
	InPlace PlaceKind = iota
	OnStack
	InState
	Swapped // in another register
	Dead    // its value is not needed any more
)

// StackAt says where a program's stack pointer is.
type StackAt uint8

const (
	StackInPlace StackAt = iota
	StackInKey           // in Machine.Key
	StackSaved           // on the private stack
)

// FlagsAt says where a program's flags are.
type FlagsAt uint8

const (
	FlagsInPlace FlagsAt = iota
	FlagsInAX            // ah by lahf, al by seto
	FlagsInAH            // the same after the add that puts OF in its place
	FlagsOnStack         // ax as above, pushed: Frame.FlagsOff from the program's stack pointer
	FlagsPushed          // all of them, there
	FlagsInState         // all of them, Frame.FlagsOff from the state
	FlagsDead
)

// Standing is where a thread stands that is stopped inside a detour, as the
// program would see it.
type Standing struct {
	Phase Phase

	// Regs are the program's registers. The PC is the original one: the
	// probe's address (Before, After), the displaced instruction's, or the return address
	// (Returned); Running is one of both. For Returning it is not known.
	Regs arch.Regs

	// Resume is where a thread with Regs must go on, so that nothing happens
	// twice: another place in the detour (After, Displaced), else Regs' PC. 0 where it
	// must go on as it is: Running, Returning.
	Resume arch.Addr

	// Busy is the address of a byte to be cleared when the thread is moved; 0
	// where there is none.
	Busy arch.Addr

	// Counted tells that this hit has been counted, and that the instruction has not run yet: who puts
	// the thread back to it must take the count back.
	Counted bool
}

// Reader reads the target's memory.
type Reader func(addr arch.Addr, p []byte) error

func (read Reader) word(m *Machine, addr arch.Addr) (uint64, error) {
	b := make([]byte, m.PtrSize)
	err := read(addr, b)
	return m.Word(b), err
}

// Where tells how a thread stands that was stopped at a PC inside the detour's
// own code. Errors: the reader's; a PC that is no instruction of the detour.
func (d *Detour) Where(r *arch.Regs, read Reader) (*Standing, error) {
	pc := r.Addr(d.Area.Of.Machine.PC)
	a, err := d.generate()
	if err != nil {
		return nil, err
	}
	off := int(pc - d.At)
	if off < len(a.Head.Code) {
		return d.displaced(r, a, &a.Head, off)
	}
	if i := off - a.TailAt; i >= 0 && i < len(a.Tail.Code) {
		return d.displaced(r, a, &a.Tail, i)
	}
	for _, p := range a.points {
		if p.off == off {
			return d.standing(r, read, a, &p.Frame)
		}
	}
	return nil, fmt.Errorf("%v is no instruction of the detour at %v", pc, d.At)
}

func (d *Detour) displaced(r *arch.Regs, a *Generated, t *Tail, off int) (*Standing, error) {
	for _, m := range t.Marks {
		if m.Off == off {
			on := d.Area.Of.Machine.Arch
			s := &Standing{Phase: Displaced, Regs: *r, Resume: r.Addr(on.PC)}
			s.Regs[on.PC] = uint64(m.PC)
			s.Regs[on.SP] += uint64(m.SP)
			s.Counted = t != &a.Head && m.PC == d.Site
			if m.HasLink {
				s.Regs[m.Link] = uint64(m.PC)
			}
			return s, nil
		}
	}
	return nil, fmt.Errorf("%v is no instruction of the detour at %v", r.Addr(d.Area.Of.Machine.PC), d.At)
}

// standing puts a thread's registers together again.
func (d *Detour) standing(r *arch.Regs, read Reader, a *Generated, f *Frame) (*Standing, error) {
	m := d.Area.Of.Machine
	s := &Standing{Phase: f.Phase, Regs: *r}
	var state uint64
	if f.State != arch.NoReg {
		state = r[f.State]
	}
	sp := r[m.SP]
	switch f.Stack {
	case StackInKey:
		sp = r[m.Key]
	case StackSaved:
		var err error
		if sp, err = read.word(m, arch.Addr(state)-m.TargetSP()); err != nil {
			return nil, err
		}
	}
	sp -= uint64(f.SP)
	s.Regs[m.SP] = sp
	for reg, w := range f.Reg {
		var at uint64
		switch w.Kind {
		case InPlace, Dead:
			continue
		case Swapped:
			s.Regs[reg] = r[w.Off]
			continue
		case OnStack:
			at = sp + uint64(w.Off)
		case InState:
			at = state + uint64(w.Off)
		}
		v, err := read.word(m, arch.Addr(at))
		if err != nil {
			return nil, err
		}
		s.Regs[reg] = v
	}
	scratch := r[m.Scratch]
	if f.Flags == FlagsOnStack || f.Flags == FlagsPushed || f.Flags == FlagsInState {
		at := sp
		if f.Flags == FlagsInState {
			at = state
		}
		v, err := read.word(m, arch.Addr(at+uint64(f.FlagsOff)))
		if err != nil {
			return nil, err
		}
		scratch = v
	}
	if m.Join != nil {
		s.Regs[m.Flags] = m.Join(f.Flags, r[m.Flags], scratch)
	}
	if f.Tried && r[m.Status] != 0 {
		s.Phase = Before
	}
	if f.Busy {
		var closed [1]byte
		if err := read(arch.Addr(state)+segment.StateClosed, closed[:]); err != nil {
			return nil, err
		}
		if closed[0] == 0 {
			s.Busy = arch.Addr(state) + segment.StateBusy
		}
	}
	s.Regs[m.PC] = uint64(d.Site)
	switch {
	case f.Returned:
		ret, err := read.word(m, arch.Addr(sp-uint64(m.PtrSize)))
		if err != nil {
			return nil, err
		}
		s.Regs[m.PC], s.Resume = ret, arch.Addr(ret)
	case s.Phase == Before:
		s.Resume = d.Site
	case f.Plain:
		s.Resume = d.At + arch.Addr(a.TailAt)
	case s.Phase == After:
		s.Counted = true
		s.Resume = d.At + arch.Addr(a.Out)
	}
	if f.Phase == Running {
		s.Resume = 0
	}
	return s, nil
}

// NoRoom puts a thread together whose instruction in the detour has faulted since there was no room for it on the program's own
// stack. Nothing has happened yet: it goes on at Resume, in the displaced instructions, and the probe is missed. It is nil
// for every other instruction. Errors: as of Where.
func (d *Detour) NoRoom(r *arch.Regs, read Reader) (*Standing, error) {
	a, err := d.generate()
	if err != nil {
		return nil, err
	}
	off := int(r.Addr(d.Area.Of.Machine.PC) - d.At)
	if !slices.Contains(a.deeper, off) {
		return nil, nil
	}
	s, err := d.Where(r, read)
	if err != nil || s.Phase != Before {
		return nil, err
	}
	s.Resume = d.At + arch.Addr(a.TailAt)
	return s, nil
}
