// Package kind says in what the kinds of targets differ for the engine: one value for each.
package kind

import (
	"errors"

	"kprobe/arch"
	"kprobe/internal/inside"
	"kprobe/internal/isa"
	"kprobe/internal/patch"
	"kprobe/internal/planned"
	"kprobe/internal/segment"
	"kprobe/target"
)

// Kind is in what a target differs. It is chosen when a session is
// opened; nothing else asks what a target is.
//
//	kind     what is probed                   an instruction runs          threads are
//	process  a live process                   in a slot                    a program's
//	stub     a program behind a stub          where it stands              a program's
//	guest    a kernel behind a stub           there, or in a detour        CPUs
//
// A kind of target that is added has one more type here, which begins with the one that it is
// most like.
type Kind interface {
	// InPlace tells that breakpoints are kept beside the target's own text and that a probed
	// instruction runs where it stands, while nothing else does: no slots.
	InPlace() bool
	// OnCPUs tells that threads are CPUs, which run tasks: no thread can be waited for, and what a
	// stack holds tells nothing of the others.
	OnCPUs() bool
	// Step carries out a stopped thread's instruction where it stands, BreakAt has the target keep
	// a breakpoint, and UnbreakAt ends that. Only in place; elsewhere these two do nothing.
	Step(target.Thread) error
	BreakAt(at arch.Addr) error
	UnbreakAt(at arch.Addr) error

	// Excepted tells whether a step has led a thread to the kernel's handler of faults instead, by which trap, and with which
	// registers it was at its instruction.
	Excepted(th target.Thread, r *arch.Regs) (trap int, at arch.Regs, ok bool)

	// Verdict is how a probed instruction gets its effect, and how a hit is noticed, in a plan's words.
	Verdict(*patch.Site) (v planned.Verdict, engine string)
	// Pinned says why instructions must run where they stand; "" where they need not.
	Pinned(start, end arch.Addr) string
	// Shared tells that others rewrite the text, too; Owned says then why bytes cannot be overwritten now, ""
	// where they can.
	Shared() bool
	Owned(start, end arch.Addr) string
	// Announced tells that code which is about to be unmapped is still there when the target tells of it.
	Announced() bool
	// Settled tells that nobody is just rewriting text. Errors: in words.
	Settled() error

	// Memory tells whether the target can have memory in common with us, for programs.
	Memory(target.Target) bool
	// Configure completes what is said of the target to programs. frozen runs a function while every
	// thread stands still. Errors: in words.
	Configure(c *inside.Config, frozen func(func() error) error) error
	// Apart tells that this memory may lie far from all code, and Listed that the target's list of
	// memory has it.
	Apart() bool
	Listed() bool
	// Cannot says what a program does that cannot be done there; "" if it does nothing of that.
	Cannot(*inside.Program) string
	// Unreplaceable says why no program may give a result in place of the function at an entry; "" where one may.
	Unreplaceable(entry arch.Addr) string
	// Posts tells whether a post-handler can be where a program is.
	Posts() bool
	// CallData is how many bytes of private data calls have at most that programs watch.
	CallData() int
	// Over tells of slots of stacks whether the call is over; nil where stacks tell nothing that is not
	// known otherwise.
	Over() (func(slot arch.Addr) bool, error)
}

// MaxData is the most private data that a call can have, in bytes.
const MaxData = 4096

// Beside is a target on which probes need no memory: breakpoints are kept beside
// its own, and the probed instruction is carried out where it stands, while
// nothing else runs. No byte of the target changes, so none has to be put back,
// and an instruction may be of any kind: it never runs anywhere else.
type Beside interface {
	target.Breaker
	target.Stepper
}

// Of is a target's.
func Of(t target.Target) Kind {
	b, beside := t.(Beside)
	m, machine := t.(target.Machine)
	switch {
	case machine:
		return guest{stub{beside: b}, m}
	case beside:
		return stub{beside: b}
	}
	return process{}
}

// process is a live process.
type process struct{}

func (process) InPlace() bool             { return false }
func (process) OnCPUs() bool              { return false }
func (process) Step(target.Thread) error  { return errors.ErrUnsupported }
func (process) BreakAt(arch.Addr) error   { return nil }
func (process) UnbreakAt(arch.Addr) error { return nil }

func (process) Excepted(target.Thread, *arch.Regs) (trap int, at arch.Regs, ok bool) {
	return 0, at, false
}

func (process) Verdict(site *patch.Site) (v planned.Verdict, engine string) {
	switch site.Kind {
	case isa.Copy:
		return planned.Copy, "trap"
	case isa.Emulate:
		return planned.Emulate, "trap"
	}
	return planned.Refuse, "trap"
}

func (process) Pinned(_, _ arch.Addr) string { return "" }
func (process) Shared() bool                 { return false }
func (process) Owned(_, _ arch.Addr) string  { return "" }
func (process) Announced() bool              { return false }
func (process) Settled() error               { return nil }

func (process) Memory(t target.Target) bool {
	_, ok := t.(target.Nursery)
	return ok
}

func (process) Configure(*inside.Config, func(func() error) error) error { return nil }

func (process) Apart() bool                              { return true }
func (process) Listed() bool                             { return true }
func (process) Cannot(*inside.Program) string            { return "" }
func (process) Unreplaceable(arch.Addr) string           { return "" }
func (process) Posts() bool                              { return true }
func (process) CallData() int                            { return MaxData }
func (process) Over() (func(slot arch.Addr) bool, error) { return nil, nil }

// stub is a program behind a stub, or a kernel of which no more than that is known.
type stub struct {
	process
	beside Beside
}

func (stub) InPlace() bool                  { return true }
func (k stub) Step(th target.Thread) error  { return k.beside.Step(th) }
func (k stub) BreakAt(at arch.Addr) error   { return k.beside.SetBreak(at) }
func (k stub) UnbreakAt(at arch.Addr) error { return k.beside.ClearBreak(at) }

// Verdict: what does nothing is passed over, the rest is done where it stands.
func (stub) Verdict(site *patch.Site) (v planned.Verdict, engine string) {
	switch {
	case site.Kind == isa.Emulate:
		return planned.Emulate, "stop"
	case site.Insn.Nop:
		return planned.Skip, "stop"
	}
	return planned.Step, "stop"
}

// guest is a kernel behind a stub.
type guest struct {
	stub
	machine target.Machine
}

func (guest) OnCPUs() bool                          { return true }
func (k guest) Pinned(start, end arch.Addr) string  { return k.machine.Pinned(start, end) }
func (guest) Announced() bool                       { return true }
func (guest) Shared() bool                          { return true }
func (k guest) Owned(start, end arch.Addr) string   { return k.machine.Owned(start, end) }
func (guest) Memory(target.Target) bool             { return true }
func (guest) Apart() bool                           { return false }
func (guest) Listed() bool                          { return false }
func (guest) Cannot(p *inside.Program) string       { return p.NotInKernels() }
func (k guest) Unreplaceable(at arch.Addr) string   { return k.machine.Unreplaceable(at) }
func (guest) Posts() bool                           { return false }
func (guest) CallData() int                         { return segment.SlotData }
func (k guest) Over() (func(arch.Addr) bool, error) { return k.machine.Over() }

func (k guest) Excepted(th target.Thread, r *arch.Regs) (trap int, at arch.Regs, ok bool) {
	return k.machine.Excepted(th, r)
}

func (k guest) Settled() error {
	_, err := k.machine.Resting(func(arch.Addr) bool { return false })
	return err
}

func (k guest) Configure(c *inside.Config, frozen func(func() error) error) error {
	return frozen(func() error { return c.ForMachine(k.machine) })
}
