package amd64

import (
	"encoding/binary"

	"kprobe/arch"
)

// The few instructions that slots are made of. None of them touches a flag or
// a register that it does not name: a slot runs in the middle of a program
// that has both in use.

// Lengths in bytes of what the encoders make, for those who must know before
// they encode.
const (
	jmpRel32Len  = 5
	jmpAbsLen    = 14
	jccRel32Len  = 6
	pushImm32Len = 5
	storeSPLen   = 8
	movImm64Len  = 10
)

// gpr maps the machine's register numbers, as ModRM, SIB and opcodes hold
// them, to those of package arch, which are in GDB's order.
var gpr = [16]arch.Reg{
	arch.AX, arch.CX, arch.DX, arch.BX, arch.SP, arch.BP, arch.SI, arch.DI,
	arch.R8, arch.R9, arch.R10, arch.R11, arch.R12, arch.R13, arch.R14, arch.R15,
}

// The machine's numbers of the registers that have a meaning of their own here.
const (
	numCX = 1
	numSP = 4 // in ModRM.rm: a SIB byte follows; in SIB.index: no index
	numBP = 5 // in ModRM.rm or SIB.base with mod 0: a disp32 and no base
)

// rel32 is the displacement that leads from end, where an instruction ends, to
// the address to; the bool tells whether it fits. In 32-bit mode everything is
// within reach because EIP wraps.
func (m machine) rel32(end, to arch.Addr) (int32, bool) {
	d := int64(to - end)
	return int32(d), m.mode == 32 || d == int64(int32(d))
}

// appendJmp encodes a jump that stands at the address at: jmp rel32 where that
// reaches, else the absolute form. Only 64-bit code can be out of reach.
func (m machine) appendJmp(dst []byte, at, to arch.Addr) []byte {
	if rel, ok := m.rel32(at+jmpRel32Len, to); ok {
		return appendU32(append(dst, 0xe9), uint32(rel))
	}
	return appendJmpAbs(dst, to)
}

// appendJmpAbs encodes jmp [rip+0] with its address behind it: it reaches
// everything, needs no register, and costs 8 bytes of data in the code. Under
// indirect branch tracking its target would have to be an endbr64, and with
// alignment checks on (FLAGS.AC) its address would have to be aligned.
func appendJmpAbs(dst []byte, to arch.Addr) []byte {
	return binary.LittleEndian.AppendUint64(append(dst, 0xff, 0x25, 0, 0, 0, 0), uint64(to))
}

// appendJcc encodes the near jump on condition cc (the low four bits of every
// Jcc, SETcc and CMOVcc opcode), given its displacement.
func appendJcc(dst []byte, cc byte, rel int32) []byte {
	return appendU32(append(dst, 0x0f, 0x80|cc), uint32(rel))
}

// appendPushImm32 encodes the push of v, which 64-bit mode sign-extends.
func appendPushImm32(dst []byte, v uint32) []byte {
	return appendU32(append(dst, 0x68), v)
}

// appendStoreSP encodes mov dword [rsp+off], v.
func appendStoreSP(dst []byte, off int8, v uint32) []byte {
	return appendU32(append(dst, 0xc7, 0x44, 0x24, byte(off)), v)
}

// appendMovImm encodes the load of a constant into the register with the
// machine's number reg, size bytes wide (2, 4 or 8), as mov reg, imm.
func appendMovImm(dst []byte, reg, size byte, v uint64) []byte {
	if size == 2 {
		dst = append(dst, 0x66)
	}
	var rex byte
	if size == 8 {
		rex |= rexBase | rexW
	}
	if reg >= 8 {
		rex |= rexBase | rexB
	}
	if rex != 0 {
		dst = append(dst, rex)
	}
	dst = append(dst, 0xb8|reg&7)
	var imm [8]byte
	binary.LittleEndian.PutUint64(imm[:], v)
	return append(dst, imm[:size]...)
}

func appendU32(dst []byte, v uint32) []byte { return binary.LittleEndian.AppendUint32(dst, v) }
