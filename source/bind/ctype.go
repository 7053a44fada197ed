package bind

import (
	"debug/dwarf"
	"fmt"

	"kprobe/source"
	"kprobe/spec"
)

// typeName is a type as C has it.
func typeName(t dwarf.Type) string {
	if t == nil {
		return "void"
	}
	return TypeName(t)
}

// TypeName is a type as C writes it, without what a struct or an enumeration consists of.
func TypeName(t dwarf.Type) string {
	switch u := t.(type) {
	case nil, *dwarf.VoidType:
		return "void"
	case *dwarf.StructType:
		if u.StructName == "" {
			return u.Kind + " {...}"
		}
		return u.Kind + " " + u.StructName
	case *dwarf.EnumType:
		if u.EnumName == "" {
			return "enum {...}"
		}
		return "enum " + u.EnumName
	case *dwarf.TypedefType:
		return u.Name
	case *dwarf.QualType:
		return u.Qual + " " + TypeName(u.Type)
	case *dwarf.PtrType:
		if source.IsReference(u) {
			return TypeName(u.Type) + " &"
		}
		if f, ok := source.Plain(u.Type).(*dwarf.FuncType); ok {
			return TypeName(f.ReturnType) + " (*)()"
		}
		inner := TypeName(u.Type)
		if inner[len(inner)-1] == '*' {
			return inner + "*"
		}
		return inner + " *"
	case *dwarf.ArrayType:
		if u.Count < 0 {
			return TypeName(u.Type) + "[]"
		}
		return fmt.Sprintf("%s[%d]", TypeName(u.Type), u.Count)
	}
	return t.String()
}

// isChar tells the types whose arrays are text.
func isChar(t dwarf.Type) bool {
	switch u := source.Plain(t).(type) {
	case *dwarf.CharType, *dwarf.UcharType:
		return u.Size() == 1
	}
	return false
}

// isByte tells the characters that are small numbers rather: arrays of them are printed as such.
func isByte(t dwarf.Type) bool {
	name := source.Plain(t).Common().Name
	return name == "unsigned char" || name == "signed char"
}

// typed makes a value an argument: with the type that was asked for or, where none was, with that
// of its type in C.
func (b *binder) typed(a *spec.Arg, v value) error {
	if v.text != "" {
		a.Fetch, a.Type = spec.Fetch{Op: spec.ImmStr, Name: v.text}, spec.Type{Written: "string", Base: spec.String}
		return nil
	}
	for _, special := range []func(*spec.Arg, value) (bool, error){b.library, b.dynamic} {
		if done, err := special(a, v); done || err != nil {
			return err
		}
	}
	if len(v.pieces) > 0 { // a number in several pieces, of which the first has all; or one that does not exist
		size := int64(0)
		if v.typ != nil {
			size = v.typ.Size()
		}
		p, err := b.site.part(v, 0, max(size, 1), v.typ)
		if err != nil {
			return err
		}
		v = p
	}
	if a.Type.Base == spec.String || a.Type.Base == spec.UString {
		return b.text(a, v)
	}
	want, err := b.printed(v)
	if a.Type.Written != "" {
		if a.Type.Array != 0 {
			if _, ok := source.Plain(v.typ).(*dwarf.PtrType); ok && v.addr != nil || v.addr == nil {
				to, err := b.site.word(v) // elements are behind a pointer
				if err != nil {
					return err
				}
				a.Fetch = *load(to)
				return nil
			}
		}
		if v.bits != 0 && a.Type.Base != spec.Bitfield {
			return fmt.Errorf("it is a part of %d bits, which has its own type", v.bits)
		}
		a.Fetch = v.fetch()
		return nil
	}
	if err != nil {
		return err
	}
	a.Type, a.Fetch = want, v.fetch()
	return nil
}

// fetch reads a value, as an argument's type says.
func (v *value) fetch() spec.Fetch {
	if v.addr != nil {
		return *load(v.addr)
	}
	return *v.val
}

// text makes a value text: what a pointer to characters points at, or an array of characters.
func (b *binder) text(a *spec.Arg, v value) error {
	switch t := source.Plain(v.typ).(type) {
	case *dwarf.ArrayType:
		if v.addr != nil && isChar(t.Type) && a.Type.Array == 0 {
			a.Fetch, a.Type = *load(v.addr), textOf(a.Type, t)
			return nil
		}
		if p, ok := source.Plain(t.Type).(*dwarf.PtrType); ok && v.addr != nil && a.Type.Array != 0 && isChar(p.Type) {
			a.Fetch = *load(v.addr)
			return nil
		}
	case *dwarf.PtrType:
		if isChar(t.Type) || isVoid(t.Type) {
			to, err := b.site.word(v)
			if err != nil {
				return err
			}
			a.Fetch = *load(to)
			return nil
		}
		if p, ok := source.Plain(t.Type).(*dwarf.PtrType); ok && a.Type.Array != 0 && isChar(p.Type) {
			to, err := b.site.word(v)
			if err != nil {
				return err
			}
			a.Fetch = *load(to)
			return nil
		}
	}
	return fmt.Errorf("a %s is no text", typeName(v.typ))
}

