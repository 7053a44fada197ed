package gen

import (
	"errors"
	"fmt"
	"slices"

	"kprobe/arch"
	"kprobe/bpf"
	"kprobe/event"
)

// context is what a program is given on a machine.
type context struct {
	bpf.Context
	arch  *arch.Arch
	names []string // of the machine's registers, as the context has them

	vectors bool // a program can read vector registers
	cpu     bool // and tell the CPU that it runs on
}

// contexts has a row for each machine whose programs capture.
var contexts = []context{
	{bpf.AMD64, arch.AMD64, arch.AMD64.RegNames, true, true},
	{bpf.AMD64, arch.I386, arch.AMD64.RegNames, false, true}, // its registers have the same numbers, and places in the context
	{bpf.ARM64, arch.ARM64, bpf.ARM64.Regs, false, false},
}

// contextOf is that of a machine; nil is AMD64. Errors: in words, for a machine that has no programs.
func contextOf(a *arch.Arch) (*context, error) {
	for i := range contexts {
		if c := &contexts[i]; c.arch == a || a == nil {
			return c, nil
		}
	}
	return nil, fmt.Errorf("programs are not made for %s", a.Name)
}

// ContextOf is the context of programs on a machine. Errors: in words, for a machine that has no programs.
func ContextOf(a *arch.Arch) (bpf.Context, error) {
	c, err := contextOf(a)
	if err != nil {
		return bpf.Context{}, err
	}
	return c.Context, nil
}

// word is the place of a register in the context, -1 where it has none.
func (c *context) word(r arch.Reg) int {
	if int(r) >= len(c.names) {
		return -1
	}
	return slices.Index(c.Regs, c.names[r])
}

// reads tells whether a program can do a load, with the reason where it cannot.
func (c *context) reads(l *event.Load) error {
	for i := range l.Guards {
		for _, of := range []*event.Load{l.Guards[i].Of, l.Guards[i].Minus} {
			if of == nil {
				continue
			}
			if err := c.reads(of); err != nil {
				return err
			}
		}
	}
	if l.Length != nil {
		if err := c.reads(l.Length); err != nil {
			return err
		}
	}
	for _, of := range []*event.Load{l.A, l.B} {
		if of == nil {
			continue
		}
		if err := c.reads(of); err != nil {
			return err
		}
	}
	switch l.Source {
	case event.LoadComputed, event.LoadConst, event.LoadComm, event.LoadThread:
		return nil
	case event.LoadVector:
		if !c.vectors {
			return errors.New("vector registers are known to programs of x86-64")
		}
		return nil
	case event.LoadEntered:
		return errors.New("what a function's caller has passed is found at stops only")
	case event.LoadReg, event.LoadEntry:
		if c.word(l.Reg) < 0 {
			return fmt.Errorf("register %s is not in a program's context", c.arch.RegName(l.Reg))
		}
		return nil
	}
	return errors.New("a watchpoint's data address is not known to a program")
}

// array is how many elements an argument has; 0: it is no array. What the target counts is none.
func array(l *event.Load) int {
	if l.As == event.LoadCounted {
		return 0
	}
	return l.Count
}

// elems are its elements in a record.
func elems(l *event.Load) int {
	if l.As == event.LoadCounted {
		return 2
	}
	return max(1, l.Count)
}

// roomsOf are how many of the elements have a part of the record besides.
func roomsOf(l *event.Load) int {
	switch {
	case l.As == event.LoadCounted:
		return 1
	case isText(l):
		return elems(l)
	}
	return 0
}

// canFault tells whether it reads memory.
func canFault(l *event.Load) bool {
	return l.Source == event.LoadComputed || l.Source != event.LoadComm && (l.As != event.LoadWord || len(l.Hops) > 0)
}

func isText(l *event.Load) bool {
	return l.Source == event.LoadComm || l.As == event.LoadTextAt || l.As == event.LoadTextPtr || l.As == event.LoadCounted && l.Size == 0
}
