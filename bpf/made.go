package bpf

import (
	"fmt"

	"kprobe/bpf/layout"
)

// Functions that are put into programs, made of instructions that the engines have, for helpers
// that they have not. Each is proved, interpreted and compiled like the program's own.

// Numbers of helpers that are made, besides those of loops.
const (
	fnTailCall          = 12
	fnGetCurrentTask    = 35
	fnGetStack          = 67
	fnMapPushElem       = 87
	fnMapPopElem        = 88
	fnMapPeekElem       = 89
	fnGetNsPidTgid      = 120
	fnCopyFromUser      = 148
	fnTaskStorageGet    = 156
	fnTaskStorageDelete = 157
	fnGetCurrentTaskBtf = 158
	fnStrncmp           = 182
	storageCreate       = 1 // BPF_LOCAL_STORAGE_GET_F_CREATE
	stackKinds          = stackSkip | stackUser
	maxStackOfGetStack  = 8 * MaxTrace
)

// pushElem is map_push_elem(value, flags) of a queue or a stack.
func pushElem(m int, d *Declared) []Insn {
	w := &coder{}
	w.put(movReg(R6, R1), movReg(R7, R2))
	w.when(Jeq, R7, UpdateAny, "begin")
	w.when(Jeq, R7, UpdateExist, "begin")
	w.answer(-EINVAL)
	w.label("begin")
	w.lock(m, "busy")
	w.when(Jlt, R2, int32(d.MaxEntries), "room")
	w.put(movTo(R9, -E2BIG))
	w.when(Jne, R7, UpdateExist, "out")
	w.put(aluTo(Add, R1, 1))
	w.wrap(R1, d)
	w.put(storeTo(SizeW, R8, queueOldest, R1), movTo(R2, int32(d.MaxEntries)-1))
	w.label("room")
	w.put(movReg(R3, R1), aluBy(Add, R3, R2))
	w.cell(R3, d, "out")
	w.put(aluTo(Add, R2, 1), storeTo(SizeW, R8, queueCount, R2))
	w.copied(R3, R6, int(d.ValueSize))
	w.put(movTo(R9, 0))
	w.unlock()
	w.label("busy")
	w.answer(-EBUSY)
	return w.code()
}

// popElem is map_pop_elem(value) or map_peek_elem(value) of a queue or a stack. A value that there
// is none of is zeros.
func popElem(m int, d *Declared, out bool) []Insn {
	w := &coder{}
	w.put(movReg(R6, R1))
	for at := range int(d.ValueSize) {
		w.put(storeNumber(SizeB, R6, int16(at), 0))
	}
	w.lock(m, "busy")
	w.put(movTo(R9, -ENOENT))
	w.when(Jeq, R2, 0, "out")
	w.when(Jgt, R2, int32(d.MaxEntries), "out")
	w.put(movReg(R3, R1))
	if d.Type == Stack {
		w.put(aluBy(Add, R3, R2), aluTo(Sub, R3, 1))
	}
	w.cell(R3, d, "out")
	w.copied(R6, R3, int(d.ValueSize))
	if out {
		w.put(aluTo(Sub, R2, 1), storeTo(SizeW, R8, queueCount, R2))
		if d.Type == Queue {
			w.put(aluTo(Add, R1, 1))
			w.wrap(R1, d)
			w.put(storeTo(SizeW, R8, queueOldest, R1))
		}
	}
	w.put(movTo(R9, 0))
	w.unlock()
	w.label("busy")
	w.answer(-EBUSY)
	return w.code()
}

// lock takes a queue's lock: R8 is its value then, R1 the oldest cell, R2 how many are in use.
func (w *coder) lock(m int, busy string) {
	w.value(R8, m, 0)
	w.put(movTo(R1, 0), saved(-8, R1))
	w.label("try")
	w.rounds(busy)
	w.put(loaded(R1, -8))
	w.when(Jge, R1, layout.LockTries, busy)
	w.put(aluTo(Add, R1, 1), saved(-8, R1))
	w.put(movTo(R0, 0), movTo(R1, 1), atomicOn(SizeW, R8, queueLock, AtomicCmpxchg, R1))
	w.when(Jne, R0, 0, "try")
	w.put(loadOf(SizeW, R1, R8, queueOldest), loadOf(SizeW, R2, R8, queueCount))
}

// unlock gives the lock back at the label "out", and answers R9.
func (w *coder) unlock() {
	w.label("out")
	w.put(movTo(R1, 0), atomicOn(SizeW, R8, queueLock, AtomicXchg, R1), movReg(R0, R9), Insn{Op: ClassJMP | Exit})
}

