// Package arm64 knows the instructions of AArch64 as far as a probe needs that is
// carried out where it stands: where they begin, what they do to the program
// counter, and what they refer to. Those that only change the program counter and
// the link register it can emulate. None is moved to another place: of the others
// nobody asks what they do. Encodings are those of the Arm Architecture Reference
// Manual (DDI 0487), chapter C4.
package arm64

import (
	"fmt"

	"kprobe/arch"
	"kprobe/internal/isa"
)

// ISA is AArch64.
var ISA isa.ISA = machine{}

type machine struct{}

func (machine) Arch() *arch.Arch { return arch.ARM64 }

const length = 4

// word is the instruction at the start of code.
func word(code []byte) (uint32, error) {
	if len(code) < length {
		return 0, isa.ErrUnknown
	}
	w := arch.ARM64.Order.Uint32(code)
	if !allocated(w) {
		return 0, isa.ErrUnknown
	}
	return w, nil
}

// allocated tells whether an encoding's group holds instructions (table C4-1).
// UDF, which is undefined for ever, is one of those of group 0.
func allocated(w uint32) bool {
	switch w >> 25 & 15 {
	case 0:
		return w>>31 == 1 || w < 1<<16 // SME, UDF
	case 1, 3:
		return false
	}
	return true
}

// Decode reads the instruction at the start of code, which stands at pc. What
// group an encoding belongs to is checked, and no more: each has four bytes.
// Errors: isa.ErrUnknown.
func (machine) Decode(code []byte, pc arch.Addr) (isa.Insn, error) {
	w, err := word(code)
	if err != nil {
		return isa.Insn{}, err
	}
	f := formOf(w)
	in := isa.Insn{Len: length, Flow: f.flow, Nop: w == nop, Landing: landing(w)}
	if f.offset != nil {
		in.PCRel, in.PCRelSize = true, length
		in.Target = f.target(w, pc)
	}
	return in, nil
}

// Place decides how an instruction is carried out. Errors: isa.ErrUnknown.
func (machine) Place(code []byte, pc, slot arch.Addr) (isa.Verdict, error) {
	w, err := word(code)
	if err != nil {
		return isa.Verdict{}, err
	}
	f := formOf(w)
	switch {
	case f.flow == isa.Break:
		return isa.Verdict{Kind: isa.Refuse, Reason: "it is a breakpoint already"}, nil
	case exclusive(w):
		return isa.Verdict{Kind: isa.Refuse, Reason: "it belongs to a load and store exclusive, which a stop would make fail for ever"}, nil
	case f.emulate != nil:
		return isa.Verdict{Kind: isa.Emulate, Emulate: func(r *arch.Regs, _ isa.Memory) error {
			f.emulate(w, pc, r)
			return nil
		}}, nil
	}
	return isa.Verdict{Kind: isa.InPlace}, nil
}

// SlotSize is 0: nothing runs in a slot.
func (machine) SlotSize() int { return 0 }

// Displace refuses: nothing is moved.
func (machine) Displace(code []byte, pc, at arch.Addr) (isa.Verdict, error) {
	if _, err := word(code); err != nil {
		return isa.Verdict{}, err
	}
	return isa.Verdict{Kind: isa.Refuse, Reason: "instructions of arm64 are not moved"}, nil
}

// JumpForm is nil: a jump is one instruction long.
func (machine) JumpForm() *isa.JumpForm { return nil }

// Jump assembles b. Errors: isa.ErrRange beyond 128 MiB.
func (machine) Jump(from, to arch.Addr) ([]byte, error) {
	d := int64(to - from)
	if d%length != 0 || d < -1<<27 || d >= 1<<27 {
		return nil, fmt.Errorf("jump from %v to %v: %w", from, to, isa.ErrRange)
	}
	b := make([]byte, length)
	arch.ARM64.Order.PutUint32(b, 0x14000000|uint32(d/length)&(1<<26-1))
	return b, nil
}
