package lifeline

import (
	"encoding/binary"

	"kprobe/arch"
)

// S390X is z/Architecture.
var S390X = &Machine{
	Arch: arch.S390X, handler: s390xHandler, bypassLen: 6,
	bypass: func(from, to arch.Addr) ([]byte, bool) {
		const jg, reach = 0xc0f4, 1 << 32
		d := int64(to - from)
		if d < -reach || d >= reach {
			return nil, false
		}
		return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(nil, jg), uint32(d/2)), true
	},
	bypassReturn: func(to uint64) []byte {
		// Where a function returns r1 is free.
		load := []byte{
			0xc4, 0x18, 0, 0, 0, 4, // lgrl %r1, .+8
			0x07, 0xf1, // br %r1
		}
		return binary.BigEndian.AppendUint64(load, to)
	},
}
