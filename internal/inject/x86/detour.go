package x86

import (
	"slices"

	"kprobe/arch"
	"kprobe/internal/asm/x86"
	"kprobe/internal/inject"
	"kprobe/internal/jit"
	"kprobe/internal/segment"
)

// builder writes one detour.
type builder struct {
	*Asm
	made  *inject.Generated
	m     *inject.Machine
	d     *inject.Detour
	key   arch.Reg // scratch: the thread's key, then whatever
	state arch.Reg // the thread's state, once found
	cold  []func() // code for what seldom happens, put behind the rest
	tail  *inject.Label
	back  *inject.Label // what Return's functions return to
	ends  bool          // what is written serves an Exit
}

// The registers that detours work with, where no others are known to be dead.
const (
	keyReg     = arch.CX
	foundReg   = arch.DX
	scratchReg = arch.AX
)

// buildX86 makes a detour of x86-64 or i386. Errors: of Tail.
func buildX86(d *inject.Detour, silent bool) (g *inject.Generated, err error) {
	m := d.Area.Of.Machine
	g = inject.NewGenerated(d, silent)
	b := &builder{Asm: &Asm{Output: g.Output, narrow: m.Narrow()}, made: g, m: m, d: d, key: keyReg, state: foundReg, tail: inject.NewLabel(), back: inject.NewLabel()}
	if d.Head != nil {
		if g.Head, err = d.Head(d.At); err != nil {
			return nil, err
		}
		g.Code = append(g.Code, g.Head.Code...)
	}
	start := inject.NewLabel()
	b.Place(start)
	switch {
	case d.Gate:
		b.gate()
	case d.Plain():
		b.count()
		g.Out = len(g.Code)
	default:
		b.serve()
	}
	b.Place(b.tail)
	g.TailAt = len(g.Code)
	if g.Tail, err = d.Tail(g.Here()); err != nil {
		return nil, err
	}
	g.Code = append(g.Code, g.Tail.Code...)
	for i := 0; i < len(b.cold); i++ { // what seldom happens may itself have some that happens more seldom
		b.cold[i]()
	}
	if d.Key.Kind == segment.CPU && !d.Gate {
		b.landing(start)
	}
	b.Finish()
	return g, nil
}

// later has code written behind everything else; what holds at the jump to l
// holds at its start.
func (b *builder) later(l *inject.Label, f func()) {
	b.cold = append(b.cold, func() {
		b.placeCold(l)
		f()
	})
}

// count is the whole of a probe that only counts: this thread's counter goes up.
func (b *builder) count() {
	d := b.d
	b.key = b.deadOr(keyReg, foundReg)
	b.state = b.deadOr(foundReg, b.key)
	saved := b.save(b.key, b.state)
	if !d.DeadFlags {
		saved = append(saved, b.save(scratchReg)...)
		b.saveFlags()
	} else {
		b.Now.Flags = inject.FlagsDead
	}
	b.find()
	if d.Key.Kind == segment.CPU {
		b.lockInc(b.state, segment.Counter(d.Hits))
	} else {
		shared, counted := inject.NewLabel(), inject.NewLabel()
		b.nearby(x86.Cmp.ToReg(), b.state, d.Area.Sink())
		b.Jcc(x86.CondE, shared)
		b.Inc(b.state, segment.Counter(d.Hits))
		b.Place(counted)
		b.later(shared, func() {
			b.lose(b.state, segment.Counter(d.Hits))
			b.Now.Phase = inject.After
			b.jmp(counted)
		})
	}
	b.Now.Phase = inject.After
	if !d.DeadFlags {
		b.restoreFlags()
	}
	b.restore(saved)
}

// scratch is what finding the thread takes.
var scratch = []arch.Reg{scratchReg, keyReg, foundReg}

// early are the other registers that programs change and do not read, where there is
// room for them on the program's own stack: what is stored there need not wait until the
// thread's state has been found, nor must what is stored behind it.
func (b *builder) early(programs []inject.Program) (regs []arch.Reg) {
	if several := len(b.d.Enters)+len(b.d.Exits) > 0; several || b.d.RedZone == 0 || len(programs) == 0 {
		return nil
	}
	clobbers := b.clobbered(programs)
	var context uint64
	for _, p := range programs {
		context |= p.Context
	}
	for r := arch.AX; r <= arch.R15; r++ {
		if clobbers.Has(r) && context>>WordOf[r]&1 == 0 && r != arch.SP && !slices.Contains(scratch, r) {
			regs = append(regs, r)
		}
	}
	return regs
}

