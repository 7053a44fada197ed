package bind

import (
	"cmp"
	"debug/dwarf"
	"errors"
	"fmt"
	"slices"
	"strings"

	"kprobe/arch"
	"kprobe/source"
	"kprobe/spec"
)

// How rustc returns values on x86-64 (its rules are not documented; the tests judge them by what
// programs print). A value of one or two scalars comes back in a register for each, numbers of floating
// point in vector registers. Another of at most 8 bytes comes back in rax as it would lie in memory.
// What is larger the function writes where its hidden first argument points, and rax is anything. From
// 9 to 16 bytes that depends on rustc's version, so that the place of the first parameter has to tell.

// repr describes a value of Rust's as far as its return asks for it.
type repr struct {
	scalars []scalar // one or two, by their places; none for a value without bytes, or of words
	words   bool     // it is no scalars, but bytes
	size    int64
	align   int64

	// It is one scalar, but bytes if its type was declared with repr(C), which debug data does not tell.
	perhapsWords bool
}

// scalar is a number or a pointer.
type scalar struct {
	at, size int64
	class    class // integer, or sse for a number of floating point
	signed   bool
}

// errRepr says that rustc's rules do not tell how a value is returned.
var errRepr = errors.New("its layout does not tell how it is returned")

// resultRust finds the result of a function of Rust's. Errors: its place is not known.
func (b *binder) resultRust(t dwarf.Type, ret *spec.Fetch) (value, error) {
	s := b.site
	unknown := fmt.Errorf("how a %s is returned is not known", typeName(t))
	l, err := s.repr(t)
	if err != nil {
		return value{}, unknown
	}
	if l.size == 0 {
		return value{typ: t, val: &spec.Fetch{Op: spec.Imm}}, nil
	}
	pieces := l.pieces()
	asWords := repr{words: true, size: l.size}.pieces()
	hidden, known := s.hiddenPointer()
	switch perhapsInMemory := l.size > 8 && (l.words || l.perhapsWords); {
	case perhapsInMemory && hidden, l.size > 16 && !known:
		return value{typ: t, addr: &spec.Fetch{Op: spec.ArgN, N: 1}}, nil
	case hidden, perhapsInMemory && (!known || l.words), l.size <= 8 && l.perhapsWords && !slices.Equal(pieces, asWords):
		return value{}, unknown
	}
	if s.perhapsC(t) {
		if cs, err := s.classes(t); err != nil || !slices.Equal(pieces, piecesC(cs, l.size)) {
			return value{}, unknown
		}
	}
	if !isAggregate(t) && slices.Equal(pieces, []piece{{l.size, integer}}) {
		return value{typ: t, val: ret}, nil
	}
	var cs []class
	var sizes []int64
	for _, p := range pieces {
		cs, sizes = append(cs, p.class), append(sizes, p.bytes)
	}
	at := inRegisters(cs, []arch.Reg{s.Arch.Ret, arch.DX}, 0)
	at.sizes = sizes
	return s.inWords(t, at)
}

// hiddenPointer tells whether the function has a hidden first argument, for the place of its result:
// the first parameter that is in a register for integers is in the second such register then.
func (s *Site) hiddenPointer() (hidden, known bool) {
	for _, v := range s.Data.Variables(s.At) {
		if !v.Param || v.Type == nil {
			return false, false
		}
		if _, float := source.Plain(v.Type).(*dwarf.FloatType); float || v.Type.Size() == 0 {
			continue
		}
		l, err := v.Where()
		if err != nil {
			return false, false
		}
		if len(l.Pieces) > 0 {
			l = l.Pieces[0].Location
		}
		reg, ok := s.passedIn(l)
		if !ok || v.Fixed() && s.Unoptimized {
			return false, false
		}
		i := slices.Index(s.Arch.Args, reg)
		return i == 1, i == 0 || i == 1
	}
	return false, false
}

// perhapsC tells whether a function that returns a type may be of extern "C", which debug data does not
// tell: the type is a struct, and so may be of repr(C).
func (s *Site) perhapsC(t dwarf.Type) bool {
	u, ok := source.Plain(t).(*dwarf.StructType)
	return ok && s.Data.Variants(u) == nil && !strings.ContainsAny(u.StructName[:min(1, len(u.StructName))], "(&*")
}

// piece of a value: it is in a register of a class.
type piece struct {
	bytes int64 // with those that are unused behind it
	class class
}

// pieces are those of a value, in the order of memory.
func (l repr) pieces() (out []piece) {
	if l.words {
		for left := l.size; left > 0; left -= 8 {
			out = append(out, piece{min(8, left), integer})
		}
		return out
	}
	for i, s := range l.scalars {
		end := l.size
		if i+1 < len(l.scalars) {
			end = l.scalars[i+1].at
		}
		for at := s.at; at < end; at += 8 {
			out = append(out, piece{min(8, end-at), s.class})
		}
	}
	return out
}

// piecesC are those that C's convention makes of words of some classes.
func piecesC(cs []class, size int64) (out []piece) {
	for _, c := range cs {
		out = append(out, piece{min(8, size), c})
		size -= 8
	}
	return out
}