// textOf is the text in an array of characters. It ends with the array, where no NUL has ended it; a longer array than mostText needs
// no bound, since reading ends before.
func textOf(text spec.Type, t *dwarf.ArrayType) spec.Type {
	if t.Count > 0 && t.Count <= mostText {
		text.Most, text.Written = int(t.Count), fmt.Sprintf("%s<=%d", text.Written, t.Count)
	}
	return text
}

// mostText limits the bytes of a text that are read, wherever it ends.
const mostText = 4095

func isVoid(t dwarf.Type) bool {
	_, ok := source.Plain(t).(*dwarf.VoidType)
	return ok || t == nil
}

// most is how many elements an argument can have.
const most = 64

// printed is the type of an argument whose value has a C type: pointers in hexadecimal, integers by
// size and sign, enumerations by name, arrays of char as text.
func (b *binder) printed(v value) (spec.Type, error) {
	number := func(base spec.Base, size int64) (spec.Type, error) {
		letter := map[spec.Base]string{spec.Signed: "s", spec.Unsigned: "u", spec.Hex: "x"}[base]
		if size != 1 && size != 2 && size != 4 && size != 8 {
			return spec.Type{}, fmt.Errorf("a %s of %d bytes is not printed", typeName(v.typ), size)
		}
		if v.bits != 0 {
			unit := int64(8)
			if v.addr != nil {
				for unit = 1; v.at+v.bits > 8*unit; unit *= 2 {
				}
			}
			shift := v.at
			if v.addr != nil && b.site.Arch.Order.String() == "BigEndian" {
				shift = 8*unit - v.at - v.bits
			}
			return spec.Type{Written: fmt.Sprintf("b%d@%d/%d", v.bits, shift, 8*unit), Base: spec.Bitfield, Size: int(unit),
				BitW: int(v.bits), BitO: int(shift), BitSign: base == spec.Signed}, nil
		}
		return spec.Type{Written: fmt.Sprintf("%s%d", letter, 8*size), Base: base, Size: int(size)}, nil
	}
	switch u := source.Plain(v.typ).(type) {
	case *dwarf.PtrType, *dwarf.FuncType:
		return number(spec.Hex, int64(b.site.Arch.PtrSize))
	case *dwarf.IntType, *dwarf.CharType:
		return number(spec.Signed, u.Size())
	case *dwarf.UintType, *dwarf.UcharType, *dwarf.BoolType:
		return number(spec.Unsigned, u.Size())
	case *dwarf.AddrType:
		return number(spec.Hex, u.Size())
	case *dwarf.EnumType:
		base, as := spec.Unsigned, spec.UnsignedEnum
		if b.site.Data.HasSign(u) {
			base, as = spec.Signed, spec.Enumeration
		}
		t, err := number(base, u.Size())
		if err != nil {
			return t, err
		}
		names, also := map[int64]string{}, map[string]int64{}
		n := 64 - 8*uint(u.Size())
		for _, e := range u.Val {
			key := e.Val << n >> n
			if as == spec.UnsignedEnum {
				key = int64(uint64(e.Val) << n >> n)
			}
			if names[key] == "" {
				names[key] = e.Name
			} else {
				also[e.Name] = key
			}
		}
		t.Base, t.BitSign, t.Enum = as, false, &spec.Enum{Name: u.EnumName, Values: names, Also: also}
		return t, nil
	case *dwarf.ArrayType:
		if v.addr == nil || u.Count < 1 {
			return spec.Type{}, fmt.Errorf("a %s has no elements that can be read here", typeName(v.typ))
		}
		if isChar(u.Type) && !isByte(u.Type) {
			return textOf(spec.Type{Written: "string", Base: spec.String}, u), nil
		}
		inner := v
		inner.typ = u.Type
		if _, nested := source.Plain(u.Type).(*dwarf.ArrayType); nested {
			return spec.Type{}, fmt.Errorf("an array of arrays is not printed: index it")
		}
		t, err := b.printed(inner)
		t.Array = int(min(u.Count, most))
		return t, err
	case *dwarf.FloatType:
		if v.bits != 0 && v.bits != 8*u.Size() || v.at != 0 || u.Size() != 4 && u.Size() != 8 {
			return spec.Type{}, fmt.Errorf("a %s is not printed", typeName(v.typ))
		}
		return spec.Type{Written: fmt.Sprintf("f%d", 8*u.Size()), Base: spec.Float, Size: int(u.Size())}, nil
	case *dwarf.StructType:
		return spec.Type{}, fmt.Errorf("a %s is not printed as a whole: name a member", typeName(v.typ))
	case nil, *dwarf.VoidType:
		return spec.Type{}, fmt.Errorf("it has no type")
	}
	return spec.Type{}, fmt.Errorf("a %s is not printed", typeName(v.typ))
}
