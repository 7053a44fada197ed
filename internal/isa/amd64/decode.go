package amd64

import "kprobe/internal/isa"

// maxLen is the longest instruction: the processor faults on the sixteenth byte of any (Intel SDM
// vol. 2, 2.3.11).
const maxLen = 15

// Decode reads the instruction at the start of code, in 64-bit code (mode 64)
// or 32-bit code (mode 32). Bytes after the instruction are not looked at;
// nothing is allocated.
//
// Errors: isa.ErrUnknown for bytes that no documented instruction has and for
// a code that ends too early; also where processors disagree on what it does
// (prefix 66 on a relative branch, below).
func Decode(code []byte, mode int) (i Inst, err error) {
	if len(code) > maxLen {
		code = code[:maxLen]
	}
	long := mode == 64
	built.Do(build)

	// Prefixes come in any order and number. A REX counts only right before
	// the opcode; an earlier one is ignored, as the processor does.
	n := 0
	var b byte
	var pp uint8 // the table column that the prefixes select
	for {
		if n >= len(code) {
			return Inst{}, isa.ErrUnknown
		}
		b = code[n]
		if p := prefixOf[b]; p != 0 {
			i.Prefix |= p
			i.Rex = 0
			switch b {
			case 0xf3:
				pp = 2
			case 0xf2:
				pp = 3
			}
		} else if long && b&0xf0 == 0x40 {
			i.Rex = b
		} else {
			break
		}
		n++
	}
	if pp == 0 && i.Prefix&PrefixOpSize != 0 {
		pp = 1
	}

	// The opcode, and with it the form of the rest.
	var a attr
	switch b {
	default:
		i.Opcode = b
		a = oneByte[b]
		pp = 0
	case 0x0f:
		n++
		if n >= len(code) {
			return Inst{}, isa.ErrUnknown
		}
		i.Map = Map0F
		if b = code[n]; b == 0x38 || b == 0x3a {
			i.Map = Map0F38
			if b == 0x3a {
				i.Map = Map0F3A
			}
			n++
			if n >= len(code) {
				return Inst{}, isa.ErrUnknown
			}
			b = code[n]
		}
		i.Opcode = b
		a = legacy[i.Map][pp][b]
	case 0xc4, 0xc5, 0x62, 0x8f:
		// Escapes to the newer encodings share their first byte with old
		// instructions: in 32-bit code LES, LDS and BOUND, told apart by a
		// ModRM byte that they cannot have; everywhere POP r/m, told apart by
		// its reg field of 0.
		if n+1 >= len(code) {
			return Inst{}, isa.ErrUnknown
		}
		next := code[n+1]
		if b == 0x8f && next&0x1f < 8 || b != 0x8f && !long && next < 0xc0 {
			i.Opcode = b
			a = oneByte[b]
			pp = 0
			break
		}
		if n, a = i.vector(code, n, long); a == 0 {
			return Inst{}, isa.ErrUnknown
		}
		pp = i.PP
	}
	if a == 0 || long && a&attrI64 != 0 || !long && a&attrO64 != 0 {
		return Inst{}, isa.ErrUnknown
	}
	i.PP = pp
	i.OpOff = uint8(n)
	n++

	i.sizes(a, long)
	if a&attrModRM != 0 {
		if n = i.operand(code, n, a, long); n == 0 {
			return Inst{}, isa.ErrUnknown
		}
	}
	if i.Enc != Legacy && !i.checkVector(a) {
		return Inst{}, isa.ErrUnknown
	}

	if a&attrFlow != 0 {
		a = i.classify(a, long)
		if a&attrRel != 0 && i.Prefix&PrefixOpSize != 0 && i.Rex&0x08 == 0 {
			// In 64-bit code Intel ignores 66 on a relative branch, AMD takes
			// a 16-bit displacement and clears the upper bits of the target,
			// as all do in 32-bit code. No program has it: compilers emit it
			// with REX.W only, on which all agree.
			return Inst{}, isa.ErrUnknown
		}
	}

	if k := a & attrImm; k != 0 {
		size := i.immSize(k)
		i.ImmOff, i.ImmSize = uint8(n), size
		n += int(size)
		if n > len(code) {
			return Inst{}, isa.ErrUnknown
		}
		if a&attrRel != 0 {
			i.PCRel, i.PCRelOff, i.PCRelSize = true, i.ImmOff, size
			i.Rel = signed(code[i.ImmOff:n])
		}
	}
	if i.Map == Map0F && i.Opcode == 0x0f && i.Enc == Legacy {
		// 3DNow! has its opcode where others have an immediate.
		if n >= len(code) || !is3DNow[code[n]] {
			return Inst{}, isa.ErrUnknown
		}
		i.Map, i.Opcode, i.OpOff = Map3DNow, code[n], uint8(n)
		n++
	}
	i.Len = uint8(n)
	return i, nil
}

