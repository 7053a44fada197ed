// Package cabi knows where a C function finds its arguments and how C lays out
// values: the System V ABI of x86-64 (AMD64 supplement, section 3.2.3) and that of
// i386, told in Go types. It reads no registers and no memory.
//
// It imports arch only.
package cabi

import (
	"encoding/binary"
	"fmt"
	"reflect"

	"kprobe/arch"
)

// Where is the place of one argument, or of one eightbyte of a struct, by the
// System V ABI (AMD64 supplement, 3.2.3).
type Where struct {
	Class Class
	N     int // register number, or offset from the first argument on the stack
	Size  int // bytes
}

// Class says what kind of place it is.
type Class uint8

const (
	Integer Class = iota // an integer register, by number
	Float                // a vector register, by number
	Stack                // memory, by its offset from the first argument there
)

// Piece is a part of a value, and where it is.
type Piece struct {
	Where
	Off int // in the value
}

// Value is where one argument or result is.
type Value struct {
	Type   reflect.Type
	Pieces []Piece
}

// Serves tells whether all of a machine's convention is known. Integers and pointers are
// of every machine: their registers are in arch. The error says what is not.
func Serves(machine *arch.Arch) error {
	switch machine {
	case arch.AMD64, arch.I386:
		return nil
	}
	return fmt.Errorf("how C passes floating point numbers and structs on %s is not known", machine.Name)
}

// Arguments finds where a function of a machine has arguments of these types.
// isPointer tells the types that stand for pointers although they are none. Errors:
// for types that no C type is like.
func Arguments(machine *arch.Arch, types []reflect.Type, isPointer func(reflect.Type) bool) ([]Value, error) {
	a := Allotment{machine: machine}
	vs := make([]Value, len(types))
	for i, t := range types {
		var err error
		var ws []Where
		if isPointer(t) {
			ws = a.Pointer()
		} else if ws, err = a.Place(t); err != nil {
			return nil, fmt.Errorf("argument %d: %w", i+1, err)
		}
		vs[i].Type = t
		for n, w := range ws {
			vs[i].Pieces = append(vs[i].Pieces, Piece{w, 8 * n}) // an eightbyte each, or one for all
		}
	}
	return vs, nil
}

// Allotment hands out registers and stack space in the order of parameters.
type Allotment struct {
	machine             *arch.Arch
	ints, floats, stack int
}

const floatRegs = 8 // of a machine that has some for integers, too

func (a *Allotment) intRegs() int { return len(a.machine.Args) }

func (a *Allotment) floatRegs() int {
	if a.intRegs() == 0 {
		return 0
	}
	return floatRegs
}

func (a *Allotment) scalar(c Class, size int) Where {
	switch {
	case c == Integer && a.ints < a.intRegs():
		a.ints++
		return Where{Integer, a.ints - 1, size}
	case c == Float && a.floats < a.floatRegs():
		a.floats++
		return Where{Float, a.floats - 1, size}
	}
	w := a.memory(size, a.machine.PtrSize)
	if a.machine.Order == binary.BigEndian {
		w.N += a.machine.PtrSize - size // a word, whose last bytes it is
	}
	return w
}

func (a *Allotment) memory(size, align int) Where {
	a.stack = (a.stack + align - 1) &^ (align - 1)
	w := Where{Stack, a.stack, size}
	word := a.machine.PtrSize
	a.stack += (size + word - 1) &^ (word - 1)
	return w
}

// Pointer places a pointer.
func (a *Allotment) Pointer() []Where { return []Where{a.scalar(Integer, a.machine.PtrSize)} }

// Place finds a parameter's place, or the places of its eightbytes. Errors: for
// types that no C type is like.
func (a *Allotment) Place(t reflect.Type) ([]Where, error) {
	switch t.Kind() {
	case reflect.Bool, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Int,
		reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uint:
		return []Where{a.scalar(Integer, SizeOf(a.machine, t))}, nil
	case reflect.Float32, reflect.Float64:
		if err := Serves(a.machine); err != nil {
			return nil, err
		}
		return []Where{a.scalar(Float, int(t.Size()))}, nil
	case reflect.Struct:
		if err := Serves(a.machine); err != nil {
			return nil, err
		}
		return a.structure(t)
	}
	return nil, fmt.Errorf("a %v cannot stand for a C argument", t)
}

// structure classifies a struct by value: up to 16 bytes go in registers, an
// eightbyte each, all or none; larger ones lie on the stack.
func (a *Allotment) structure(t reflect.Type) ([]Where, error) {
	size := SizeOf(a.machine, t)
	if !Fixed(t) || size == 0 {
		return nil, fmt.Errorf("a %v has no fixed C layout", t)
	}
	if size > 16 || a.intRegs() == 0 {
		return []Where{a.memory(size, max(a.machine.PtrSize, alignOf(a.machine, t)))}, nil
	}
	classes := make([]Class, (size+7)/8)
	for i := range classes {
		classes[i] = Float
	}
	classify(t, 0, classes)
	ints := 0
	for _, c := range classes {
		if c == Integer {
			ints++
		}
	}
	if a.ints+ints > a.intRegs() || a.floats+len(classes)-ints > a.floatRegs() {
		return []Where{a.memory(size, max(8, t.Align()))}, nil
	}
	var ws []Where
	for i, c := range classes {
		ws = append(ws, a.scalar(c, min(8, size-8*i)))
	}
	return ws, nil
}

// classify marks the eightbytes that hold anything but floating point.
func classify(t reflect.Type, off int, classes []Class) {
	switch t.Kind() {
	case reflect.Struct:
		for i := range t.NumField() {
			classify(t.Field(i).Type, off+int(t.Field(i).Offset), classes)
		}
	case reflect.Array:
		for i := range t.Len() {
			classify(t.Elem(), off+i*int(t.Elem().Size()), classes)
		}
	case reflect.Float32, reflect.Float64:
	default:
		classes[off/8] = Integer
	}
}
