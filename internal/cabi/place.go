// Package cabi knows where a C function finds its arguments and how C lays out
// values, told in Go types: the System V ABI of x86-64 (AMD64 supplement, section 3.2.3) and that of
// i386, the procedure call standard of arm64 (AAPCS64, section 6.8), LP64D of RISC-V (its ELF psABI, chapter 2), and that
// of s390x (its ELF ABI supplement, 1.2.3).
// It reads no registers and no memory.
//
// It imports arch only.
package cabi

import (
	"encoding/binary"
	"fmt"
	"reflect"

	"kprobe/arch"
)

// Where is the place of one argument, or of a piece of one.
type Where struct {
	Class Class
	N     int // register number, or offset from the first argument on the stack
	Size  int // bytes
}

// Class says what kind of place it is.
type Class uint8

const (
	Integer Class = iota // an integer register, by its number among those for arguments
	Float                // a vector register, by number
	Stack                // memory, by its offset from the first argument there
)

// Piece is a part of a value, and where it is.
type Piece struct {
	Where
	Off int // in the value

	// At tells that the address of the value is there, and the value elsewhere. Size is the
	// value's.
	At bool
}

// Value is where one argument or result is.
type Value struct {
	Type   reflect.Type
	Pieces []Piece
}

// Machine has the places of C's arguments that are no integers. Integers and pointers have the registers
// that package arch lists.
type Machine struct {
	Floats      []int   // the vector registers for arguments, in order
	FloatsAsInt bool    // a number without one of them goes as an integer
	Structs     Structs // the rule for structs
}

// InRow are the numbers of n registers, from one on.
func InRow(from, n int) (list []int) {
	for i := range n {
		list = append(list, from+i)
	}
	return list
}

// Missing says what is not known of a machine without a Machine.
func Missing(a *arch.Arch) error {
	return fmt.Errorf("how C passes floating point numbers and structs on %s is not known", a.Name)
}

// Arguments finds where a function of a machine has arguments of these types; m may be nil.
// isPointer tells the types that stand for pointers although they are none. Errors:
// for types that no C type is like; Missing.
func Arguments(machine *arch.Arch, m *Machine, types []reflect.Type, isPointer func(reflect.Type) bool) ([]Value, error) {
	a := allotment{machine: machine, Machine: m}
	vs := make([]Value, len(types))
	for i, t := range types {
		vs[i].Type = t
		if isPointer(t) {
			vs[i].Pieces = one(a.integer(machine.PtrSize))
			continue
		}
		var err error
		if vs[i].Pieces, err = a.place(t); err != nil {
			return nil, fmt.Errorf("argument %d: %w", i+1, err)
		}
	}
	return vs, nil
}

// allotment hands out registers and stack space in the order of parameters.
type allotment struct {
	machine             *arch.Arch
	*Machine            // nil where only integers are known
	ints, flts, stacked int
}

func one(w Where) []Piece { return []Piece{{Where: w}} }

func (a *allotment) intsLeft() int   { return len(a.machine.Args) - a.ints }
func (a *allotment) floatsLeft() int { return len(a.Floats) - a.flts }

// integer places what an integer register holds.
func (a *allotment) integer(size int) Where {
	if a.intsLeft() > 0 {
		a.ints++
		return Where{Integer, a.ints - 1, size}
	}
	return a.word(size)
}

// word places a number on the stack.
func (a *allotment) word(size int) Where {
	w := a.memory(size, a.machine.PtrSize)
	if a.machine.Order == binary.BigEndian && size < a.machine.PtrSize {
		w.N += a.machine.PtrSize - size // a word, whose last bytes it is
	}
	return w
}

// float places a floating point number.
func (a *allotment) float(size int) Where {
	switch {
	case a.floatsLeft() > 0:
		a.flts++
		return Where{Float, a.Floats[a.flts-1], size}
	case a.FloatsAsInt:
		return a.integer(size)
	}
	return a.word(size)
}

func (a *allotment) memory(size, align int) Where {
	a.stacked = (a.stacked + align - 1) &^ (align - 1)
	w := Where{Stack, a.stacked, size}
	word := a.machine.PtrSize
	a.stacked += (size + word - 1) &^ (word - 1)
	return w
}

// place finds a parameter's place, or the places of its pieces. Errors: for
// types that no C type is like.
func (a *allotment) place(t reflect.Type) ([]Piece, error) {
	switch t.Kind() {
	case reflect.Bool, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Int,
		reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uint:
		size := SizeOf(a.machine, t)
		if size > a.machine.PtrSize && len(a.machine.Args) > 0 {
			return nil, fmt.Errorf("a %v is in two registers on %s, and in which is not known", t, a.machine.Name)
		}
		return one(a.integer(size)), nil
	case reflect.Float32, reflect.Float64:
		if a.Machine == nil {
			return nil, Missing(a.machine)
		}
		return one(a.float(int(t.Size()))), nil
	case reflect.Struct:
		if a.Machine == nil {
			return nil, Missing(a.machine)
		}
		size := SizeOf(a.machine, t)
		if !Fixed(t) || size == 0 {
			return nil, fmt.Errorf("a %v has no fixed C layout", t)
		}
		return a.Structs(a, t, size), nil
	}
	return nil, fmt.Errorf("a %v cannot stand for a C argument", t)
}
