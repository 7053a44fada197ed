// Package arm64 knows the instructions of AArch64 as far as a probe needs: what they do to the
// program counter, what they refer to (forms.go), how they run elsewhere (relocate.go,
// displace.go), and the work of those that only branch or refer to their own place (emulate.go).
// All others are copied, without a look at what they do. Encodings are those of the Arm
// Architecture Reference Manual (DDI 0487), chapter C4.
package arm64

import (
	"encoding/binary"

	"kprobe/arch"
	"kprobe/internal/isa"
)

// ISA is AArch64.
var ISA isa.ISA = machine{}

type machine struct{}

func (machine) Arch() *arch.Arch { return arch.ARM64 }

const length = 4

// word is the instruction at the start of code: little-endian on every system.
func word(code []byte) (uint32, error) {
	if len(code) < length {
		return 0, isa.ErrUnknown
	}
	w := binary.LittleEndian.Uint32(code)
	if !allocated(w) {
		return 0, isa.ErrUnknown
	}
	return w, nil
}

// allocated tells whether an encoding's group holds instructions (table C4-1). In the group of
// branches, exceptions and system instructions it must be one that is known: a new kind of branch
// must not be taken for an instruction that goes on with the next one.
func allocated(w uint32) bool {
	switch group(w) {
	case 0:
		return w>>31 == 1 || w < 1<<16 // SME, UDF
	case 1, 3:
		return false
	case 10, 11:
		if w>>23 == 0xd5000000>>23 { // hints, barriers, MSR, MRS, SYS, and their like
			return true
		}
		return formOf(w) != usual
	}
	return true
}

// Decode reads the instruction at the start of code, which stands at pc. The encoding's group is
// checked, and in the group of branches the instruction: each has four bytes. Errors:
// isa.ErrUnknown.
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
	switch is, load := exclusive(w); {
	case is && load:
		in.Monitor = isa.Opens
	case is, clrex(w):
		in.Monitor = isa.Closes
	}
	return in, nil
}
