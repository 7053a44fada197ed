// Package isa is the interface to a machine's instructions: how long is one, what does it refer to,
// can it run somewhere else. It is about bytes only: it knows neither targets nor probes. Each
// machine has a folder below it. It imports arch and nothing else of the project.
package isa

import (
	"errors"

	"kprobe/arch"
)

// ErrUnknown is returned by Decode for bytes that are no instruction this
// machine has, or too few bytes. An unknown instruction is an error, never a
// guess.
var ErrUnknown = errors.New("unknown instruction")

// ErrRange is returned when an address is out of an instruction's reach.
var ErrRange = errors.New("out of reach")

// Flow is an instruction's effect on the program counter.
type Flow uint8

const (
	Next         Flow = iota // goes on with the following instruction
	Jump                     // direct jump, always taken
	CondJump                 // direct jump, taken or not (loop and jrcxz too)
	IndirectJump             // jump to a computed address
	Call                     // direct call
	IndirectCall             // call of a computed address
	Return                   // pops or takes the return address
	Syscall                  // enters the kernel and comes back
	Break                    // the trap instruction that probes use
	Trap                     // other software interrupts (int n, int1, into)
	Undefined                // raises the undefined instruction fault by design (ud2)
	Privileged               // faults outside the kernel (hlt, iret, ...)
)

// Insn holds the facts about one instruction that the planner needs.
type Insn struct {
	Len  int
	Flow Flow

	// PCRel tells that an operand is relative to the instruction's own
	// address; Target is the address it refers to, PCRelOff and PCRelSize
	// give the bytes of the field inside the instruction. Branches and memory
	// operands alike.
	PCRel               bool
	PCRelOff, PCRelSize int
	Target              arch.Addr

	Nop     bool // does nothing, by design: padding between functions
	Repeats bool // stepped, it does one round and stands where it was, until the last (x86: rep)
	Delayed bool // the next instruction is carried out before it jumps: that is in a delay slot
	Landing bool // marks a place that indirect branches may lead to (x86: endbr64)

	// Pushes tells that it does nothing but push a register, Pushed.
	Pushes bool
	Pushed arch.Reg

	// Executes tells that it carries out an instruction that stands somewhere else, which it reads
	// at Target or, if that is not known, at an address in a register (s390x: exrl, ex).
	Executes bool

	// Ends tells that a function's code ends here, whatever its size says: a table of the
	// compiler's follows (ppc64le: one for tracebacks, which a word of zeros is in front of).
	Ends bool

	Monitor Monitor
}

// Monitor is an instruction's effect on the monitor of the memory that a load exclusive has read.
// The store exclusive fails where the monitor is not set any more. So until then no exception may
// come between, and no other access: each try would fail.
type Monitor uint8

const (
	Leaves Monitor = iota
	Opens          // a load exclusive
	Closes         // a store exclusive, or what clears the monitor
)

// Kind is the verdict on running an instruction away from its place. It is
// decided at plan time; nothing is discovered at a hit.
type Kind uint8

const (
	Refuse  Kind = iota // cannot be probed: Reason says why
	Copy                // Code in a slot does what the instruction does
	Emulate             // no slot is needed: Emulate does it on the registers
	InPlace             // runs where it stands only: it is not known how it would elsewhere
)

func (k Kind) String() string { return [...]string{"refuse", "copy", "emulate", "in place"}[k] }

// Verdict is the answer of Place.
type Verdict struct {
	Kind   Kind
	Reason string // for Refuse: why; for Emulate and fixed-up copies: the work that was done, else ""

	// Code, when Kind is Copy, runs at the slot address that Place was given: it does the
	// instruction's work exactly and then goes on, by itself, at the right original address. The
	// first Body bytes are the instruction's work, the rest is the jump back; Body is len(Code)
	// where the work itself leaves (return, jump, call). Code may be set with Kind Emulate too,
	// where both ways exist. A call's on ppc64le lacks the link, which the lifeline's handler sets.
	Code []byte
	Body int

	// Marks translate a program counter inside Code back into the original
	// state, in increasing order of Off. Every instruction boundary in Code
	// has one; the first is always {Off: 0, PC: the instruction's address}.
	Marks []Mark

	// Exits are traps in Code, in order, that stand for jumps which would not reach. The server of
	// such a trap has the thread go on where the jump leads.
	Exits []Exit

	// Emulate does the instruction on a thread's registers, the PC included.
	// It is nil where only a slot serves. An error (memory that cannot be
	// read or written) leaves the registers as they were.
	Emulate func(r *arch.Regs, m arch.Memory) error
}

