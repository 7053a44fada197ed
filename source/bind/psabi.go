package bind

import (
	"debug/dwarf"
	"errors"
	"fmt"
	"slices"
	"strings"

	"kprobe/arch"
	"kprobe/source"
)

// How x86-64's C passes and returns values (AMD64 psABI, 3.2.3; of C++'s classes, Itanium's C++ ABI, 3.1): by the classes of their words.

// class tells what kind of register, or memory, a word of a value is passed in.
type class uint8

const (
	none    class = iota // padding, or nothing
	integer              // a register
	sse                  // a vector register
	sseUp                // the upper half of one
	x87                  // a register of the x87 when it is returned, memory when it is passed
	memory               // memory, with the whole value
)

// errUnknown says that a value's classes cannot be told from debug data.
var errUnknown = errors.New("how it is passed is not known")

// errInFloating says where a value is: its place is known.
var errInFloating = errors.New("it is on the x87's stack, which is not read")

// merge is the class of a word that has parts of two.
func merge(a, b class) class {
	switch {
	case a == b || b == none:
		return a
	case a == none:
		return b
	case a == memory || b == memory:
		return memory
	case a == integer || b == integer:
		return integer
	case a == x87 || b == x87:
		return memory
	}
	return sse
}

// classes are those of a value's words; memory alone, where it is passed in memory. Errors: errUnknown.
func (s *Site) classes(t dwarf.Type) ([]class, error) {
	size := t.Size()
	if size < 0 {
		return nil, errUnknown
	}
	words := make([]class, (size+7)/8)
	if err := s.classify(t, 0, words); err != nil {
		return nil, err
	}
	for i, c := range words {
		switch {
		case c == memory, c == x87 && (words[0] != x87 || len(words) > 2):
			return []class{memory}, nil
		case c == sseUp && (i == 0 || words[i-1] != sse && words[i-1] != sseUp):
			words[i] = sse
		}
	}
	if len(words) > 2 && isAggregate(t) && (words[0] != sse || slices.ContainsFunc(words[1:], func(c class) bool { return c != sseUp })) {
		return []class{memory}, nil
	}
	return words, nil
}

// classify merges a type that lies at an offset into the classes of what it is part of.
func (s *Site) classify(t dwarf.Type, at int64, words []class) error {
	put := func(at, size int64, cs ...class) error {
		for i, c := range cs {
			k := at/8 + int64(i)
			if k >= int64(len(words)) || size < 0 {
				return errUnknown
			}
			words[k] = merge(words[k], c)
		}
		if align := min(size, 16); align > 0 && align&(align-1) == 0 && at%align != 0 { // packed
			words[0] = memory
		}
		return nil
	}
	switch u := source.Plain(t).(type) {
	case nil, *dwarf.VoidType:
		return errUnknown
	case *dwarf.FloatType:
		switch u.Size() {
		case 2, 4, 8:
			return put(at, u.Size(), sse)
		case 16:
			if u.Name == "long double" {
				return put(at, 16, x87, x87)
			}
			return put(at, 16, sse, sseUp)
		}
		return errUnknown
	case *dwarf.ComplexType:
		switch half := u.Size() / 2; half {
		case 4:
			return errors.Join(put(at, 4, sse), put(at+4, 4, sse))
		case 8:
			return errors.Join(put(at, 8, sse), put(at+8, 8, sse))
		case 16:
			words[0] = memory
			return nil
		}
		return errUnknown
	case *dwarf.ArrayType:
		if s.Data.IsVector(u) {
			switch u.Size() {
			case 8:
				return put(at, 8, sse)
			case 16:
				return put(at, 16, sse, sseUp)
			}
			return errUnknown // it depends on what the compiler was told of the processor
		}
		for i := range max(0, u.Count) {
			if err := s.classify(u.Type, at+i*u.Type.Size(), words); err != nil {
				return err
			}
			if i > 64 { // more than is passed in registers
				words[0] = memory
				return nil
			}
		}
		return nil
	case *dwarf.StructType:
		whole := s.Data.Complete(u)
		if whole.Incomplete {
			return errUnknown
		}
		if whole.Size() > 16 && at == 0 && int64(len(words)) == (whole.Size()+7)/8 && !s.oneVector(whole) {
			words[0] = memory
			return nil
		}
		for _, m := range whole.Field {
			if m.BitSize != 0 {
				bit := source.Bit(m, m.ByteOffset, false) + 8*at
				for k := bit / 64; k <= (bit+m.BitSize-1)/64; k++ {
					if k >= int64(len(words)) {
						return errUnknown
					}
					words[k] = merge(words[k], integer)
				}
				continue
			}
			if err := s.classify(m.Type, at+m.ByteOffset, words); err != nil {
				return err
			}
		}
		return nil
	}
	switch size := t.Size(); size {
	case 1, 2, 4, 8:
		return put(at, size, integer)
	case 16:
		return put(at, 16, integer, integer)
	}
	return errUnknown
}

