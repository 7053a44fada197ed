package amd64

import (
	"strings"
	"sync"

	"kprobe/arch"
)

// Kinds of registers, in sets of x86-64: the bits behind those of the general ones.
const (
	RegGeneral arch.RegSet = 1<<16 - 1 // arch.AX to arch.R15
	RegVector  arch.RegSet = 1 << 16   // xmm, ymm, zmm and MXCSR
	RegX87     arch.RegSet = 1 << 17   // x87 and MMX registers, x87 control and status
	RegMask    arch.RegSet = 1 << 18   // AVX-512 k registers
	RegOther   arch.RegSet = 1 << 19   // segments and their bases, shadow stack, tiles, PKRU, ...

	regAll = RegGeneral | RegVector | RegX87 | RegMask | RegOther
)

// FlagSet is a set of flags, by their bits in EFLAGS.
type FlagSet uint32

const (
	FlagCF FlagSet = 1 << 0
	FlagPF FlagSet = 1 << 2
	FlagAF FlagSet = 1 << 4
	FlagZF FlagSet = 1 << 6
	FlagSF FlagSet = 1 << 7
	FlagTF FlagSet = 1 << 8
	FlagIF FlagSet = 1 << 9
	FlagDF FlagSet = 1 << 10
	FlagOF FlagSet = 1 << 11

	// FlagsStatus are the flags that arithmetic sets and conditions test.
	FlagsStatus = FlagCF | FlagPF | FlagAF | FlagZF | FlagSF | FlagOF

	flagsAll FlagSet = 1<<32 - 1
)

// Uses lists the registers of a thread that an instruction depends on and changes. Memory and the
// program counter are not in it. It never has less than the instruction does. A register that is
// written in part only (al, or ax, of rax) or not always (cmov, a shift by cl) is in the read set
// too. So a register or flag that is written and not read is dead before the instruction. A flag
// that the manuals call undefined counts as written.
type Uses struct {
	Reads, Writes           arch.RegSet
	FlagsRead, FlagsWritten FlagSet

	// Exact tells that the instruction is in the table; otherwise the sets are everything there is.
	// An instruction in the table may fault too: then a handler of the program sees all registers.
	Exact bool
}

// Uses lists the registers that the instruction reads and writes. code holds its bytes.
func (i *Inst) Uses(code []byte) Uses {
	e := effectOf(i)
	if long := i.AddrSize == 8 || i.AddrSize == 4 && i.Prefix&PrefixAddrSize != 0; !long && i.Map == MapOneByte && i.Opcode == 0x63 {
		e = nil // arpl, not movsxd
	}
	if e == nil {
		return Uses{regAll, regAll, flagsAll, flagsAll, false}
	}
	u := Uses{e.sets, e.sets, e.flagsRead, e.flagsWritten, true}
	if e.condition {
		u.FlagsRead |= conditionFlags[i.Opcode>>1&7]
	}
	for _, o := range e.operands {
		i.addOperand(&u, o)
	}
	i.addAddress(&u)
	i.adjust(&u, code)
	return u
}

