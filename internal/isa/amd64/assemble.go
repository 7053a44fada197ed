package amd64

import (
	"kprobe/arch"
	"kprobe/internal/asm/x86"
)

// The few instructions that slots are made of. None of them touches a flag or
// a register that it does not name: a slot runs in the middle of a program
// that has both in use.

// The numbers of registers that have a meaning of their own in ModRM and SIB.
const (
	numSP = byte(x86.RSP) // in ModRM.rm: a SIB byte follows; in SIB.index: no index
	numBP = byte(x86.RBP) // in ModRM.rm or SIB.base with mod 0: a disp32 and no base
)

// rel32 is the displacement that leads from end, where an instruction ends, to
// the address to; the bool tells whether it fits. In 32-bit mode everything is
// within reach because EIP wraps.
func (m *machine) rel32(end, to arch.Addr) (int32, bool) {
	rel, ok := x86.Rel(end, to)
	return rel, ok || m.mode == 32
}

// appendJmp encodes a jump that stands at the address at: jmp rel32 where that
// reaches, else the absolute form. Only 64-bit code can be out of reach.
func (m *machine) appendJmp(dst []byte, at, to arch.Addr) []byte {
	if rel, ok := m.rel32(at+x86.JmpLen, to); ok {
		return x86.AppendJmp(dst, rel)
	}
	return x86.AppendJmpFar(dst, to)
}

// storeSPLen is the length of what appendStoreSP makes.
const storeSPLen = 8

// appendStoreSP encodes mov dword [rsp+off], v.
func appendStoreSP(dst []byte, off int8, v uint32) []byte {
	return x86.AppendImm(x86.Append(dst, 4, x86.OpStoreImm, 0, x86.At(x86.RSP, int32(off))), 4, int32(v))
}
