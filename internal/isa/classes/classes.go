// Package classes tells the instructions of a machine apart by a table: masks and values of those
// that change the program counter, that belong to a load and store exclusive, or that must not be
// probed. All others go on with the next instruction. It serves machines whose instructions have
// one length, whose probes stand behind a GDB stub so far: an instruction is carried out where it
// stands, or on the registers. None is moved to another place; a machine that gets that has an
// isa.ISA of its own.
package classes

import (
	"fmt"

	"kprobe/arch"
	"kprobe/internal/isa"
)

// Class is a kind of encoding.
type Class struct {
	Mask, Value uint32
	Flow        isa.Flow
	Monitor     isa.Monitor
	To          func(w uint32, pc arch.Addr) arch.Addr // the address that it refers to; nil: none
	Delayed     bool                                   // the next instruction is carried out before the jump
	Nop         bool
	Emulate     func(w uint32, pc arch.Addr, r *arch.Regs, m arch.Memory) error // does it on the registers; nil: not known
	Refuse      string                                                          // why it cannot be probed; "" where it can
}

// Why instructions are not probed, in the words of all machines.
const (
	NoMonitor    = "it belongs to a load and store that a stop would make fail for ever"
	NoBreakpoint = "it is a breakpoint already"
)

// Of are the instructions of a machine: the first class that matches is an instruction's. long
// tells of the first word how long the instruction is, nil: a word. odd says what code at odd
// addresses is, which is not known here; "" where there is none.
func Of(a *arch.Arch, list []Class, long func(w uint32) int, odd string) isa.ISA {
	return &machine{a, list, long, odd}
}

type machine struct {
	a    *arch.Arch
	list []Class
	long func(uint32) int
	odd  string
}

const word = 4

var usual = &Class{}

func (m *machine) Arch() *arch.Arch { return m.a }

// read finds the class and the length of the instruction at the start of code.
func (m *machine) read(code []byte) (w uint32, c *Class, size int, err error) {
	if len(code) < word {
		return 0, nil, 0, isa.ErrUnknown
	}
	w, size = m.a.Order.Uint32(code), word
	if m.long != nil {
		size = m.long(w)
	}
	if len(code) < size {
		return 0, nil, 0, isa.ErrUnknown
	}
	for i := range m.list {
		if c := &m.list[i]; w&c.Mask == c.Value {
			return w, c, size, nil
		}
	}
	return w, usual, size, nil
}

// Decode reads the instruction at the start of code, which stands at pc. Which of the others a
// model has is not checked. Errors: isa.ErrUnknown.
func (m *machine) Decode(code []byte, pc arch.Addr) (isa.Insn, error) {
	w, c, size, err := m.read(code)
	if err != nil {
		return isa.Insn{}, err
	}
	in := isa.Insn{Len: size, Flow: c.Flow, Monitor: c.Monitor, Delayed: c.Delayed, Nop: c.Nop}
	if c.To != nil {
		in.PCRel, in.PCRelSize, in.Target = true, word, c.To(w, pc)
	}
	return in, nil
}

// Place decides how an instruction is carried out. Errors: isa.ErrUnknown.
func (m *machine) Place(code []byte, pc, slot arch.Addr) (isa.Verdict, error) {
	w, c, _, err := m.read(code)
	switch {
	case err != nil:
		return isa.Verdict{}, err
	case pc%word != 0 && m.odd != "":
		return isa.Verdict{Kind: isa.Refuse, Reason: m.odd}, nil
	case pc%word != 0:
		return isa.Verdict{Kind: isa.Refuse, Reason: "instructions begin at multiples of 4"}, nil
	case c.Refuse != "":
		return isa.Verdict{Kind: isa.Refuse, Reason: c.Refuse}, nil
	case c.Monitor != isa.Leaves:
		return isa.Verdict{Kind: isa.Refuse, Reason: NoMonitor}, nil
	case c.Flow == isa.Break:
		return isa.Verdict{Kind: isa.Refuse, Reason: NoBreakpoint}, nil
	}
	if c.Emulate == nil {
		return isa.Verdict{Kind: isa.InPlace}, nil
	}
	return isa.Verdict{Kind: isa.Emulate, Reason: "it leads elsewhere", Emulate: func(r *arch.Regs, mem arch.Memory) error {
		was := *r
		if err := c.Emulate(w, pc, r, mem); err != nil {
			*r = was
			return err
		}
		m.narrow(r)
		return nil
	}}, nil
}

// narrow keeps to the width of the machine's registers.
func (m *machine) narrow(r *arch.Regs) {
	for i := range r {
		r[i] &= 1<<(8*m.a.PtrSize) - 1
	}
}

// SlotSize is 0: nothing runs in a slot.
func (m *machine) SlotSize() int { return 0 }

// Displace refuses: nothing is moved.
func (m *machine) Displace(code []byte, pc, at arch.Addr) (isa.Verdict, error) {
	if _, _, _, err := m.read(code); err != nil {
		return isa.Verdict{}, err
	}
	return isa.Verdict{Kind: isa.Refuse, Reason: "instructions of " + m.a.Name + " are not moved"}, nil
}

// JumpForm is nil: over instructions no jump is written.
func (m *machine) JumpForm() *isa.JumpForm { return nil }

// Reach is of no use where nothing is put near code.
func (m *machine) Reach() arch.Addr { return 1 << 20 }

// Jump refuses. Errors: isa.ErrRange.
func (m *machine) Jump(from, to arch.Addr) ([]byte, error) {
	return nil, fmt.Errorf("jumps of %s are not made here: %w", m.a.Name, isa.ErrRange)
}

// Signed is the two's complement number that n bits of w from at on are.
func Signed(w uint32, at, n int) int64 { return int64(int32(w<<(32-n-at)) >> (32 - n)) }
