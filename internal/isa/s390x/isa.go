// Package s390x knows the instructions of z/Architecture as far as a probe needs: where they begin,
// what they do to the instruction address, what they refer to (forms.go), how they run elsewhere
// (displace.go), and the work of those that branch or make an address (emulate.go). All others are
// copied, without a look at what they do. Encodings are those of the Principles of Operation
// (SA22-7832), appendix B.
package s390x

import (
	"encoding/binary"
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
func read(code []byte) (insn, form, error) {
	if len(code) == 0 {
		return insn{}, form{}, isa.ErrUnknown
	}
	size := [...]int{2, 4, 4, 6}[code[0]>>6]
	if len(code) < size {
		return insn{}, form{}, isa.ErrUnknown
	}
	i := insn{size: size}
	for k := range 6 {
		i.bits <<= 8
		if k < size {
			i.bits |= uint64(code[k])
		}
	}
	return i, formOf(i), nil
}

func (i insn) bytes() []byte {
	return binary.BigEndian.AppendUint64(nil, i.bits<<16)[:i.size]
}

// field is n bits of the instruction from bit at on, counted from its first as
// the Principles of Operation count.
func (i insn) field(at, n int) uint64 { return i.bits >> (48 - at - n) & (1<<n - 1) }

// signed is field for a number in two's complement.
func (i insn) signed(at, n int) int64 { return int64(i.field(at, n)<<(64-n)) >> (64 - n) }

// Decode reads the instruction at the start of code, which stands at pc. Which
// operation codes a model has is not checked. Errors: isa.ErrUnknown.
func (machine) Decode(code []byte, pc arch.Addr) (isa.Insn, error) {
	i, f, err := read(code)
	if err != nil {
		return isa.Insn{}, err
	}
	in := f.decoded(i)
	if f.rel != 0 {
		in.Target = f.target(i, pc)
	}
	return in, nil
}

// decoded holds the facts that do not depend on the instruction's place.
func (f *form) decoded(i insn) isa.Insn {
	in := isa.Insn{Len: i.size, Flow: f.flow, Monitor: f.monitor, Executes: f.executes}
	if f.masked { // a mask says for which conditions it branches
		switch mask := i.field(8, 4); {
		case mask == 0:
			in.Flow, in.Nop = isa.Next, true
		case mask == 15 && f.flow == isa.CondJump:
			in.Flow = isa.Jump
		}
	}
	if f.register != 0 && i.field(f.register, 4) == 0 {
		in.Flow = isa.Next // it branches to a register's address, and that is not 0
	}
	if i.bits>>32 == 0x07fe {
		in.Flow = isa.Return
	}
	if f.rel != 0 {
		in.PCRel, in.PCRelOff, in.PCRelSize = true, 2, f.rel
	}
	return in
}

// target is the address that the instruction refers to: its own, where it refers to nothing.
func (f *form) target(i insn, pc arch.Addr) arch.Addr {
	if f.rel == 0 {
		return pc
	}
	return pc + arch.Addr(2*i.signed(16, 8*f.rel))
}

// SlotSize is the most bytes that Code of any verdict takes: a condition and two ways.
func (machine) SlotSize() int { return 3 * lenLong }

// Displace refuses: no jumps are written over instructions here.
func (machine) Displace(code []byte, pc, at arch.Addr) (isa.Verdict, error) {
	for off := 0; off < len(code); {
		i, _, err := read(code[off:])
		if err != nil {
			return isa.Verdict{}, err
		}
		off += i.size
	}
	return isa.Verdict{Kind: isa.Refuse, Reason: "several instructions of s390x are not moved together"}, nil
}

// JumpForm is nil: over instructions no jump is written here.
func (machine) JumpForm() *isa.JumpForm { return nil }

// Reach is half of brcl's, less a margin for the size of both.
func (machine) Reach() arch.Addr { return 1<<31 - 1<<20 }

// Jump assembles brcl 15. Errors: isa.ErrRange beyond 4 GiB.
func (machine) Jump(from, to arch.Addr) ([]byte, error) {
	s := sequence{at: from}
	if s.leave(from, to); s.why != "" {
		return nil, fmt.Errorf("jump from %v to %v: %w", from, to, isa.ErrRange)
	}
	return s.code, nil
}
