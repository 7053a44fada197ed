package x86

import (
	"kprobe/internal/asm/x86"
	"kprobe/internal/inject"
	"kprobe/internal/jit"
	"kprobe/internal/segment"
)

// What detours do where threads are CPUs; see "Kernels" in the package's description.

// findCPU is find for a CPU. There is nothing to be missed, and no flag is changed.
func (b *builder) findCPU() {
	b.loadGS32(b.key, b.d.Key.Offset)
	b.nearby(x86.OpLoad, b.state, b.d.Area.Head())
	b.loadIndexed(b.state, b.state, b.key, segment.HeadCPUs)
	b.Now.State = b.state
}

// maskInterrupts keeps all flags on the stack, and nothing comes between until
// popFlags.
func (b *builder) maskInterrupts() {
	b.Put(x86.BytePushf)
	b.Now.SP -= 8
	b.Now.Flags, b.Now.FlagsOff = inject.FlagsPushed, b.Now.SP
	b.Put(x86.ByteCli)
}

// noteTask tells a CPU's state which task it runs.
func (b *builder) noteTask() {
	if b.d.Key.Kind != segment.CPU {
		return
	}
	task, at := keyReg, b.d.Key.Task
	b.loadGS(task, at.Current)
	b.Store(foundReg, jit.StateTask, task)
	b.load32(scratchReg, task, at.TID)
	b.store32(foundReg, jit.StatePidTgid, scratchReg)
	b.load32(scratchReg, task, at.TGID)
	b.store32(foundReg, jit.StatePidTgid+4, scratchReg)
	for i := 0; i < segment.CommSize; i += 8 {
		b.Load(scratchReg, task, at.Comm+i)
		b.Store(foundReg, segment.StateComm+i, scratchReg)
	}
}