// onStack87 tells the number of two parts that is returned on the x87's stack, though it is passed in
// memory (class COMPLEX_X87).
func onStack87(t dwarf.Type) bool {
	u, ok := source.Plain(t).(*dwarf.ComplexType)
	return ok && u.Size() == 32 && !strings.Contains(u.Name, "128")
}

// oneVector tells the structs that may be passed as the vector that they consist of.
func (s *Site) oneVector(t *dwarf.StructType) bool {
	if len(t.Field) != 1 {
		return false
	}
	switch u := source.Plain(t.Field[0].Type).(type) {
	case *dwarf.ArrayType:
		return s.Data.IsVector(u)
	case *dwarf.StructType:
		return s.oneVector(s.Data.Complete(u))
	}
	return false
}

// aligned is a value's alignment on the stack, in bytes.
func (s *Site) aligned(t dwarf.Type) int64 {
	if n := s.Data.Alignment(t); n > 0 {
		return max(8, n)
	}
	switch u := t.(type) {
	case *dwarf.TypedefType:
		return s.aligned(u.Type)
	case *dwarf.QualType:
		return s.aligned(u.Type)
	case *dwarf.ArrayType:
		if s.Data.IsVector(u) {
			return max(8, u.Size())
		}
		return s.aligned(u.Type)
	case *dwarf.StructType:
		align := int64(8)
		for _, m := range s.Data.Complete(u).Field {
			if n := s.aligned(m.Type); m.ByteOffset%n == 0 && u.Size()%n == 0 { // else it is packed
				align = max(align, n)
			}
		}
		return align
	case *dwarf.ComplexType:
		return max(8, u.Size()/2)
	case *dwarf.FloatType, *dwarf.IntType, *dwarf.UintType:
		return max(8, u.Size())
	}
	return 8
}

// psABI tells whether the function at the site is called as x86-64's C has it.
func (s *Site) psABI() bool {
	return s.Arch.Debug.Eightbytes && (s.Data.C(s.At) || s.Data.CPlus(s.At))
}

// byAddress tells whether a value is passed by its address.
func (s *Site) byAddress(t dwarf.Type) bool {
	u, ok := source.Plain(t).(*dwarf.StructType)
	return ok && s.Data.CPlus(s.At) && s.Data.ByAddress(u)
}

// allotment hands out the places of arguments, one after the other.
type allotment struct {
	site  *Site
	psABI bool

	ints, vectors int   // registers that are taken
	stack         int64 // bytes that are
	lost          error // where the next integer is, is not known
	lostVectors   bool
	lostStack     bool
}

// place is an argument's place at its function's first instruction.
type place struct {
	regs    []arch.Reg // one for each word; NoReg for what is in a vector register
	sizes   []int64    // bytes of each; nil: words of 8, of which the last may have less
	halves  []int      // of vector registers, one for each word: their number twice, and one more for the upper half; -1 for another's
	stacked bool
	at      int64 // from the stack pointer
	address bool  // only its address is there
	nothing bool  // it has no bytes that are passed
}

// vectorArgs is how many vector registers x86-64's C has for arguments.
const vectorArgs = 8

func (a *allotment) lose(why error) error {
	a.lost, a.lostVectors, a.lostStack = why, true, true
	return why
}