// Exit is a trap in slot code, and where it leads.
type Exit struct {
	Off int
	To  arch.Addr
}

// Mark ties an offset in slot code to the original program's state.
type Mark struct {
	Off int       // offset of an instruction boundary in Code
	PC  arch.Addr // the PC that the program would see at this point
	SP  int       // the number to add to the stack pointer to undo a half-done push

	// Link is a register that holds this very place in the slot, because the
	// instruction stores where it returns to (x86: syscall, in RCX), and that
	// must hold PC for the program. HasLink tells that there is one.
	HasLink bool
	Link    arch.Reg
}

// Fault is the way in which the CPU refuses a byte that no program executes.
type Fault uint8

const (
	Breakpoint Fault = iota // the trap that probes use; Linux: SIGTRAP, behind the byte
	Invalid                 // no instruction: SIGILL, at the byte
	Protected               // the kernel's alone: SIGSEGV, at the byte
)

// Guard is a byte that traps where an instruction begins with it, whatever
// follows.
type Guard struct {
	Byte  byte
	Fault Fault
}

// JumpForm describes the bytes of a jump that is written over other instructions: Opcode, then a
// displacement of Rel bytes, the least significant first, that counts from the jump's end.
type JumpForm struct {
	// Whole is the length of a jump that is one instruction and covers one: it is written as
	// a whole, as Jump makes it. Of the other fields only KeepsLandings and Undo have a meaning
	// then. 0: it is written by its parts.
	Whole int

	// KeepsLandings tells that no jump may stand where a landing pad is, in code that is mapped so
	// that the CPU would refuse an indirect branch to it. Undo is code that takes back the pad's
	// effect, for a jump behind it; none where the pad does nothing.
	KeepsLandings bool
	Undo          func(pad []byte) []byte

	Opcode byte
	Rel    int
	Prefix byte    // may stand before the opcode, any number of times, and changes nothing
	Guards []Guard // the cheapest to serve first
}

// Len is the length of a jump without prefixes.
func (f *JumpForm) Len() int {
	if f.Whole > 0 {
		return f.Whole
	}
	return 1 + f.Rel
}

// ISA is one machine's instructions. Bytes and their address are always
// separate arguments. Implementations hold no state and are safe for
// concurrent use.
type ISA interface {
	Arch() *arch.Arch

	// Decode reads the instruction at the start of code, which stands at pc.
	// Errors: ErrUnknown.
	Decode(code []byte, pc arch.Addr) (Insn, error)

	// Place decides how the instruction at the start of code, which stands at
	// pc, runs from a slot at address slot. The verdict's Kind depends on the
	// instruction and on reach only, so planning may ask with any address near
	// pc before slots are given out. Errors: ErrUnknown.
	Place(code []byte, pc, slot arch.Addr) (Verdict, error)

	// SlotSize is the most bytes that Code of any verdict takes.
	SlotSize() int

	// Displace is Place for several instructions in a row, all that code holds:
	// they run at the address at, one after the other, and go on behind the last.
	// Only the last may leave for good. It refuses what only emulation can do.
	// Errors: ErrUnknown, also for a code that ends within an instruction.
	Displace(code []byte, pc, at arch.Addr) (Verdict, error)

	// JumpForm is nil on machines on which no jumps are planned.
	JumpForm() *JumpForm

	// Reach is the largest distance of memory from the code that it serves, both ends included, so
	// that every jump and address in a slot or a detour leads there and back.
	Reach() arch.Addr

	// Jump assembles the shortest jump that reaches. Errors: ErrRange.
	Jump(from, to arch.Addr) ([]byte, error)
}
