package bpf

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/cilium/ebpf/btf"

	"kprobe/bpf/object"
)

// Kind says when a program runs and what it may do.
type Kind uint8

const (
	Kprobe    Kind = iota // before the instruction at the place (also uprobe)
	Kretprobe             // when the function at the place returns (also uretprobe)

	// Controller: by the interpreter, in the controller, whenever that likes. It may call
	// FnMapNext. It is not proved that its loops end: VM.MaxSteps bounds them.
	Controller
)

func (k Kind) String() string {
	switch k {
	case Kretprobe:
		return "kretprobe"
	case Controller:
		return "controller"
	}
	return "kprobe"
}

// Program is a handler: Load finds it in an object, or FromAsm makes it. It is called with R1 at a
// struct pt_regs of the target's machine (see Context), which it may read and not write, and
// answers in R0: the kernel's meaning, 0, is the only one. Override_return gives the probed
// function's caller a value.
type Program struct {
	Name    string // the function's, "count_malloc"
	Section string // "uprobe/libc.so.6:malloc"
	Kind    Kind

	// Attach is the text behind the section's slash, a place of spec's grammar (PATH:SYMBOL+OFFS or
	// SYMBOL+OFFS). "" where the section names none. Glob and USDT are Section's.
	Attach     string
	Glob, USDT bool

	// Entry is the program for the entry of the function at whose return this one runs: both are
	// one program of a .session section. If the entry's program answers other than 0, the call is
	// left alone.
	Entry string

	Called bool // a tail call leads to it, or another program's Entry, so that it needs no place
	Writes bool // it may write to its process's memory (probe_write_user)

	// Results tells that it looks at what the function returns otherwise than in the register of its
	// context, which shows by itself: in another register, or in memory.
	Results bool

	Insns []Insn // the program's function first, then the functions that it calls
	Lines []Line // where the source is known; ascending
	Made  int    // slots from here on are functions that were put in when it was loaded; 0: none

	// Maps of the collection; instructions name them by index.
	Maps []*MapSpec

	Context Context // the zero value is AMD64's

	origin origin // the program before it was lowered
	frames bool   // see FollowsFrames
	known  *object.Types
}

// Line says where an instruction comes from.
type Line struct {
	Insn int    // the first slot of the line
	Text string // `hist.bpf.c:27: bump(key);`
}

// Collection holds the programs, maps and variables of one object.
type Collection struct {
	Programs []*Program
	Maps     []*MapSpec
	Vars     []Var // by name

	Refused []error   // why programs of the object are not among these
	Types   *btf.Spec // the object's types, nil for none

	debug io.ReaderAt // where types are that these lack, nil for nowhere
}

