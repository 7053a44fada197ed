// Package isatest counts what tests ask of a machine's instructions.
package isatest

import (
	"sync"

	"kprobe/arch"
	"kprobe/internal/isa"
)

// Counting is a machine that counts analyses. An analysis is each question whether the instruction
// at an address can be displaced, by a caller that does not know its length yet.
type Counting struct {
	isa.ISA

	mu       sync.Mutex
	analyses map[arch.Addr]int
}

// New counts for a machine.
func New(m isa.ISA) *Counting { return &Counting{ISA: m, analyses: make(map[arch.Addr]int)} }

// Place is the machine's, counted. A slot that is filled in comes with the instruction alone, and
// is no analysis.
func (c *Counting) Place(code []byte, pc, slot arch.Addr) (isa.Verdict, error) {
	if len(code) == c.Arch().MaxInsn {
		c.mu.Lock()
		c.analyses[pc]++
		c.mu.Unlock()
	}
	return c.ISA.Place(code, pc, slot)
}

// Analyses is the number of times that each address was analysed since the last call.
func (c *Counting) Analyses() map[arch.Addr]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.analyses
	c.analyses = make(map[arch.Addr]int)
	return was
}
