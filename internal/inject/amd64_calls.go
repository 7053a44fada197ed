package inject

import (
	"kprobe/arch"
	"kprobe/internal/asm/x86"
	"kprobe/internal/jit"
	"kprobe/internal/segment"
)

// Enter is the beginning of a call whose end is an Exit: return addresses stay as they
// are. The call is remembered in the pool, as the goroutine's or the thread's.
type Enter struct {
	ID       uint32    // the first of its counters of Lost calls
	Max      int32     // the most of them that one goroutine or thread can have under way
	Missed   int       // as in Return
	Programs []Program // run where the call is watched, after Detour.Programs; not with Override
	Veto     bool      // as in Return
	Data     int       // as in Return
}

// Exit is the other end of an Enter: the displaced instruction returns, or jumps to a function in
// tail position, or to this function's own entry. The call is recognised by the place of its return
// address on the stack; an instruction that is not at the height of a call's entry is no exit of it.
type Exit struct {
	ID       uint32    // Enter.ID
	Again    bool      // it jumps to the function's entry: that is no new call
	Hits     int       // counter of returns, or NoCounter
	Programs []Program // run with the registers that the caller will see, but for a tail jump's result
}

// What enter_call, leave_call and take_data are asked: words of 4 bytes at StateAsked.
const (
	askedProbe = iota
	askedMax
	askedData
	askedAgain
)

// ask sets one of them.
func (b *builder) ask(what int, v int32) {
	b.storeImm(4, foundReg, segment.StateAsked+4*what, v)
}

// words is how many words of 8 bytes some private data takes.
func words(n int) int32 { return int32(segment.RoundUp(min(n, segment.MaxData), 8) / 8) }

// bySlot are the routines for kernels (internal/segment/slots.go).
var bySlot = map[string]string{"enter_call": "enter_slot", "leave_call": "leave_slot"}

// askAbout calls a routine about the call whose return address is on top of the
// stack here; its answer is in keyReg, and compared with 1.
func (b *builder) askAbout(routine string, id uint32) {
	b.ask(askedProbe, int32(id))
	if b.d.Key.Kind == segment.CPU {
		routine = bySlot[routine]
	} else if g := b.d.Goroutine; g != 0 {
		b.inSegment(x86.PrefixFS, 8, x86.OpLoad, x86.Of(keyReg), x86.Absolute(int32(g)))
	} else {
		b.insn(4, x86.Xor.ToRM(), x86.Of(keyReg), x86.In(x86.Of(keyReg)))
	}
	b.lea(scratchReg, arch.SP, -b.now.sp)
	b.call(b.d.Area.routine(routine))
	b.wipe()
	b.now.phase = Running
	b.compareByte(keyReg, 1)
}

// wipe takes away what a call has left below a task's stack pointer in a kernel: a later function may keep
// it for as long as the task sleeps, and it would look like one that comes back here.
func (b *builder) wipe() {
	if b.d.Key.Kind == segment.CPU {
		b.storeConst(arch.SP, -8, 0)
	}
}

// entered makes an instance for this call, and runs the programs for that.
func (b *builder) entered(e *Enter, saved []arch.Reg) {
	b.ask(askedMax, max(e.Max, 0))
	b.ask(askedData, words(e.Data))
	b.askAbout("enter_call", e.ID)
	full, next := newLabel(), newLabel()
	b.jcc(x86.CondB, full)
	b.later(full, func() {
		b.inc(foundReg, segment.Counter(e.Missed))
		b.jmp(next)
	})
	if len(e.Programs) > 0 {
		b.jcc(x86.CondE, next) // it begins anew
		var vetoed func([]arch.Reg)
		if e.Veto {
			vetoed = func(stored []arch.Reg) {
				b.mov(foundReg, b.m.Code.State)
				if b.d.Key.Kind == segment.CPU {
					b.call(b.d.Area.routine("free_slot"))
				} else {
					b.call(b.d.Area.routine("forget_call"))
				}
				b.reload(stored)
				b.jmp(next)
			}
		}
		b.run(e.Programs, NoCounter, saved, vetoed)
	}
	b.place(next)
	b.now.phase = Running
}

// exits recognises the calls that are about to return here.
func (b *builder) exits(saved []arch.Reg) {
	out := newLabel()
	if cond := b.d.Cond; cond != 0 {
		b.load32(scratchReg, arch.SP, b.now.flagsOff-b.now.sp)
		if b.now.flags == flagsPushed { // make of them what lahf and seto would have
			b.insn(4, x86.OpStore, x86.RAX, x86.In(x86.RCX))
			b.put(0x88, 0xc4)                // mov ah, al
			b.shift(4, x86.Shr, arch.CX, 11) // OF
			b.aluImm(4, x86.And, x86.In(x86.RCX), 1)
			b.put(0x88, 0xc8) // mov al, cl
		}
		b.put(0x04, 0x7f) // add al, 127
		b.put(x86.ByteSahf)
		b.jcc(x86.Cond(cond&0xf^1), out)
	}
	b.ends = true
	for i := range b.d.Exits {
		e, next := &b.d.Exits[i], newLabel()
		again := int32(0)
		if e.Again {
			again = 1
		}
		b.ask(askedAgain, again)
		b.askAbout("leave_call", e.ID)
		if !e.Again {
			b.jcc(x86.CondB, next)
			b.run(e.Programs, e.Hits, saved, nil)
			if b.d.Key.Kind == segment.CPU {
				b.call(b.d.Area.routine("free_slot"))
				b.wipe()
			}
		}
		b.place(next)
		b.now.phase = Running
	}
	b.ends = false
	b.place(out)
	b.now.phase = Running
}

// findData tells a program where the private data of the call is that it is about: that
// of the pool's n-th call is the n-th there.
func (b *builder) findData(off int) {
	b.nearby(x86.OpLoad, keyReg, b.d.Area.head())
	b.load(scratchReg, b.m.Code.State, segment.StateCall)
	b.insn(b.word(), x86.Sub.ToReg(), x86.Of(scratchReg), mem(keyReg, segment.PoolCalls))
	shift := byte(segment.DataShift)
	if b.d.Key.Kind == segment.CPU {
		shift = segment.SlotDataShift
	}
	b.shift(b.word(), x86.Shl, scratchReg, shift)
	b.insn(b.word(), x86.Add.ToReg(), x86.Of(scratchReg), mem(keyReg, segment.PoolData))
	if off != 0 {
		b.lea(scratchReg, scratchReg, off)
	}
	b.store(b.m.Code.State, jit.StateData, scratchReg)
}

// leavesX86 is Leaves.
func leavesX86(code []byte) (cond byte, ok bool) {
	for len(code) > 1 {
		switch op := code[0]; op {
		case 0x2e, 0x3e, 0xf2, 0xf3: // hints, bnd, repz
			code = code[1:]
			continue
		case 0xc3, 0xc2, 0xeb, 0xe9: // ret, ret n, jmp
			return 0, true
		case 0x0f:
			return 0x70 | code[1]&0xf, code[1]&0xf0 == 0x80
		default:
			return op, op&0xf0 == 0x70
		}
	}
	return 0, len(code) == 1 && code[0] == 0xc3
}