// repr describes a type's values. Errors: errRepr.
func (s *Site) repr(t dwarf.Type) (repr, error) {
	one := func(c class, signed bool) (repr, error) {
		size := t.Size()
		if size <= 0 || size > 16 || size&(size-1) != 0 || c == sse && size != 4 && size != 8 {
			return repr{}, errRepr
		}
		return repr{scalars: []scalar{{size: size, class: c, signed: signed}}, size: size, align: size}, nil
	}
	switch u := source.Plain(t).(type) {
	case *dwarf.FloatType:
		return one(sse, false)
	case *dwarf.IntType, *dwarf.CharType:
		return one(integer, true)
	case *dwarf.UintType, *dwarf.BoolType, *dwarf.UcharType, *dwarf.EnumType, *dwarf.PtrType:
		return one(integer, false)
	case *dwarf.ArrayType:
		if s.Data.IsVector(u) || u.Count < 0 {
			return repr{}, errRepr
		}
		in, err := s.repr(u.Type)
		return repr{words: true, size: u.Size(), align: in.align}, err
	case *dwarf.StructType:
		return s.reprOfStruct(u)
	}
	return repr{}, errRepr
}

// reprOfStruct describes a struct, a tuple, or an enum of variants with data.
func (s *Site) reprOfStruct(t *dwarf.StructType) (repr, error) {
	whole := s.Data.Complete(t)
	if whole.Incomplete || whole.Kind == "union" || strings.Contains(whole.StructName, "Simd<") || strings.HasPrefix(whole.StructName, "__m") {
		return repr{}, errRepr
	}
	size, align := whole.Size(), s.Data.Alignment(t)
	if size > 16 || size == 0 {
		return repr{words: true, size: size, align: align}, nil
	}
	if align <= 0 {
		return repr{}, errRepr
	}
	if vs := s.Data.Variants(t); vs != nil {
		return s.reprOfVariants(vs, size, align)
	}
	return s.reprOfMembers(whole.Field, size, align)
}

// reprOfMembers describes a struct of some members.
func (s *Site) reprOfMembers(all []*dwarf.StructField, size, align int64) (repr, error) {
	words := repr{words: true, size: size, align: align}
	var members []member
	for _, f := range all {
		in, err := s.repr(f.Type)
		if err != nil {
			return repr{}, err
		}
		if in.size > 0 {
			members = append(members, member{in, f.ByteOffset})
		}
	}
	slices.SortFunc(members, func(a, b member) int { return cmp.Compare(a.at, b.at) })
	switch len(members) {
	case 1:
		m := members[0]
		if m.at != 0 || m.size != size || m.align != align {
			return words, nil
		}
		m.perhapsWords = m.perhapsWords || len(m.scalars) == 1
		return m.repr, nil
	case 2:
		a, b := members[0], members[1]
		if len(a.scalars) == 1 && len(b.scalars) == 1 {
			return pair(a, b, size, align)
		}
	}
	return words, nil
}

// member lies at a place in a value.
type member struct {
	repr
	at int64
}

// pair describes two scalars: as words, where they do not lie as two scalars do.
func pair(a, b member, size, align int64) (repr, error) {
	words := repr{words: true, size: size, align: align}
	at := (a.size + b.align - 1) / b.align * b.align
	most := max(a.align, b.align)
	if a.at != 0 || b.at != at || align != most || size != (at+b.size+most-1)/most*most {
		return words, nil
	}
	two := repr{size: size, align: align, perhapsWords: a.perhapsWords || b.perhapsWords}
	two.scalars = []scalar{a.scalars[0], b.scalars[0]}
	two.scalars[1].at = at
	return two, nil
}

// reprOfVariants describes an enum.
func (s *Site) reprOfVariants(vs *source.Variants, size, align int64) (repr, error) {
	words := repr{words: true, size: size, align: align}
	if vs.Tag == nil { // one variant only
		if len(vs.Cases) != 1 {
			return repr{}, errRepr
		}
		return s.repr(vs.Cases[0].Field.Type)
	}
	tag, err := s.repr(vs.Tag.Type)
	if err != nil || len(tag.scalars) != 1 {
		return repr{}, errRepr
	}
	var data []member
	for _, c := range vs.Cases {
		of, ok := source.Plain(c.Field.Type).(*dwarf.StructType)
		if !ok {
			return repr{}, errRepr
		}
		if c.Other { // the tag is a value that a member of this one cannot have
			return s.reprOfNiche(vs, of, size, align)
		}
		n := len(data)
		for _, f := range s.Data.Complete(of).Field {
			in, err := s.repr(f.Type)
			if err != nil {
				return repr{}, err
			}
			if in.size > 0 {
				data = append(data, member{in, c.Field.ByteOffset + f.ByteOffset})
			}
		}
		if len(data) > n+1 {
			return words, nil
		}
	}
	if len(data) == 0 {
		return tag, nil
	}
	first := data[0]
	for _, m := range data[1:] {
		if len(m.scalars) != 1 || m.at != first.at || m.size != first.size || m.scalars[0].class != first.scalars[0].class {
			return words, nil
		}
		if m.scalars[0].signed != first.scalars[0].signed && m.at < 8 { // it depends on rustc's version
			return repr{}, errRepr
		}
		first.perhapsWords = first.perhapsWords || m.perhapsWords
	}
	if vs.Tag.ByteOffset != 0 || len(first.scalars) != 1 {
		return words, nil
	}
	return pair(member{tag, 0}, first, size, align)
}

// reprOfNiche describes an enum whose variants but one have no data: as that one.
func (s *Site) reprOfNiche(vs *source.Variants, of *dwarf.StructType, size, align int64) (repr, error) {
	for _, c := range vs.Cases {
		u, ok := source.Plain(c.Field.Type).(*dwarf.StructType)
		if !ok {
			return repr{}, errRepr
		}
		if c.Other {
			continue
		}
		for _, f := range s.Data.Complete(u).Field {
			if f.Type.Size() != 0 {
				return repr{words: true, size: size, align: align}, nil
			}
		}
	}
	return s.reprOfMembers(s.Data.Complete(of).Field, size, align)
}