// clobbered are the registers that running programs changes.
func (b *builder) clobbered(programs []inject.Program) arch.RegSet {
	all := arch.SetOf(b.m.Code.Context) | arch.SetOf(b.m.Code.State)
	for _, p := range programs {
		all |= p.Clobbers
	}
	return all
}

// deadOr is r, or a register that the program does not need any more; not the
// other one, nor the one that the flags are kept in.
func (b *builder) deadOr(r, other arch.Reg) arch.Reg {
	for _, c := range append([]arch.Reg{r}, arch.SI, arch.DI, arch.R8, arch.R9, arch.R10, arch.R11, arch.AX) {
		if c <= b.last() && b.d.Dead.Has(c) && c != other && (c != scratchReg || b.d.DeadFlags) {
			return c
		}
	}
	return r
}

// save pushes those of the registers that the program still needs.
func (b *builder) save(regs ...arch.Reg) (saved []arch.Reg) {
	for _, r := range regs {
		if b.d.Plain() && b.d.Dead.Has(r) {
			b.Now.Reg[r].Kind = inject.Dead
			continue
		}
		if b.Now.SP == 0 {
			b.moveSP(-b.d.RedZone)
		}
		b.PushReg(r)
		saved = append(saved, r)
	}
	return saved
}

// restore takes them back.
func (b *builder) restore(saved []arch.Reg) {
	for i := len(saved) - 1; i >= 0; i-- {
		b.popReg(saved[i])
	}
	b.moveSP(-b.Now.SP)
}

// find leaves the thread's state in b.state. It needs b.key and the flags.
func (b *builder) find() {
	k, s := b.key, b.state
	switch b.d.Key.Kind {
	case segment.CPU:
		b.findCPU()
		return
	case segment.FSSelf:
		b.findSelf()
		return
	case segment.FSBase:
		b.Put(x86.Append([]byte{0xf3}, 8, x86.OpFSBase, 0, x86.In(x86.Of(k)))...)
		b.Put(append(x86.Append(nil, 8, x86.OpBitImm, 5, x86.In(x86.Of(k))), segment.BaseBit)...)
	}
	b.entry()
	b.CmpReg(s, 0, k)
	miss, unready, found := inject.NewLabel(), inject.NewLabel(), inject.NewLabel()
	b.Jcc(x86.CondNE, miss)
	b.Place(found)
	b.Load(s, s, 8)
	b.ready(unready)
	b.Now.State = s
	b.later(miss, func() {
		b.lookUp("find")
		b.jmp(found)
	})
	b.later(unready, func() {
		b.entry()
		b.lookUp("find")
		b.jmp(found)
	})
}

// ready goes on elsewhere if the thread's entry has no state yet: a signal has interrupted the routine that makes one,
// and its handler has come here.
func (b *builder) ready(otherwise *inject.Label) {
	b.test(b.state)
	b.Jcc(x86.CondE, otherwise)
}

// findSelf is find for a thread whose thread pointer is in the word that it points to. Whether that
// is so is seen by the way: the table is read by what the word says it takes to get there from the
// thread pointer, so a wrong one leads elsewhere. There it may fault, and so may the first load, with
// a thread pointer that is none: then the thread goes on where the table is not asked (Fixup).
func (b *builder) findSelf() {
	k, s := b.key, b.state
	prefix := byte(x86.PrefixFS)
	if b.narrow {
		prefix = x86.PrefixGS
	}
	miss, found := inject.NewLabel(), inject.NewLabel()
	b.cmpByteAt(b.d.Area.CarefulAt(), 0)
	b.Jcc(x86.CondNE, miss)
	from := len(b.Code)
	if b.narrow {
		b.Put(x86.AppendNear([]byte{prefix}, 4, x86.OpLoad, x86.Of(k), 0)...)
	} else {
		b.inSegment(prefix, 8, x86.OpLoad, x86.Of(k), x86.Absolute(0))
	}
	b.entry()
	b.Registers(x86.Sub.ToRM(), s, k)
	b.inSegment(prefix, b.word(), x86.Cmp.ToRM(), x86.Of(k), Mem(s, 0))
	b.Jcc(x86.CondNE, miss)
	b.inSegment(prefix, b.word(), x86.OpLoad, x86.Of(s), Mem(s, 8))
	b.made.Trusting = append(b.made.Trusting, inject.Trusting{From: from, End: len(b.Code), Otherwise: miss})
	b.ready(miss)
	b.Place(found)
	b.Now.State = s
	b.later(miss, func() {
		b.lookUp("identify")
		b.Load(s, s, 8)
		b.Now.State = s
		b.jmp(found)
	})
}

