package bpf

import "math/bits"

// The arithmetic of instructions (RFC 9669, section 4). The interpreter uses it, and so does the
// verifier for numbers that are known.

// Result computes an arithmetic instruction. An immediate is given sign-extended. Neg and End have
// one operand, dst.
func (i Insn) Result(dst, src uint64) uint64 {
	switch {
	case i.Alu() == Neg:
		return negate(i, dst)
	case i.Alu() == End:
		return swap(i, dst)
	case i.Class() == ClassALU64:
		return alu[uint64, int64](i, dst, src)
	}
	return uint64(alu[uint32, int32](i, uint32(dst), uint32(src)))
}

// alu computes with words W, S where they are signed.
func alu[W uint32 | uint64, S int32 | int64](i Insn, dst, src W) W {
	by := src & W(bits.Len64(uint64(^W(0)))-1) // of a shift
	switch i.Alu() {
	case Add:
		return dst + src
	case Sub:
		return dst - src
	case Mul:
		return dst * src
	case Div, Mod:
		signed, div := i.Off == 1, i.Alu() == Div
		switch {
		case src == 0 && div:
			return 0
		case src == 0:
			return dst
		case signed && div:
			return W(S(dst) / S(src)) // the least number by -1 is itself, in Go too
		case signed:
			return W(S(dst) % S(src))
		case div:
			return dst / src
		}
		return dst % src
	case Or:
		return dst | src
	case And:
		return dst & src
	case Xor:
		return dst ^ src
	case Lsh:
		return dst << by
	case Rsh:
		return dst >> by
	case Arsh:
		return W(S(dst) >> by)
	case Mov:
		return W(extend(uint64(src), i.Off))
	}
	return 0
}

// extend sign-extends the low bits of a number; 0 leaves it.
func extend(v uint64, bits int16) uint64 {
	switch bits {
	case 8:
		return uint64(int8(v))
	case 16:
		return uint64(int16(v))
	case 32:
		return uint64(int32(v))
	}
	return v
}

// negate is Neg.
func negate(i Insn, v uint64) uint64 {
	if i.Class() == ClassALU64 {
		return -v
	}
	return uint64(-uint32(v))
}

// swap is End: the low Imm bits, in the byte order asked for.
func swap(i Insn, v uint64) uint64 {
	reverse := i.Class() == ClassALU64 || i.X()
	switch {
	case i.Imm == 16 && reverse:
		return uint64(bits.ReverseBytes16(uint16(v)))
	case i.Imm == 16:
		return uint64(uint16(v))
	case i.Imm == 32 && reverse:
		return uint64(bits.ReverseBytes32(uint32(v)))
	case i.Imm == 32:
		return uint64(uint32(v))
	case reverse:
		return bits.ReverseBytes64(v)
	}
	return v
}

// Taken decides a conditional jump; an immediate is given sign-extended.
func (i Insn) Taken(dst, src uint64) bool {
	sdst, ssrc := int64(dst), int64(src)
	if i.Class() == ClassJMP32 {
		sdst, ssrc = int64(int32(dst)), int64(int32(src))
		dst, src = uint64(uint32(dst)), uint64(uint32(src))
	}
	switch i.Jump() {
	case Jeq:
		return dst == src
	case Jne:
		return dst != src
	case Jgt:
		return dst > src
	case Jge:
		return dst >= src
	case Jlt:
		return dst < src
	case Jle:
		return dst <= src
	case Jset:
		return dst&src != 0
	case Jsgt:
		return sdst > ssrc
	case Jsge:
		return sdst >= ssrc
	case Jslt:
		return sdst < ssrc
	case Jsle:
		return sdst <= ssrc
	}
	return true
}

// atomicResult is the number that an atomic operation leaves in memory, of a width's bytes.
func atomicResult(op int32, old, src uint64) uint64 {
	switch op &^ AtomicFetch {
	case AtomicAdd:
		return old + src
	case AtomicOr:
		return old | src
	case AtomicAnd:
		return old & src
	case AtomicXor:
		return old ^ src
	}
	return src // xchg
}
