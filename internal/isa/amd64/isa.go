package amd64

import (
	"fmt"

	"kprobe/arch"
	"kprobe/internal/asm/x86"
	"kprobe/internal/isa"
)

// ISA is x86-64 in 64-bit mode.
var ISA = New(arch.AMD64)

// machine is the processor in one of its two modes. It implements isa.ISA.
type machine struct {
	facts *arch.Arch
	mode  int // 64 or 32, the width of addresses in bits
}

// New gives the instruction set as the machine a runs it: 64-bit mode where
// pointers are 8 bytes wide, else 32-bit protected mode with the flat code,
// data and stack segments that every system gives its programs.
func New(a *arch.Arch) isa.ISA { return &machine{a, 8 * a.PtrSize} }

func (m *machine) Arch() *arch.Arch { return m.facts }

// Decode reads the instruction at the start of code, which stands at pc.
// Errors: isa.ErrUnknown.
func (m *machine) Decode(code []byte, pc arch.Addr) (isa.Insn, error) {
	in, err := Decode(code, m.mode)
	if err != nil {
		return isa.Insn{}, err
	}
	out := isa.Insn{Len: int(in.Len), Flow: in.Flow, Nop: in.nop() || m.mode == 32 && in.copiesItself(code), Repeats: in.repeats(), Landing: in.landing()}
	out.Pushed, out.Pushes = in.pushes()
	if in.PCRel {
		out.PCRel = true
		out.PCRelOff, out.PCRelSize = int(in.PCRelOff), int(in.PCRelSize)
		out.Target = m.target(&in, pc)
	}
	return out, nil
}

// nop tells the instructions that compilers pad with.
func (i *Inst) nop() bool {
	return i.Enc == Legacy && (i.Map == MapOneByte && i.Opcode == 0x90 && i.Rex&rexB == 0 || i.Map == Map0F && i.Opcode == 0x1f)
}

// copiesItself tells lea of a register into itself, such as lea 0(%esi,%eiz,1),%esi: the padding of
// assemblers for i386, older processors of which do not know 0F 1F.
func (i *Inst) copiesItself(code []byte) bool {
	if i.Enc != Legacy || i.Map != MapOneByte || i.Opcode != 0x8d || i.Prefix&(PrefixOpSize|PrefixAddrSize) != 0 {
		return false
	}
	reg, base, indexed := i.ModRM>>3&7, i.ModRM&7, false
	if i.HasSIB {
		base, indexed = i.SIB&7, i.SIB>>3&7 != 4
	}
	if base == 5 && i.ModRM>>6 == 0 { // an address
		return false
	}
	for _, b := range code[i.DispOff : i.DispOff+i.DispSize] {
		indexed = indexed || b != 0
	}
	return base == reg && !indexed
}

// pushes tells the one byte that pushes a register, but for the stack pointer.
func (i *Inst) pushes() (arch.Reg, bool) {
	const pushAX, pushSP, pushDI = 0x50, 0x54, 0x57
	if i.Len != 1 || i.Opcode < pushAX || i.Opcode > pushDI || i.Opcode == pushSP {
		return 0, false
	}
	return x86.Reg(i.Opcode - pushAX).Arch(), true
}

// repeats tells string instructions with a repeat prefix.
func (i *Inst) repeats() bool {
	if i.Enc != Legacy || i.Map != MapOneByte || i.Prefix&(PrefixRep|PrefixRepne) == 0 {
		return false
	}
	op := i.Opcode
	return op >= 0x6c && op <= 0x6f || op >= 0xa4 && op <= 0xa7 || op >= 0xaa && op <= 0xaf
}

// landing tells endbr64 and endbr32.
func (i *Inst) landing() bool {
	return i.Enc == Legacy && i.Map == Map0F && i.Opcode == 0x1e && i.PP == 2 && (i.ModRM == 0xfa || i.ModRM == 0xfb)
}

// target is the address that the PC-relative part of in refers to.
func (m *machine) target(in *Inst, pc arch.Addr) arch.Addr {
	t := pc + arch.Addr(in.Len) + arch.Addr(in.Rel)
	if in.relOperand() && in.AddrSize == 4 {
		return t & 0xffffffff // EIP-relative: the sum is cut, not the address it starts from
	}
	return m.cut(t)
}

// cut wraps an address as the mode's program counter does.
func (m *machine) cut(a arch.Addr) arch.Addr {
	if m.mode == 32 {
		return a & 0xffffffff
	}
	return a
}

// relOperand tells that it is a memory operand which is relative to the
// instruction's address, and not a branch's target.
func (i *Inst) relOperand() bool { return i.PCRel && i.DispSize == 4 && i.PCRelOff == i.DispOff }

// Jump assembles jmp rel32, 5 bytes. It never gives the 2-byte form, although that may reach: a
// patch wants one length, known before its target is. Errors: isa.ErrRange beyond 2 GiB.
func (m *machine) Jump(from, to arch.Addr) ([]byte, error) {
	if _, ok := m.rel32(from+x86.JmpLen, to); !ok {
		return nil, fmt.Errorf("jump from %v to %v: %w", from, to, isa.ErrRange)
	}
	return m.appendJmp(nil, from, to), nil
}

// Reach is the reach of a 32-bit displacement, less a margin for the size of both.
func (m *machine) Reach() arch.Addr { return 1<<31 - 1<<20 }

// SlotSize is the most bytes that Code of any verdict takes.
func (m *machine) SlotSize() int {
	if m.mode == 32 {
		return max(
			maxLen+x86.JmpLen,       // a copy and its way back
			x86.PushImmLen+maxLen,   // an indirect call
			loopMaxLen+2*x86.JmpLen, // a loop and both its ways
		)
	}
	return max(
		maxLen+x86.JmpFarLen,
		x86.PushImmLen+storeSPLen+maxLen,
		loopMaxLen+2*x86.JmpFarLen,
	)
}