// entry makes b.state the address in the table where the entry of b.key should be.
func (b *builder) entry() {
	shift := byte(segment.HashShift64)
	if b.narrow {
		shift = segment.HashShift32
	}
	b.multiply(b.word(), b.state, b.key, segment.KeyFactor)
	b.Shift(b.word(), x86.Shr, b.state, shift)
	b.and32(b.state, segment.HashMask)
	b.nearby(x86.Add.ToReg(), b.state, b.d.Area.Table())
}

// lookUp has a routine look the thread up, which leaves its entry in b.state. It works with rcx
// and rdx, and needs the stack.
func (b *builder) lookUp(routine string) {
	b.exchange(b.key, keyReg)
	b.exchange(b.state, foundReg)
	free := b.Now.SP == 0
	if free {
		b.moveSP(-b.d.RedZone)
	}
	if b.Now.Phase == inject.Before {
		b.reach(b.m.Depth)
	}
	b.call(b.d.Area.Routine(routine))
	if free {
		b.moveSP(b.d.RedZone)
	}
	b.exchange(b.state, foundReg)
	b.exchange(b.key, keyReg)
}

// reach makes sure that so much more of the program's own stack is there, as long as nothing has happened yet. It reads: what is
// below may be somebody else's. The flags are free.
func (b *builder) reach(depth int) {
	b.Deepens()
	b.cmpByte(arch.SP, -depth, 0)
}

// reachAll is reach for all that is to come, where routines are called in any case, or the function returns into the
// detour: which then needs no more than is here.
func (b *builder) reachAll() {
	d, depth := b.d, b.m.Depth
	switch {
	case d.Key.Kind == segment.CPU || d.Return == nil && len(d.Enters)+len(d.Exits) == 0:
		return
	case d.Return != nil:
		const flags = 1
		pushed := len(scratch) + len(b.early(d.Return.Programs)) + flags
		depth = max(depth, depth+pushed*b.word()+b.Now.SP)
	}
	b.reach(depth)
}

// serve is a detour with programs, or with a return probe.
func (b *builder) serve() {
	d, ret := b.d, b.d.Return
	programs := d.Programs
	if ret != nil {
		programs = slices.Concat(programs, ret.Entry)
	}
	saved := b.save(slices.Concat(scratch, b.early(programs))...)
	if d.Key.Kind == segment.CPU {
		b.maskInterrupts()
	} else if d.DeadFlags && !readsFlags(d) {
		b.Now.Flags = inject.FlagsDead
	} else {
		b.saveFlags()
		b.pushFlags()
	}
	b.reachAll()
	b.find()
	missed, restored := inject.NewLabel(), inject.NewLabel()
	b.enter(missed)
	if ret != nil { // its calls may go other ways from here on, so those of the others come first
		b.others(saved)
		full := inject.NewLabel()
		b.take(full)
		b.later(full, func() { b.unwatched(saved) })
		b.run(programs, d.Hits, saved, b.vetoed(saved))
	} else {
		b.Now.More = len(d.Enters)+len(d.Exits) > 0
		b.run(programs, d.Hits, saved, b.vetoed(saved))
		b.others(saved)
	}
	b.leave()
	b.Place(restored)
	b.popFlags()
	b.restore(saved)
	b.made.Out = len(b.Code)
	b.later(missed, func() {
		b.Now.Plain = true
		if d.Missed != inject.NoCounter {
			b.lose(foundReg, segment.Counter(d.Missed))
		}
		for _, e := range d.Enters {
			b.lose(foundReg, segment.Counter(e.Missed))
		}
		if ret != nil {
			b.lose(foundReg, segment.Counter(ret.Missed))
		}
		b.Now.Phase = inject.After
		if ret == nil {
			b.jmp(restored)
			return
		}
		b.popFlags()
		b.restore(saved)
		b.jmp(b.tail)
	})
	if ret != nil {
		b.throughReturn()
	}
}

