package amd64

import (
	"encoding/binary"
	"fmt"
	"math"

	"kprobe/arch"
	"kprobe/internal/asm/x86"
	"kprobe/internal/isa"
)

// Running an instruction away from its place. The CPU itself does the work from the slot wherever
// it can, because then page faults, stack growth, restarted string instructions and signals are its
// own business too. Parts that depend on the instruction's address are rewritten so that program
// and memory cannot tell: operands, branch targets, pushed return addresses, the RCX that syscall
// leaves behind.
//
// Three traces of the slot remain, and are accepted:
//
//   - the last-instruction pointer that x87 saves (fnstenv, fxsave, xsave);
//   - the address that the kernel sees of a system call (seccomp filters may read it, few do);
//   - the return stacks of the CPU: a call made of a push and a jump costs a mispredicted return. A
//     target with CET shadow stacks must not be given one (nor an emulated one): the planner has to
//     know that of its target.

// loopMaxLen is the length of loop or jrcxz rel8 with an address-size prefix.
const loopMaxLen = 3

// REX bits, as Inst.Rex holds them for every encoding.
const (
	rexBase = 0x40
	rexW    = 8
	rexR    = 4
	rexX    = 2
	rexB    = 1
)

// placement is one instruction on its way into a slot.
type placement struct {
	*machine
	in     Inst
	raw    []byte
	pc     arch.Addr // of the instruction
	next   arch.Addr // of the one that follows it
	target arch.Addr // the address that its PC-relative part refers to
	slot   arch.Addr
	chain  bool // the next instruction's copy follows: no way back is needed

	code  []byte
	marks []isa.Mark
}

// Place decides how the instruction at the start of code, which stands at pc,
// runs from a slot at address slot. Errors: isa.ErrUnknown.
func (m *machine) Place(code []byte, pc, slot arch.Addr) (isa.Verdict, error) {
	return m.place(code, pc, slot, false)
}

func (m *machine) place(code []byte, pc, slot arch.Addr, chain bool) (isa.Verdict, error) {
	in, err := Decode(code, m.mode)
	if err != nil {
		return isa.Verdict{}, err
	}
	p := placement{
		machine: m, in: in, raw: code[:in.Len],
		pc: m.cut(pc), next: m.cut(pc + arch.Addr(in.Len)), slot: m.cut(slot), chain: chain,
	}
	if in.PCRel {
		p.target = m.target(&in, pc)
	}
	return p.verdict(), nil
}

func (p *placement) verdict() isa.Verdict {
	switch p.in.Flow {
	case isa.Break:
		return refuse("a breakpoint instruction of someone else")
	case isa.Syscall:
		return p.syscall()
	case isa.Trap:
		if p.is(MapOneByte, 0xcd) && p.raw[p.in.ImmOff] == 0x80 {
			return p.kernelEntry()
		}
		return p.copy() // it traps in the slot; the marks give the address it would trap at
	case isa.Privileged:
		if p.is(MapOneByte, 0xcf) {
			return p.leave("", p.emulateIret())
		}
		return p.copy() // as is: the kernel's may run it, a program's faults as it does in place
	case isa.Next, isa.Undefined:
		return p.copy()
	}
	if why := p.oddBranch(); why != "" {
		return refuse(why)
	}
	switch p.in.Flow {
	case isa.Jump:
		return p.jump()
	case isa.CondJump:
		return p.condJump()
	case isa.IndirectJump:
		return p.indirectJump()
	case isa.Call:
		return p.call()
	case isa.IndirectCall:
		return p.indirectCall()
	case isa.Return:
		return p.ret()
	}
	return refuse(fmt.Sprintf("an instruction of unknown flow %d", p.in.Flow))
}

func refuse(why string) isa.Verdict { return isa.Verdict{Kind: isa.Refuse, Reason: why} }

// is tells whether the instruction has this opcode, encoded the legacy way.
func (p *placement) is(m Map, opcode byte) bool {
	return p.in.Enc == Legacy && p.in.Map == m && p.in.Opcode == opcode
}

