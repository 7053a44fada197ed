// Package bind turns the names of a program's source into what a probe can do: places
// into addresses of the process, and variables, with their members, into loads from
// registers and memory, which handlers and programs inside the target do alike.
//
//	data.go    the debug data of a mapped file
//	place.go   places to addresses
//	value.go   a variable or a member of it, as a load
//	lower.go   what debug data says of a location, as a load
//	args.go    the arguments of a definition
//	ctype.go   how a value of a C type is printed
//	library.go strings, slices and vectors of languages' libraries
//	whole.go   structs, containers and what else has parts, as several arguments
//	dynamic.go what type the value in a Go interface has
//	calls.go   the arguments and results of calls
//	entered.go what a function was entered with, by what its callers tell
//	callcode.go what the code of calls tells of them
//	used.go    whether a result is used
//	result.go  what a function returns, and its parameters at its return
package bind