// others are the calls that begin here and leave their return address alone, and those that end.
func (b *builder) others(saved []arch.Reg) {
	b.Now.More = true
	for i := range b.d.Enters {
		b.entered(&b.d.Enters[i], saved)
	}
	if len(b.d.Exits) > 0 {
		b.exits(saved)
	}
	b.Now.More = false
}

// vetoed is what comes of a call that Return.Entry says is of no interest; nil where it
// cannot say so.
func (b *builder) vetoed(saved []arch.Reg) func(stored []arch.Reg) {
	if ret := b.d.Return; ret == nil || !ret.Veto || len(ret.Entry) == 0 {
		return nil
	}
	return func(stored []arch.Reg) {
		b.Now.Plain = true
		b.giveBack()
		b.reload(stored)
		b.leave()
		b.popFlags()
		b.restore(saved)
		b.jmp(b.tail)
	}
}

// unwatched goes on with a call that there is no instance for.
func (b *builder) unwatched(saved []arch.Reg) {
	b.Now.Plain = true
	b.Inc(foundReg, segment.Counter(b.d.Return.Missed))
	b.run(b.d.Programs, b.d.Hits, saved, nil)
	b.leave()
	b.popFlags()
	b.restore(saved)
	b.jmp(b.tail)
}

// readsFlags tells whether a program wants to see them.
func readsFlags(d *inject.Detour) bool {
	reads := func(p inject.Program) bool { return p.Context>>wordFlags&1 != 0 }
	return slices.ContainsFunc(d.Programs, reads) || d.Return != nil && slices.ContainsFunc(d.Return.Entry, reads) ||
		d.Cond != 0 || slices.ContainsFunc(d.Enters, func(e inject.Enter) bool { return slices.ContainsFunc(e.Programs, reads) }) ||
		slices.ContainsFunc(d.Exits, func(e inject.Exit) bool { return slices.ContainsFunc(e.Programs, reads) })
}

// pushFlags keeps the flags on the stack, so that rax is free.
func (b *builder) pushFlags() {
	b.Deepens()
	b.Put(x86.AppendPush(nil, x86.RAX)...)
	b.Now.SP -= b.word()
	b.Now.Flags, b.Now.FlagsOff = inject.FlagsOnStack, b.Now.SP
}

// popFlags takes them back from where pushFlags or maskInterrupts has them.
func (b *builder) popFlags() {
	switch b.Now.Flags {
	case inject.FlagsDead:
		return
	case inject.FlagsPushed:
		b.Put(x86.BytePopf)
		b.Now.SP += 8
		b.Now.Flags = inject.FlagsInPlace
		return
	}
	b.Put(x86.AppendPop(nil, x86.RAX)...)
	b.Now.SP += b.word()
	b.Now.Flags = inject.FlagsInAX
	b.restoreFlags()
}

// enter makes sure that the controller is there, and that this thread is not
// inside a program already; from now on it is.
func (b *builder) enter(missed *inject.Label) {
	b.alive(missed)
	b.cmpByte(foundReg, segment.StateBusy, 0)
	b.Jcc(x86.CondNE, missed)
	b.SetByte(foundReg, segment.StateBusy, 1)
	b.Now.Busy = true
}

// alive makes sure that the controller is there.
func (b *builder) alive(dead *inject.Label) {
	b.nearby(x86.OpLoad, keyReg, b.d.Area.Head())
	b.cmpByte(keyReg, segment.HeadDead, 0)
	b.Jcc(x86.CondNE, dead)
}

