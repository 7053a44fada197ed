package inject

import (
	"encoding/binary"
	"slices"

	"kprobe/arch"
	"kprobe/internal/asm/x86"
	"kprobe/internal/segment"
)

// Return is a return probe in the target. The call is remembered on the thread's
// stack of instances; the function returns into the detour, and from there to its caller.
type Return struct {
	ID       uint32    // told in Call.Probe, and the first of its Counters: of Lost calls, and Away
	Max      int32     // the most of them in one thread (MaxActive)
	Missed   int       // counter of calls that are not watched, because there are Max already or for Detour.Missed's reasons
	Entry    []Program // run at the entry, after Detour.Programs, where the call is watched
	Veto     bool      // a result of the last of Entry other than 0 says that this return is of no interest
	Hits     int       // counter of returns, or NoCounter
	Programs []Program // run at the return
	Data     int       // bytes of private data that programs at the entry and the return share
}

// take makes an instance for this call: the stack slot of its return address, and the
// address. full is for where there is none to be had.
func (b *builder) take(full *label) {
	const top = keyReg // address of the first free instance
	ret := b.d.Return
	b.called(full)
	b.load(top, foundReg, segment.StateCalls)
	b.lea(scratchReg, arch.SP, -b.now.sp)
	b.cmpMem(scratchReg, top, segment.CallSlot-segment.CallSize)
	many, below, room, away, taken := newLabel(), newLabel(), newLabel(), newLabel(), newLabel()
	b.jcc(x86.CondAE, below) // calls that never returned, or another stack
	b.cmpMem(scratchReg, foundReg, segment.StateStackLow)
	b.jcc(x86.CondB, away) // another stack
	fresh := newLabel()
	b.later(below, func() {
		b.call(b.d.Area.routine("abandon"))
		b.compareByte(top, 1)
		b.jcc(x86.CondB, away)
		b.jcc(x86.CondE, full)
		b.jmp(fresh)
	})
	b.later(away, func() { b.takeAway(full, taken) })
	b.place(fresh)
	const most = segment.MaxCalls - 2
	few := min(max(ret.Max, 0), most)
	b.lea(scratchReg, foundReg, segment.StateCallsAt+(1+int(few))*segment.CallSize)
	b.compare(top, scratchReg)
	b.jcc(x86.CondAE, many) // instances of whatever probes
	b.later(many, func() {
		beyond := newLabel()
		b.lea(scratchReg, foundReg, segment.StateCallsAt+(1+most)*segment.CallSize)
		b.compare(top, scratchReg)
		b.jcc(x86.CondAE, beyond)
		b.put(x86.AppendConst(nil, 4, x86.RAX, uint64(ret.ID))...)
		b.call(b.d.Area.routine("active"))
		b.put(binary.LittleEndian.AppendUint32([]byte{0x3d}, uint32(max(ret.Max, 0)))...) // cmp eax, Max
		b.jcc(x86.CondAE, full)
		b.jmp(room)
		b.later(beyond, func() {
			b.lea(scratchReg, arch.SP, -b.now.sp)
			b.cmpReg(top, segment.CallSlot-segment.CallSize, scratchReg)
			b.jcc(x86.CondE, full) // a call that ended in a jump to this one is found by the same slot, there
			b.jmp(away)
		})
	})
	b.place(room)
	if ret.Data > 0 {
		b.takeData(full)
		b.store(top, segment.CallData, scratchReg)
	}
	b.addressOf(scratchReg, b.back)
	b.store(top, segment.CallBack, scratchReg)
	b.lea(scratchReg, arch.SP, -b.now.sp)
	b.store(top, segment.CallSlot, scratchReg)
	b.load(scratchReg, scratchReg, 0)
	b.store(top, segment.CallRet, scratchReg)
	b.storeConst(top, segment.CallProbe, int32(ret.ID)) // and no mark
	if b.narrow {
		b.storeConst(top, segment.CallMark, 0)
	}
	if ret.Data == 0 {
		b.storeConst(top, segment.CallData, 0)
	}
	b.lea(top, top, segment.CallSize)
	b.store(foundReg, segment.StateCalls, top)
	b.now.phase = Running
	b.place(taken)
}

// takeAway is for a call that has no place among its thread's instances (internal/segment/away.go).
func (b *builder) takeAway(full, taken *label) {
	ret := b.d.Return
	if ret.Data > 0 {
		b.takeData(full)
	} else {
		b.storeConst(foundReg, segment.StateCall, 0)
	}
	b.ask(askedProbe, int32(ret.ID))
	b.ask(askedMax, max(ret.Max, 0))
	b.addressOf(keyReg, b.back)
	b.lea(scratchReg, arch.SP, -b.now.sp)
	b.call(b.d.Area.routine("enter_away"))
	b.now.phase = Running
	b.test(keyReg)
	b.jcc(x86.CondNE, taken)
	if ret.Data > 0 {
		b.call(b.d.Area.routine("give_data"))
	}
	b.jmp(full)
}

