package source

import (
	"debug/dwarf"
	"slices"
)

// Enumerator finds an enumeration that has a constant of a name, and the constant; nil where there is none.
func (f *File) Enumerator(name string) (*dwarf.EnumType, int64) {
	for t := range f.types().types() {
		if t.tag != dwarf.TagEnumerationType {
			continue
		}
		f.mu.Lock()
		e, ok := f.typeAt(t.off).(*dwarf.EnumType)
		f.mu.Unlock()
		if !ok {
			continue
		}
		for _, v := range e.Val {
			if v.Name == name {
				return e, v.Val
			}
		}
	}
	return nil, 0
}

// HasSign tells whether an enumeration's values are numbers with a sign: by the type that it is made of, by its encoding where debug data has
// only that, and else, as gdb does, by whether one of its constants is negative.
func (f *File) HasSign(e *dwarf.EnumType) bool {
	for in := f; in != nil; in = in.alt {
		if sign, ok := in.hasSign(e); ok {
			return sign
		}
	}
	return slices.ContainsFunc(e.Val, func(v *dwarf.EnumValue) bool { return v.Val < 0 })
}

func (f *File) hasSign(e *dwarf.EnumType) (sign, ok bool) {
	types := f.types().types()
	f.mu.Lock()
	defer f.mu.Unlock()
	if sign, ok := f.signs[e]; ok {
		return sign, true
	}
	off, known := f.entries[e]
	if !known { // it was met as a part of another type
		for t := range types {
			if t.tag == dwarf.TagEnumerationType && (e.EnumName == "" && t.name == 0 || e.EnumName != "" && f.nameIs(t.name, e.EnumName)) && f.typeAt(t.off) == dwarf.Type(e) {
				off, known = t.off, true
				break
			}
		}
	}
	entry := f.entry(off)
	if !known || entry == nil {
		return false, false
	}
	if to, is := entry.Val(dwarf.AttrType).(dwarf.Offset); is {
		switch Plain(f.typeAt(to)).(type) {
		case *dwarf.IntType, *dwarf.CharType:
			sign, ok = true, true
		case *dwarf.UintType, *dwarf.UcharType, *dwarf.BoolType:
			ok = true
		}
	}
	if n, is := entry.Val(dwarf.AttrEncoding).(int64); is && !ok {
		sign, ok = n == encSigned || n == encSignedChar, true
	}
	if ok {
		f.signs[e] = sign
	}
	return sign, ok
}

const encSigned, encSignedChar = 0x05, 0x06 // DW_ATE_signed, DW_ATE_signed_char
