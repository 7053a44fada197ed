// Package event is a probe's hit as data: what a definition's arguments read
// at a hit, and the hit as the kernel's trace line or as a JSON object.
//
//	[]spec.Arg --Compile--> *Capture --AppendTo--> []Value --> Event --> text, JSON
//
// A definition is compiled once (fetch.go), so that a hit walks a flat list of
// loads (capture.go) and looks up no name. A Value carries how it is printed;
// an Event needs neither its probe nor its target any more.
//
// It imports arch and spec and nothing else of the project: where registers,
// memory and names come from is the caller's business (Context, Resolver).
package event

import (
	"math"
	"time"

	"kprobe/arch"
	"kprobe/spec"
)

// Event is one hit.
type Event struct {
	Time time.Duration // CLOCK_MONOTONIC: since boot
	CPU  int
	PID  int    // the process
	TID  int    // the thread, as PID in the kernel's trace lines
	Comm string // the thread's name; "" where it is not known

	Group, Name string // of the event: "kprobes", "myp"
	Return      bool   // a return probe's
	Access      bool   // a watchpoint's

	// The probed place; of an access, the instruction behind the one that made
	// it. Func is the symbol that holds Addr, "" where there is
	// none; Off is Addr's distance from its start and Size its length, bytes.
	Addr      arch.Addr
	Func      string
	Off, Size uint64

	// Where the function returns to; return probes only. RetSym is that
	// address as Resolver.Name gives it.
	RetAddr arch.Addr
	RetSym  string

	Args []Value
}

// Value is one captured argument, or one element of an array.
type Value struct {
	Name string // "" for an element

	// Base says how the value is read and printed, Size is its width in bytes (1, 2, 4 or 8; 0 for
	// text; after Fold 16 or, for x87's floating-point numbers, 10). Of an array both are its
	// elements'.
	Base spec.Base
	Size uint8

	Fault bool   // the memory could not be read: there is no value
	Tail  bool   // Fault, since the function ended with a jump to another, which has not returned yet
	Gone  bool   // Fault, since it is optimized out, and the function's caller does not tell what it has passed
	Bits  uint64 // numbers: Size bytes, zero-extended; bitfields: the field alone
	High  uint64 // of a number of more than 8 bytes, which has 8 of them in Bits: the upper ones
	Text  string // text; for Symbol and Enum the name, "" where Bits is in no symbol

	Array bool
	Elems []Value // of an array

	Of uint64 // Elems, or the bytes of Text, are the first of so many; 0: they are all

	Parts  []Value // the parts that Fold has put together, not nil; Tagged: Text names the variant
	Tagged bool

	Frames []Frame // of a stack, the innermost first; Text is why there are no more, "" at its end
}

// Float is a floating-point number's value, of one of more than 8 bytes the nearest that there is.
func (v *Value) Float() float64 {
	switch {
	case v.Size == 4:
		return float64(math.Float32frombits(uint32(v.Bits)))
	case v.Size > 8:
		f, ok := v.wideFloat()
		if !ok {
			return math.NaN()
		}
		near, _ := f.Float64()
		return near
	}
	return math.Float64frombits(v.Bits)
}

// Int is a number's value, sign-extended from its Size; of one of more than 8 bytes the lower 8.
func (v *Value) Int() int64 {
	switch v.Size {
	case 1:
		return int64(int8(v.Bits))
	case 2:
		return int64(int16(v.Bits))
	case 4:
		return int64(int32(v.Bits))
	}
	return int64(v.Bits)
}
