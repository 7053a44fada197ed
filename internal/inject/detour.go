package inject

import (
	"fmt"

	"kprobe/arch"
	"kprobe/internal/isa"
	"kprobe/internal/jit"
	"kprobe/internal/segment"
)

// Program is a compiled program, as a detour needs to know it.
type Program struct {
	Entry    arch.Addr
	Clobbers arch.RegSet // registers that it, or what it calls, may change
	Context  uint64      // words of its context that it reads, a bit each
	Needs    jit.Needs
	FuncIP   arch.Addr // what get_func_ip answers
	Cookie   uint64    // what get_attach_cookie answers
	Data     int       // where in the call's private data its own begins
	Override bool      // it may call override_return (at a function's entry only)
}

// Tail is the displaced instructions, made for the address where they will run, and the
// jump back to the original code behind them. Marks are as in isa.Verdict.
type Tail struct {
	Code  []byte
	Marks []isa.Mark
}

// Scratch is what a function neither keeps nor is given anything in, by the rules of C: at an entry
// it is dead, and so are the flags.
const Scratch = arch.RegSet(1<<arch.R10 | 1<<arch.R11)

// NoCounter stands for no counter.
const NoCounter = -1

// Detour is the code that a jump at a probe's address leads to: the plan of it.
// The code follows from the plan, and so do the tables that Where reads: nothing is
// kept of them.
type Detour struct {
	At   arch.Addr // where it will stand, within 2 GiB of its Area
	Site arch.Addr // the probe's address
	Area *Area
	Key  segment.ThreadKey

	// RedZone is how much below the stack pointer belongs to the program, in
	// bytes: 128 in C, nothing in Go, whose stacks have hardly room for more.
	RedZone int

	// Tail makes the displaced instructions for an address. It must always make the same.
	Tail func(at arch.Addr) (Tail, error)

	// Head makes those in front of the probed one, where the jump is ahead of it, or what takes a landing pad's work back,
	// where it is behind that: they come first, and run on into what serves the probe. nil for none.
	Head func(at arch.Addr) (Tail, error)

	// Dead registers and flags hold nothing that the program needs any more:
	// each is written before it is read. A detour that only counts makes use of the registers.
	Dead      arch.RegSet
	DeadFlags bool

	// Goroutine is where a thread of a Go program keeps the address of the descriptor of
	// the goroutine that it runs, from its fs base; 0 in other programs.
	Goroutine int32

	Hits     int       // counter of hits, or NoCounter
	Missed   int       // counter of hits whose programs could not run; there must be one if there are programs
	Programs []Program // run one after the other
	Return   *Return   // probe the return too, where this is a function's entry, by swapping its address
	Enters   []Enter   // or by the function's exits
	Exits    []Exit    // be such a return, where this is one of the function's exits

	// Gate has the detour lead the traps of others to their detours, and do nothing else: see x86/gate.go.
	Gate bool

	// Cond is the condition under which the instruction leaves the function, if it is a conditional
	// jump: the opcode of its short form. 0 says that it always does.
	Cond byte
}

// Generated is a detour's code and what is where in it.
type Generated struct {
	*Output
	Head     Tail
	Tail     Tail
	TailAt   int // offset of the displaced instructions
	Out      int // where a thread goes on that has been served: TailAt, or where the return is put in place
	Returned int // where the function returns to
	Trusting []Trusting
	LandAt   int // where a trap leads that a kernel takes
}

// Code is the detour's code. Errors: of Tail.
func (d *Detour) Code() ([]byte, error) {
	code, _, err := d.Emit()
	return code, err
}

// Emit is the detour's code, and where in it the displaced instructions stand. Errors: of
// Tail.
func (d *Detour) Emit() (code []byte, tailAt arch.Addr, err error) {
	g, err := d.build(true)
	if err != nil {
		return nil, 0, err
	}
	return g.Code, d.At + arch.Addr(g.TailAt), nil
}

