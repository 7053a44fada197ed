// Package arch holds the facts about each machine that a target can be: the
// registers, the trap instruction, where arguments and results live. Data
// only. What is done with instructions is internal/isa's business; this
// package imports nothing of the project.
package arch

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Addr is an address in the target. It is a type of its own so that it never
// meets a host pointer, and it is 64 bits wide whatever the host or target.
type Addr uint64

// String gives the address as the kernel prints one, 0x and hexadecimal digits.
func (a Addr) String() string { return "0x" + strconv.FormatUint(uint64(a), 16) }

// Format prints an address as a number where a verb of numbers asks for one, and else as String: without it, %x would give the
// letters of the string in hexadecimal.
func (a Addr) Format(s fmt.State, verb rune) {
	if verb == 'v' || verb == 's' {
		fmt.Fprintf(s, fmt.FormatString(s, 's'), a.String())
		return
	}
	fmt.Fprintf(s, fmt.FormatString(s, verb), uint64(a))
}

// Reg is a register's number: its index in Arch.Regs and in Regs.
type Reg uint8

// NoReg stands for a register that a machine does not have.
const NoReg Reg = 0xff

// MaxRegs is the capacity of Regs; no machine here has more general registers.
const MaxRegs = 48

// Regs are the general registers of one thread, indexed by Reg. Registers
// narrower than 64 bits are zero-extended.
type Regs [MaxRegs]uint64

// Addr is a register's value as an address.
func (r *Regs) Addr(of Reg) Addr { return Addr(r[of]) }

// Arch is one machine: facts anyone may read.
type Arch struct {
	Name    string           // as Go spells it: "amd64", "386"
	Order   binary.ByteOrder // of memory
	PtrSize int              // bytes
	MinInsn int              // shortest instruction, bytes
	MaxInsn int              // longest instruction, bytes

	// Break is the trap instruction. BreakPC is how many bytes past its first
	// byte the PC stands when the trap is reported (x86: 1, arm64: 0).
	// BreakTrap is the number of that trap: x86's vector, the class of the exception on arm64.
	Break     []byte
	BreakPC   int
	BreakTrap int

	// RegNames are the general registers in GDB's order for this machine.
	RegNames []string

	PC, SP, FP, Flags Reg
	Ret, Ret2         Reg   // integer results, first and second
	Args              []Reg // integer arguments of the C ABI, in order
	GoArgs            []Reg // integer arguments of Go's ABIInternal (abi-internal.md), in order; nil where that is not known
	ThreadPtr         Reg   // what thread-local storage is addressed by, or NoReg
	SyscallNo         Reg   // the number of the system call the thread is in, or NoReg

	// RetAddrOnStack tells that a call pushes its return address (x86); else
	// it is in LR.
	RetAddrOnStack bool
	LR             Reg

	// SaveArea is what a caller leaves at the stack pointer for the function to save
	// registers in, in bytes; arguments on the stack are behind it.
	SaveArea int

	// Stacks tells that stacks are walked: the rules for them are known of its registers.
	Stacks bool

	Debug Debug // what debug data says of it

	// UserEnd is where the memory of a Linux program ends.
	UserEnd Addr

	// Shadow is what a program that was made with AddressSanitizer claims when it begins, near where code may
	// lie. It ends if anything is there.
	Shadow Range

	// RedZone is the space below SP that a leaf function may use, in bytes.
	RedZone int

	// names maps every accepted spelling to a register.
	names map[string]Reg

	// halves are the names of registers' lower 32 bits, where the machine has such.
	halves map[string]Reg
}

// Debug has the words of debug data for a machine. Those that are not known are not read.
type Debug struct {
	Regs []string // general registers by DWARF's numbers, as definitions name them

	// FirstVector is the first of so many vector registers that programs read, by DWARF's number.
	FirstVector, Vectors uint64

	LongDouble FloatFormat // C's long double

	// SP is the stack pointer, and Kept are the registers that C's functions leave as they were, by DWARF's numbers; none where
	// what callers have is not looked for.
	SP   uint64
	Kept []uint64

	Eightbytes    bool // C's arguments are placed by the classes of their words, as the psABI of x86-64 says
	ThreadStorage bool // thread-local storage is found from ThreadPtr
}

// FloatFormat is a format of floating-point numbers of more than 8 bytes.
type FloatFormat uint8

const (
	NoFormat FloatFormat = iota // none that is read
	X87                         // 10 bytes, and padding
	Quad                        // IEEE 754's binary128
)

// Vector tells whether a number of DWARF's is that of a vector register that is read.
func (d *Debug) Vector(n uint64) bool { return d.FirstVector <= n && n < d.FirstVector+d.Vectors }

// All are the machines that anything is known of.
func All() []*Arch {
	return []*Arch{AMD64, I386, ARM64, RISCV64, S390X, PPC64LE, MIPS64LE, MIPSLE, PPC}
}

// RegByName finds a register by the names of kprobe_events definitions (x86:
// "di", "ax", "ip", "r8") as well as by GDB's ("rdi", "rax", "rip").
func (a *Arch) RegByName(name string) (Reg, bool) {
	r, ok := a.names[name]
	return r, ok
}

// Named finds a register by any name that it has: as RegByName, with or without the percent sign
// of definitions, and by assembly's of its lower half ("edi", "r8d"), of which the mask tells.
func (a *Arch) Named(name string) (r Reg, mask uint64, ok bool) {
	name = strings.TrimPrefix(name, "%")
	if r, ok = a.halves[name]; ok {
		return r, math.MaxUint32, true
	}
	r, ok = a.RegByName(name)
	return r, math.MaxUint64, ok
}

// Link is the return address of a call that has just begun, where the machine has it in a register; else 0.
func (a *Arch) Link(r *Regs) Addr {
	if a.RetAddrOnStack {
		return 0
	}
	return Addr(r[a.LR])
}

// StackArg is how far argument n, counted from those that are on the stack, is from
// where the stack pointer stands at a function's entry, in bytes.
func (a *Arch) StackArg(n int) int {
	if a.RetAddrOnStack {
		n++
	}
	return a.SaveArea + n*a.PtrSize
}

// RegName is the register's name in kprobe_events definitions, without the
// leading percent sign.
func (a *Arch) RegName(r Reg) string {
	if int(r) < len(a.RegNames) {
		return a.RegNames[r]
	}
	return "?"
}

// InSyscall tells whether a thread is stopped within a system call, which the kernel may
// have to make again when the thread goes on: its number is in SyscallNo, which is
// negative otherwise, as a word of the machine.
func (a *Arch) InSyscall(r *Regs) bool {
	return a.SyscallNo != NoReg && r[a.SyscallNo]>>(8*a.PtrSize-1) == 0
}

// ThreadPointer is what thread-local storage is addressed by, 0 where that is in no
// register that Regs hold.
func (a *Arch) ThreadPointer(r *Regs) uint64 {
	if a.ThreadPtr == NoReg {
		return 0
	}
	return r[a.ThreadPtr]
}

// Word reads a word of a pointer's size, as memory has it.
func (a *Arch) Word(b []byte) uint64 {
	if a.PtrSize == 4 {
		return uint64(a.Order.Uint32(b))
	}
	return a.Order.Uint64(b)
}

// PutWord writes one.
func (a *Arch) PutWord(b []byte, v uint64) {
	if a.PtrSize == 4 {
		a.Order.PutUint32(b, uint32(v))
		return
	}
	a.Order.PutUint64(b, v)
}
