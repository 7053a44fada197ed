package arm64

import (
	"fmt"
	"slices"

	"kprobe/arch"
	"kprobe/internal/inject"
	"kprobe/internal/jit"
)

// run counts, and calls programs on the private stack, with what they read of the registers in their context. vetoed, if
// there is any, is gone on with where the last of them does not answer 0.
func (b *armBuilder) run(programs []inject.Program, hits int, vetoed func()) error {
	if len(programs) == 0 {
		if hits != inject.NoCounter {
			b.increase(a64State, hits)
		}
		b.Now.Phase = inject.Running
		return nil
	}
	f := b.frameOf(programs)
	b.saveOwn(f)
	b.goPrivate()
	b.saveRest(f)
	b.word(a64Move | a64State<<16 | uint32(b.m.Code.State))
	b.Now.State = b.m.Code.State
	if hits != inject.NoCounter {
		b.increase(uint32(b.m.Code.State), hits)
	}
	b.Now.Phase = inject.Running
	for _, p := range programs {
		if err := b.callProgram(f, p); err != nil {
			return err
		}
	}
	if vetoed != nil {
		veto := inject.NewLabel()
		b.branch(a64CBNZ, uint32(b.m.Code.Result), veto)
		b.later(veto, func() {
			b.reload(f)
			vetoed()
		})
	}
	b.reload(f)
	return nil
}

// own are the registers that the detour itself has saved on the program's stack.
var own = []arch.Reg{0, 1, 2, arch.Reg(a64Link)}

// frame is the context of programs, behind the private stack's beginning: its words are in the order of the registers'
// numbers.
type frame struct {
	top      int         // where it begins
	context  uint64      // the registers that the programs read, as bits
	clobbers arch.RegSet // those that they change
	stored   []arch.Reg  // those of them that are in it, besides own
	m        *inject.Machine
}

func (b *armBuilder) frameOf(programs []inject.Program) *frame {
	f := &frame{top: int(b.m.TargetSP()), clobbers: arch.SetOf(b.m.Code.State), m: b.m}
	for _, p := range programs {
		f.clobbers |= p.Clobbers
		f.context |= p.Context
	}
	return f
}

// on returns where a word of the context is, from the private stack's beginning.
func (f *frame) on(word int) int { return f.top + f.m.WordAt(word) }

// reads tells whether a program reads a register.
func (f *frame) reads(r arch.Reg) bool { return f.context>>r&1 != 0 }

// saveOwn stores what is elsewhere while the program's stack is in use: own, the stack pointer, the program counter and the
// flags. a64Other is left at the private stack's beginning.
func (b *armBuilder) saveOwn(f *frame) {
	b.word(A64SubImm | uint32(f.top)<<10 | a64State<<5 | a64Other)
	for _, r := range own {
		if f.reads(r) {
			b.access(a64Load, a64Tmp, a64SP, b.Now.Reg[r].Off-b.Now.SP)
			b.access(a64Store, a64Tmp, a64Other, f.on(int(r)))
		}
	}
	if f.reads(b.m.SP) {
		b.word(a64AddImm | uint32(-b.Now.SP)<<10 | a64SP<<5 | a64Tmp)
		b.access(a64Store, a64Tmp, a64Other, f.on(int(b.m.SP)))
	}
	if f.reads(b.m.PC) {
		if b.ends {
			b.access(a64Load, a64Tmp, a64SP, b.Now.Reg[a64Link].Off-b.Now.SP)
		} else {
			b.constant(a64Tmp, uint64(b.d.Site))
		}
		b.access(a64Store, a64Tmp, a64Other, f.on(int(b.m.PC)))
	}
	b.word(a64GetFlags | a64Tmp)
	b.access(a64Store, a64Tmp, a64Other, f.on(int(b.m.Flags)))
	b.Now.Flags, b.Now.FlagsOff = inject.FlagsInState, b.m.WordAt(int(b.m.Flags))
}

// goPrivate goes to the private stack, which begins at a64Other, and keeps the stack pointer there.
func (b *armBuilder) goPrivate() {
	b.word(a64AddImm | a64SP<<5 | a64Tmp)
	b.access(a64Store, a64Tmp, a64Other, 0)
	b.word(a64AddImm | a64Other<<5 | a64SP)
	b.Now.Stack = inject.StackSaved
}

// saveRest stores the other registers that the programs read or change.
func (b *armBuilder) saveRest(f *frame) {
	for r := arch.Reg(0); r < arch.Reg(a64Link); r++ {
		if slices.Contains(own, r) || !f.clobbers.Has(r) && !f.reads(r) {
			continue
		}
		b.access(a64Store, uint32(r), a64SP, f.on(int(r)))
		if f.clobbers.Has(r) {
			b.Now.Reg[r] = inject.Place{Kind: inject.InState, Off: b.m.WordAt(int(r))}
			f.stored = append(f.stored, r)
		}
	}
}

// callProgram calls one, with its own words in the state. Errors: it is out of reach.
func (b *armBuilder) callProgram(f *frame, p inject.Program) error {
	state := uint32(b.m.Code.State)
	if p.Needs&jit.NeedsFuncIP != 0 {
		b.constant(a64Tmp, uint64(p.FuncIP))
		b.access(a64Store, a64Tmp, state, jit.StateFuncIP)
	}
	if p.Needs&jit.NeedsCookie != 0 {
		b.constant(a64Tmp, p.Cookie)
		b.access(a64Store, a64Tmp, state, jit.StateCookie)
	}
	if p.Needs&jit.NeedsData != 0 {
		b.findData(state, p.Data)
	}
	next := inject.NewLabel()
	b.refer(a64ADR|a64Other, next, 0, 0)
	b.access(a64Store, a64Other, a64SP, a64BackAt)
	b.word(a64AddImm | uint32(f.on(0))<<10 | a64SP<<5 | uint32(b.m.Code.Context))
	if !b.call(p.Entry) {
		return fmt.Errorf("the program at %v is out of a call's reach from %v", p.Entry, b.d.At)
	}
	b.access(a64Load, a64Other, a64SP, a64BackAt) // see Segment.ReturnTo
	b.word(a64BR | a64Other<<5)
	b.place(next)
	return nil
}

// reload puts back what the programs have changed, and the program's stack.
func (b *armBuilder) reload(f *frame) {
	b.Now.Phase = b.Now.Served()
	b.word(a64Move | uint32(b.m.Code.State)<<16 | a64State)
	b.Now.State = arch.Reg(a64State)
	for _, r := range f.stored {
		b.access(a64Load, uint32(r), a64SP, f.on(int(r)))
		b.Now.Reg[r] = inject.Place{}
	}
	b.access(a64Load, a64Tmp, a64SP, f.on(int(b.m.Flags)))
	b.word(a64SetFlags | a64Tmp)
	b.Now.Flags = inject.FlagsInPlace
	b.access(a64Load, a64Tmp, a64SP, 0)
	b.word(a64AddImm | a64Tmp<<5 | a64SP)
	b.Now.Stack = inject.StackInPlace
}