// oddBranch says why a branch is better left alone: forms that no compiler
// makes and on which processors differ, or that Inst cannot describe.
func (p *placement) oddBranch() string {
	in := &p.in
	near := !p.far()
	switch {
	case in.Enc != Legacy:
		return "a branch with an extended prefix"
	case in.Map == Map0F && in.Flow == isa.Return: // uiret
		return "a return from a user interrupt"
	case in.Prefix&PrefixLock != 0:
		return "a branch with a lock prefix"
	case near && in.Prefix&PrefixOpSize != 0 && in.Rex&rexW == 0 && !p.isXbegin():
		// AMD cuts RIP to 16 bits, Intel ignores the prefix in 64-bit mode.
		// Not with REX.W, where both agree: the padded call of __tls_get_addr has it.
		return "a branch with an operand size prefix means different things on Intel and AMD"
	case (p.is(MapOneByte, 0xe0) || p.is(MapOneByte, 0xe1)) && in.Prefix&(PrefixRep|PrefixRepne) != 0:
		// AMD lets the prefix, not the opcode, choose loope or loopne
		// (measured on a Zen 4); no manual says so.
		return "a loope or loopne with a repeat prefix means different things on Intel and AMD"
	case !near && in.Rex&rexW != 0 && in.Flow != isa.Return:
		return "a far branch with REX.W means different things on Intel and AMD"
	case in.HasModRM && in.ModRM>>6 != 3 && in.AddrSize == 2:
		return "a branch with a 16-bit address"
	case in.HasModRM && in.Prefix&PrefixFS != 0 && in.Prefix&PrefixGS != 0:
		return "a branch with two segment prefixes"
	}
	return ""
}

// far tells that the branch loads CS too.
func (p *placement) far() bool {
	switch {
	case p.is(MapOneByte, 0xff):
		return p.in.ModRM>>3&7 == 3 || p.in.ModRM>>3&7 == 5
	case p.is(MapOneByte, 0x9a), p.is(MapOneByte, 0xea): // call, jmp ptr16:32
		return true
	case p.is(MapOneByte, 0xca), p.is(MapOneByte, 0xcb): // retf
		return true
	}
	return false
}

func (p *placement) isXbegin() bool { return p.is(MapOneByte, 0xc7) && p.in.Flow == isa.CondJump }

// here is the address at which the next byte of the slot's code will stand.
func (p *placement) here() arch.Addr { return p.slot + arch.Addr(len(p.code)) }

// emit adds one instruction to the slot. A thread that is found in front of it
// is, to the program, at pc with its stack pointer sp bytes higher.
func (p *placement) emit(insn []byte, pc arch.Addr, sp int) {
	p.marks = append(p.marks, isa.Mark{Off: len(p.code), PC: pc, SP: sp})
	p.code = append(p.code, insn...)
}

// emitJump adds a jump to an address of the original program. A thread that stands in front of it
// counts as being there.
func (p *placement) emitJump(to arch.Addr) {
	p.emit(p.appendJmp(nil, p.here(), to), to, 0)
}

// goOn ends a slot whose work falls through: the way back follows it.
func (p *placement) goOn(what string) isa.Verdict {
	body := len(p.code)
	if !p.chain {
		p.emitJump(p.next)
	}
	return isa.Verdict{Kind: isa.Copy, Reason: what, Code: p.code, Body: body, Marks: p.marks}
}

// leave ends a slot whose work itself goes elsewhere. Where a post-handler
// must run there is no place for it in the slot, so emulate serves then.
func (p *placement) leave(what string, emulate emulation) isa.Verdict {
	if p.code == nil {
		p.emit(p.raw, p.pc, 0)
	}
	return isa.Verdict{Kind: isa.Copy, Reason: what, Code: p.code, Body: len(p.code), Marks: p.marks, Emulate: emulate}
}

// onRegisters is for work that needs the registers only: no slot is needed,
// but where code was made, a jump detour can use it.
func (p *placement) onRegisters(what string, emulate emulation) isa.Verdict {
	return isa.Verdict{Kind: isa.Emulate, Reason: what, Code: p.code, Body: len(p.code), Marks: p.marks, Emulate: emulate}
}

// slotless is for work that only emulation does right.
func slotless(what string, emulate emulation) isa.Verdict {
	return isa.Verdict{Kind: isa.Emulate, Reason: what, Emulate: emulate}
}

// moved is raw, which may be a variant of the instruction but has its length,
// as it must be at the address at: its relative memory operand, if it has one,
// still refers to the same place. The bool is false if that is out of reach.
func (p *placement) moved(raw []byte, at arch.Addr) ([]byte, bool) {
	if !p.in.relOperand() {
		return raw, true
	}
	end := at + arch.Addr(len(raw))
	rel, ok := p.rel32(end, p.target)
	if p.in.AddrSize == 4 {
		// EIP-relative: the sum is cut to 32 bits, so every address that
		// the operand can name is in reach from everywhere.
		ok = true
	}
	out := append([]byte(nil), raw...)
	binary.LittleEndian.PutUint32(out[p.in.PCRelOff:], uint32(rel))
	return out, ok
}

func (p *placement) outOfReach() string {
	return fmt.Sprintf("its operand at %v is out of reach of the slot", p.target)
}

