package x86

import (
	"kprobe/arch"
	"kprobe/internal/asm/x86"
	"kprobe/internal/inject"
	"kprobe/internal/jit"
	"kprobe/internal/segment"
)

// ask sets one of them.
func (b *builder) ask(what int, v int32) {
	b.storeImm(4, foundReg, segment.StateAsked+4*what, v)
}

// bySlot are the routines for kernels (internal/segment/slots.go).
var bySlot = map[string]string{"enter_call": "enter_slot", "leave_call": "leave_slot"}

// askAbout calls a routine about the call whose return address is on top of the
// stack here; its answer is in keyReg, and compared with 1.
func (b *builder) askAbout(routine string, id uint32) {
	b.ask(inject.AskedProbe, int32(id))
	if b.d.Key.Kind == segment.CPU {
		routine = bySlot[routine]
	} else if g := b.d.Goroutine; g != 0 {
		b.inSegment(x86.PrefixFS, 8, x86.OpLoad, x86.Of(keyReg), x86.Absolute(int32(g)))
	} else {
		b.Insn(4, x86.Xor.ToRM(), x86.Of(keyReg), x86.In(x86.Of(keyReg)))
	}
	b.Lea(scratchReg, arch.SP, -b.Now.SP)
	b.call(b.d.Area.Routine(routine))
	b.wipe()
	b.Now.Phase = inject.Running
	b.compareByte(keyReg, 1)
}

// wipe takes away what a call has left below a task's stack pointer in a kernel: a later function may keep
// it for as long as the task sleeps, and it would look like one that comes back here.
func (b *builder) wipe() {
	if b.d.Key.Kind == segment.CPU {
		b.StoreConst(arch.SP, -8, 0)
	}
}

// entered makes an instance for this call, and runs the programs for that.
func (b *builder) entered(e *inject.Enter, saved []arch.Reg) {
	b.ask(inject.AskedMax, max(e.Max, 0))
	b.ask(inject.AskedData, inject.Words(e.Data))
	b.askAbout("enter_call", e.ID)
	full, next := inject.NewLabel(), inject.NewLabel()
	b.Jcc(x86.CondB, full)
	b.later(full, func() {
		b.Inc(foundReg, segment.Counter(e.Missed))
		b.jmp(next)
	})
	if len(e.Programs) > 0 {
		b.Jcc(x86.CondE, next) // it begins anew
		var vetoed func([]arch.Reg)
		if e.Veto {
			vetoed = func(stored []arch.Reg) {
				b.Mov(foundReg, b.m.Code.State)
				if b.d.Key.Kind == segment.CPU {
					b.call(b.d.Area.Routine("free_slot"))
				} else {
					b.call(b.d.Area.Routine("forget_call"))
				}
				b.reload(stored)
				b.jmp(next)
			}
		}
		b.run(e.Programs, inject.NoCounter, saved, vetoed)
	}
	b.Place(next)
	b.Now.Phase = inject.Running
}

// exits recognises the calls that are about to return here.
func (b *builder) exits(saved []arch.Reg) {
	out := inject.NewLabel()
	if cond := b.d.Cond; cond != 0 {
		b.load32(scratchReg, arch.SP, b.Now.FlagsOff-b.Now.SP)
		if b.Now.Flags == inject.FlagsPushed { // make of them what lahf and seto would have
			b.Insn(4, x86.OpStore, x86.RAX, x86.In(x86.RCX))
			b.Put(0x88, 0xc4)                // mov ah, al
			b.Shift(4, x86.Shr, arch.CX, 11) // OF
			b.aluImm(4, x86.And, x86.In(x86.RCX), 1)
			b.Put(0x88, 0xc8) // mov al, cl
		}
		b.Put(0x04, 0x7f) // add al, 127
		b.Put(x86.ByteSahf)
		b.Jcc(x86.Cond(cond&0xf^1), out)
	}
	b.ends = true
	for i := range b.d.Exits {
		e, next := &b.d.Exits[i], inject.NewLabel()
		again := int32(0)
		if e.Again {
			again = 1
		}
		b.ask(inject.AskedAgain, again)
		b.askAbout("leave_call", e.ID)
		if !e.Again {
			b.Jcc(x86.CondB, next)
			b.run(e.Programs, e.Hits, saved, nil)
			if b.d.Key.Kind == segment.CPU {
				b.call(b.d.Area.Routine("free_slot"))
				b.wipe()
			}
		}
		b.Place(next)
		b.Now.Phase = inject.Running
	}
	b.ends = false
	b.Place(out)
	b.Now.Phase = inject.Running
}

// findData tells a program where the private data of the call is that it is about: that
// of the pool's n-th call is the n-th there.
func (b *builder) findData(off int) {
	b.nearby(x86.OpLoad, keyReg, b.d.Area.Head())
	b.Load(scratchReg, b.m.Code.State, segment.StateCall)
	b.Insn(b.word(), x86.Sub.ToReg(), x86.Of(scratchReg), Mem(keyReg, segment.PoolCalls))
	shift := byte(segment.DataShift)
	if b.d.Key.Kind == segment.CPU {
		shift = segment.SlotDataShift
	}
	b.Shift(b.word(), x86.Shl, scratchReg, shift)
	b.Insn(b.word(), x86.Add.ToReg(), x86.Of(scratchReg), Mem(keyReg, segment.PoolData))
	if off != 0 {
		b.Lea(scratchReg, scratchReg, off)
	}
	b.Store(b.m.Code.State, jit.StateData, scratchReg)
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
