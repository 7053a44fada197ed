// Package inject makes the code that lives in a target: detours, and the routines that programs call.
// It is code generation: bytes and addresses. Others write them into a target, and
// nothing here touches one. What the code has in common with the controller is package segment's.
//
// # The area
//
// Code must be near what it works for. Each module with probes has an Area within 2
// GiB: the segment's address, and a copy of the routines. Detours and compiled programs
// are placed anywhere else in reach of both.
//
// # The detour
//
// The jump at a probe's address leads here. The phases are those of Where:
//
//	           jmp from the probe
//	Before     step over the red zone; push rax, rcx, rdx; flags by lahf, seto
//	           find the thread's state
//	           controller dead, or a program runs already: count, skip to (*)
//	           busy = 1; save what the programs change and read
//	Running    count; switch to the private stack; call the programs
//	After      switch back; restore; busy = 0
//	      (*)  flags, rdx, rcx, rax, the stack pointer
//	Displaced  the instructions that the jump has replaced; jump back behind it
//
// Only rax, rcx, rdx and the flags go to the program's own stack, since a goroutine's may
// have no room for more. Where there is no room for these either, an instruction of phase Before faults: NoRoom
// says how the thread passes the detour by. In front of a routine that takes more of that stack than the detour has so far,
// the lowest byte of that is read, so that no later instruction can fault. A detour that only counts has no busy, no private stack and no
// programs, saves less where registers are known to be dead, and is 100 bytes long.
//
// With a return probe (Return), the word on top of the stack is looked at first: it may be no return address, where the function
// was jumped to (the routine called, and Segment.SetFiles). Then the call is missed. Else an instance is made before the
// programs: the stack slot with the return address, and the address. The function is then called by the detour itself, into that
// very slot, so that the processor predicts its return right; and returns into
//
//	Returning  the same beginning; find the instance by the slot; put the real address back
//	Running    the programs of the return
//	Returned   restore; ret
//
// Where return addresses must not change, the call is only noted (Enter), and
// detours at the function's exits (Exit) recognise it by its place on the stack: in Go by the distance
// from the end of the goroutine's stack, which moves. Such calls are in a pool and on lists (internal/segment/pool.go), the
// goroutine's or the thread's. A function that pops its arguments (ret n) is one of
// those, since its slot cannot be told from the stack pointer that is left.
//
// Instances are a stack, each thread's own, of calls on the thread's own stack; most returns find theirs on top. Those
// above it were left by longjmp, and are dropped at a later call. Calls on other stacks, coroutines', and those that
// the stack of instances has no room for, are away: in a table of all threads (internal/segment/away.go). Calls that end in jumps to
// each other have one slot: what an instance has put there (callBack) tells that from a slot used again.
//
// # i386
//
// The same generator writes 32-bit code; a thread's key is at gs:0, and the registers above are
// eax, ecx, edx and, for programs, ebp. The memory is laid out as for x86-64: addresses are the
// lower halves of its words. See x86/machine.go.
//
// # arm64
//
// A detour that only counts does so of all threads in one state (Together), by a load and a store exclusive. One
// with programs saves x0 to x2 and the link register on the program's own stack, and reads the thread
// pointer from its register, TPIDR_EL0; the flags are saved where the programs run, since nothing before that touches
// them. The context is the kernel's struct user_pt_regs. A program's detour goes on by an address that it keeps beside
// the program's stack pointer, so that the controller can have it come to TrapExit instead. A
// call's return address is in a register, so it is never swapped: there is no Return, and calls are watched by Enters and
// Exits, which know them by the stack pointer. No program overrides a function.
// See the folder arm64. What is of x86-64 and i386 alone is in the folder x86.
//
// # Kernels
//
// With the key CPU the threads are CPUs: they have numbers, so the head has a table of states instead
// of one to be searched. What runs on a CPU may be
// interrupted at any instruction, by whatever hits other probes, and go on later, on another CPU
// perhaps. So a detour that only counts locks its one instruction: then the sum is right, whoever's
// the counter is. One with programs masks interrupts instead, from before it asks which CPU
// it is on until the state is of no use any more; what comes nevertheless (NMI)
// finds the CPU busy, and is counted as missed. A number that was not told of counts in the sink.
// Memory is read by the kernel's own functions for that (Readers): a fault of theirs is in its table.
// Return addresses stay as they are. Calls are noted by Enter and recognised by Exit, in one
// table for all tasks (internal/segment/slots.go).
//
// # Signals, faults, death
//
// A thread that is stopped for a signal while it is in a detour must not show that to the
// program. Where tells, for every instruction of it, what the program's registers are, and
// where to go on. A thread in a routine that detours call (Area.Contains) is stepped
// on; one in a program or a helper (Area.InHelper) too, or made to come back
// by the address in ReturnTo: the trap at Area.TrapExit then stops it.
//
// A routine that reads the target's memory may fault: Area.Fixup says where it goes on.
//
// When the controller dies, the kernel marks the robust futex in the segment's head before
// it lets the target go. From then on detours run no programs and watch no calls; they
// count, and do the displaced instructions. Calls that were watched return as they would. A program
// that ran at that moment ends on the private stack, where a signal handler of the program may
// run on top of it: that has 16 KiB.
package inject
