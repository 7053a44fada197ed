package point

import (
	"fmt"
	"strings"

	"kprobe/script/types"
)

// What args has at an attach point.

// Param is one of args' members.
type Param struct {
	Name  string
	C     string      // its type as C has it
	Type  *types.Type // nil until it was looked up
	Regs  []string    // the words of the context where it lies: one, or of an array all
	Stack int         // where none: how far behind the stack pointer it lies
	Err   error       // why it cannot be read
	Call  bool        // the number of the system call

	Record bool // it is a member of the event's record, Offset bytes from the beginning
	Behind bool // it says where behind the record the value begins
	Offset int
}

// Word is a word as it is where a function is entered: in a register of the context, or, with none, so far behind the stack pointer.
type Word struct {
	Reg   string
	Stack int
}

// Word is the i-th word of where a parameter lies.
func (p *Param) Word(i int) Word {
	if len(p.Regs) == 0 {
		return Word{Stack: p.Stack + 8*i}
	}
	return Word{Reg: p.Regs[i]}
}

// Layout is what programs for a point know of its parameters.
func (p *Point) Layout() string {
	var b strings.Builder
	fmt.Fprint(&b, p.Passing)
	for _, p := range p.Params {
		fmt.Fprint(&b, " ", p.Name, " ", p.Type, " ", p.Regs, p.Stack, p.Offset)
	}
	return b.String()
}

// Param is a member of a point's args, nil for none.
func (p *Point) Param(name string) *Param {
	for i := range p.Params {
		if p.Params[i].Name == name {
			return &p.Params[i]
		}
	}
	return nil
}