// Program finds a program by its name, nil where there is none.
func (c *Collection) Program(name string) *Program {
	for _, p := range c.Programs {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// Map finds a map's definition by its name, nil where there is none.
func (c *Collection) Map(name string) *MapSpec {
	for _, m := range c.Maps {
		if m.Name == name {
			return m
		}
	}
	return nil
}

// Type finds a structure or another type of the object by its name ("event", "struct event").
// Errors: it has none of that name, or its debug information is damaged.
func (c *Collection) Type(name string) (btf.Type, error) {
	bare := strings.TrimPrefix(strings.TrimPrefix(name, "struct "), "union ")
	if c.Types != nil {
		if t, err := c.Types.AnyTypeByName(bare); err == nil {
			return t, nil
		}
	}
	if c.debug != nil {
		t, err := object.Named(c.debug, bare)
		if t != nil || err != nil {
			return t, err
		}
	}
	return nil, fmt.Errorf("bpf: the object has no type %q (compile it with -g; one that nothing in it uses is not in it)", name)
}

// Record is the structure that a record of a size must be: the only one of that size which
// variables of the programs have, or point to; else the only one that the object tells of at all.
// nil where there is none, or more than one. Errors: the object's debug information is damaged.
func (c *Collection) Record(size int) (btf.Type, error) {
	if c.debug != nil {
		locals, err := object.Locals(c.debug, int64(size))
		if err != nil {
			return nil, err
		}
		if len(locals) > 0 {
			return only(locals), nil
		}
	}
	if c.Types == nil {
		return nil, nil
	}
	var all []btf.Type
	maps := map[btf.Type]bool{} // their definitions are structures, too
	for t, err := range c.Types.All() {
		if err != nil {
			return nil, err
		}
		switch t := t.(type) {
		case *btf.Struct:
			if int(t.Size) == size {
				all = append(all, t)
			}
		case *btf.Datasec:
			for _, v := range t.Vars {
				if v, ok := v.Type.(*btf.Var); ok && t.Name == ".maps" {
					maps[btf.UnderlyingType(v.Type)] = true
				}
			}
		}
	}
	return only(slices.DeleteFunc(all, func(t btf.Type) bool { return maps[t] })), nil
}

func only(types []btf.Type) btf.Type {
	if len(types) != 1 {
		return nil
	}
	return types[0]
}

// Context describes the struct pt_regs that a program gets: words of one size in
// the order of the kernel's uapi/asm/ptrace.h.
type Context struct {
	Regs []string // names in order; nil is AMD64's
	Word int      // bytes of each; 0 is 8
	PC   int      // which is the instruction pointer
	SP   int
	FP   int // the frame pointer, for stack traces
	Link int // the register that calls leave their return address in; 0 where that is on the stack

	Result int // the register that functions leave an integer result in
}

// AMD64 is x86-64's struct pt_regs: 21 words, 168 bytes.
var AMD64 = Context{
	Regs: []string{"r15", "r14", "r13", "r12", "rbp", "rbx", "r11", "r10", "r9", "r8",
		"rax", "rcx", "rdx", "rsi", "rdi", "orig_rax", "rip", "cs", "eflags", "rsp", "ss"},
	Word: 8, PC: 16, SP: 19, FP: 4, Result: 10,
}

// I386 is i386's: 17 words, 68 bytes.
var I386 = Context{
	Regs: []string{"ebx", "ecx", "edx", "esi", "edi", "ebp", "eax", "xds", "xes", "xfs", "xgs",
		"orig_eax", "eip", "xcs", "eflags", "esp", "xss"},
	Word: 4, PC: 12, SP: 15, FP: 5, Result: 6,
}

// ARM64 is arm64's struct user_pt_regs: 34 words, 272 bytes.
var ARM64 = Context{
	Regs: []string{"x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15",
		"x16", "x17", "x18", "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28", "x29", "x30", "sp", "pc", "pstate"},
	Word: 8, PC: 32, SP: 31, FP: 29, Link: 30, Result: 0,
}

// RISCV64 is riscv64's struct user_regs_struct, with which its struct pt_regs begins: 32 words, 256
// bytes.
var RISCV64 = Context{
	Regs: []string{"pc", "ra", "sp", "gp", "tp", "t0", "t1", "t2", "s0", "s1", "a0", "a1", "a2", "a3", "a4", "a5", "a6", "a7",
		"s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "t3", "t4", "t5", "t6"},
	Word: 8, PC: 0, SP: 2, FP: 8, Link: 1, Result: 10,
}

// PtRegs is the program's Context, the default put in.
func (p *Program) PtRegs() *Context {
	if p.Context.Regs == nil {
		return &AMD64
	}
	return &p.Context
}

// Size is the context's bytes.
func (c *Context) Size() int { return len(c.Regs) * c.Word }

// Limits of a program, the kernel's where it has one.
const (
	MaxInsns   = 65536 // slots of a program
	MaxStack   = 512   // bytes of stack, over all functions of a chain of calls
	MaxCalls   = 8     // functions in a chain of calls, the first included
	StackAlign = 16    // a function's stack use is rounded up to this
)

// Mem is a set of kinds of memory.
type Mem uint8

const (
	MemCtx    Mem = 1 << iota // struct pt_regs
	MemStack                  // the program's stack
	MemMap                    // a map's value
	MemRecord                 // a reserved ring record
	MemData                   // the call's private data
)

// Proof holds the facts that package verify found out about a program. The compiler builds on them:
// no load or store of a proved program can leave the memory it names, it ends, and every call gets
// arguments that its helper can take.
type Proof struct {
	Program *Program

	// Access has for every load, store and atomic instruction, by slot, the kinds
	// of memory it may touch; 0 for all others.
	Access []Mem

	// Value has for every such instruction the map whose values it may touch: its
	// index in Program.Maps and one more; 0 where it is none, or not one alone.
	Value []int

	// Reached tells, by slot, whether an execution may come there. A slot that is not reached need
	// not be compiled, and is not otherwise proved.
	Reached []bool

	// Calls has every helper call, by slot; nil elsewhere.
	Calls []*HelperCall

	// Funcs are the program's functions in order of Start: the first is the entry.
	Funcs []Func

	// Context has bit i set where word i of the context may be read, by the program or a helper.
	// Other words need not be saved for it.
	Context uint64

	// CallData is the number of bytes of the call's private data that the program asks for.
	CallData int

	// Stack is the bytes that the deepest chain of calls takes, the roundings included.
	Stack int
}

// Func is a function within a program: slots Start to End, which is not its own.
type Func struct {
	Start, End int
	Stack      int // bytes below R10 that it touches, rounded up to StackAlign
}

// HelperCall holds the facts about a call that are the same on every path that leads to it; others
// are marked as unknown.
type HelperCall struct {
	Helper *Helper
	Map    int // index in Program.Maps of the map argument; -1: none, or not one alone

	// Const has the value of argument i (0 is R1) where Known[i]: it is a number,
	// and on every path the same. Of ArgAddr and ArgMaybe it is never known.
	Const [5]uint64
	Known [5]bool

	// Bounded tells that the address which a helper reads at (argument 2) may be in the context, or
	// beside it. A read that does not lie in the context whole answers -EFAULT.
	Bounded bool

	// Set counts the arguments that hold something. Fewer than the helper takes
	// are set only for the values of trace_printk: the rest count as 0.
	Set int
}

// FuncAt is the function that holds the slot.
func (p *Proof) FuncAt(slot int) *Func {
	for i := range p.Funcs {
		if f := &p.Funcs[i]; slot >= f.Start && slot < f.End {
			return f
		}
	}
	return nil
}
