package compile

import (
	"kprobe/bpf"
	"kprobe/script/asm"
)

// Registers that keep their meaning through a program. R0 is where values come out;
// calls change R0 to R5; asm.Far is also used to reach what an offset cannot.
const (
	regCtx     = bpf.R6
	regScratch = bpf.R7
	regValue   = bpf.R8 // a map's value that is being worked on
)

// Instructions are put together by asm.
type (
	label = asm.Label
	place = asm.Place
)

// cell is memory of the program: what base points to, off bytes on.
func cell(base uint8, off int) place { return place{Base: base, Off: off} }