// wrap keeps a cell's number within the ring.
func (w *coder) wrap(reg uint8, d *Declared) {
	in := fmt.Sprintf("in%d", len(w.insns))
	w.when(Jlt, reg, int32(d.MaxEntries), in)
	w.put(aluTo(Sub, reg, int32(d.MaxEntries)))
	w.label(in)
}

// cell turns a cell's number into its address. A number that the target has changed must not lead
// anywhere else.
func (w *coder) cell(reg uint8, d *Declared, out string) {
	w.wrap(reg, d)
	w.put(movTo(R9, -EINVAL))
	w.when(Jge, reg, int32(d.MaxEntries), out)
	w.put(aluTo(Mul, reg, int32(cellSize(d.ValueSize))), aluBy(Add, reg, R8), aluTo(Add, reg, queueCells))
}

// copied copies bytes, by R4: where they lie need not be aligned.
func (w *coder) copied(to, from uint8, n int) {
	for at := range n {
		w.put(loadOf(SizeB, R4, from, int16(at)), storeTo(SizeB, to, int16(at), R4))
	}
}

// bloomElem is map_push_elem(value, flags) or map_peek_elem(value) of a bloom filter.
func bloomElem(m int, d *Declared, push bool) []Insn {
	w := &coder{}
	if push {
		w.when(Jeq, R2, UpdateAny, "begin")
		w.answer(-EINVAL)
		w.label("begin")
	}
	w.put(movReg(R6, R1), movTo(R7, 0))
	w.value(R8, m, 0)
	w.number(R5, layout.HashMul)
	for at := range int(d.ValueSize) {
		w.put(loadOf(SizeB, R1, R6, int16(at)), aluBy(Xor, R7, R1), aluBy(Mul, R7, R5))
		w.put(movReg(R1, R7), aluTo(Rsh, R1, 32), aluBy(Xor, R7, R1))
	}
	w.put(movReg(R9, R7), aluBy(Mul, R9, R5), aluTo(Or, R9, 1))
	for k := range d.bloomHashes() {
		if k > 0 {
			w.put(aluBy(Add, R7, R9))
		}
		w.put(movReg(R1, R7), aluTo(And, R1, int32(d.bloomBits()-1)), movReg(R2, R1), aluTo(And, R2, 63), movTo(R3, 1), aluBy(Lsh, R3, R2))
		w.put(aluTo(Rsh, R1, 6), aluTo(Lsh, R1, 3), movReg(R2, R8), aluBy(Add, R2, R1))
		if push {
			w.put(atomicOn(SizeDW, R2, 0, AtomicOr, R3))
		} else {
			w.put(loadOf(SizeDW, R2, R2, 0), aluBy(And, R2, R3))
			w.when(Jeq, R2, 0, "none")
		}
	}
	w.answer(0)
	if !push {
		w.label("none")
		w.answer(-ENOENT)
	}
	return w.code()
}

