package segment

import (
	"kprobe/arch"
	"kprobe/internal/jit"
)

// Two machines, of 64 bits and of 32.
var (
	wide      = &Machine{Arch: arch.AMD64, Code: jit.AMD64}
	narrowOne = &Machine{Arch: arch.I386, Code: jit.I386}
)
