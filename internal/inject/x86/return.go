package x86

import (
	"encoding/binary"
	"slices"

	"kprobe/arch"
	"kprobe/internal/asm/x86"
	"kprobe/internal/inject"
	"kprobe/internal/segment"
)

// take makes an instance for this call: the stack slot of its return address, and the
// address. full is for where there is none to be had.
func (b *builder) take(full *inject.Label) {
	const top = keyReg // address of the first free instance
	ret := b.d.Return
	b.called(full)
	b.Load(top, foundReg, segment.StateCalls)
	b.Lea(scratchReg, arch.SP, -b.Now.SP)
	b.cmpMem(scratchReg, top, segment.CallSlot-segment.CallSize)
	many, below, room, away, taken := inject.NewLabel(), inject.NewLabel(), inject.NewLabel(), inject.NewLabel(), inject.NewLabel()
	b.Jcc(x86.CondAE, below) // calls that never returned, or another stack
	b.cmpMem(scratchReg, foundReg, segment.StateStackLow)
	b.Jcc(x86.CondB, away) // another stack
	fresh := inject.NewLabel()
	b.later(below, func() {
		b.call(b.d.Area.Routine("abandon"))
		b.compareByte(top, 1)
		b.Jcc(x86.CondB, away)
		b.Jcc(x86.CondE, full)
		b.jmp(fresh)
	})
	b.later(away, func() { b.takeAway(full, taken) })
	b.Place(fresh)
	const most = segment.MaxCalls - 2
	few := min(max(ret.Max, 0), most)
	b.Lea(scratchReg, foundReg, segment.StateCallsAt+(1+int(few))*segment.CallSize)
	b.Compare(top, scratchReg)
	b.Jcc(x86.CondAE, many) // instances of whatever probes
	b.later(many, func() {
		beyond := inject.NewLabel()
		b.Lea(scratchReg, foundReg, segment.StateCallsAt+(1+most)*segment.CallSize)
		b.Compare(top, scratchReg)
		b.Jcc(x86.CondAE, beyond)
		b.Put(x86.AppendConst(nil, 4, x86.RAX, uint64(ret.ID))...)
		b.call(b.d.Area.Routine("active"))
		b.Put(binary.LittleEndian.AppendUint32([]byte{0x3d}, uint32(max(ret.Max, 0)))...) // cmp eax, Max
		b.Jcc(x86.CondAE, full)
		b.jmp(room)
		b.later(beyond, func() {
			b.Lea(scratchReg, arch.SP, -b.Now.SP)
			b.CmpReg(top, segment.CallSlot-segment.CallSize, scratchReg)
			b.Jcc(x86.CondE, full) // a call that ended in a jump to this one is found by the same slot, there
			b.jmp(away)
		})
	})
	b.Place(room)
	if ret.Data > 0 {
		b.takeData(full)
		b.Store(top, segment.CallData, scratchReg)
	}
	b.addressOf(scratchReg, b.back)
	b.Store(top, segment.CallBack, scratchReg)
	b.Lea(scratchReg, arch.SP, -b.Now.SP)
	b.Store(top, segment.CallSlot, scratchReg)
	b.Load(scratchReg, scratchReg, 0)
	b.Store(top, segment.CallRet, scratchReg)
	b.StoreConst(top, segment.CallProbe, int32(ret.ID)) // and no mark
	if b.narrow {
		b.StoreConst(top, segment.CallMark, 0)
	}
	if ret.Data == 0 {
		b.StoreConst(top, segment.CallData, 0)
	}
	b.Lea(top, top, segment.CallSize)
	b.Store(foundReg, segment.StateCalls, top)
	b.Now.Phase = inject.Running
	b.Place(taken)
}

// takeAway is for a call that has no place among its thread's instances (internal/segment/away.go).
func (b *builder) takeAway(full, taken *inject.Label) {
	ret := b.d.Return
	if ret.Data > 0 {
		b.takeData(full)
	} else {
		b.StoreConst(foundReg, segment.StateCall, 0)
	}
	b.ask(inject.AskedProbe, int32(ret.ID))
	b.ask(inject.AskedMax, max(ret.Max, 0))
	b.addressOf(keyReg, b.back)
	b.Lea(scratchReg, arch.SP, -b.Now.SP)
	b.call(b.d.Area.Routine("enter_away"))
	b.Now.Phase = inject.Running
	b.test(keyReg)
	b.Jcc(x86.CondNE, taken)
	if ret.Data > 0 {
		b.call(b.d.Area.Routine("give_data"))
	}
	b.jmp(full)
}

// takeData leaves a call's private data in StateCall, and in scratchReg.
func (b *builder) takeData(full *inject.Label) {
	b.ask(inject.AskedData, inject.Words(b.d.Return.Data))
	b.call(b.d.Area.Routine("take_data"))
	b.Load(scratchReg, foundReg, segment.StateCall)
	b.test(scratchReg)
	b.Jcc(x86.CondE, full)
}

