package lifeline

import (
	"encoding/binary"

	"kprobe/arch"
	"kprobe/internal/asm/ppc64"
)

// PPC64LE is 64-bit Power, little-endian.
var PPC64LE = &Machine{
	Arch: arch.PPC64LE, handler: ppc64leHandler, bypassLen: 4,
	bypass: func(from, to arch.Addr) ([]byte, bool) {
		w, ok := ppc64.Branch(from, to)
		return binary.LittleEndian.AppendUint32(nil, w), ok
	},
	bypassReturn: func(to uint64) (code []byte) {
		// Where a function returns r12 and the counter are free.
		const by = 12
		for _, w := range append(ppc64.Load(by, to), ppc64.MoveToCTR(by), ppc64.BCTR) {
			code = binary.LittleEndian.AppendUint32(code, w)
		}
		return code
	},
}
