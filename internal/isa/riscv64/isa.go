// Package riscv64 knows the instructions of RISC-V, RV64 with compressed ones, as far as a probe
// needs: how long they are, what they do to the program counter, what they refer to (forms.go), how
// they run elsewhere (displace.go), and the work of those that only branch, refer to their own
// place, or reckon with a constant (emulate.go). All others are copied, without a look at what they
// do. Encodings are those of The RISC-V Instruction Set Manual, volume I (20240411), chapters 2, 4,
// 13, 27 and 35.
package riscv64

import (
	"encoding/binary"
	"fmt"

	"kprobe/arch"
	"kprobe/internal/asm/rv64"
	"kprobe/internal/isa"
)

// ISA is RV64GC.
var ISA isa.ISA = machine{}

type machine struct{}

func (machine) Arch() *arch.Arch { return arch.RISCV64 }

// insn is an instruction: its bits, and its length in bytes, 2 or 4.
type insn struct {
	w    uint32
	size int
}

// read cuts the instruction at the start of code out. Its first bits tell its length (1.5, "Base
// Instruction-Length Encoding"); none that is longer than 4 bytes is known.
func read(code []byte) (insn, *form, error) {
	if len(code) < 2 {
		return insn{}, nil, isa.ErrUnknown
	}
	i := insn{uint32(binary.LittleEndian.Uint16(code)), 2}
	if i.w&3 == 3 {
		if i.w&0x1c == 0x1c || len(code) < 4 {
			return insn{}, nil, isa.ErrUnknown
		}
		i = insn{binary.LittleEndian.Uint32(code), 4}
	}
	f := formOf(i)
	if f == nil {
		return insn{}, nil, isa.ErrUnknown
	}
	return i, f, nil
}

func (i insn) bytes() []byte {
	return binary.LittleEndian.AppendUint32(nil, i.w)[:i.size]
}

// Fields of 4 bytes. x0 reads 0 and keeps nothing.
func (i insn) rd() uint32  { return i.w >> 7 & 31 }
func (i insn) rs1() uint32 { return i.w >> 15 & 31 }
func (i insn) rs2() uint32 { return i.w >> 20 & 31 }

// short are the registers that three bits of a compressed instruction name.
func (i insn) short(at int) uint32 { return 8 + i.w>>at&7 }

// Decode reads the instruction at the start of code, which stands at pc. Major opcodes of
// custom and reserved encodings are unknown, since they may be branches. Errors: isa.ErrUnknown.
func (machine) Decode(code []byte, pc arch.Addr) (isa.Insn, error) {
	i, f, err := read(code)
	if err != nil {
		return isa.Insn{}, err
	}
	in := isa.Insn{Len: i.size, Flow: f.flow, Monitor: f.monitor, Nop: i.w == nop || i.w == shortNop, Landing: f.landing}
	if f.offset != nil {
		in.PCRel, in.PCRelSize = true, i.size
		in.Target = f.target(i, pc)
	}
	return in, nil
}

// SlotSize is the most bytes that Code of any verdict takes.
func (machine) SlotSize() int { return literalAt + 8 }

// Displace refuses: no jumps are written over instructions here.
func (machine) Displace(code []byte, pc, at arch.Addr) (isa.Verdict, error) {
	for off := 0; off < len(code); {
		i, _, err := read(code[off:])
		if err != nil {
			return isa.Verdict{}, err
		}
		off += i.size
	}
	return isa.Verdict{Kind: isa.Refuse, Reason: "several instructions of riscv64 are not moved together"}, nil
}

// JumpForm is nil: a jump that reaches its detour takes two instructions and a register.
func (machine) JumpForm() *isa.JumpForm { return nil }

// Reach is auipc's, less a margin for the size of the memory that is reached.
func (machine) Reach() arch.Addr { return 1<<31 - 1<<20 }

// Jump assembles jal x0. Errors: isa.ErrRange beyond 1 MiB.
func (machine) Jump(from, to arch.Addr) ([]byte, error) {
	w, ok := rv64.Jump(from, to)
	if !ok {
		return nil, fmt.Errorf("jump from %v to %v: %w", from, to, isa.ErrRange)
	}
	return binary.LittleEndian.AppendUint32(nil, w), nil
}