// called looks at the word that is to be swapped: where the function was jumped to it is no return address, but whatever
// the function takes it for. not is for such a word. Most calls are direct ones, which their first byte shows.
func (b *builder) called(not *inject.Label) {
	const lowest = 1 << 16 // nothing is mapped below: counts and flags need no look
	b.Load(scratchReg, arch.SP, -b.Now.SP)
	b.Put(x86.AppendALUImm(nil, b.word(), x86.Cmp, x86.In(x86.Of(scratchReg)), lowest)...)
	b.Jcc(x86.CondB, not)
	other, call := inject.NewLabel(), inject.NewLabel()
	from := len(b.Code)
	b.cmpByte(scratchReg, -x86.CallLen, x86.ByteCall)
	b.made.Trusting = append(b.made.Trusting, inject.Trusting{From: from, End: len(b.Code), Otherwise: other, Word: true})
	b.Jcc(x86.CondNE, other)
	b.later(other, func() {
		b.call(b.d.Area.Routine("called"))
		b.Jcc(x86.CondNE, not)
		b.jmp(call)
	})
	b.Place(call)
}

// giveBack takes the instance away again; the state is in StateReg, and the program's stack pointer on top of the private stack.
func (b *builder) giveBack() {
	b.Mov(foundReg, b.m.Code.State)
	b.Load(scratchReg, arch.SP, 0)
	b.Lea(scratchReg, scratchReg, -b.Now.SP)
	b.popInstance()
	if b.d.Return.Data > 0 {
		b.call(b.d.Area.Routine("give_data"))
	}
}

// popInstance leaves keyReg at the instance of the call with the slot in scratchReg, of the thread in foundReg: nobody's any more.
func (b *builder) popInstance() {
	const instance = keyReg
	b.Load(instance, foundReg, segment.StateCalls)
	b.CmpReg(instance, segment.CallSlot-segment.CallSize, scratchReg)
	other, popped := inject.NewLabel(), inject.NewLabel()
	b.Jcc(x86.CondNE, other) // calls above it never returned, or it is away
	b.later(other, func() {
		b.Put(x86.AppendConst(nil, 4, x86.RCX, uint64(b.d.Return.ID))...) // not in the state, which a forked child may have in common
		b.call(b.d.Area.Routine("unstack"))
		b.jmp(popped)
	})
	b.Lea(instance, instance, -segment.CallSize)
	b.Store(foundReg, segment.StateCalls, instance)
	b.Place(popped)
}

// throughReturn calls the function's body, so that the processor's prediction of
// returns stays right: the call puts its own return address into the slot
// where the caller's was. Behind it is what the function returns to.
func (b *builder) throughReturn() {
	ret := b.d.Return
	b.moveSP(b.word())
	b.branch(b.tail, x86.AppendCall(nil, 0)...)
	b.made.Returned = len(b.Code)
	b.Place(b.back)
	b.Now = inject.Frame{Phase: inject.Returning, State: arch.NoReg}
	b.moveSP(-b.word()) // to the slot. Below it the function was, so nothing is there any more
	saved := slices.Concat(scratch, b.early(ret.Programs))
	for _, r := range saved {
		b.PushReg(r)
	}
	b.saveFlags()
	b.pushFlags()
	b.find()
	// From here on no call is watched that a signal handler makes: the instances are
	// ours. If the flag is set already, then by a program that was left by longjmp, since
	// the calls that are made while one runs are not watched either.
	b.SetByte(foundReg, segment.StateBusy, 1)
	b.Now.Busy = true
	const instance = keyReg
	b.Lea(scratchReg, arch.SP, -b.word()-b.Now.SP)
	b.popInstance()
	if ret.Data > 0 {
		b.Load(arch.AX, instance, segment.CallData)
		b.Store(foundReg, segment.StateCall, arch.AX)
		b.Lea(scratchReg, arch.SP, -b.word()-b.Now.SP)
	}
	b.Load(instance, instance, segment.CallRet)
	b.Store(scratchReg, 0, instance)
	b.Now.Returned = true
	b.Now.Phase = inject.Running
	restored := inject.NewLabel()
	if len(ret.Programs) > 0 || ret.Data > 0 {
		// Before the private stack is used: without a controller, a forked child has it in common with its parent.
		dead := inject.NewLabel()
		b.alive(dead)
		b.later(dead, func() {
			b.Inc(foundReg, segment.Counter(ret.Missed))
			b.leave()
			b.jmp(restored)
		})
	}
	if ret.Data > 0 {
		b.call(b.d.Area.Routine("give_data"))
	}
	if len(ret.Programs) > 0 {
		b.run(ret.Programs, ret.Hits, saved, nil)
	} else if ret.Hits != inject.NoCounter {
		b.Inc(foundReg, segment.Counter(ret.Hits))
	}
	b.leave()
	b.Place(restored)
	b.popFlags()
	for _, r := range slices.Backward(saved) {
		b.popReg(r)
	}
	b.Ret()
}