// trieElem is map_lookup_elem(key), map_update_elem(key, value, flags) or map_delete_elem(key) of
// an LPM trie: the prefixes of the key are looked up, from the longest on, or the one that it says
// is changed.
func trieElem(m int, d *Declared, helper int32) []Insn {
	w := &coder{}
	data := int16(d.KeySize - 4)
	low := -int16(roundUp(uint64(d.KeySize), 8)) // the key on the stack
	long := low - 8                              // the length that is looked for
	w.put(movReg(R6, R1))
	if helper == FnMapUpdateElem {
		w.put(movReg(R7, R2), movReg(R8, R3))
	}
	w.put(storeNumber(SizeDW, R10, -8, 0)) // the padding
	w.put(loadOf(SizeB, R9, R6, 3))
	for at := 2; at >= 0; at-- {
		w.put(aluTo(Lsh, R9, 8), loadOf(SizeB, R1, R6, int16(at)), aluBy(Or, R9, R1))
	}
	w.when(Jgt, R9, int32(8*data), "wrong")
	w.put(saved(long, R9))
	if helper == FnMapLookupElem {
		w.label("shorter")
		w.rounds("none")
		w.put(loaded(R9, long))
		w.when(Jgt, R9, int32(8*data), "none")
	}
	w.put(Insn{Op: ClassSTX | ModeMem | SizeW, Dst: R10, Off: low, Src: R9})
	for i := range data {
		next := fmt.Sprintf("next%d", i)
		none := fmt.Sprintf("none%d", i)
		w.put(loadOf(SizeB, R1, R6, 4+i))
		w.when(Jge, R9, int32(8*i+8), next)
		w.when(Jle, R9, int32(8*i), none)
		w.put(movTo(R2, int32(8*i+8)), aluBy(Sub, R2, R9), aluTo(And, R2, 7), aluBy(Rsh, R1, R2), aluBy(Lsh, R1, R2))
		w.goTo(next)
		w.label(none)
		w.put(movTo(R1, 0))
		w.label(next)
		w.put(storeTo(SizeB, R10, low+4+i, R1))
	}
	w.pointer(R1, m)
	w.put(movReg(R2, R10), addTo(R2, int32(low)))
	if helper == FnMapUpdateElem {
		w.put(movReg(R3, R7), movReg(R4, R8))
	}
	w.put(helping(helper))
	switch helper {
	case FnMapLookupElem:
		w.when(Jne, R0, 0, "found")
		w.put(loaded(R9, long))
		w.when(Jeq, R9, 0, "none")
		w.put(addTo(R9, -1), saved(long, R9))
		w.goTo("shorter")
		w.label("none")
		w.label("wrong")
		w.answer(0)
		w.label("found")
		w.put(Insn{Op: ClassJMP | Exit})
	case FnMapUpdateElem:
		w.when(Jeq, R0, -E2BIG, "full")
		w.put(Insn{Op: ClassJMP | Exit})
		w.label("full")
		w.answer(-ENOSPC)
		w.label("wrong")
		w.answer(-EINVAL)
	default:
		w.put(Insn{Op: ClassJMP | Exit})
		w.label("wrong")
		w.answer(-EINVAL)
	}
	return w.code()
}

// taskStorageGet is task_storage_get(value, flags) of the thread that runs, whatever task is named:
// there is no other for a program.
func taskStorageGet(m int, d *Declared) []Insn {
	w := &coder{}
	w.put(movReg(R6, R1), movReg(R7, R2))
	looked := func() {
		w.put(helping(FnGetCurrentPidTgid), storeTo(SizeW, R10, -4, R0))
		w.pointer(R1, m)
		w.put(movReg(R2, R10), addTo(R2, -4), helping(FnMapLookupElem))
	}
	looked()
	w.when(Jne, R0, 0, "out")
	w.when(Jne, R7, storageCreate, "out")
	w.when(Jne, R6, 0, "given")
	low := -8 - int16(roundUp(uint64(d.ValueSize), 8))
	for at := low; at < -8; at += 8 {
		w.put(storeNumber(SizeDW, R10, at, 0))
	}
	w.put(movReg(R6, R10), addTo(R6, int32(low)))
	w.label("given")
	w.pointer(R1, m)
	w.put(movReg(R2, R10), addTo(R2, -4), movReg(R3, R6), movTo(R4, UpdateNoExist), helping(FnMapUpdateElem))
	looked()
	w.label("out")
	w.put(Insn{Op: ClassJMP | Exit})
	return w.code()
}

// taskStorageDelete is task_storage_delete().
func taskStorageDelete(m int) []Insn {
	w := &coder{}
	w.put(helping(FnGetCurrentPidTgid), storeTo(SizeW, R10, -4, R0))
	w.pointer(R1, m)
	w.put(movReg(R2, R10), addTo(R2, -4), helping(FnMapDeleteElem), Insn{Op: ClassJMP | Exit})
	return w.code()
}

// strncmp is strncmp(text, size) with a text that is known.
func strncmp(with string) []Insn {
	w := &coder{}
	for i, c := range append([]byte(with), 0) {
		w.when(Jle, R2, int32(i), "equal")
		w.put(loadOf(SizeB, R0, R1, int16(i)), aluTo(Sub, R0, int32(c)))
		w.when(Jne, R0, 0, "differs")
	}
	w.label("equal")
	w.put(movTo(R0, 0))
	w.label("differs")
	w.put(Insn{Op: ClassJMP | Exit})
	return w.code()
}

// getStackid is get_stackid(ctx, map, flags). It adds whether the probe is where a function begins:
// there the PC equals get_func_ip's answer.
func getStackid(c *Context) []Insn {
	w := &coder{}
	w.put(movReg(R6, R1), movReg(R7, R2), movReg(R8, R3))
	w.put(loadOf(SizeDW, R9, R1, int16(c.PC*c.Word)), helping(FnGetFuncIP))
	w.whenReg(Jne, R0, R9, "inside")
	w.put(aluTo(Or, R8, StackEntry))
	w.label("inside")
	w.put(movReg(R1, R6), movReg(R2, R7), movReg(R3, R8), helping(FnGetStackid))
	w.put(Insn{Op: ClassJMP | Exit})
	return w.code()
}