// leave ends that. Returns do not ask whether they may enter, and leave as busy
// what always is.
func (b *builder) leave() {
	if b.Now.Returned {
		b.Insn(4, x86.OpMovzx8, x86.Of(scratchReg), Mem(foundReg, segment.StateClosed))
		b.Insn(1, x86.OpStore, x86.Of(scratchReg), Mem(foundReg, segment.StateBusy))
	} else {
		b.SetByte(foundReg, segment.StateBusy, 0)
	}
	b.Now.Busy = false
	b.Now.Phase = b.Now.Served()
}

const (
	frameSize = jit.ContextWords * 8
	targetSP  = frameSize + 8 // below the frame: the program's own stack pointer
)

// word is the offset from the state of a word of pt_regs.
func word(i int) int { return -frameSize + 8*i }

// Words of pt_regs that are no general register, or have a meaning: by their numbers.
const (
	WordFP    = 4
	WordIP    = 16
	wordFlags = 18
	WordSP    = 19
)

// WordOf is the word of a general register.
var WordOf = [16]int{
	arch.R15: 0, arch.R14: 1, arch.R13: 2, arch.R12: 3, arch.BP: 4, arch.BX: 5, arch.R11: 6, arch.R10: 7,
	arch.R9: 8, arch.R8: 9, arch.AX: 10, arch.CX: 11, arch.DX: 12, arch.SI: 13, arch.DI: 14, arch.SP: WordSP,
}

// run counts and calls programs on the private stack. The registers in saved
// are on the program's stack already, and free. vetoed, if there is any, is gone on with
// where the last of the programs does not answer 0.
func (b *builder) run(programs []inject.Program, hits int, saved []arch.Reg, vetoed func(stored []arch.Reg)) {
	var context uint64
	override := false
	for _, p := range programs {
		context |= p.Context
		override = override || p.Override
	}
	var stored []arch.Reg
	if len(programs) > 0 {
		b.noteTask()
		stored = b.fillContext(b.clobbered(programs), context, saved)
	}
	if hits != inject.NoCounter {
		b.Inc(foundReg, segment.Counter(hits))
	}
	b.Now.Phase = inject.Running
	if len(programs) == 0 {
		return
	}
	for _, p := range programs {
		if p.Needs&jit.NeedsFuncIP != 0 {
			b.storeWide(b.m.Code.State, jit.StateFuncIP, uint64(p.FuncIP))
		}
		if p.Needs&jit.NeedsCookie != 0 {
			b.storeWide(b.m.Code.State, jit.StateCookie, p.Cookie)
		}
		if p.Needs&jit.NeedsData != 0 {
			b.findData(p.Data)
		}
		b.Lea(b.m.Code.Context, arch.SP, targetSP-frameSize)
		b.call(p.Entry)
	}
	if override && (b.Now.Returned || b.ends) {
		b.SetByte(b.m.Code.State, segment.StateOverride, 0) // too late for that
	} else if override {
		overridden := inject.NewLabel()
		b.cmpByte(b.m.Code.State, segment.StateOverride, 0)
		b.Jcc(x86.CondNE, overridden)
		b.later(overridden, func() { b.override(stored, saved) })
	}
	if vetoed != nil {
		veto := inject.NewLabel()
		if b.narrow {
			b.Registers(0x09, arch.AX, arch.DX) // or eax, edx: R0 is both
		} else {
			b.Registers(0x85, arch.AX, arch.AX) // test rax, rax
		}
		b.Jcc(x86.CondNE, veto)
		b.later(veto, func() { vetoed(stored) })
	}
	b.reload(stored)
}

// last is the last of the machine's general registers.
func (b *builder) last() arch.Reg {
	if b.narrow {
		return arch.SP
	}
	return arch.R15
}

