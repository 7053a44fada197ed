// Package source answers questions about a program's source from what its compiler
// left in an ELF file (DWARF 2 to 5): where the code of a line or of a function is,
// inlined copies included, which variables are in scope at an address, of which type,
// and where their values are there.
//
//	open.go      a file's debug data, in itself or in its separate debug file
//	sections.go  what its sections hold; large ones stay in their file
//	scan.go      one quick pass over all entries
//	index.go     what that keeps: functions, variables and types by name
//	forms.go     how entries are encoded, as far as the pass needs it
//	split.go     data that is split off, joined to the file's own
//	typeunits.go types in units of their own, joined to the others
//	place.go     functions and lines to addresses
//	rows.go      the line tables
//	files.go     the source files that they name
//	recent.go    what was read last of a few units
//	scope.go     the functions and blocks around an address
//	variable.go  variables in scope
//	location.go  where a variable is at an address
//	operand.go   the computations of that
//	branch.go    their conditions
//	entered.go   what calls tell of the parameters that they pass
//	frame.go     the frame's address (CFA), and the caller's registers
//	types.go     names, sizes and members of types
//	gotypes.go   Go's types by where the program has them
//	classes.go   references, base classes and templates' parameters
//
// All addresses are the file's; whoever maps the file adds where it was loaded. It
// knows nothing of probes: package source/bind turns what it says into loads.
//
// A File reads on first use and is safe for concurrent use. The data is not trusted:
// what makes no sense is an error, or is not there.
package source
