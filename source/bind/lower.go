package bind

import (
	"debug/dwarf"
	"errors"
	"fmt"
	"slices"

	"kprobe/arch"
	"kprobe/source"
	"kprobe/spec"
	"kprobe/symbol"
)

// Site is a place in a process, as debug data has it.
type Site struct {
	Data *source.File // nil: Err says why
	Err  error
	At   source.Point
	Bias uint64 // what is added to the file's addresses
	Arch *arch.Arch

	// Entry tells that the place is where a function is entered: what debug data calls
	// the value at the entry is the value there.
	Entry bool

	// Unoptimized tells that parameters are at one place all over the function, which they are brought
	// to by its prologue.
	Unoptimized bool
	Body        uint64 // an address behind that prologue, as the file has it
	Func        string // the function that the place is in

	code   *symbol.File // that the place is in
	entry  uint64       // where the function begins there
	global bool         // other files may call it

	// Thread is how far the thread pointer is from the module's thread-local storage, in
	// bytes; not known unless HasThread.
	Thread    uint64
	HasThread bool
}

func (s *Site) register(n uint64, from int) (*spec.Fetch, error) {
	if s.vector(n) {
		return &spec.Fetch{Op: spec.Vector, N: int64(n-s.Arch.Debug.FirstVector)*2 + int64(from/8)}, nil
	}
	names := s.Arch.Debug.Regs
	if n >= uint64(len(names)) {
		return nil, errors.New("it is in a register for floating-point numbers, or another that is not read")
	}
	if _, ok := s.Arch.RegByName(names[n]); !ok {
		return nil, fmt.Errorf("it is in register %s, which is not read", names[n])
	}
	return &spec.Fetch{Op: spec.Reg, Name: names[n]}, nil
}

// debugNumber is DWARF's number of a general register.
func debugNumber(a *arch.Arch, reg arch.Reg) (n uint64, ok bool) {
	i := slices.IndexFunc(a.Debug.Regs, func(name string) bool {
		r, ok := a.RegByName(name)
		return ok && r == reg
	})
	return uint64(i), i >= 0
}

// vector tells a vector register that is read.
func (s *Site) vector(n uint64) bool {
	return s.Arch.Debug.Vector(n)
}

// halves takes apart what is in a vector register, of which programs read 8 bytes at a time.
func (s *Site) halves(p source.Piece) []source.Piece {
	e := p.Value
	if e == nil || e.Op != source.OpReg || !s.vector(e.N) || p.Bits <= 64 {
		return []source.Piece{p}
	}
	half := func(from int, bits uint64) source.Piece {
		return source.Piece{Bits: bits, Location: source.Location{Value: &source.Expr{Op: source.OpReg, N: e.N, Size: from}}}
	}
	out := []source.Piece{half(0, 64), half(8, min(p.Bits, 128)-64)}
	if p.Bits > 128 {
		out = append(out, source.Piece{Bits: p.Bits - 128})
	}
	return out
}

var errWide = errors.New("it is in a vector register, of which the first 16 bytes are read")

// plus is a fetch's value + n.
func plus(f *spec.Fetch, n uint64) *spec.Fetch {
	switch {
	case n == 0:
		return f
	case f.Op == spec.Imm:
		return &spec.Fetch{Op: spec.Imm, N: f.N + int64(n)}
	case f.Op == spec.Plus:
		return plus(f.Inner, uint64(f.N)+n)
	}
	return &spec.Fetch{Op: spec.Plus, N: int64(n), Inner: f}
}

// load is the word, or what an argument's type makes of it, in memory at a fetch's value.
func load(f *spec.Fetch) *spec.Fetch {
	d := &spec.Fetch{Op: spec.Deref, Inner: f}
	for {
		switch in := d.Inner; {
		case in.Op == spec.Plus:
			d.N, d.Inner = d.N+in.N, in.Inner
		case in.Op == spec.Maybe:
			d.Inner, d.Guard, d.Nil = in.Inner, both(in.Guard, d.Guard), d.Nil || in.Guard == nil || !in.Guard.Must
		default:
			d.Nil = d.Nil || in.Op == spec.Deref && in.Nil // of what was not there, nothing is
			return d
		}
	}
}

// both is two conditions; nil is none.
func both(a, b *spec.Guard) *spec.Guard {
	if a == nil {
		return b
	}
	c := *a
	c.And = both(a.And, b)
	return &c
}

