// Package kernel reads a Linux kernel's knowledge of itself out of its memory, without its help:
// its symbols with KASLR, its modules, its types, where it must not be probed, and where it patches
// its own text. The memory is guest RAM, a debugger's view of it, or a kernel in a file.
//
//	find.go       RAM or a file -> the kallsyms tables in it, and where the image lies
//	kallsyms.go   the tables -> symbols: both orders, all encodings of addresses
//	text.go       /proc/kallsyms or System.map -> symbols
//	image.go      vmlinux, bzImage, Image -> symbols and memory; unpack.go: what is packed
//	file.go       any of these files -> the running kernel's symbols, proved by its memory
//	table.go      names to addresses and back
//	paged.go      physical RAM -> virtual memory, by the kernel's own page tables
//	kernel.go     a table and memory -> a Kernel: names with modules, sections of the text
//	module.go     modules, their symbols; which came and went
//	types.go      BTF: the layout of structs, which module.go and patched.go stand on
//	args.go       definitions with parameters and members by name -> without
//	blacklist.go  where the kernel refuses probes
//	patched.go    whose bytes are these: ftrace, jump labels, static calls, ...; exception tables
//
// For a guest whose RAM is a file:
//
//	run, err := kernel.FindRunning(ram, size, arch.AMD64, cpu) // cpu reads as a CPU does
//	mem, err := kernel.NewPaged(run, ram)
//	k, err := kernel.Open(run.Table, mem, arch.AMD64)
//
// Behind a stub alone, mem is the target itself, and FindRunning searches a Piece of it.
//
// # Nothing is believed
//
// Memory of a guest may hold anything, and it changes while it is read. Tables
// are taken for what they seem only if their parts prove each other; sizes are
// checked before anything is allocated; lists are followed only as far as each
// entry points back. Memory that cannot be read is an error, never an empty answer: a
// blacklist that is too short would kill the guest.
//
// # Limits
//
// Kernels without CONFIG_KALLSYMS_ALL name functions only: of these, modules and
// the tables of patched text cannot be found, and a caller gets an error. So it is with
// everything that needs BTF where there is none. Of 32-bit kernels only symbols are read.
package kernel