// ReturnAt is the address that Return's functions return to: it stands in the
// stack slots of calls in flight. Errors: of Tail; a detour without Return.
func (d *Detour) ReturnAt() (arch.Addr, error) {
	g, err := d.generate()
	if err == nil && d.Return == nil {
		err = fmt.Errorf("the detour of %v has no return probe", d.Site)
	}
	if err != nil {
		return 0, err
	}
	return d.At + arch.Addr(g.Returned), nil
}

// Output is code that is being made, one instruction after another. In front of each it is noted
// where the program's own registers are at that point: a thread that is stopped there can be put
// back, whatever the code has done with its registers so far (see frame).
type Output struct {
	Base   arch.Addr // of code[0]
	Code   []byte
	Now    Frame
	Silent bool // no points are noted: only the code is wanted
	points []point
	deeper []int // where an instruction stands for which there may be no room on the program's own stack
}

// Deepens tells that the next instruction goes deeper into the program's own stack than any before it.
func (o *Output) Deepens() { o.deeper = append(o.deeper, len(o.Code)) }

// point is a boundary between two instructions.
type point struct {
	off int
	Frame
}

// Here is the address of the next instruction.
func (o *Output) Here() arch.Addr { return o.Base + arch.Addr(len(o.Code)) }

// Put adds one instruction.
func (o *Output) Put(insn ...byte) {
	if !o.Silent {
		o.points = append(o.points, point{len(o.Code), o.Now})
	}
	o.Code = append(o.Code, insn...)
}

// NewGenerated begins a detour's code.
func NewGenerated(d *Detour, silent bool) *Generated {
	return &Generated{Output: &Output{Base: d.At, Silent: silent, Now: Frame{State: arch.NoReg}}}
}

// Plain tells whether the detour only counts.
func (d *Detour) Plain() bool {
	return len(d.Programs) == 0 && d.Return == nil && len(d.Enters) == 0 && len(d.Exits) == 0
}

// Together tells whether the detour counts the hits of all threads in one word, and so asks nothing of a
// thread: Segment.Uncount takes one back.
func (d *Detour) Together() bool { return d.Plain() && !d.Gate && d.Area.Of.Machine.CountsTogether }

// generate is the detour with all that is known of it.
func (d *Detour) generate() (*Generated, error) { return d.build(false) }

func (d *Detour) build(silent bool) (*Generated, error) { return d.Area.Of.Machine.Build(d, silent) }

// Trusting is a stretch of code that reads memory by what may lead to none, the thread pointer, and where a
// thread goes on that cannot.
type Trusting struct {
	From, End int
	Otherwise *Label
	Word      bool // not by the thread pointer but by what may be a return address
}

// Fixup tells where a thread goes on whose instruction at pc has faulted for want of
// a thread pointer, which identifies says, or of a return address; to is 0 for every other instruction. Errors: of Tail.
func (d *Detour) Fixup(pc arch.Addr) (to arch.Addr, identifies bool, err error) {
	g, err := d.build(true)
	if err != nil {
		return 0, false, err
	}
	for _, t := range g.Trusting {
		if off := int(pc - d.At); off >= t.From && off < t.End {
			return d.At + arch.Addr(t.Otherwise.Off), !t.Word, nil
		}
	}
	return 0, false, nil
}

// Label is a place in the code that jumps may lead to before it is known.
type Label struct {
	Off   int // -1 until placed
	Frame Frame
}

// NewLabel is one that is not placed.
func NewLabel() *Label { return &Label{Off: -1} }

// LandAt is the address at which a thread goes on that has met a trap at the site, in a kernel that serves such traps
// itself. Errors: of Tail.
func (d *Detour) LandAt() (arch.Addr, error) {
	g, err := d.generate()
	if err != nil {
		return 0, err
	}
	return d.At + arch.Addr(g.LandAt), nil
}
