package lifeline

import (
	"encoding/binary"

	"kprobe/arch"
	"kprobe/internal/asm/a64"
)

// ARM64 is AArch64.
var ARM64 = &Machine{
	Arch: arch.ARM64, handler: arm64Handler, bypassLen: 4,
	bypass: func(from, to arch.Addr) ([]byte, bool) {
		w, ok := a64.Branch(a64.B, from, to)
		return binary.LittleEndian.AppendUint32(nil, w), ok
	},
	bypassReturn: func(to uint64) []byte {
		// Where a function returns x16 is free, and a return needs no landing pad.
		load := []byte{0x50, 0, 0, 0x58, 0, 0x02, 0x5f, 0xd6} // ldr x16, .+8; ret x16
		return binary.LittleEndian.AppendUint64(load, to)
	},
	isJump: func(code []byte) bool { return len(code) >= 4 && code[3]>>2 == 5 }, // b
	jumpsTo: func(at arch.Addr, code []byte) (arch.Addr, bool) {
		const bits = 26
		w := int32(binary.LittleEndian.Uint32(code)) << (32 - bits) >> (32 - bits)
		return at + arch.Addr(int64(w)*4), true
	},
}