// adjust adds the cases that the tables cannot express.
func (i *Inst) adjust(u *Uses, code []byte) {
	maybe := false // whether it may as well do nothing
	if i.Map == MapOneByte {
		switch op := i.Opcode; op {
		case 0x90: // xchg r8, rax with REX.B, else a nop
			if i.Rex&rexB == 0 {
				u.Reads, u.Writes = 0, 0
			}
		case 0x29, 0x2b, 0x31, 0x33: // sub and xor of a register with itself
			if i.ModRM >= 0xc0 && i.ModRM&7 == i.ModRM>>3&7 && i.Rex&rexB != 0 == (i.Rex&rexR != 0) && i.OpSize >= 4 {
				u.Reads &^= u.Writes
			}
		case 0xc0, 0xc1: // a shift by 0 leaves the flags
			mask := byte(0x1f)
			if i.OpSize == 8 {
				mask = 0x3f
			}
			maybe = code[i.ImmOff]&mask == 0
		case 0xd2, 0xd3:
			maybe = true
		case 0x6c, 0x6d, 0x6e, 0x6f, 0xa4, 0xa5, 0xa6, 0xa7, 0xaa, 0xab, 0xac, 0xad, 0xae, 0xaf:
			if i.Prefix&(PrefixRep|PrefixRepne) != 0 {
				u.Reads |= arch.SetOf(arch.CX)
				u.Writes |= arch.SetOf(arch.CX)
				maybe = true // no step at all if the count is 0
			}
		}
	}
	if i.Map == Map0F && i.Enc == Legacy && (i.Opcode == 0xa4 || i.Opcode == 0xa5 || i.Opcode == 0xac || i.Opcode == 0xad) {
		maybe = true // shld, shrd by 0
	}
	if maybe {
		u.Reads |= u.Writes
		u.FlagsRead |= u.FlagsWritten
	}
}

// conditionFlags are the flags that condition codes test, by their upper three
// bits; the lowest negates.
var conditionFlags = [8]FlagSet{
	FlagOF, FlagCF, FlagZF, FlagCF | FlagZF, FlagSF, FlagPF, FlagSF | FlagOF, FlagZF | FlagSF | FlagOF,
}

// addAddress adds the registers that a memory operand's address is made of.
func (i *Inst) addAddress(u *Uses) {
	if i.Prefix&(PrefixFS|PrefixGS) != 0 {
		u.Reads |= RegOther
	}
	if !i.HasModRM || i.ModRM >= 0xc0 {
		return
	}
	mod, rm := i.ModRM>>6, i.ModRM&7
	if i.AddrSize == 2 {
		u.Reads |= addressRegs16[rm]
		return
	}
	if i.HasSIB {
		if index := i.SIB >> 3 & 7; index != numSP || i.Rex&rexX != 0 {
			u.Reads |= arch.SetOf(extended(index, i.Rex&rexX))
		}
		rm = i.SIB & 7
	}
	if rm != numBP || mod != 0 {
		u.Reads |= arch.SetOf(extended(rm, i.Rex&rexB))
	}
}

// addressRegs16 are the registers of 16-bit addresses, by ModRM.rm; BP with
// mod 0 is none, but one too many does no harm.
var addressRegs16 = [8]arch.RegSet{
	1<<arch.BX | 1<<arch.SI, 1<<arch.BX | 1<<arch.DI, 1<<arch.BP | 1<<arch.SI, 1<<arch.BP | 1<<arch.DI,
	1 << arch.SI, 1 << arch.DI, 1 << arch.BP, 1 << arch.BX,
}

// addOperand adds one register operand.
func (i *Inst) addOperand(u *Uses, o operandUse) {
	size := o.size
	switch size {
	case 0:
		size = i.OpSize
	case sizeAddr:
		size = i.AddrSize
	}
	var n, ext byte
	switch o.place {
	case placeFixed:
		o.add(u, o.reg, size)
		return
	case placeE:
		if i.ModRM < 0xc0 {
			return // memory: see addAddress
		}
		n, ext = i.ModRM&7, i.Rex&rexB
	case placeG:
		n, ext = i.ModRM>>3&7, i.Rex&rexR
	case placeO:
		n, ext = i.Opcode&7, i.Rex&rexB
	case placeV:
		n, ext = i.Vvvv&7, i.Vvvv&8
	}
	if size == 1 && i.Rex == 0 && n >= 4 {
		n -= 4 // ah, ch, dh, bh
	}
	o.add(u, extended(n, ext), size)
}

func (o operandUse) add(u *Uses, r arch.Reg, size uint8) {
	// Writing 32 bits clears the upper half; less leaves the rest as it was.
	if o.read || o.write && size < 4 {
		u.Reads |= arch.SetOf(r)
	}
	if o.write {
		u.Writes |= arch.SetOf(r)
	}
}

