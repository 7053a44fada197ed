package goabi

import (
	"fmt"
	"reflect"

	"kprobe/arch"
	"kprobe/internal/cabi"
)

// Machine has the registers of ABIInternal on a machine (abi-internal.md of the Go compiler).
type Machine struct {
	Ints   []arch.Reg // for integers, in order
	Floats []int      // for floating point numbers, by the number of the vector register
	G      arch.Reg   // the current goroutine's descriptor

	// Apart tells that code of C and assembly has no register for the descriptor: the thread's own
	// memory has it there.
	Apart bool

	// Frame is the number of bytes that a caller leaves at the stack pointer for the function's own
	// use; arguments on the stack are behind it, and behind a return address.
	Frame int
}

// Missing says what is not known of a machine without a Machine.
func Missing(a *arch.Arch) error {
	return fmt.Errorf("how Go passes arguments on %s is not known", a.Name)
}

// ABI is one of Go's two calling conventions.
type ABI uint8

const (
	Internal ABI = iota // compiled code's: registers first
	ABI0                // assembly's: all on the stack
)

// Arguments finds where a function has arguments of these types. They are given in Go's own types,
// with arch.Addr for all pointers, maps, channels and functions; isPointer tells further types that
// stand for pointers. Integer registers count by Ints. Places on the stack count from past the
// return address and Frame. size is the number of bytes that the arguments take there, from which
// results of ABI0 follow. Errors: for types that only mean something in the program itself.
func (m *Machine) Arguments(abi ABI, types []reflect.Type, isPointer func(reflect.Type) bool) (vs []cabi.Value, size int, err error) {
	return m.assign(abi, types, 0, isPointer)
}

// Results is Arguments for results, which follow arguments of the size given
// where they are on the stack.
func (m *Machine) Results(abi ABI, types []reflect.Type, args int, isPointer func(reflect.Type) bool) ([]cabi.Value, error) {
	vs, _, err := m.assign(abi, types, align(args, 8), isPointer)
	return vs, err
}

func (m *Machine) assign(abi ABI, types []reflect.Type, stack int, isPointer func(reflect.Type) bool) ([]cabi.Value, int, error) {
	a := allotment{m: m, stack: stack}
	vs := make([]cabi.Value, len(types))
	for i, t := range types {
		vs[i].Type = t
		if isPointer(t) {
			t = reflect.TypeFor[arch.Addr]()
		} else if err := known(t); err != nil {
			return nil, 0, fmt.Errorf("value %d: %w", i+1, err)
		}
		saved := a
		if abi == Internal && t.Size() > 0 && a.registers(t, 0) {
			vs[i].Pieces, a.pieces = a.pieces, nil
			continue
		}
		// All of it or nothing is in registers.
		a = saved
		a.stack = align(a.stack, t.Align())
		vs[i].Pieces = []cabi.Piece{{Where: cabi.Where{Class: cabi.Stack, N: a.stack, Size: int(t.Size())}}}
		a.stack += int(t.Size())
	}
	return vs, a.stack, nil
}

func align(n, to int) int { return (n + to - 1) &^ (to - 1) }

// allotment hands out registers and stack space in order.
type allotment struct {
	m                   *Machine
	ints, floats, stack int
	pieces              []cabi.Piece
}

// registers gives a value registers, part by part. It is false where there are
// not enough, or for an array, which has none.
func (a *allotment) registers(t reflect.Type, off int) bool {
	word := reflect.TypeFor[arch.Addr]()
	switch t.Kind() {
	case reflect.Float32, reflect.Float64:
		return a.take(cabi.Float, int(t.Size()), off)
	case reflect.Complex64, reflect.Complex128:
		half := int(t.Size()) / 2
		return a.take(cabi.Float, half, off) && a.take(cabi.Float, half, off+half)
	case reflect.String:
		return a.registers(word, off) && a.registers(word, off+8)
	case reflect.Slice:
		return a.registers(word, off) && a.registers(word, off+8) && a.registers(word, off+16)
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			if !a.registers(f.Type, off+int(f.Offset)) {
				return false
			}
		}
		return true
	case reflect.Array:
		return t.Len() == 0 || t.Len() == 1 && a.registers(t.Elem(), off)
	}
	return a.take(cabi.Integer, int(t.Size()), off)
}

