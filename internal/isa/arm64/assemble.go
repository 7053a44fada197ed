package arm64

import (
	"encoding/binary"
	"fmt"

	"kprobe/arch"
	"kprobe/internal/asm/a64"
	"kprobe/internal/isa"
)

// Jump assembles b. Errors: isa.ErrRange beyond 128 MiB.
func (machine) Jump(from, to arch.Addr) ([]byte, error) {
	w, ok := a64.Branch(a64.B, from, to)
	if !ok {
		return nil, fmt.Errorf("jump from %v to %v: %w", from, to, isa.ErrRange)
	}
	return binary.LittleEndian.AppendUint32(nil, w), nil
}
