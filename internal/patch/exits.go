package patch

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"kprobe/arch"
	"kprobe/internal/isa"
)

// ExitKind says how control can leave a function at an instruction.
type ExitKind uint8

const (
	Ret          ExitKind = iota // a return: the function's results are in place
	TailJump                     // a direct jump, conditional or not, out of the function
	IndirectJump                 // a jump to a computed address: a tail call, or a jump table's
	Restart                      // a jump to the function's own entry: the same call goes on
)

var exitNames = [...]string{"return", "tail jump", "indirect jump", "restart"}

func (k ExitKind) String() string { return exitNames[k] }

// Exit is one instruction at which a call may end. Only of returns the instruction alone tells: a
// conditional jump may not be taken, and an indirect one may stay inside (see Exits.Contains). At
// run time it is an exit if the instruction leads outside, and the stack pointer is the same as at
// the entry.
type Exit struct {
	Addr arch.Addr
	Kind ExitKind
}

// Part is a run of a function's instructions: the function itself, or a part that the compiler
// moved out of its way (NAME.cold).
type Part struct {
	Addr arch.Addr
	Code []byte
}

func (p *Part) contains(a arch.Addr) bool { return a >= p.Addr && a-p.Addr < arch.Addr(len(p.Code)) }

// Exits are the ways in which control leaves a function other than by unwinding it.
type Exits struct {
	Entry arch.Addr   // the instruction that marks the beginning of a call
	Sites []Exit      // in order of address; none where the function never returns
	Parts []Part      // the function first
	Joins []arch.Addr // jumps from one part to another
}

// Ends tells whether a call may end by an exit of a kind.
func (e *Exits) Ends(kind ExitKind) bool {
	return slices.ContainsFunc(e.Sites, func(x Exit) bool { return x.Kind == kind })
}

// Restarts tells whether a jump to an address leads through the entry once more.
func (e *Exits) Restarts(to arch.Addr) bool { return to >= e.Parts[0].Addr && to <= e.Entry }

// Contains tells whether an address belongs to the function.
func (e *Exits) Contains(a arch.Addr) bool {
	return slices.ContainsFunc(e.Parts, func(p Part) bool { return p.contains(a) })
}

// Code is the function's code from an address on, to the end of that part; nil
// where it has none there.
func (e *Exits) Code(a arch.Addr) []byte {
	for _, p := range e.Parts {
		if p.contains(a) {
			return p.Code[a-p.Addr:]
		}
	}
	return nil
}

// Check asks about the instruction of each exit, and the bytes behind it. Errors: the first that is
// not right.
func (e *Exits) Check(right func(code []byte) bool) error {
	for _, x := range e.Sites {
		if !right(e.Code(x.Addr)) {
			return fmt.Errorf("where the %v at %v leads is not known in the target", x.Kind, x.Addr)
		}
	}
	return nil
}

// NoExits is why a function's exits cannot all be known.
type NoExits struct {
	Addr   arch.Addr
	Reason string
}

func (e *NoExits) Error() string { return fmt.Sprintf("at %v %s", e.Addr, e.Reason) }

// maxParts is the largest number of pieces of a function. Compilers make two of one; more come of
// code that is found without names.
const maxParts = 16

// FindExits finds the exits of the function that fn holds. Its entry is its first instruction, or
// the one behind the landing pad that it may begin with. elsewhere is asked about each place
// outside that a jump leads to: it gives the part of the function that the place belongs to, or
// false for a place of another function.
//
// All instructions are looked at, reachable or not: the target of a jump table is known at run time
// only. Errors: *NoExits where bytes are no instruction, where instructions overlap, or where
// control may run past the end.
func FindExits(m isa.ISA, fn Part, entry arch.Addr, elsewhere func(arch.Addr) (Part, bool)) (*Exits, error) {
	x := exits{m: m, elsewhere: elsewhere, Exits: &Exits{Entry: entry, Parts: []Part{fn}}}
	for i := 0; i < len(x.Parts); i++ {
		if err := x.decode(x.Parts[i]); err != nil {
			return nil, err
		}
		for _, j := range x.jumps[i] {
			if x.Contains(j.to) {
				continue
			}
			p, ok := x.elsewhere(j.to)
			if !ok {
				continue
			}
			if len(x.Parts) == maxParts {
				return nil, &NoExits{j.at, "it leads on and on"}
			}
			x.Parts = append(x.Parts, p)
		}
	}
	return x.Exits, x.classify()
}

// exits is an analysis under way.
type exits struct {
	*Exits
	m         isa.ISA
	elsewhere func(arch.Addr) (Part, bool)

	bounds []map[arch.Addr]bool // where instructions begin, by part
	jumps  [][]jump             // direct ones, by part
}

