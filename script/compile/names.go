package compile

import (
	"kprobe/script/macro"
	"kprobe/script/syntax"
	"kprobe/script/types"
)

// Value is a name that is a value, with or without parentheses behind it. Its type decides how it
// is shown: package output shows each kind of types in one way.
type Value struct {
	Type   *types.Type                                         // of what is there everywhere
	Check  func(*Checker, *syntax.Ident) *types.Type           // of what is not: refuses it, or has its type
	Number func(*Generator, *syntax.Ident)                     // leaves its word in R0
	Memory func(*Generator, *syntax.Ident, Place, *types.Type) // writes what is more than a word
	Known  func(*Checker) uint64                               // is its value before the script runs; nil for what is not known then
	Text   func(*Checker) (string, bool)                       // is its text before the script runs; nil for what is no text

	AtProbe bool // it means nothing in a function of the script's: where it is called from is another thing each time
	Alone   bool // it takes no parentheses
}

// Function is all there is to a function of the language. Its value is shown as its type says.
type Function struct {
	Least, Most int                                                // arguments
	Check       func(*Checker, *syntax.Call) *types.Type           // refuses what is wrong, and has its type
	Number      func(*Generator, *syntax.Call)                     // leaves its word in R0
	Memory      func(*Generator, *syntax.Call, Place, *types.Type) // writes what is more than a word
	Act         func(*Generator, *syntax.Call)                     // does what a statement asks for; without the others it is no value
	Known       func(*Checker, *syntax.Call) (uint64, bool)        // is its value before the script runs; nil for what is not known then
	Text        func(*Checker, *syntax.Call) (string, bool)        // is its text before the script runs; nil for what is no text
	Gathers     bool                                               // it stands for nothing but what a map gathers
}

// Library has the names that scripts may use: all values but those of arguments, arg0 and the like, and all functions.
type Library struct {
	Values    map[string]*Value
	Functions map[string]*Function
}

// has tells whether a name is one of the library's.
func (l *Library) has(name string) bool { return l.Values[name] != nil || l.Functions[name] != nil }

// gathers tells of a function that stands for what a map gathers.
func (l *Library) gathers(name string) bool {
	f := l.Functions[name]
	return f != nil && f.Gathers
}

// constant tells of a function that is nothing but a constant.
func (l *Library) constant(name string) bool {
	f := l.Functions[name]
	return f != nil && f.Known != nil && f.Memory == nil
}

// named takes the parentheses from a call of a value, pid() for pid; nil where there is none to take them from.
func (l *Library) named(x syntax.Expr) syntax.Expr {
	return macro.Value(x, func(name string) bool {
		v := l.Values[name]
		return v != nil && !v.Alone && l.Functions[name] == nil
	})
}

// takes tells whether a function of the library takes so many arguments.
func (l *Library) takes(name string, n int) bool {
	f := l.Functions[macro.Plain(name)]
	return f != nil && f.Least <= n && n <= f.Most
}
