package cabi

import (
	"math"
	"reflect"
	"syscall"

	"kprobe/arch"
	"kprobe/internal/errno"
)

// Fixed tells whether a type has the same layout in C.
func Fixed(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Struct:
		for i := range t.NumField() {
			if !Fixed(t.Field(i).Type) {
				return false
			}
		}
		return true
	case reflect.Array:
		return Fixed(t.Elem())
	}
	return t.Kind() >= reflect.Bool && t.Kind() <= reflect.Float64
}

// word tells the types that are as wide as the machine's pointers: C's long, and
// addresses.
func word(t reflect.Type) bool {
	return t == reflect.TypeFor[arch.Addr]() || t.Kind() == reflect.Int || t.Kind() == reflect.Uint
}

// SizeOf is a type's size in C on a machine, in bytes. The type has a fixed layout.
func SizeOf(a *arch.Arch, t reflect.Type) int {
	switch t.Kind() {
	case reflect.Struct:
		_, size := fields(a, t)
		return size
	case reflect.Array:
		return t.Len() * SizeOf(a, t.Elem())
	}
	if word(t) {
		return a.PtrSize
	}
	return int(t.Size())
}

// alignOf is a type's alignment in a struct: its size, but no more than a pointer's
// on any machine served so far.
func alignOf(a *arch.Arch, t reflect.Type) int {
	switch t.Kind() {
	case reflect.Struct:
		align := 1
		for i := range t.NumField() {
			align = max(align, alignOf(a, t.Field(i).Type))
		}
		return align
	case reflect.Array:
		return alignOf(a, t.Elem())
	}
	return min(SizeOf(a, t), a.PtrSize)
}

// fields are the offsets of a struct's fields, and its size.
func fields(a *arch.Arch, t reflect.Type) (offsets []int, size int) {
	up := func(n, align int) int { return (n + align - 1) &^ (align - 1) }
	for i := range t.NumField() {
		f := t.Field(i).Type
		size = up(size, alignOf(a, f))
		offsets = append(offsets, size)
		size += SizeOf(a, f)
	}
	return offsets, up(size, alignOf(a, t))
}

// Fill sets a value of fixed layout from bytes in the target's order.
func Fill(a *arch.Arch, v reflect.Value, b []byte) {
	t := v.Type()
	switch t.Kind() {
	case reflect.Struct:
		offsets, _ := fields(a, t)
		for i := range t.NumField() {
			f := v.Field(i)
			if !f.CanSet() {
				continue // unexported or blank: padding
			}
			Fill(a, f, b[offsets[i]:])
		}
		return
	case reflect.Array:
		for i := range t.Len() {
			Fill(a, v.Index(i), b[i*SizeOf(a, t.Elem()):])
		}
		return
	}
	size := SizeOf(a, t)
	var u uint64
	switch size {
	case 1:
		u = uint64(b[0])
	case 2:
		u = uint64(a.Order.Uint16(b))
	case 4:
		u = uint64(a.Order.Uint32(b))
	case 8:
		u = a.Order.Uint64(b)
	}
	switch {
	case t.Kind() == reflect.Bool:
		v.SetBool(u&0xff != 0)
	case t.Kind() == reflect.Float32:
		v.SetFloat(float64(math.Float32frombits(uint32(u))))
	case t.Kind() == reflect.Float64:
		v.SetFloat(math.Float64frombits(u))
	case v.CanInt():
		shift := 64 - 8*size
		v.SetInt(int64(u<<shift) >> shift)
	default:
		v.SetUint(u)
	}
}

// Load reads a value of fixed layout from memory. Errors: EINVAL for one of another; those of
// the reading.
func Load(a *arch.Arch, read func(arch.Addr, []byte) error, addr arch.Addr, v reflect.Value) error {
	if !Fixed(v.Type()) {
		return errno.New(syscall.EINVAL, "a %v has no fixed C layout", v.Type())
	}
	b := make([]byte, SizeOf(a, v.Type()))
	if err := read(addr, b); err != nil {
		return err
	}
	Fill(a, v, b)
	return nil
}
