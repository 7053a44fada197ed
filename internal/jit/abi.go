// Package jit compiles verified eBPF programs to machine code that runs inside
// the target. The interpreter of package bpf defines what is right; compiled
// code always agrees with it.
//
// Read abi.go, jit.go (what goes in and comes out), machine.go (in what machines differ), live.go
// (what a program needs not do), compilation.go (what all machines have in common), amd64.go with
// amd64_alu.go and amd64_call.go (instructions and helpers), and amd64_asm.go (how they are put
// together; internal/asm has their bytes). i386.go and i386_alu.go make 32-bit code by the same encoder. registers.go and
// registers_call.go are for machines with registers enough: arm64.go, arm64_alu.go and arm64_asm.go
// have A64's part of that, and riscv64.go, riscv64_alu.go and riscv64_asm.go RISC-V's.
//
// This file is the contract between a compiled program and its surroundings
// in the target (internal/inject): the detour that calls it, and the routines
// that it calls. The following is x86-64's; the part of i386 is at its end. Files
// that know the machine have its name in front.
package jit

import (
	"kprobe/arch"
)

// A compiled program is a function. The detour calls it with
//
//	rdi  the context: the target's address of the pt_regs frame it has saved
//	r12  the thread's state, laid out below
//	rsp  the thread's private stack, with Code.Stack and HelperStack bytes
//	     below the return address, whose own address is a multiple of 16: it is
//	     the program's R10
//	DF   clear
//
// and finds the program's result, R0, in rax. The program keeps r12 and rsp, and
// never touches the vector registers, the x87 stack or the segment registers. Of
// the general registers and flags it keeps nothing else: the detour saves those
// in Code.Clobbers, which says what the program, and all that it calls, may change.
//
// eBPF's registers live where the C ABI has them, so that a helper's arguments are
// where a routine written in C or assembly expects them:
//
//	R0 rax    R1 rdi   R2 rsi   R3 rdx   R4 rcx   R5 r8
//	R6 rbx    R7 r13   R8 r14   R9 r15   R10 rbp
//	scratch: r9 r10 r11
//
// A helper is called by a near call (rel32, so that it must be within 2 GiB of
// the program) with its arguments in R1 to R5. A map argument is the target's
// address of the map (Env.Map), a pointer argument is any address of the target.
// The result is in rax. It may change R0 to R5, the scratch registers and the
// status flags, keeps everything else, and may use HelperStack bytes of stack.

// # i386
//
// eBPF's registers have 64 bits, the machine's 32: too few even for five of them. So they are
// in the thread's state, at StateRegs: R0 to R10, 8 bytes each. The detour calls a program with
//
//	eax  the context's address
//	ebp  the thread's state
//	esp  12 more than a multiple of 16: the return address's address. R10 is that multiple
//	DF   clear
//
// and finds the result in edx:eax. The context is x86-64's, as a 64-bit kernel has it for a 32-bit
// program too: an object that was compiled for that runs here unchanged. The program keeps ebp and
// esp. A helper has its arguments in R1 to R5 and puts its answer into R0; it may change R0 to R5,
// all general registers but ebp and esp, and the status flags. Here nothing is out of a call's
// reach, as it may be on x86-64: addresses wrap around.

// # arm64
//
// eBPF's registers live in the machine's:
//
//	R0 x7     R1 x0    R2 x1    R3 x2    R4 x3    R5 x4
//	R6 x19    R7 x20   R8 x21   R9 x22   R10 x25
//	scratch: x9 x10 x11 x12
//
// The detour calls a program with
//
//	x0   the context's address
//	x28  the thread's state
//	sp   the thread's private stack: a multiple of 16, and R10
//
// and finds the result in x7. The program keeps x28 and sp, and never touches x18 or a vector
// register. A helper is called by bl (within 128 MiB of the program) with its arguments in R1 to
// R5, and puts its answer into x7. It may change x0 to x17, x30 and the flags.

// # riscv64
//
// As on arm64, with other registers: those of Linux's own compiler.
//
//	R0 a5     R1 a0    R2 a1    R3 a2    R4 a3    R5 a4
//	R6 s1     R7 s2    R8 s3    R9 s4    R10 s5
//	scratch: t0 to t4
//
// The detour calls a program with the context's address in a0, the thread's state in s11 and the
// private stack in sp, and finds the result in a5. The program keeps s11 and sp, and never touches
// gp, tp or a register of floating point. A helper is called by auipc and jalr (within 2 GiB of the
// program) with its arguments in R1 to R5, and puts its answer into a5. It may change ra, t0 to t6
// and a0 to a7.

// HelperClobbers are the registers that a helper's routine may change.
const HelperClobbers arch.RegSet = 1<<arch.AX | 1<<arch.DI | 1<<arch.SI | 1<<arch.DX | 1<<arch.CX |
	1<<arch.R8 | 1<<arch.R9 | 1<<arch.R10 | 1<<arch.R11

// HelperStack is the number of bytes of the private stack that a helper's routine may use, its
// return address included.
const HelperStack = 512

// The words of the thread's state that programs read themselves: offsets from the thread's state,
// in bytes. The words from StateFree on belong to internal/inject.
const (
	// StatePidTgid is the answer of get_current_pid_tgid: the process's id in the upper half, the
	// thread's in the lower. 8 bytes.
	StatePidTgid = 0

	// StateSlot is the thread's slot: which of the copies of a per-thread map's
	// values is its own. 4 bytes, then 4 of zero.
	StateSlot = 8

	// StateFuncIP and StateCookie are what get_func_ip and get_attach_cookie
	// answer, 8 bytes each. The detour writes them before the call if
	// Code.Needs has the bit, else not at all.
	StateFuncIP = 16
	StateCookie = 24

	// StateData is the answer of call_data, 8 bytes. It is written if Code.Needs has the bit.
	StateData = 32

	// StateTask is the answer of get_current_task, 8 bytes: of a kernel's CPU the task that it
	// runs; else 0.
	StateTask = StateRegs - 8

	// StateComm is the thread's name: 15 bytes at most, and NULs. 16 bytes, behind the words that
	// every hit uses.
	StateComm = StateFree + 80

	// StateContext is the program's own: where its context is, 8 bytes. Which programs keep
	// that is theirs to know.
	StateContext = 504

	// StateRounds is the program's own, too: how often its MayGoto do not jump yet, 4 bytes.
	StateRounds = 496

	// StateRegs has eBPF's registers on i386, and behind them 8 bytes for the program's own use.
	StateRegs     = 256
	StateRegsSize = 11*8 + 8

	// StateFree is the first byte that programs do not know.
	StateFree = 40
)

// Needs are the things that the detour prepares for a program beyond the registers.
type Needs uint32

const (
	NeedsFuncIP Needs = 1 << iota // StateFuncIP is read
	NeedsCookie                   // StateCookie is read
	NeedsData                     // StateData is read
)

// Context words, for Code.Context: the bits of the pt_regs words (8 bytes each, in the order of the
// kernel's struct: of arm64 and riscv64 as bpf.ARM64 and bpf.RISCV64 have them; of x86 r15 r14 r13
// r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags rsp ss). A word that is not
// in Code.Context is never read: its place may hold anything.
const (
	ContextWords = 21
	ContextAll   = 1<<ContextWords - 1
)