// lower turns what debug data computes into a fetch.
func (s *Site) lower(e *source.Expr) (*spec.Fetch, error) {
	if s.Arch.PtrSize != 8 && (e.Op == source.OpCompute || e.Op == source.OpAdd && e.B.Op != source.OpConst) {
		return nil, errors.New("where it is takes a computation, which is done with 64 bits only")
	}
	switch e.Op {
	case source.OpConst:
		return &spec.Fetch{Op: spec.Imm, N: int64(e.N)}, nil
	case source.OpAddr:
		return &spec.Fetch{Op: spec.Imm, N: int64(e.N + s.Bias)}, nil
	case source.OpReg:
		return s.register(e.N, e.Size)
	case source.OpEntry:
		if s.Entry {
			return s.lower(e.A)
		}
		if f, err := s.lower(e.A); err == nil && f.Op == spec.Reg && len(s.Arch.Debug.Kept) > 0 {
			return &spec.Fetch{Op: spec.Entered, Name: f.Name}, nil
		}
		return nil, errors.New("only its value at the function's entry is known here, which is gone: probe the entry")
	case source.OpThread:
		if !s.HasThread || s.Arch.ThreadPtr == arch.NoReg {
			return nil, errors.New("it is thread-local, and where this file's thread-local storage lies is not known")
		}
		reg := &spec.Fetch{Op: spec.Reg, Name: s.Arch.RegName(s.Arch.ThreadPtr)}
		return plus(reg, e.N-s.Thread), nil
	case source.OpAdd:
		a, err := s.lower(e.A)
		if err != nil {
			return nil, err
		}
		if e.B.Op == source.OpConst {
			return plus(a, e.B.N), nil
		}
		b, err := s.lower(e.B)
		return s.compute("plus", a, b), err
	case source.OpLoad:
		a, err := s.lower(e.A)
		if err != nil {
			return nil, err
		}
		if e.Size == s.Arch.PtrSize {
			return load(a), nil
		}
		if !slices.Contains([]int{1, 2, 4}, e.Size) {
			return nil, fmt.Errorf("it takes a load of %d bytes, which is not done", e.Size)
		}
		f := s.compute("load", load(a), nil)
		f.N = int64(e.Size)
		return f, nil
	case source.OpCompute:
		a, err := s.lower(e.A)
		if err != nil || e.B == nil {
			return s.compute(e.What, a, nil), err
		}
		b, err := s.lower(e.B)
		return s.compute(e.What, a, b), err
	}
	return nil, fmt.Errorf("where it is takes a computation (%s), which is not done", e.What)
}

// compute is a fetch of what debug data computes.
func (s *Site) compute(what string, a, b *spec.Fetch) *spec.Fetch {
	return &spec.Fetch{Op: spec.Compute, Name: what, Inner: a, Other: b}
}

// value is what an expression of the source stands for: at an address, in a register, or in pieces.
type value struct {
	typ dwarf.Type

	addr *spec.Fetch // it lies there
	val  *spec.Fetch // this is it, or has it: bits of it from bit at on, all where bits is 0
	at   int64
	bits int64

	pieces []source.Piece
	text   string // a constant text

	lack error       // why pieces without a location cannot be read; nil: they were optimized out
	when *spec.Guard // it is there only where this holds; of what has an address, that says so itself

	// A bit-field in memory: at and bits count from addr, in the order of a little-endian memory.
}

// place is a value of a type at a location.
func (s *Site) place(l source.Location, t dwarf.Type) (value, error) {
	v := value{typ: t}
	var err error
	switch {
	case l.Memory != nil:
		v.addr, err = s.lower(l.Memory)
	case l.Value != nil && t != nil && len(s.halves(source.Piece{Bits: uint64(8 * max(0, t.Size())), Location: l})) > 1:
		v.pieces, v.lack = s.halves(source.Piece{Bits: uint64(8 * t.Size()), Location: l}), errWide
	case l.Value != nil:
		v.val, err = s.lower(l.Value)
	case len(l.Bytes) > 0 && len(l.Bytes) <= 8:
		n := uint64(0)
		for i, b := range l.Bytes {
			if s.Arch.Order.String() == "BigEndian" {
				n = n<<8 | uint64(b)
			} else {
				n |= uint64(b) << (8 * i)
			}
		}
		v.val = &spec.Fetch{Op: spec.Imm, N: int64(n)}
	case len(l.Bytes) == 16:
		for k := 0; k < 16; k += 8 {
			v.pieces = append(v.pieces, source.Piece{Bits: 64, Location: source.Location{Bytes: l.Bytes[k:][:8]}})
		}
	case len(l.Pieces) > 0:
		for _, p := range l.Pieces {
			v.pieces = append(v.pieces, s.halves(p)...)
		}
	default:
		err = errors.New("it is a constant of more than 16 bytes, which is not printed")
	}
	return v, err
}

