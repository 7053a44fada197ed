package bpf

import "fmt"

// VerifyError says why a program is refused.
type VerifyError struct {
	Program string // its name
	Slot    int    // of the instruction; -1: the program as a whole
	Insn    string // disassembled
	Line    string // of the source, where it is known
	What    string // the mistake, and what to do about it
	Lacks   bool   // it uses a thing that is not here: unknown fields (CO-RE), a function of a kernel
}

func (e *VerifyError) Error() string {
	s := fmt.Sprintf("bpf: program %q: ", e.Program)
	if e.Slot >= 0 {
		s += fmt.Sprintf("instruction %d (%s): ", e.Slot, e.Insn)
	}
	s += e.What
	if e.Line != "" {
		s += fmt.Sprintf(" [%s]", e.Line)
	}
	return s
}

// Refuse says what is wrong with the instruction at a slot, -1 for the program as a whole.
// The error is a *VerifyError.
func (p *Program) Refuse(slot int, format string, a ...any) error {
	e := &VerifyError{Program: p.Name, Slot: slot, What: fmt.Sprintf(format, a...)}
	if slot >= 0 && slot < len(p.Insns) {
		e.Insn = p.Insns[slot].String()
	}
	for _, l := range p.Lines {
		if l.Insn <= slot {
			e.Line = l.Text
		}
	}
	return e
}
