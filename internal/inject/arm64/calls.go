package arm64

import (
	"encoding/binary"

	"kprobe/internal/asm/a64"
	"kprobe/internal/inject"
	"kprobe/internal/jit"
	"kprobe/internal/segment"
)

// Calls on arm64. A function's return address comes in the link register, and nobody can be sure to find it
// elsewhere: so it stays where it is, and a call is known by the stack pointer, which is the
// same where the function is entered and where it is left.

// leavesARM64 is Leaves: whether an instruction is a return by the link register, or a direct jump. Others
// lead where the link register does not say.
func leavesARM64(code []byte) (cond byte, ok bool) {
	if len(code) < 4 { // more may follow
		return 0, false
	}
	w := binary.LittleEndian.Uint32(code)
	return 0, w == a64.Ret || w>>26 == a64B>>26
}

// askAbout calls a routine about the call that begins or ends here. The questions are put into the state before. The routine takes the
// return address in a64Tmp and the program's stack pointer in a64Other, and answers in a64Tmp.
func (b *armBuilder) askAbout(routine string, asked map[int]int32) {
	for what := inject.AskedProbe; what <= inject.AskedAgain; what++ {
		if v, ok := asked[what]; ok {
			b.constant(a64Tmp, uint64(uint32(v)))
			b.access(a64Store32, a64Tmp, a64State, segment.StateAsked+4*what)
		}
	}
	b.access(a64Load, a64Tmp, a64SP, b.Now.Reg[a64Link].Off-b.Now.SP)
	b.word(a64AddImm | uint32(-b.Now.SP)<<10 | a64SP<<5 | a64Other)
	b.call(b.d.Area.Routine(routine))
	b.Now.Phase = inject.Running
}

// others are the calls that begin here, and those that end.
func (b *armBuilder) others() error {
	b.Now.More = true
	for i := range b.d.Enters {
		if err := b.entered(&b.d.Enters[i]); err != nil {
			return err
		}
	}
	b.ends = true
	for i := range b.d.Exits {
		if err := b.exit(&b.d.Exits[i]); err != nil {
			return err
		}
	}
	b.ends, b.Now.More = false, false
	return nil
}

// entered has this call watched, and runs the programs for that.
func (b *armBuilder) entered(e *inject.Enter) error {
	b.askAbout("enter_call", map[int]int32{inject.AskedProbe: int32(e.ID), inject.AskedMax: max(e.Max, 0), inject.AskedData: inject.Words(e.Data)})
	full, next := inject.NewLabel(), inject.NewLabel()
	b.branch(a64CBZ, a64Tmp, full)
	b.later(full, func() {
		b.increase(a64State, e.Missed)
		b.branch(a64B, 0, next)
	})
	if len(e.Programs) > 0 {
		b.word(A64SubImm | 1<<10 | a64Tmp<<5 | a64Tmp)
		b.branch(a64CBZ, a64Tmp, next) // it begins anew
		var vetoed func()
		if e.Veto {
			vetoed = func() {
				b.call(b.d.Area.Routine("forget_call"))
				b.branch(a64B, 0, next)
			}
		}
		if err := b.run(e.Programs, inject.NoCounter, vetoed); err != nil {
			return err
		}
	}
	b.place(next)
	b.Now.Phase = inject.Running
	return nil
}

// exit recognises a call that is about to return.
func (b *armBuilder) exit(e *inject.Exit) error {
	asked := map[int]int32{inject.AskedProbe: int32(e.ID), inject.AskedAgain: 0}
	if e.Again {
		asked[inject.AskedAgain] = 1
		b.askAbout("leave_call", asked)
		return nil
	}
	b.askAbout("leave_call", asked)
	next := inject.NewLabel()
	b.branch(a64CBZ, a64Tmp, next)
	if err := b.run(e.Programs, e.Hits, nil); err != nil {
		return err
	}
	b.place(next)
	b.Now.Phase = inject.Running
	return nil
}

// findData tells a program where the private data of the call is that it is about: that of the pool's n-th call
// is the n-th there. It changes all three registers that the detour has for itself.
func (b *armBuilder) findData(state uint32, off int) {
	const third = a64State // the state is elsewhere by now
	b.address(a64Other, b.d.Area.Addr)
	b.access(a64Load, a64Other, a64Other, inject.AreaHead)
	b.access(a64Load, a64Tmp, state, segment.StateCall)
	b.access(a64Load, third, a64Other, segment.PoolCalls)
	b.word(a64Sub | third<<16 | a64Tmp<<5 | a64Tmp)
	b.access(a64Load, third, a64Other, segment.PoolData)
	b.word(a64Add | a64Tmp<<16 | segment.DataShift<<10 | third<<5 | a64Tmp)
	b.constant(a64Other, uint64(off))
	b.word(a64Add | a64Other<<16 | a64Tmp<<5 | a64Tmp)
	b.access(a64Store, a64Tmp, state, jit.StateData)
}