// sizes sets the effective operand and address sizes.
func (i *Inst) sizes(a attr, long bool) {
	i.OpSize, i.AddrSize = 4, 4
	if long {
		i.AddrSize = 8
	}
	if i.Prefix&PrefixAddrSize != 0 {
		i.AddrSize /= 2
	}
	switch {
	case i.Rex&0x08 != 0:
		i.OpSize = 8
	case i.Prefix&PrefixOpSize != 0 && i.Enc == Legacy:
		i.OpSize = 2
	case long && a&(attrD64|attrRel) != 0:
		i.OpSize = 8
	}
}

// operand reads ModRM, SIB and displacement, which start at n, and returns
// where they end, or 0 if they are cut short or not a form the opcode has.
func (i *Inst) operand(code []byte, n int, a attr, long bool) int {
	if n >= len(code) {
		return 0
	}
	m := code[n]
	i.HasModRM, i.ModRM, i.ModRMOff = true, m, uint8(n)
	n++
	if a&attrGroup != 0 && !groups[a>>groupShift].has(m) {
		return 0
	}
	if m >= 0xc0 || a&attrModIgnored != 0 {
		if a&attrNoReg != 0 {
			return 0
		}
		return n
	}
	if a&attrNoMem != 0 {
		return 0
	}

	var size uint8
	switch {
	case i.AddrSize == 2: // only in 32-bit code
		if a&attrSIB != 0 {
			return 0
		}
		if size = m >> 6; m&0xc7 == 0x06 {
			size = 2
		}
	case m&7 == 4:
		if n >= len(code) {
			return 0
		}
		i.HasSIB, i.SIB = true, code[n]
		n++
		if size = dispSize[m>>6]; m < 0x40 && i.SIB&7 == 5 {
			size = 4
		}
	default:
		if a&attrSIB != 0 {
			return 0
		}
		if size = dispSize[m>>6]; m&0xc7 == 0x05 {
			size = 4
			i.PCRel = long
		}
	}
	if size != 0 {
		i.DispOff, i.DispSize = uint8(n), size
		n += int(size)
		if n > len(code) {
			return 0
		}
		if i.PCRel {
			i.PCRelOff, i.PCRelSize = i.DispOff, size
			i.Rel = signed(code[i.DispOff:n])
		}
	}
	return n
}

// dispSize is the displacement's size by ModRM.mod, with 32- and 64-bit
// addressing.
var dispSize = [4]uint8{0, 1, 4, 0}

// immSize is the size of immediates of kind k.
func (i *Inst) immSize(k attr) uint8 {
	switch k {
	case immB:
		return 1
	case immW, immBB:
		return 2
	case immD:
		return 4
	case immWB:
		return 3
	case immZ:
		return min(i.OpSize, 4)
	case immV:
		return i.OpSize
	case immPtr:
		return min(i.OpSize, 4) + 2
	case immAddr:
		return i.AddrSize
	case immTestB: // group 3: only its TEST has an immediate
		if i.ModRM&0x30 == 0 {
			return 1
		}
	case immTestZ:
		if i.ModRM&0x30 == 0 {
			return min(i.OpSize, 4)
		}
	}
	return 0
}