func (a *allotment) take(c cabi.Class, size, off int) bool {
	w := cabi.Where{Class: c, Size: size}
	switch {
	case c == cabi.Float && a.floats < len(a.m.Floats):
		w.N = a.m.Floats[a.floats]
		a.floats++
	case c == cabi.Integer && a.ints < len(a.m.Ints):
		w.N = a.ints
		a.ints++
	default:
		return false
	}
	a.pieces = append(a.pieces, cabi.Piece{Where: w, Off: off})
	return true
}

// known refuses types whose values are nothing outside of the program.
func known(t reflect.Type) error {
	switch t.Kind() {
	case reflect.String:
		return nil
	case reflect.Slice:
		if !cabi.Fixed(t.Elem()) {
			return fmt.Errorf("the elements of a %v cannot be read as a whole; use a struct of arch.Addr and two ints", t)
		}
		return nil
	case reflect.Array:
		return known(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if err := known(t.Field(i).Type); err != nil {
				return err
			}
		}
		return nil
	case reflect.Complex64, reflect.Complex128:
		return nil
	}
	if !cabi.Fixed(t) {
		return fmt.Errorf("a %v of the program means nothing outside of it; use arch.Addr, and two of them for an interface", t)
	}
	return nil
}

// MaxText is the largest number of bytes that is read of a string or slice: one argument has the
// whole of the program's memory within its reach.
const MaxText = 64 << 10

// Fill makes a value of the program's data: raw is its image in memory, to which strings and slices
// add the memory that they refer to. Errors: that of memory.
func Fill(a *arch.Arch, v reflect.Value, raw []byte, m arch.Reader) error {
	t := v.Type()
	if cabi.Fixed(t) {
		cabi.Fill(a, v, raw)
		return nil
	}
	switch t.Kind() {
	case reflect.String:
		b, err := text(a, raw, 1, m)
		v.SetString(string(b))
		return err
	case reflect.Slice:
		size := max(1, int(t.Elem().Size()))
		b, err := text(a, raw, size, m)
		n := len(b) / size
		v.Set(reflect.MakeSlice(t, n, n))
		for i := range n {
			cabi.Fill(a, v.Index(i), b[i*size:])
		}
		return err
	case reflect.Struct:
		for i := range t.NumField() {
			f := v.Field(i)
			if !f.CanSet() {
				continue // unexported or blank: padding
			}
			if err := Fill(a, f, raw[t.Field(i).Offset:], m); err != nil {
				return err
			}
		}
		return nil
	case reflect.Array:
		for i := range t.Len() {
			if err := Fill(a, v.Index(i), raw[i*int(t.Elem().Size()):], m); err != nil {
				return err
			}
		}
		return nil
	case reflect.Complex64, reflect.Complex128:
		half := reflect.New(reflect.TypeFor[float64]()).Elem()
		if t.Kind() == reflect.Complex64 {
			half = reflect.New(reflect.TypeFor[float32]()).Elem()
		}
		cabi.Fill(a, half, raw)
		re := half.Float()
		cabi.Fill(a, half, raw[half.Type().Size():])
		v.SetComplex(complex(re, half.Float()))
	}
	return nil
}

// text reads the elements of a string or slice: a pointer and a count of elements of this size.
func text(a *arch.Arch, raw []byte, size int, m arch.Reader) ([]byte, error) {
	n := a.Order.Uint64(raw[a.PtrSize:])
	b := make([]byte, min(n, uint64(MaxText/size))*uint64(size))
	if len(b) == 0 {
		return nil, nil
	}
	if err := m.ReadAt(arch.Addr(a.Order.Uint64(raw)), b); err != nil {
		return nil, err
	}
	return b, nil
}