// effect is a row of usesRows as Uses reads it.
type effect struct {
	operands                []operandUse
	sets                    arch.RegSet
	flagsRead, flagsWritten FlagSet
	flagsUndefined          FlagSet // of the written ones
	condition               bool    // the opcode's low bits are a condition
}

type operandUse struct {
	read, write bool
	place       uint8
	size        uint8    // in bytes, 0 for OpSize
	reg         arch.Reg // for placeFixed
}

const (
	placeFixed uint8 = iota
	placeE           // ModRM.rm, where it is a register
	placeG           // ModRM.reg
	placeO           // the opcode's low bits
	placeV           // vvvv

	sizeAddr = 16 // as size: AddrSize
)

// effectKey is an opcode, and what of its ModRM byte matters: nothing (0), all
// (keyByte), the reg field (keyReg), or that with a register or memory only.
type effectKey struct {
	enc    Enc
	m      Map
	pp     uint8
	opcode byte
	part   uint16
}

const (
	keyByte uint16 = (iota + 1) << 8
	keyReg
	keyRegister
	keyMemory
)

// effectTable has the effects of usesRows, row by row, and those of whole maps.
type effectTable struct {
	effects  map[effectKey]*effect
	defaults map[defaultKey]*effect
}

// effectOf finds an instruction's row, the most special first, or nil.
func effectOf(i *Inst) *effect {
	t := effects()
	k := effectKey{enc: i.Enc, m: i.Map, pp: i.PP, opcode: i.Opcode}
	for _, k.part = range i.parts() {
		if e := t.effects[k]; e != nil {
			return e
		}
	}
	return t.defaults[defaultKey{i.Enc, i.Map}]
}

// parts are the values of effectKey.part that include the instruction.
func (i *Inst) parts() [4]uint16 {
	if !i.HasModRM {
		return [4]uint16{}
	}
	reg := uint16(i.ModRM >> 3 & 7)
	form := keyMemory
	if i.ModRM >= 0xc0 {
		form = keyRegister
	}
	return [4]uint16{keyByte | uint16(i.ModRM), form | reg, keyReg | reg, 0}
}

type defaultKey struct {
	enc Enc
	m   Map
}

// effects reads the rows when the first is asked for.
var effects = sync.OnceValue(func() *effectTable {
	t := &effectTable{map[effectKey]*effect{}, map[defaultKey]*effect{}}
	for _, r := range usesRows {
		e := parseEffect(r.effect)
		enc, m, pps := parseColumn(r.column)
		if r.opcodes == "*" {
			t.defaults[defaultKey{enc, m}] = e
			continue
		}
		for _, f := range strings.Fields(r.opcodes) {
			for _, k := range keysOf(enc, m, pps, f) {
				if t.effects[k] != nil {
					panic("amd64: two rows for " + r.column + " " + f)
				}
				t.effects[k] = e
			}
		}
	}
	return t
})

// keysOf reads "00-03", "f6/0-1", "01:d0".
func keysOf(enc Enc, m Map, pps []uint8, word string) (keys []effectKey) {
	parts := []uint16{0}
	if at := strings.IndexAny(word, "/:"); at >= 0 {
		parts = parseParts(word[at:])
		word = word[:at]
	}
	for _, op := range opcodes(word) {
		for _, part := range parts {
			for _, pp := range pps {
				keys = append(keys, effectKey{enc, m, pp, op, part})
			}
		}
	}
	return keys
}

// next is the opcode, or the part of it, that follows.
func (k effectKey) next() effectKey {
	if k.part != 0 {
		k.part++
	} else {
		k.opcode++
	}
	return k
}