// takeData leaves a call's private data in StateCall, and in scratchReg.
func (b *builder) takeData(full *label) {
	b.ask(askedData, words(b.d.Return.Data))
	b.call(b.d.Area.routine("take_data"))
	b.load(scratchReg, foundReg, segment.StateCall)
	b.test(scratchReg)
	b.jcc(x86.CondE, full)
}

// called looks at the word that is to be swapped: where the function was jumped to it is no return address, but whatever
// the function takes it for. not is for such a word. Most calls are direct ones, which their first byte shows.
func (b *builder) called(not *label) {
	const lowest = 1 << 16 // nothing is mapped below: counts and flags need no look
	b.load(scratchReg, arch.SP, -b.now.sp)
	b.put(x86.AppendALUImm(nil, b.word(), x86.Cmp, x86.In(x86.Of(scratchReg)), lowest)...)
	b.jcc(x86.CondB, not)
	other, call := newLabel(), newLabel()
	from := len(b.code)
	b.cmpByte(scratchReg, -x86.CallLen, x86.ByteCall)
	b.made.trusting = append(b.made.trusting, trusting{from: from, end: len(b.code), otherwise: other, word: true})
	b.jcc(x86.CondNE, other)
	b.later(other, func() {
		b.call(b.d.Area.routine("called"))
		b.jcc(x86.CondNE, not)
		b.jmp(call)
	})
	b.place(call)
}

// giveBack takes the instance away again; the state is in StateReg, and the program's stack pointer on top of the private stack.
func (b *builder) giveBack() {
	b.mov(foundReg, b.m.Code.State)
	b.load(scratchReg, arch.SP, 0)
	b.lea(scratchReg, scratchReg, -b.now.sp)
	b.popInstance()
	if b.d.Return.Data > 0 {
		b.call(b.d.Area.routine("give_data"))
	}
}

// popInstance leaves keyReg at the instance of the call with the slot in scratchReg, of the thread in foundReg: nobody's any more.
func (b *builder) popInstance() {
	const instance = keyReg
	b.load(instance, foundReg, segment.StateCalls)
	b.cmpReg(instance, segment.CallSlot-segment.CallSize, scratchReg)
	other, popped := newLabel(), newLabel()
	b.jcc(x86.CondNE, other) // calls above it never returned, or it is away
	b.later(other, func() {
		b.put(x86.AppendConst(nil, 4, x86.RCX, uint64(b.d.Return.ID))...) // not in the state, which a forked child may have in common
		b.call(b.d.Area.routine("unstack"))
		b.jmp(popped)
	})
	b.lea(instance, instance, -segment.CallSize)
	b.store(foundReg, segment.StateCalls, instance)
	b.place(popped)
}

// throughReturn calls the function's body, so that the processor's prediction of
// returns stays right: the call puts its own return address into the slot
// where the caller's was. Behind it is what the function returns to.
func (b *builder) throughReturn() {
	ret := b.d.Return
	b.moveSP(b.word())
	b.branch(b.tail, x86.AppendCall(nil, 0)...)
	b.made.returned = len(b.code)
	b.place(b.back)
	b.now = frame{phase: Returning, state: arch.NoReg}
	b.moveSP(-b.word()) // to the slot. Below it the function was, so nothing is there any more
	saved := slices.Concat(scratch, b.early(ret.Programs))
	for _, r := range saved {
		b.pushReg(r)
	}
	b.saveFlags()
	b.pushFlags()
	b.find()
	// From here on no call is watched that a signal handler makes: the instances are
	// ours. If the flag is set already, then by a program that was left by longjmp, since
	// the calls that are made while one runs are not watched either.
	b.setByte(foundReg, segment.StateBusy, 1)
	b.now.busy = true
	const instance = keyReg
	b.lea(scratchReg, arch.SP, -b.word()-b.now.sp)
	b.popInstance()
	if ret.Data > 0 {
		b.load(arch.AX, instance, segment.CallData)
		b.store(foundReg, segment.StateCall, arch.AX)
		b.lea(scratchReg, arch.SP, -b.word()-b.now.sp)
	}
	b.load(instance, instance, segment.CallRet)
	b.store(scratchReg, 0, instance)
	b.now.returned = true
	b.now.phase = Running
	restored := newLabel()
	if len(ret.Programs) > 0 || ret.Data > 0 {
		// Before the private stack is used: without a controller, a forked child has it in common with its parent.
		dead := newLabel()
		b.alive(dead)
		b.later(dead, func() {
			b.inc(foundReg, segment.Counter(ret.Missed))
			b.leave()
			b.jmp(restored)
		})
	}
	if ret.Data > 0 {
		b.call(b.d.Area.routine("give_data"))
	}
	if len(ret.Programs) > 0 {
		b.run(ret.Programs, ret.Hits, saved, nil)
	} else if ret.Hits != NoCounter {
		b.inc(foundReg, segment.Counter(ret.Hits))
	}
	b.leave()
	b.place(restored)
	b.popFlags()
	for _, r := range slices.Backward(saved) {
		b.popReg(r)
	}
	b.ret()
}
