package cabi

import "reflect"

// Structs is a rule for structs: Eightbytes and the others of this file are all there are.
type Structs func(a *allotment, t reflect.Type, size int) []Piece

// InMemory is i386's: all lie on the stack.
func InMemory(a *allotment, t reflect.Type, size int) []Piece { return a.inMemory(t, size) }

// inMemory puts a struct on the stack.
func (a *allotment) inMemory(t reflect.Type, size int) []Piece {
	return one(a.memory(size, max(a.machine.PtrSize, alignOf(a.machine, t))))
}

// elsewhere passes the address of a copy.
func (a *allotment) elsewhere(size int) []Piece {
	p := Piece{Where: a.integer(a.machine.PtrSize), At: true}
	p.Size = size
	return []Piece{p}
}

// words are the pieces of a struct in integer registers, a word each.
func (a *allotment) words(size int) (ps []Piece) {
	word := a.machine.PtrSize
	for off := 0; off < size; off += word {
		ps = append(ps, Piece{Where: a.integer(min(word, size-off)), Off: off})
	}
	return ps
}

// scalar is a number in a struct.
type scalar struct {
	kind      reflect.Kind
	off, size int
}

// scalars are the numbers that a struct is made of, in the order of memory.
func (a *allotment) scalars(t reflect.Type, off int) (list []scalar) {
	switch t.Kind() {
	case reflect.Struct:
		offsets, _ := fields(a.machine, t)
		for i, o := range offsets {
			list = append(list, a.scalars(t.Field(i).Type, off+o)...)
		}
	case reflect.Array:
		size := SizeOf(a.machine, t.Elem())
		for i := range t.Len() {
			list = append(list, a.scalars(t.Elem(), off+i*size)...)
		}
	default:
		list = []scalar{{t.Kind(), off, SizeOf(a.machine, t)}}
	}
	return list
}

func (s scalar) float() bool { return s.kind == reflect.Float32 || s.kind == reflect.Float64 }

// Eightbytes are x86-64's: up to 16 bytes go in registers, each eightbyte in one of its
// class, all or none; larger structs lie on the stack.
func Eightbytes(a *allotment, t reflect.Type, size int) (ps []Piece) {
	if size > 16 {
		return a.inMemory(t, size)
	}
	var integers [2]bool // the eightbytes that hold anything but floating point numbers
	ints, all := 0, (size+7)/8
	for _, s := range a.scalars(t, 0) {
		if n := s.off / 8; !s.float() && !integers[n] {
			integers[n] = true
			ints++
		}
	}
	if ints > a.intsLeft() || all-ints > a.floatsLeft() {
		return a.inMemory(t, size)
	}
	for i := range all {
		place := a.float
		if integers[i] {
			place = a.integer
		}
		ps = append(ps, Piece{Where: place(min(8, size-8*i)), Off: 8 * i})
	}
	return ps
}

// AAPCS64 is arm64's: up to four numbers of one floating point type go in a vector register each, other structs of up to
// 16 bytes in integer registers, all or none; what comes behind one that had none left has none either. Of larger
// ones the address is passed.
func AAPCS64(a *allotment, t reflect.Type, size int) (ps []Piece) {
	list := a.scalars(t, 0)
	alike := list[0].float() && len(list) <= 4
	for _, s := range list {
		alike = alike && s.kind == list[0].kind
	}
	switch {
	case alike && len(list) <= a.floatsLeft():
		for _, s := range list {
			ps = append(ps, Piece{Where: a.float(s.size), Off: s.off})
		}
		return ps
	case alike:
		a.flts = len(a.Floats)
		return a.inMemory(t, size)
	case size > 16:
		return a.elsewhere(size)
	case (size+7)/8 <= a.intsLeft():
		return a.words(size)
	}
	a.ints = len(a.machine.Args)
	return a.inMemory(t, size)
}

// LP64D is RISC-V's: one or two floating point numbers, or one and an integer, go in registers of their kinds if there are;
// other structs of up to 16 bytes as one or two integers, of which the second may be on the stack. Of larger ones the address is passed.
func LP64D(a *allotment, t reflect.Type, size int) (ps []Piece) {
	list := a.scalars(t, 0)
	floats := 0
	for _, s := range list {
		if s.float() {
			floats++
		}
	}
	switch ints := len(list) - floats; {
	case size > 16:
		return a.elsewhere(size)
	case floats == 0 || len(list) > 2 || floats > a.floatsLeft() || ints > a.intsLeft():
		return a.words(size)
	}
	for _, s := range list {
		place := a.integer
		if s.float() {
			place = a.float
		}
		ps = append(ps, Piece{Where: place(s.size), Off: s.off})
	}
	return ps
}

// ZELF is s390x's: one floating point number goes as such, other structs of the size of an integer as that. Of all others
// the address is passed.
func ZELF(a *allotment, t reflect.Type, size int) []Piece {
	inner := t
	for inner.Kind() == reflect.Struct && inner.NumField() == 1 {
		inner = inner.Field(0).Type
	}
	switch {
	case scalar{kind: inner.Kind()}.float():
		return one(a.float(size))
	case size <= 8 && size&(size-1) == 0:
		return one(a.integer(size))
	}
	return a.elsewhere(size)
}
