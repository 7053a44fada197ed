package a64

import "math/bits"

// What compiled programs are made of. An operation is a word whose registers and constant are 0. A size is
// in bytes.

// Operations on registers of 32 bits (R); Wide makes them of 64.
const (
	And  = 0x0a000000
	Orr  = 0x2a000000
	Eor  = 0x4a000000
	Ands = 0x6a000000
	Add  = 0x0b000000
	Sub  = 0x4b000000
	Subs = 0x6b000000

	AddSP = 0x0b206000 // with the stack pointer, of 8 bytes

	Udiv = 0x1ac00800
	Sdiv = 0x1ac00c00
	Lslv = 0x1ac02000
	Lsrv = 0x1ac02400
	Asrv = 0x1ac02800

	Madd = 0x1b000000 // rd = ra + rn*rm, with ra at bit 10
	Msub = 0x1b008000 // rd = ra - rn*rm

	Rev16 = 0x5ac00400
	Rev32 = 0x5ac00800
	Rev64 = 0xdac00c00
)

// Conditions. The lowest bit negates.
const (
	EQ = 0
	NE = 1
	HS = 2
	LO = 3
	HI = 8
	LS = 9
	GE = 10
	LT = 11
	GT = 12
	LE = 13
)

// Accesses to memory of a byte; of larger sizes with Sized.
const (
	Store  = 0x39000000
	Load   = 0x39400000
	Signed = 0x39800000 // to 64 bits

	LoadExclusive  = 0x085ffc00 // it acquires
	StoreExclusive = 0x0800fc00 // it releases, and tells in the register at bit 16 whether it failed
	StoreRelease   = 0x089ffc00 // behind all that was stored before
)

// Barrier orders all accesses of memory.
const Barrier = 0xd5033bbf

// Of is the bit of an operation on n bytes, 4 or 8.
func Of(n int) uint32 {
	if n == 8 {
		return Wide
	}
	return 0
}

// Sized is an access of n bytes.
func Sized(op uint32, n int) uint32 { return op | uint32(bits.TrailingZeros(uint(n)))<<30 }

// R is rd = rn op rm.
func R(op, rd, rn, rm uint32) uint32 { return op | rm<<16 | rn<<5 | rd }

// additions with a constant of 12 bits.
const (
	add  = AddImm &^ Wide
	adds = 0x31000000
	subs = 0x71000000
	sub  = add ^ subtracts

	subtracts = 0x40000000
)

// Plus is rd = rn + v, of n bytes; 31 is the stack pointer. ok is false where no constant says v.
func Plus(n int, rd, rn uint32, v int64) (w uint32, ok bool) { return addition(n, add, rd, rn, v) }

// Compare sets the flags by rn - v; ok is false where no constant says v.
func Compare(n int, rn uint32, v int64) (w uint32, ok bool) {
	const none = 31
	if v == 0 {
		return addition(n, subs, none, rn, 0)
	}
	if v == -v {
		return 0, false
	}
	return addition(n, adds, none, rn, -v)
}

func addition(n int, op, rd, rn uint32, v int64) (w uint32, ok bool) {
	if v < 0 {
		op, v = op^subtracts, -v
	}
	switch {
	case v < 1<<12:
	case v < 1<<24 && v&(1<<12-1) == 0:
		v = v>>12 | 1<<12
	default:
		return 0, false
	}
	return op | Of(n) | uint32(v)<<10 | rn<<5 | rd, true
}

// Logical is rd = rn op v, of n bytes. ok is false where no constant says v: it is a run of ones, rotated
// and repeated.
func Logical(n int, op, rd, rn uint32, v uint64) (w uint32, ok bool) {
	field, ok := bitmask(n, v)
	return op ^ 0x18000000 | Of(n) | field<<10 | rn<<5 | rd, ok
}

// bitmask is the field of 13 bits that stands for a value of n bytes.
func bitmask(n int, v uint64) (field uint32, ok bool) {
	if n == 4 {
		v = v&(1<<32-1) | v<<32
	}
	if v == 0 || v == ^uint64(0) {
		return 0, false
	}
	size := uint64(64) // of what repeats
	for size > 2 && v == bits.RotateLeft64(v, int(size/2)) {
		size /= 2
	}
	mask := ^uint64(0) >> (64 - size)
	one := v & mask
	ones := uint64(bits.OnesCount64(one))
	run := uint64(1)<<ones - 1
	for rotate := range size {
		if (run>>rotate|run<<(size-rotate))&mask == one {
			imms := (^(size*2 - 1))&0x3f | (ones - 1)
			if size == 64 {
				return uint32(1<<12 | rotate<<6 | ones - 1), true
			}
			return uint32(rotate<<6 | imms), true
		}
	}
	return 0, false
}

// Bitfield is ubfm, or sbfm, which fills up with the sign: shifts and extensions are.
func Bitfield(n int, sign bool, rd, rn uint32, from, to int) uint32 {
	op := uint32(0x53000000)
	if sign {
		op = 0x13000000
	}
	if n == 8 {
		op |= Wide | 1<<22
	}
	return op | uint32(from)<<16 | uint32(to)<<10 | rn<<5 | rd
}

// Access loads or stores n bytes at rn+off; ok is false where no field holds the offset.
func Access(op uint32, n int, r, rn uint32, off int32) (w uint32, ok bool) {
	w = Sized(op, n) | rn<<5 | r
	switch size := int32(n); {
	case off >= 0 && off%size == 0 && off/size < 1<<12:
		return w | uint32(off/size)<<10, true
	case off >= -256 && off < 256:
		return w&^scaled | uint32(off)&(1<<9-1)<<12, true
	}
	return 0, false
}

// scaled tells an access whose offset counts in units of the size.
const scaled = 1 << 24

// AccessBy loads or stores n bytes at rn+rm.
func AccessBy(op uint32, n int, r, rn, rm uint32) uint32 {
	const byRegister = 1<<21 | 0x6800
	return Sized(op, n)&^scaled | byRegister | rm<<16 | rn<<5 | r
}