const (
	didRip    = "operand relative to the slot"
	didJump   = "jump done on the registers"
	didCall   = "return address pushed by hand"
	didSys    = "rcx loaded by hand"
	didLea    = "address loaded as a constant"
	didXbegin = "abort handler relative to the slot"
)

// copy is the rule: the same bytes, the operand's displacement corrected, and
// a jump back.
func (p *placement) copy() isa.Verdict {
	insn, ok := p.moved(p.raw, p.slot)
	switch {
	case ok && p.in.relOperand():
		p.emit(insn, p.pc, 0)
		return p.goOn(didRip)
	case ok:
		p.emit(insn, p.pc, 0)
		return p.goOn("")
	case p.is(MapOneByte, 0x8d): // lea reads no memory: a constant does
		reg := p.in.ModRM >> 3 & 7
		if p.in.Rex&rexR != 0 {
			reg |= 8
		}
		p.emit(x86.AppendConst(nil, int(p.in.OpSize), x86.Reg(reg), uint64(p.target)), p.pc, 0)
		return p.goOn(didLea)
	}
	// A load could go through its own destination register, but a fault
	// would then show the program a register that it did not write.
	return refuse(p.outOfReach())
}

func (p *placement) jump() isa.Verdict {
	p.emit(p.appendJmp(nil, p.slot, p.target), p.pc, 0)
	return p.onRegisters(didJump, p.emulateJump(p.target))
}

func (p *placement) condJump() isa.Verdict {
	if p.isXbegin() {
		return p.xbegin()
	}
	if p.in.Map == MapOneByte && p.in.Opcode>>4 == 0xe {
		// loop, loope, loopne and jrcxz have no longer form.
		op := []byte{p.in.Opcode}
		if p.in.Prefix&PrefixAddrSize != 0 {
			op = []byte{0x67, p.in.Opcode} // the counter's width
		}
		p.shortBranch(op)
		return p.onRegisters(didJump, p.emulateLoop())
	}
	cc := p.in.Opcode & 15 // 70+cc and 0F 80+cc alike; hint prefixes are dropped
	if rel, ok := p.rel32(p.slot+x86.JccLen, p.target); ok {
		p.emit(x86.AppendJcc(nil, x86.Cond(cc), rel), p.pc, 0)
		if !p.chain {
			p.emitJump(p.next)
		}
	} else {
		p.shortBranch([]byte{0x70 | cc})
	}
	return p.onRegisters(didJump, p.emulateJcc(cc))
}

// shortBranch emits the conditional branch op with a rel8 that leads over the
// way back to a jump to the target.
func (p *placement) shortBranch(op []byte) {
	size := len(op) + 1
	if p.chain {
		const over = x86.Jmp8Len // over the jump to the target
		p.emit(append(op, over), p.pc, 0)
		away := len(p.appendJmp(nil, p.here()+over, p.target))
		p.emit(x86.AppendJmp8(nil, int8(away)), p.next, 0)
		p.emitJump(p.target)
		return
	}
	back := len(p.appendJmp(nil, p.here()+arch.Addr(size), p.next))
	p.emit(append(op, byte(back)), p.pc, 0)
	p.emitJump(p.next)
	p.emitJump(p.target)
}

// xbegin starts a transaction and names the address that an abort continues
// at. The form with a 16-bit displacement becomes the usual one.
func (p *placement) xbegin() isa.Verdict {
	rel, ok := p.rel32(p.slot+6, p.target)
	if !ok {
		return refuse(fmt.Sprintf("its abort handler at %v is out of reach of the slot", p.target))
	}
	p.emit(x86.AppendImm([]byte{0xc7, 0xf8}, 4, rel), p.pc, 0)
	return p.goOn(didXbegin)
}

func (p *placement) indirectJump() isa.Verdict {
	var emulate emulation
	if p.far() {
		emulate = p.emulateFarJump()
	} else {
		emulate = p.emulateIndirectJump()
	}
	insn, ok := p.moved(p.raw, p.slot)
	if !ok {
		return slotless(p.outOfReach(), emulate)
	}
	p.emit(insn, p.pc, 0)
	if p.in.relOperand() {
		return p.leave(didRip, emulate)
	}
	return p.leave("", emulate)
}

func (p *placement) ret() isa.Verdict {
	if p.far() {
		return p.leave("", p.emulateFarReturn())
	}
	return p.leave("", p.emulateReturn())
}

// emitPushReturn pushes the address that the call would push. There is no
// push of 64 bits that needs no register, so the upper half is stored after
// the push where sign extension does not give it. It is a store, not two
// pushes, so that SP moves once and is never in between.
func (p *placement) emitPushReturn() {
	ret := uint64(p.next)
	p.emit(x86.AppendPushImm(nil, uint32(ret)), p.pc, 0)
	if p.mode == 64 && ret != uint64(int64(int32(ret))) {
		p.emit(appendStoreSP(nil, 4, uint32(ret>>32)), p.pc, p.facts.PtrSize)
	}
}

