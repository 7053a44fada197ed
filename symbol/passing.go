package symbol

import "strings"

// Passing tells where a function has its arguments.
type Passing uint8

const (
	ByC         Passing = iota
	ByGo                // in the registers of Go's ABIInternal
	OnGoStack           // on the stack, by Go's ABI0
	UnknownOfGo         // either of these
	ByOCaml             // in the registers of OCaml's compiler
	ByHaskell           // in those of GHC's, which calls nothing
)

// Refusal says why arguments cannot be asked for by their numbers; "" where they are in registers that are known.
func (p Passing) Refusal() string {
	return [...]string{
		OnGoStack:   "the function has its arguments on the stack",
		UnknownOfGo: "nothing tells whether the function has its arguments in registers or on the stack: it is written in assembler, or of before Go 1.18",
		ByOCaml:     "the function is OCaml's, and has its arguments in other registers than C's do",
		ByHaskell:   "the function is Haskell's, and has its arguments in other registers than C's do",
	}[p]
}

// Passing tells how a function of the file is given its arguments. Go's own are told by the compiler's suffix to those of ABI0; a
// file without symbols does not have it.
func (f *File) Passing(fn Symbol) Passing {
	switch {
	case f.ocaml(fn):
		return ByOCaml
	case f.Haskell(fn):
		return ByHaskell
	case !f.GoCode(fn.Addr):
		return ByC
	case strings.HasSuffix(fn.Name, ".abi0"):
		return OnGoStack
	case f.goTable() == nil: // of before Go 1.18
		return UnknownOfGo
	case fn.Source == Pclntab && f.inAssembler(fn.Addr):
		return UnknownOfGo
	}
	return ByGo
}
