package returns

import (
	"encoding/binary"

	"kprobe/arch"
	"kprobe/internal/isa"
	"kprobe/symbol"
)

// longestPrologue limits the instructions of a function among which one is looked for that reads its return address.
const longestPrologue = 24

// readsCaller tells whether a function of x86 reads its return address (__builtin_return_address, and the functions that
// position-independent code of i386 learns its address by): by the stack pointer, in straight code from its entry on, or by the frame
// pointer.
func (pl *Planner) readsCaller(fn symbol.Loc) bool {
	word := pl.ISA.Arch().PtrSize
	code := make([]byte, min(fn.Func.Size, longestPrologue*uint64(pl.ISA.Arch().MaxInsn)))
	at := fn.Start()
	if pl.Text(at, code) != nil {
		return false
	}
	depth, framed := 0, false // bytes that the function has put on the stack; its frame pointer stands below the return address
	known := true             // so far it has not branched
	for off, n := 0, 0; off < len(code) && n < longestPrologue; n++ {
		in, err := pl.ISA.Decode(code[off:], at+arch.Addr(off))
		if err != nil {
			return false
		}
		b := code[off : off+in.Len]
		off += in.Len
		known = known && (in.Flow == isa.Next || in.Flow == isa.Call)                                          // which comes back with the stack as it was
		if len(b) == 1 && b[0]&0xf8 == 0x50 || word == 8 && len(b) == 2 && b[0] == 0x41 && b[1]&0xf8 == 0x50 { // push
			depth += word
		}
		if word == 8 {
			if b[0]&0xfb != 0x48 { // REX.W, and the upper half of the registers
				continue
			}
			b = b[1:]
		}
		switch d, ok := loadFrom(b, stackBase); {
		case ok && known && d == depth:
			return true
		case len(b) == 3 && b[0] == 0x83 && b[1] == 0xec: // sub from the stack pointer
			depth += int(int8(b[2]))
		case len(b) == 6 && b[0] == 0x81 && b[1] == 0xec:
			depth += int(int32(binary.LittleEndian.Uint32(b[2:])))
		case len(b) == 2 && (b[0] == 0x89 && b[1] == 0xe5 || b[0] == 0x8b && b[1] == 0xec): // mov to the frame pointer
			framed = depth == word
		}
		if d, ok := loadFrom(b, frameBase); ok && framed && d == word {
			return true
		}
	}
	return false
}

// The base registers of a load, as its ModRM byte has them.
const stackBase, frameBase = 4, 5

// loadFrom is the distance of a load from a base register; b has no REX prefix.
func loadFrom(b []byte, base byte) (d int, ok bool) {
	if len(b) < 3 || b[0] != 0x8b || b[1]&7 != base {
		return 0, false
	}
	mod, rest := b[1]>>6, b[2:]
	if base == stackBase {
		if rest[0] != 0x24 {
			return 0, false
		}
		rest = rest[1:]
	}
	switch {
	case mod == 0 && base == stackBase && len(rest) == 0:
		return 0, true
	case mod == 1 && len(rest) == 1:
		return int(int8(rest[0])), true
	case mod == 2 && len(rest) == 4:
		return int(int32(binary.LittleEndian.Uint32(rest))), true
	}
	return 0, false
}
