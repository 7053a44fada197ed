package patch

import (
	"bytes"

	"kprobe/arch"
	"kprobe/internal/isa"
)

// Bounds are the addresses at which the instructions of one function begin. They are known only by
// decoding from its start: on a machine with instructions of several lengths nothing else tells.
type Bounds struct {
	Start arch.Addr
	at    map[arch.Addr]bool
	tries map[arch.Addr]bool // those between a load and a store exclusive
	read  map[arch.Addr]bool // those that another instruction carries out, or may carry out
	slots map[arch.Addr]bool // those in the delay slot of a jump

	// Failed is the address where decoding stopped, 0 where it did not: bytes that are no
	// instruction or, where Hidden, a foreign breakpoint over one.
	Failed arch.Addr
	Hidden bool
}

// FindBounds decodes the function that code holds. hidden tells of the address of a trap whether
// the trap is a foreign one, which hides the instruction there.
func FindBounds(m isa.ISA, start arch.Addr, code, trap []byte, hidden func(arch.Addr) bool) *Bounds {
	b := &Bounds{Start: start, at: make(map[arch.Addr]bool), tries: make(map[arch.Addr]bool), read: make(map[arch.Addr]bool), slots: make(map[arch.Addr]bool)}
	var referred []arch.Addr // addresses that registers may have
	anywhere := false        // something is carried out that a register tells of
	open := 0                // how many more instructions are taken to belong to a load exclusive
	for at := start; len(code) > 0; {
		in, err := m.Decode(code, at)
		if err != nil {
			b.Failed = at
			break
		}
		if in.Ends {
			break
		}
		b.at[at] = true
		if in.Delayed {
			b.slots[at+arch.Addr(in.Len)] = true
		}
		switch {
		case in.Monitor == isa.Opens:
			open = maxTry
		case in.Monitor == isa.Closes || in.Flow == isa.Return:
			open = 0
		case open > 0:
			b.tries[at] = true
			open--
		}
		next := at + arch.Addr(in.Len)
		switch {
		case in.Executes && in.PCRel:
			b.read[in.Target] = true
		case in.Executes:
			anywhere = true
		case in.PCRel && in.Flow == isa.Next:
			referred = append(referred, in.Target)
		case in.Flow == isa.Call && in.Target > next:
			referred = append(referred, next) // it may lead over it
		}
		if b.Hidden = bytes.HasPrefix(code, trap) && hidden(at); b.Hidden {
			b.Failed = at
			break
		}
		code, at = code[in.Len:], next
	}
	for _, a := range referred {
		b.read[a] = b.read[a] || anywhere
	}
	return b
}

// Executed tells whether another instruction carries out the one at an address, or may: with a
// probe there, it would carry out the probe's.
func (b *Bounds) Executed(at arch.Addr) bool { return b.read[at] }

// Has tells whether an instruction begins at an address.
func (b *Bounds) Has(at arch.Addr) bool { return b.at[at] }

// maxTry is the largest number of instructions between a load and a store exclusive: the kernel's
// own kprobes look as far back. A load without a store in sight belongs to a loop that waits.
const maxTry = 32

// Tries tells whether an instruction is between a load exclusive and the store that fails
// if anything comes between.
func (b *Bounds) Tries(at arch.Addr) bool { return b.tries[at] }

// Delayed tells whether an instruction is in the delay slot of a jump: the thread that comes to it
// is on its way elsewhere, which its program counter does not show.
func (b *Bounds) Delayed(at arch.Addr) bool { return b.slots[at] }