// next is the place of an argument of a type. Errors: why that is not known.
func (a *allotment) next(t dwarf.Type) (place, error) {
	s := a.site
	if t == nil {
		return place{}, a.lose(errUnknown)
	}
	if !a.psABI {
		return a.inTurn(t)
	}
	var cs []class
	byAddress := s.byAddress(t)
	if byAddress {
		cs = []class{integer}
	} else {
		var err error
		if cs, err = s.classes(t); err != nil {
			vector, ok := source.Plain(t).(*dwarf.ArrayType)
			if !ok || !s.Data.IsVector(vector) {
				return place{}, a.lose(err)
			}
			a.lostVectors, a.lostStack = true, true // it takes no register for integers
			return place{}, err
		}
	}
	ints, vectors, stacked := 0, 0, false
	for _, c := range cs {
		switch c {
		case integer:
			ints++
		case sse:
			vectors++
		case x87, memory:
			stacked = true
		}
	}
	if ints > 0 && a.lost != nil {
		return place{}, a.lose(a.lost)
	}
	if vectors > 0 && a.lostVectors {
		return place{}, a.lose(errUnknown)
	}
	if ints+vectors == 0 && !stacked {
		return place{nothing: true}, nil
	}
	if ints == 2 && !isAggregate(t) && a.ints+ints > len(s.Arch.Args) { // GCC puts it on the stack, LLVM before 18 half of it
		return place{}, a.lose(errUnknown)
	}
	if stacked || a.ints+ints > len(s.Arch.Args) || a.vectors+vectors > vectorArgs {
		if a.lostStack {
			return place{}, errUnknown
		}
		size, align := t.Size(), s.aligned(t)
		if byAddress {
			size, align = 8, 8
		}
		at := (a.stack + align - 1) / align * align
		a.stack = at + (size+7)/8*8
		return place{stacked: true, at: int64(s.Arch.PtrSize) + at, address: byAddress}, nil
	}
	p := inRegisters(cs, s.Arch.Args[a.ints:], a.vectors)
	p.address = byAddress
	a.ints, a.vectors = a.ints+ints, a.vectors+vectors
	return p, nil
}

// inRegisters places words of some classes in the next of the registers for integers, and of those for vectors.
func inRegisters(cs []class, ints []arch.Reg, vector int) (p place) {
	half := 2*vector - 1 // of the last
	for _, c := range cs {
		reg, in := arch.NoReg, -1
		switch c {
		case integer:
			reg, ints = ints[0], ints[1:]
		case sse:
			half = (half + 2) / 2 * 2
			in = half
		case sseUp:
			half++
			in = half
		}
		p.regs, p.halves = append(p.regs, reg), append(p.halves, in)
	}
	return p
}

// inTurn places what every convention places alike: integers and pointers, each in the next register.
func (a *allotment) inTurn(t dwarf.Type) (place, error) {
	s := a.site
	_, float := source.Plain(t).(*dwarf.FloatType)
	switch {
	case a.lost != nil:
		return place{}, a.lost
	case float && s.Arch.Debug.Eightbytes && t.Size() <= 8: // it has registers of its own
		a.vectors++
		return inRegisters([]class{sse}, nil, a.vectors-1), nil
	case isAggregate(t) || hasFloat(t) || t.Size() > int64(s.Arch.PtrSize) || a.ints >= len(s.Arch.Args):
		return place{}, a.lose(errUnknown)
	}
	a.ints++
	return place{regs: s.Arch.Args[a.ints-1 : a.ints]}, nil
}

// inWords makes a value of the registers that have its words.
func (s *Site) inWords(t dwarf.Type, at place) (value, error) {
	v := value{typ: t, lack: errInFloating}
	left := t.Size()
	for i, reg := range at.regs {
		size := min(8, left)
		if at.sizes != nil {
			size = at.sizes[i]
		}
		piece := source.Piece{Bits: uint64(8 * size)}
		left -= size
		if reg != arch.NoReg {
			n, ok := debugNumber(s.Arch, reg)
			if !ok {
				return value{}, fmt.Errorf("register %s has no number", s.Arch.RegName(reg))
			}
			piece.Location.Value = &source.Expr{Op: source.OpReg, N: n}
		} else if h := at.halves[i]; h >= 0 {
			piece.Location.Value = &source.Expr{Op: source.OpReg, N: s.Arch.Debug.FirstVector + uint64(h/2), Size: 8 * (h % 2)}
		}
		v.pieces = append(v.pieces, piece)
	}
	if len(v.pieces) == 1 && v.pieces[0].Known() && !isAggregate(t) {
		return s.place(v.pieces[0].Location, t)
	}
	return v, nil
}

// misplaced tells whether debug data has a parameter that is passed by its address, on the stack, where that address is: LLVM leaves out that it
// is one. A copy that the caller has made is never among the arguments there itself.
func (s *Site) misplaced(v *source.Variable, l source.Location) bool {
	e := l.Memory
	if !v.Param || !v.Fixed() || e == nil || !s.psABI() || !s.Data.OwnCode(s.At) || !s.byAddress(v.Type) {
		return false
	}
	const framePointer, stackPointer, saved = 6, 7, 16 // by DWARF's numbers; below the arguments lie the frame pointer and the return address
	switch {
	case e.Op != source.OpAdd || e.A.Op != source.OpReg || e.B.Op != source.OpConst:
		return false
	case e.A.N == framePointer:
		return int64(e.B.N) >= saved
	}
	return e.A.N == stackPointer
}
