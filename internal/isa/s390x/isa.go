// Package s390x knows the instructions of z/Architecture as far as a probe needs
// that is carried out where it stands: where they begin, what they do to the
// instruction address, and what they refer to. None is moved to another place, and
// none emulated. Encodings are those of the Principles of Operation (SA22-7832),
// appendix B.
package s390x

import (
	"fmt"

	"kprobe/arch"
	"kprobe/internal/isa"
)

// ISA is z/Architecture in 64-bit addressing mode.
var ISA isa.ISA = machine{}

type machine struct{}

func (machine) Arch() *arch.Arch { return arch.S390X }

// insn is an instruction, left-aligned: its first byte is the highest of six.
type insn struct {
	bits uint64
	size int
}

// read cuts the instruction at the start of code out: the first two bits tell its
// length (chapter 5, "Instruction Formats").
func read(code []byte) (insn, error) {
	if len(code) == 0 {
		return insn{}, isa.ErrUnknown
	}
	size := [...]int{2, 4, 4, 6}[code[0]>>6]
	if len(code) < size {
		return insn{}, isa.ErrUnknown
	}
	i := insn{size: size}
	for k := range 6 {
		i.bits <<= 8
		if k < size {
			i.bits |= uint64(code[k])
		}
	}
	return i, nil
}

// field is n bits of the instruction from bit at on, counted from its first as
// the Principles of Operation count.
func (i insn) field(at, n int) uint64 { return i.bits >> (48 - at - n) & (1<<n - 1) }

// signed is field for a number in two's complement.
func (i insn) signed(at, n int) int64 { return int64(i.field(at, n)<<(64-n)) >> (64 - n) }

// Decode reads the instruction at the start of code, which stands at pc. Which
// operation codes a model has is not checked. Errors: isa.ErrUnknown.
func (machine) Decode(code []byte, pc arch.Addr) (isa.Insn, error) {
	i, err := read(code)
	if err != nil {
		return isa.Insn{}, err
	}
	f := formOf(i)
	in := isa.Insn{Len: i.size, Flow: f.flow}
	if f.masked { // a mask says for which conditions it branches
		switch mask := i.field(8, 4); {
		case mask == 0:
			in.Flow, in.Nop = isa.Next, true
		case mask == 15 && f.flow == isa.CondJump:
			in.Flow = isa.Jump
		}
	}
	if f.register != 0 && i.field(f.register, 4) == 0 {
		in.Flow = isa.Next // it branches to what a register holds, and that is not 0
	}
	if i.bits>>32 == 0x07fe {
		in.Flow = isa.Return
	}
	if f.rel != 0 {
		in.PCRel, in.PCRelOff, in.PCRelSize = true, 2, f.rel
		in.Target = pc + arch.Addr(2*i.signed(16, 8*f.rel))
	}
	return in, nil
}

// Place decides how an instruction is carried out. Errors: isa.ErrUnknown.
func (machine) Place(code []byte, pc, slot arch.Addr) (isa.Verdict, error) {
	i, err := read(code)
	if err != nil {
		return isa.Verdict{}, err
	}
	if i.field(0, 8) == 0 {
		return isa.Verdict{Kind: isa.Refuse, Reason: "it is no instruction, or a breakpoint already"}, nil
	}
	return isa.Verdict{Kind: isa.InPlace}, nil
}

// SlotSize is 0: nothing runs in a slot.
func (machine) SlotSize() int { return 0 }

// Displace refuses: nothing is moved.
func (machine) Displace(code []byte, pc, at arch.Addr) (isa.Verdict, error) {
	if _, err := read(code); err != nil {
		return isa.Verdict{}, err
	}
	return isa.Verdict{Kind: isa.Refuse, Reason: "instructions of s390x are not moved"}, nil
}

// JumpForm is nil: over instructions no jump is written here.
func (machine) JumpForm() *isa.JumpForm { return nil }

// Reach is half of brcl's, less a margin for the size of both.
func (machine) Reach() arch.Addr { return 1<<31 - 1<<20 }

// Jump assembles brcl 15. Errors: isa.ErrRange beyond 4 GiB.
func (machine) Jump(from, to arch.Addr) ([]byte, error) {
	d := int64(to - from)
	if d%2 != 0 || d < -1<<32 || d >= 1<<32 {
		return nil, fmt.Errorf("jump from %v to %v: %w", from, to, isa.ErrRange)
	}
	b := []byte{0xc0, 0xf4, 0, 0, 0, 0}
	arch.S390X.Order.PutUint32(b[2:], uint32(d/2))
	return b, nil
}