func (p *placement) call() isa.Verdict {
	if p.far() {
		return refuse("a far call pushes the slot's address")
	}
	p.emitPushReturn()
	p.emit(p.appendJmp(nil, p.here(), p.target), p.pc, p.facts.PtrSize)
	return p.leave(didCall, p.emulateCall())
}

// indirectCall becomes a push and the jump through the same operand. A fault
// on the operand undoes the push through the mark, as if it came first.
func (p *placement) indirectCall() isa.Verdict {
	if p.far() {
		return refuse("a far call pushes the slot's address")
	}
	emulate := p.emulateIndirectCall()
	jmp, why := p.callOperandAfterPush()
	if why != "" {
		return slotless(why, emulate)
	}
	p.emitPushReturn()
	jmp, ok := p.moved(jmp, p.here())
	if !ok {
		return slotless(p.outOfReach(), emulate)
	}
	p.emit(jmp, p.pc, p.facts.PtrSize)
	return p.leave(didCall, emulate)
}

// callOperandAfterPush is jmp r/m with the operand of a call r/m, which
// evaluates it before its push, for use after the push. The string says why
// there is none.
//
// An operand that only happens to lie in the word below the stack pointer, by
// way of other registers, is read after it was overwritten. Nothing that calls
// keeps anything there: the callee owns that word. Reading it first takes a
// second word below the stack, where a kernel's interrupts write, or a ret
// that upsets the return predictor for every caller up the stack.
func (p *placement) callOperandAfterPush() ([]byte, string) {
	in, push := &p.in, int64(p.facts.PtrSize)
	sib := int(in.ModRMOff) + 1
	jmp := append([]byte(nil), p.raw...)
	jmp[in.ModRMOff] = in.ModRM&^0x38 | 4<<3 // FF /2 is call, FF /4 is jmp

	if in.ModRM>>6 == 3 {
		if in.ModRM&7 == numSP && in.Rex&rexB == 0 {
			return nil, "calls the address in the stack pointer"
		}
		return jmp, ""
	}
	if !in.HasSIB || in.SIB&7 != numSP || in.Rex&rexB != 0 {
		return jmp, ""
	}
	disp := p.disp()
	indexed := in.SIB>>3&7 != numSP || in.Rex&rexX != 0
	if !indexed && disp < 0 && disp > -2*push {
		return nil, "its operand lies where the return address goes"
	}
	disp += push
	jmp = jmp[:sib+1]
	switch modrm := jmp[in.ModRMOff] & 0x3f; {
	case disp == int64(int8(disp)):
		jmp[in.ModRMOff] = 1<<6 | modrm
		jmp = append(jmp, byte(disp))
	case disp <= math.MaxInt32:
		jmp[in.ModRMOff] = 2<<6 | modrm
		jmp = x86.AppendImm(jmp, 4, int32(disp))
	default:
		return nil, "its operand's displacement cannot grow"
	}
	if len(jmp) > maxLen {
		return nil, "its prefixes leave no room for a displacement"
	}
	return jmp, ""
}

// disp is the memory operand's displacement, sign-extended; 0 if it has none.
func (p *placement) disp() int64 {
	d := p.raw[p.in.DispOff:]
	switch p.in.DispSize {
	case 1:
		return int64(int8(d[0]))
	case 4:
		return int64(int32(binary.LittleEndian.Uint32(d)))
	}
	return 0
}

// syscall leaves the address of the following instruction in RCX. The kernel
// returns to the slot, because that is where it was called from.
func (p *placement) syscall() isa.Verdict {
	if !p.is(Map0F, 0x05) || p.mode != 64 {
		return refuse("the kernel returns from it to an address of its own choice")
	}
	p.emitKernelEntry()
	p.emit(x86.AppendConst(nil, 8, x86.RCX, uint64(p.next)), p.next, 0)
	// A thread that is stopped inside the call has the slot's address in RCX.
	m := &p.marks[len(p.marks)-1]
	m.HasLink, m.Link = true, arch.CX
	return p.goOn(didSys)
}

// kernelEntry is int 0x80.
func (p *placement) kernelEntry() isa.Verdict {
	p.emitKernelEntry()
	return p.goOn("")
}

// emitKernelEntry copies the instruction without its prefixes, which mean
// nothing to it: to restart a system call the kernel steps back by two bytes,
// and that must lead to an instruction boundary of the slot.
func (p *placement) emitKernelEntry() { p.emit(p.raw[len(p.raw)-2:], p.pc, 0) }