// parseParts reads ":d0" (a ModRM byte), "/0-3,5" (reg fields), "/7r" (with a
// register), "/7m" (with memory).
func parseParts(s string) (parts []uint16) {
	if s[0] == ':' {
		return []uint16{keyByte | uint16(parseByte(s[1:]))}
	}
	kind, s := keyReg, s[1:]
	if t, ok := strings.CutSuffix(s, "r"); ok {
		kind, s = keyRegister, t
	} else if t, ok := strings.CutSuffix(s, "m"); ok {
		kind, s = keyMemory, t
	}
	for _, n := range opcodes(strings.ReplaceAll(s, ",", " ")) {
		parts = append(parts, kind|uint16(n))
	}
	return parts
}

// parseColumn reads "1", "0F" (any prefix), "NP,66.0F38", "VEX.F2.0F38", "EVEX.M5".
func parseColumn(s string) (enc Enc, m Map, pps []uint8) {
	for e, name := range map[Enc]string{VEX: "VEX.", EVEX: "EVEX.", XOP: "XOP."} {
		if t, ok := strings.CutPrefix(s, name); ok {
			enc, s = e, t
		}
	}
	prefixes, name, cut := strings.Cut(s, ".")
	if !cut {
		prefixes, name = "NP,66,F3,F2", s
	}
	for n, mapName := range map[Map]string{MapOneByte: "1", Map0F: "0F", Map0F38: "0F38", Map0F3A: "0F3A", Map3DNow: "3DNow",
		MapEVEX5: "M5", MapEVEX6: "M6", MapXOP8: "X8", MapXOP9: "X9", MapXOPA: "XA"} {
		if mapName == name {
			m = n
		}
	}
	for _, p := range strings.Split(prefixes, ",") {
		pps = append(pps, uint8(strings.Index("NP66F3F2", p)/2))
	}
	return enc, m, pps
}

var setWords = map[string]arch.RegSet{"vec": RegVector, "x87": RegX87, "simd": RegVector | RegX87, "mask": RegMask, "other": RegOther}

var regWords = map[string]arch.Reg{
	"AX": arch.AX, "BX": arch.BX, "CX": arch.CX, "DX": arch.DX,
	"SI": arch.SI, "DI": arch.DI, "BP": arch.BP, "SP": arch.SP,
}

// parseEffect reads the words that usesRows explains.
func parseEffect(s string) *effect {
	e := &effect{}
	for _, w := range strings.Fields(s) {
		if set, ok := setWords[w]; ok {
			e.sets |= set
			continue
		}
		switch {
		case w == "nothing":
		case w == "?cc":
			e.condition = true
		case w[0] == '?':
			e.flagsRead |= parseFlags(w[1:])
		case w[0] == '=':
			e.flagsWritten |= parseFlags(w[1:])
		case w[0] == '!':
			e.flagsWritten |= parseFlags(w[1:])
			e.flagsUndefined |= parseFlags(w[1:])
		default:
			e.operands = append(e.operands, parseOperand(w))
		}
	}
	return e
}

func parseFlags(s string) (f FlagSet) {
	for _, c := range s {
		n := strings.IndexRune("C_P_A_ZSTIDO*", c)
		if c == '*' {
			f = flagsAll
			break
		}
		if n < 0 {
			panic("amd64: no such flag in " + s)
		}
		f |= 1 << n
	}
	return f
}

func parseOperand(w string) (o operandUse) {
	rest := w
	rest, o.read = strings.CutPrefix(rest, "r")
	rest, o.write = strings.CutPrefix(rest, "w")
	if n := len(rest) - 1; n > 0 {
		if size, ok := map[byte]uint8{'b': 1, 'w': 2, 'd': 4, 'q': 8, 'a': sizeAddr}[rest[n]]; ok {
			o.size, rest = size, rest[:n]
		}
	}
	if r, ok := regWords[rest]; ok {
		o.reg = r
		return o
	}
	place := strings.Index("EGOV", rest)
	if place < 0 || len(rest) != 1 {
		panic("amd64: no such operand: " + w)
	}
	o.place = placeE + uint8(place)
	return o
}
