package lifeline

import (
	"encoding/binary"

	"kprobe/arch"
	"kprobe/internal/asm/rv64"
)

// RISCV64 is RV64.
var RISCV64 = &Machine{
	Arch: arch.RISCV64, handler: riscv64Handler, bypassLen: 4,
	bypass: func(from, to arch.Addr) ([]byte, bool) {
		w, ok := rv64.Jump(from, to)
		return binary.LittleEndian.AppendUint32(nil, w), ok
	},
	bypassReturn: func(to uint64) []byte {
		// Where a function returns t6 is free.
		load := []byte{
			0x97, 0x0f, 0, 0, // auipc t6, 0
			0x83, 0xbf, 0x0f, 0x01, // ld t6, 16(t6)
			0x82, 0x8f, 0, 0, 0, 0, 0, 0, // c.jr t6
		}
		return binary.LittleEndian.AppendUint64(load, to)
	},
}
