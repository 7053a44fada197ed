package x86

import (
	"kprobe/arch"
	"kprobe/internal/asm/x86"
	"kprobe/internal/inject"
	"kprobe/internal/segment"
)

// A gate is what leads traps in a kernel's text to detours, without a stop: a detour of the
// kernel's own handler of them, at its very first instruction. What that is given is the address of the
// registers that the trap has found, in the order of the words of a context, and it may change
// all that functions may. A trap of ours goes on where the table of traps says (internal/segment/traps.go); all else, such as
// those that the kernel itself puts into its text for a moment, goes the way that it always did.
//
// Nothing is called on the way, and nothing locked: what comes between at any of these
// instructions (NMI) may run into a trap of ours itself. Interrupts are masked from the trap to the return
// from it.

// gate is the whole of it. The flags are nobody's where a function begins.
func (b *builder) gate() {
	const regs, site, entry, key = arch.DI, arch.AX, arch.CX, arch.DX
	b.Now.Phase = inject.Running // to put a thread back to the handler's first instruction would be to ask once more
	next, found, gone := inject.NewLabel(), inject.NewLabel(), inject.NewLabel()
	b.Load(site, regs, 8*WordIP)
	b.Lea(site, site, -1)
	b.hash(entry, site)
	b.shr32(entry, segment.TrapShift)
	b.and32(entry, segment.TrapMask)
	b.nearby(x86.Add.ToReg(), entry, b.d.Area.Head())
	b.Lea(entry, entry, b.d.Area.Of.Segment.TrapsAt())
	b.Place(next)
	b.Load(key, entry, 0)
	b.Compare(key, site)
	b.Jcc(x86.CondE, found)
	b.Lea(entry, entry, segment.TrapEntry)
	b.test(key)
	b.Jcc(x86.CondNE, next)
	b.jmp(b.tail)

	b.Place(found)
	b.Load(entry, entry, 8)
	b.test(entry)
	b.Jcc(x86.CondE, gone)
	b.Store(regs, 8*WordIP, entry)
	b.Ret()

	// It has been taken away since it was executed: what is there instead is. If that is a trap
	// again, it is somebody else's.
	b.Place(gone)
	b.cmpByte(site, 0, x86.ByteInt3)
	b.Jcc(x86.CondE, b.tail)
	b.Store(regs, 8*WordIP, site)
	b.Ret()
}

// landing is where a trap leads that a kernel takes: on to the beginning. The trap's frame is still below
// the stack pointer, with this address in it, and may stay there as long as the task
// sleeps. Whoever asks for tasks that will come here must not find it, so it is wiped: in either of the two
// places where the processor may have aligned it to.
func (b *builder) landing(start *inject.Label) {
	b.made.LandAt = len(b.Code)
	b.Now = inject.Frame{Phase: inject.Before, State: arch.NoReg}
	// The frame has 5 words, and the kernel puts one in front, and 6 that are a copy (room to emulate a call).
	const ip = -8 * (5 + 1 + 6 - 1)
	b.StoreConst(arch.SP, ip, 0)
	b.StoreConst(arch.SP, ip-8, 0)
	b.jmp(start)
}
