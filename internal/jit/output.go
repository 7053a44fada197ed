package jit

import "kprobe/arch"

// label is a place in the code that may not be known yet.
type label int

// place is a position in output.code. Where the machine's jumps are kept apart from the other
// bytes, those before it may still push it away.
type place struct {
	off   int
	jumps int // how many jumps kept apart come before it
}

// output is the code of one program as far as it is written. Each machine's assembler is one.
type output struct {
	code   []byte
	labels []place
	writes arch.RegSet // the general registers that are written
}

// newLabel makes a label that is put somewhere later.
func (o *output) newLabel() label {
	o.labels = append(o.labels, place{off: -1})
	return label(len(o.labels) - 1)
}

func (o *output) written() arch.RegSet { return o.writes }

// offset is the place of a label in finished code.
func (o *output) offset(l label) int { return o.labels[l].off }

// assembler is the interface of a machine's assembler that compiling needs, whatever its
// instructions are.
type assembler interface {
	newLabel() label
	bind(label) // here, where jumps come to it
	mark(label) // here, where none does

	// finish completes the jumps. Errors: one does not reach.
	finish() (code []byte, calls []Call, err error)
	offset(label) int
}