type jump struct {
	at, to arch.Addr
	falls  bool // control runs on into another part; there is no instruction for it
}

// decode reads one part: its boundaries, its jumps, and the exits that the
// instruction alone tells.
func (x *exits) decode(p Part) error {
	bounds := make(map[arch.Addr]bool)
	var jumps []jump
	executed, err := x.executed(p)
	if err != nil {
		return err
	}
	open := true // control may come to the next instruction
	for code, at := p.Code, p.Addr; len(code) > 0; {
		in, err := x.m.Decode(code, at)
		if err != nil {
			return &NoExits{at, fmt.Sprintf("the bytes are no instruction: % x", code[:min(len(code), x.m.Arch().MaxInsn)])}
		}
		if in.Ends {
			open = false
			break
		}
		bounds[at] = true
		if in.Delayed {
			return &NoExits{at, "a jump has a delay slot, in which the stack is put back: there is no instruction at which the call is over"}
		}
		switch in.Flow {
		case isa.Return:
			x.Sites = append(x.Sites, Exit{at, Ret})
		case isa.IndirectJump:
			x.Sites = append(x.Sites, Exit{at, IndirectJump})
		case isa.Jump, isa.CondJump:
			jumps = append(jumps, jump{at, in.Target, false})
		}
		switch in.Flow {
		case isa.Return, isa.Jump, isa.IndirectJump, isa.Undefined, isa.Privileged, isa.Break:
			open = false
		case isa.Call, isa.IndirectCall, isa.Trap:
			open = false // only of interest at the end, where nothing but a call that never returns makes sense
		default:
			// Behind such an end padding changes nothing.
			open = open || !in.Nop && !executed[at]
		}
		code, at = code[in.Len:], at+arch.Addr(in.Len)
	}
	if end := p.Addr + arch.Addr(len(p.Code)); open {
		if _, ok := x.elsewhere(end); !ok && !x.Contains(end) {
			return &NoExits{end, "control runs past the end of the function"}
		}
		jumps = append(jumps, jump{end, end, true})
	}
	x.bounds, x.jumps = append(x.bounds, bounds), append(x.jumps, jumps)
	return nil
}

// executed are the instructions that others of a part carry out where they stand themselves: none
// that is an exit, or the exit would be somewhere else.
func (x *exits) executed(p Part) (map[arch.Addr]bool, error) {
	var all map[arch.Addr]bool
	for code, at := p.Code, p.Addr; len(code) > 0; {
		in, err := x.m.Decode(code, at)
		if err != nil || in.Ends {
			break
		}
		if in.Executes {
			what, err := x.m.Decode(x.Code(in.Target), in.Target)
			if !in.PCRel || err != nil || what.Flow != isa.Next {
				return nil, &NoExits{at, "it carries out an instruction somewhere else, which may be an exit"}
			}
			if all == nil {
				all = make(map[arch.Addr]bool)
			}
			all[in.Target] = true
		}
		code, at = code[in.Len:], at+arch.Addr(in.Len)
	}
	return all, nil
}

// classify tells the jumps that leave from those that stay, once all parts are known.
func (x *exits) classify() error {
	for _, jumps := range x.jumps {
		for _, j := range jumps {
			i := slices.IndexFunc(x.Parts, func(p Part) bool { return p.contains(j.to) })
			switch {
			case i < 0:
				x.Sites = append(x.Sites, Exit{j.at, TailJump})
			case !x.bounds[i][j.to]:
				return &NoExits{j.at, fmt.Sprintf("it jumps to %v, between instructions", j.to)}
			case j.falls:
			case !x.Parts[i].contains(j.at):
				x.Joins = append(x.Joins, j.at)
				if x.Restarts(j.to) {
					x.Sites = append(x.Sites, Exit{j.at, Restart})
				}
			case x.Restarts(j.to):
				x.Sites = append(x.Sites, Exit{j.at, Restart})
			}
		}
	}
	slices.SortFunc(x.Sites, func(a, b Exit) int { return cmp.Compare(a.Addr, b.Addr) })
	return nil
}

// String prints the analysis: a line for each part and each exit.
func (e *Exits) String() string {
	var b bytes.Buffer
	for _, p := range e.Parts {
		fmt.Fprintf(&b, "%v-%v\n", p.Addr, p.Addr+arch.Addr(len(p.Code)))
		for _, s := range e.Sites {
			if p.contains(s.Addr) {
				fmt.Fprintf(&b, "  %v %v\n", s.Addr, s.Kind)
			}
		}
	}
	return b.String()
}