// fillContext stores what programs read or change of the registers, switches to
// the private stack, and says what must be loaded again afterwards.
func (b *builder) fillContext(clobbers arch.RegSet, context uint64, saved []arch.Reg) (stored []arch.Reg) {
	// What is found with the program's stack pointer.
	for _, r := range scratch {
		if context>>WordOf[r]&1 != 0 {
			b.Load(scratchReg, arch.SP, b.Now.Reg[r].Off-b.Now.SP)
			b.Store(foundReg, word(WordOf[r]), scratchReg)
		}
	}
	if context>>WordSP&1 != 0 {
		above := -b.Now.SP
		if b.ends {
			above += b.word()
		}
		b.Lea(scratchReg, arch.SP, above)
		b.Store(foundReg, word(WordSP), scratchReg)
	}
	if context>>wordFlags&1 != 0 && b.Now.Flags == inject.FlagsPushed {
		b.Load(scratchReg, arch.SP, b.Now.FlagsOff-b.Now.SP)
		b.Store(foundReg, word(wordFlags), scratchReg)
	} else if context>>wordFlags&1 != 0 {
		const interrupts = 1 << 9 // IF, which is set in every program
		b.load32(scratchReg, arch.SP, b.Now.FlagsOff-b.Now.SP)
		b.Put(0x0f, 0xb6, 0xcc)                           // movzx ecx, ah
		b.Insn(4, x86.OpMovzx8, x86.RAX, x86.In(x86.RAX)) // of al
		b.Shift(4, x86.Shl, arch.AX, 11)                  // OF
		b.Insn(4, x86.OpLea, x86.RAX, x86.Indexed(x86.RAX, x86.RCX, 0, interrupts))
		b.Store(foundReg, word(wordFlags), scratchReg)
	}
	if context>>WordIP&1 != 0 {
		switch {
		case b.Now.Returned:
			b.Load(scratchReg, arch.SP, -b.word()-b.Now.SP)
		case b.ends && b.d.Key.Kind == segment.CPU: // the kernel may have put another in its slot
			b.Load(scratchReg, foundReg, segment.StateCall)
			b.Load(scratchReg, scratchReg, segment.NodeRet)
		case b.ends:
			b.Load(scratchReg, arch.SP, -b.Now.SP)
		default:
			b.nearby(x86.OpLea, scratchReg, b.d.Site)
		}
		b.Store(foundReg, word(WordIP), scratchReg)
	}

	// All that is loaded again is stored relative to rsp: processors forward that from
	// register to register.
	b.Mov(keyReg, arch.SP)
	b.Lea(arch.SP, foundReg, -targetSP)
	b.Now.Stack = inject.StackInKey
	b.Store(arch.SP, 0, keyReg)
	b.Now.Stack = inject.StackSaved
	for r := arch.AX; r <= b.last(); r++ {
		if r == arch.SP || slices.Contains(scratch, r) {
			continue
		}
		changes := clobbers.Has(r) && !slices.Contains(saved, r)
		if changes || context>>WordOf[r]&1 != 0 {
			b.Store(arch.SP, targetSP+word(WordOf[r]), r)
		}
		if changes {
			b.Now.Reg[r] = inject.Place{Kind: inject.InState, Off: word(WordOf[r])}
			stored = append(stored, r)
		}
	}
	b.Mov(b.m.Code.State, foundReg)
	b.Now.State = b.m.Code.State
	return stored
}

// reload takes the registers back from the context, and the program's stack with them.
func (b *builder) reload(stored []arch.Reg) {
	b.Now.Phase = b.Now.Served()
	b.Mov(foundReg, b.m.Code.State)
	b.Now.State = foundReg
	for _, r := range stored {
		b.Load(r, arch.SP, targetSP+word(WordOf[r]))
		b.Now.Reg[r] = inject.Place{}
	}
	b.Load(arch.SP, arch.SP, 0)
	b.Now.Stack = inject.StackInPlace
}

// override returns from the probed function at once, with the value that the
// program has given.
func (b *builder) override(stored, saved []arch.Reg) {
	if b.d.Return != nil && !b.Now.Plain {
		b.giveBack()
	}
	b.Load(arch.DI, arch.SP, 0)
	b.Load(scratchReg, b.m.Code.State, segment.StateValue)
	b.Store(arch.DI, b.Now.Reg[scratchReg].Off-b.Now.SP, scratchReg)
	b.SetByte(b.m.Code.State, segment.StateOverride, 0)
	b.Now.Shift(b.word())
	b.Now.Returned, b.Now.More = true, false
	b.reload(stored)
	b.leave()
	b.popFlags()
	for _, r := range slices.Backward(saved) {
		b.popReg(r)
	}
	b.moveSP(-b.word() - b.Now.SP)
	b.Ret()
}
