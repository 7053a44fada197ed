// Package symbol turns names into addresses and addresses into names, for
// everything that is mapped in a process: what kallsyms is to the kernel's
// kprobes, built from ELF files and the text of /proc/PID/maps.
//
//	maps.go       the text of /proc/PID/maps -> []Mapping
//	space.go      []Mapping -> the Modules mapped now, each with its File and bias
//	resolve.go    MODULE:SYMBOL+OFFSET -> Loc, or an error that says what to write instead
//	file.go       one ELF file: segments, sections, what is read of it and when
//	table.go      every source of symbols merged into one table, sorted by address
//	lookup.go     name -> symbols: versions, compiler suffixes; demangle.go, glob.go, nearest.go
//	dynamic.go    the dynamic section as the loader reads it: symbols, versions
//	reloc.go      relocations: GOT slots of imports, IFUNC resolvers; plt.go: stubs
//	ehframe.go    function bounds and unwind facts where symbols were stripped
//	jit.go        code that a process compiles while it runs, by the files for perf
//	framerules.go where a function's caller is at each of its instructions
//	pclntab.go    functions of Go programs stripped of their symbols
//	debugfile.go  separate debug files and MiniDebugInfo
//
// A File reads nothing before it is asked: opening libc costs its headers,
// finding a name costs its symbol tables, and DWARF is never touched. Each
// source is read once, whatever the number of goroutines that ask.
//
// Files are not trusted. They belong to the target, and a target may be what
// is being investigated: sizes are checked against what the file really holds
// before anything is allocated, and a source that makes no sense is a source
// without symbols, never a panic.
//
// An address in a file (vaddr) is a uint64, and one in a process an arch.Addr:
// Module.InProcess and Module.InFile lead from one to the other. The package
// imports the standard library, a demangler, an xz reader and arch.
package symbol