// part is a piece of a value, size bytes at an offset.
func (s *Site) part(v value, off, size int64, t dwarf.Type) (value, error) {
	switch {
	case v.addr != nil:
		return value{typ: t, addr: plus(v.addr, uint64(off))}, nil
	case v.val != nil:
		out := value{typ: t, val: v.val, at: v.at + 8*off, bits: 8 * size, when: v.when}
		if out.at == 0 && size == int64(s.Arch.PtrSize) { // all of it
			out.bits = 0
		}
		if out.at+out.bits > 64 {
			return out, errors.New("it is not wholly in the register that it should be in")
		}
		if _, float := source.Plain(t).(*dwarf.FloatType); float && out.at != 0 && s.Arch.PtrSize == 8 { // it is no bit-field
			out.val, out.at = s.compute("shr", out.val, &spec.Fetch{Op: spec.Imm, N: out.at}), 0
		}
		return out, nil
	}
	begin := int64(0)
	several := value{typ: t, when: v.when, lack: v.lack}
	for _, p := range v.pieces {
		end := begin + int64(p.Bits)
		if 8*off <= begin && end <= 8*(off+size) {
			several.pieces = append(several.pieces, p)
		}
		if begin <= 8*off && 8*(off+size) <= end {
			if !p.Known() && v.lack != nil {
				return value{}, v.lack
			} else if !p.Known() {
				return value{}, fmt.Errorf("this part of it is %w", source.ErrOptimized)
			}
			inner, err := s.place(p.Location, t)
			if err != nil {
				return inner, err
			}
			if inner.when = v.when; inner.addr != nil && v.when != nil {
				inner.addr = &spec.Fetch{Op: spec.Maybe, Inner: inner.addr, Guard: v.when}
			}
			return s.part(inner, off-begin/8, size, t)
		}
		begin = end
	}
	bits := int64(0)
	for _, p := range several.pieces {
		bits += int64(p.Bits)
	}
	if isAggregate(t) && bits == 8*size {
		return several, nil
	}
	return s.together(v, 8*off, 8*size, t)
}

var errSplit = errors.New("it is split between registers in the middle, which is not put together")

// together makes a number of bits that lie in several pieces, from lo on.
func (s *Site) together(v value, lo, bits int64, t dwarf.Type) (value, error) {
	if bits > 64 || bits < 1 || s.Arch.PtrSize != 8 || s.Arch.Order.String() == "BigEndian" {
		return value{}, errSplit
	}
	var sum *spec.Fetch
	number := func(op string, a *spec.Fetch, n uint64) *spec.Fetch {
		return s.compute(op, a, &spec.Fetch{Op: spec.Imm, N: int64(n)})
	}
	begin, found := int64(0), int64(0)
	for _, p := range v.pieces {
		end := begin + int64(p.Bits)
		from, to := max(begin, lo), min(end, lo+bits)
		at := from - begin
		begin = end
		if from >= to {
			continue
		}
		if !p.Known() && v.lack != nil {
			return value{}, v.lack
		} else if !p.Known() {
			return value{}, fmt.Errorf("this part of it is %w", source.ErrOptimized)
		}
		in, err := s.place(p.Location, t)
		switch {
		case err != nil:
			return value{}, err
		case in.addr != nil && v.when == nil && slices.Contains([]uint64{8, 16, 32}, p.Bits):
			in.val = s.compute("load", load(in.addr), nil)
			in.val.N = int64(p.Bits / 8)
		case in.val == nil || p.Bits > 64:
			return value{}, errSplit
		}
		part := in.val
		if at != 0 {
			part = number("shr", part, uint64(at))
		}
		if width := to - from; width < 64 {
			part = number("and", part, 1<<width-1)
		}
		if from > lo {
			part = number("shl", part, uint64(from-lo))
		}
		if found += to - from; sum == nil {
			sum = part
		} else {
			sum = s.compute("or", sum, part)
		}
	}
	if found != bits { // pieces that are not mentioned
		return value{}, fmt.Errorf("this part of it is %w", source.ErrOptimized)
	}
	out := value{typ: t, val: sum, bits: bits, when: v.when}
	if bits == 64 {
		out.bits = 0
	}
	return out, nil
}

// word is a value as a fetch that gives it, for what goes on from it: a pointer.
func (s *Site) word(v value) (*spec.Fetch, error) {
	size := int64(s.Arch.PtrSize)
	switch {
	case v.addr != nil && v.bits == 0:
		return load(v.addr), nil
	case v.val != nil && (v.bits == 0 || v.at == 0 && v.bits == 8*size):
		if v.when != nil {
			return &spec.Fetch{Op: spec.Maybe, Inner: v.val, Guard: v.when}, nil
		}
		return v.val, nil
	case len(v.pieces) > 0:
		p, err := s.part(v, 0, size, v.typ)
		if err != nil {
			return nil, err
		}
		return s.word(p)
	}
	return nil, errors.New("it is no pointer of its own, but part of a register")
}