// signed reads a little-endian signed field of 1, 2 or 4 bytes.
func signed(p []byte) int64 {
	switch len(p) {
	case 1:
		return int64(int8(p[0]))
	case 2:
		return int64(int16(uint16(p[0]) | uint16(p[1])<<8))
	}
	return int64(int32(uint32(p[0]) | uint32(p[1])<<8 | uint32(p[2])<<16 | uint32(p[3])<<24))
}

// vector reads the VEX, EVEX or XOP prefix at n and the opcode after it. It
// returns where the opcode is and its attributes, 0 if there is none.
func (i *Inst) vector(code []byte, n int, long bool) (int, attr) {
	// A SIMD, LOCK or REX prefix before these is #UD (SDM vol. 2, 2.3.2-2.3.5).
	if i.Prefix&(PrefixOpSize|PrefixLock|PrefixRep|PrefixRepne) != 0 || i.Rex != 0 {
		return 0, 0
	}
	escape := code[n]
	size := 3
	switch escape {
	case 0xc5:
		size = 2
	case 0x62:
		size = 4
	}
	if n+size >= len(code) {
		return 0, 0
	}
	p0 := code[n+1] // R X B (R') mmm: register bits inverted, opcode map
	p1 := p0        // W vvvv L pp: vvvv inverted
	if escape == 0xc5 {
		p0 = p0&0x80 | 0x61 // the short form has R only, and map 0F
		p1 &= 0x7f
	} else {
		p1 = code[n+2]
	}
	i.Rex = 0x40 | p1>>4&0x08 | ^p0>>5&0x07
	i.PP = p1 & 3
	i.Vvvv = ^p1 >> 3 & 0x0f
	if !long {
		// Registers 8 and up do not exist.
		i.Rex &= 0x48
		i.Vvvv &= 7
	}
	n += size
	i.Opcode = code[n]
	m := p0 & 0x1f
	if escape == 0x8f {
		i.Enc, i.VLen = XOP, p1>>2&1
		if m < 8 || m > 10 || i.PP != 0 {
			return 0, 0
		}
		i.Map = MapXOP8 + Map(m-8)
		return n, xop[m-8][i.Opcode]
	}
	if escape != 0x62 {
		i.Enc, i.VLen = VEX, p1>>2&1
		if m < 1 || m > 3 {
			return 0, 0
		}
		i.Map = Map(m)
		return n, vex[m][i.PP][i.Opcode]
	}
	i.Enc, i.EVEX = EVEX, code[n-1]
	i.VLen = i.EVEX >> 5 & 3
	i.Vvvv |= ^i.EVEX << 1 & 0x10
	if p0&0x08 != 0 || p1&0x04 == 0 || !long && i.EVEX&0x08 == 0 {
		return 0, 0
	}
	switch m = p0 & 7; m {
	case 1, 2, 3:
		i.Map = Map(m)
	case 5:
		i.Map = MapEVEX5
	case 6:
		i.Map = MapEVEX6
	default:
		return 0, 0
	}
	return n, evex[m][i.PP][i.Opcode]
}

// checkVector tells whether the fields of the VEX, EVEX or XOP prefix are ones
// that the opcode has.
func (i *Inst) checkVector(a attr) bool {
	reg := i.HasModRM && i.ModRM >= 0xc0
	vvvv := i.Vvvv
	if a&attrSIB != 0 {
		vvvv &= 0x0f // EVEX.V' extends the index register here
	}
	if vvvv != 0 && (a&attrVvvv == 0 || a&attrVvvvReg != 0 && !reg) {
		return false
	}
	if a&attrNoW0 != 0 && i.Rex&0x08 == 0 || a&attrNoW1 != 0 && i.Rex&0x08 != 0 {
		return false
	}
	vlen := i.VLen
	if i.Enc == EVEX {
		masked, b := i.EVEX&7 != 0, i.EVEX&0x10 != 0
		if !masked && (a&attrMask != 0 || i.EVEX&0x80 != 0) {
			return false // needs a mask, or zeroes without one
		}
		switch {
		case b && reg:
			vlen = 2 // L'L is the rounding mode; the vector is whole
			if a&attrRound == 0 {
				return false
			}
		case vlen == 3 || b && a&attrBroadcast == 0:
			return false
		}
	}
	return a>>lenShift>>vlen&1 == 0
}