// getStack is get_stack(ctx, buf, size, flags): the PC, then the return addresses of the chain of
// frame pointers, as get_stackid has them. The answer is their bytes. Where a function begins, its
// return address is at the stack pointer.
func getStack(c *Context, k Kind) []Insn {
	const at, fp, frame, sp = -8, -16, -32, -40 // the bytes so far, the frame pointer, what it points at; the stack pointer at an entry, else 0
	w := &coder{}
	w.put(movReg(R7, R2), movReg(R8, R3), movReg(R9, R4))
	w.put(movReg(R5, R9), aluTo(And, R5, ^(stackKinds)))
	w.when(Jne, R5, 0, "wrong")
	w.when(Jgt, R8, maxStackOfGetStack, "wrong")
	w.put(movReg(R5, R8), aluTo(And, R5, 7))
	w.when(Jne, R5, 0, "wrong")
	w.put(aluTo(And, R9, stackSkip))
	w.put(loadOf(SizeDW, R6, R1, int16(c.PC*c.Word)), loadOf(SizeDW, R2, R1, int16(c.FP*c.Word)), saved(fp, R2), movTo(R2, 0), saved(at, R2))
	w.put(storeNumber(SizeDW, R10, frame, 0), storeNumber(SizeDW, R10, frame+8, 0))
	if k == Kprobe {
		w.put(loadOf(SizeDW, R2, R1, int16(c.SP*c.Word)), saved(sp, R2), helping(FnGetFuncIP))
		w.whenReg(Jeq, R0, R6, "next")
	}
	w.put(storeNumber(SizeDW, R10, sp, 0))
	w.label("next")
	w.rounds("done")
	w.put(loaded(R1, at))
	w.when(Jgt, R1, maxStackOfGetStack, "done")
	w.put(aluTo(And, R1, -8), movReg(R2, R1), aluTo(Add, R2, 8))
	w.whenReg(Jgt, R2, R8, "done")
	w.when(Jeq, R9, 0, "kept")
	w.put(aluTo(Sub, R9, 1))
	w.goTo("up")
	w.label("kept")
	w.put(movReg(R3, R7), aluBy(Add, R3, R2), storeTo(SizeDW, R3, -8, R6), saved(at, R2))
	w.label("up")
	w.put(loaded(R3, sp))
	w.when(Jeq, R3, 0, "framed")
	w.put(storeNumber(SizeDW, R10, sp, 0))
	w.put(movReg(R1, R10), addTo(R1, frame+8), movTo(R2, 8), helping(FnProbeRead))
	w.when(Jne, R0, 0, "done")
	w.put(loaded(R6, frame+8))
	w.when(Jeq, R6, 0, "done")
	w.goTo("next")
	w.label("framed")
	w.put(loaded(R3, fp))
	w.when(Jeq, R3, 0, "done")
	w.put(movReg(R1, R3), aluTo(And, R1, 7))
	w.when(Jne, R1, 0, "done")
	w.put(movReg(R1, R10), addTo(R1, frame), movTo(R2, 16), helping(FnProbeRead))
	w.when(Jne, R0, 0, "done")
	w.put(loaded(R6, frame+8))
	w.when(Jeq, R6, 0, "done")
	w.put(loaded(R1, frame), loaded(R3, fp))
	w.whenReg(Jgt, R1, R3, "above")
	w.put(movTo(R1, 0))
	w.label("above")
	w.put(saved(fp, R1))
	w.goTo("next")
	w.label("done")
	w.put(loaded(R0, at))
	w.when(Jne, R0, 0, "out")
	w.put(movTo(R0, -EFAULT))
	w.label("out")
	w.put(Insn{Op: ClassJMP | Exit})
	w.label("wrong")
	w.answer(-EINVAL)
	return w.code()
}

// nsPidTgid is get_ns_current_pid_tgid(nsdata, size): two numbers of 4 bytes, the thread and the
// process.
func nsPidTgid() []Insn {
	w := &coder{}
	w.put(movReg(R6, R1))
	w.when(Jne, R2, 8, "wrong")
	w.put(helping(FnGetCurrentPidTgid), storeTo(SizeW, R6, 0, R0), aluTo(Rsh, R0, 32), storeTo(SizeW, R6, 4, R0))
	w.answer(0)
	w.label("wrong")
	w.answer(-EINVAL)
	return w.code()
}
