package inject

import "kprobe/arch"

// Readers are functions of a kernel that read memory which may not be there, without any
// harm: called as f(destination, source, size) by the rules of C, they answer less than 0 where
// they could not. Those for text answer its length, with the zero that ends it.
//
// A fault of ours would be the kernel's own, with no table to mend it by; theirs are in its table.
//
// Stack, 0 where there is none, walks a stack: called as f(registers, addresses, most, skipped) with a struct pt_regs, it
// answers how many there are. It knows the kernel's table of callers, and what the kernel has put in the place of return
// addresses itself.
type Readers struct{ Kernel, KernelText, User, UserText, Stack arch.Addr }

// ReaderStack is the most that they may take of the private stack, in bytes, with the kernel's own way through
// a fault: it is served on the stack that it finds.
const ReaderStack = 8 << 10
