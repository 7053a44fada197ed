package compile

import (
	"kprobe/bpf"
	"kprobe/script/asm"
)

// Registers that keep their meaning through a program. R0 is where values come out;
// calls change R0 to R5; asm.Far is also used to reach what an offset cannot.
const (
	RegCtx     = bpf.R6
	regScratch = bpf.R7
	RegValue   = bpf.R8 // a map's value that is being worked on
)

// Instructions are put together by asm.
type (
	Label = asm.Label
	Place = asm.Place
)

// Cell is memory of the program: what base points to, off bytes on.
func Cell(base uint8, off int) Place { return Place{Base: base, Off: off} }
