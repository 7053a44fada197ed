package source

import "debug/dwarf"

// Plain is a type without its names and qualifiers: what it is made of.
func Plain(t dwarf.Type) dwarf.Type {
	for range 100 {
		switch u := t.(type) {
		case *dwarf.TypedefType:
			t = u.Type
		case *dwarf.QualType:
			t = u.Type
		default:
			return t
		}
	}
	return t
}

// Member is a member of a struct, class or union by name, those of unnamed members
// included; at is its offset in bytes.
func Member(s *dwarf.StructType, name string) (m *dwarf.StructField, at int64, ok bool) {
	return member(s, name, 0)
}

func member(s *dwarf.StructType, name string, depth int) (*dwarf.StructField, int64, bool) {
	for _, f := range s.Field {
		if f.Name == name && name != "" {
			return f, f.ByteOffset, true
		}
	}
	for _, f := range s.Field { // unnamed members, and base classes, which come without name or with their own
		inner, ok := Plain(f.Type).(*dwarf.StructType)
		if ok && depth < 20 && (f.Name == "" || f.Name == inner.StructName && inner.Kind == "class") {
			if m, at, ok := member(inner, name, depth+1); ok {
				return m, f.ByteOffset + at, true
			}
		}
	}
	return nil, 0, false
}

// Bit is where a bit-field begins, in bits from its struct's first byte; at is the byte offset that Member gives.
func Bit(m *dwarf.StructField, at int64, bigEndian bool) int64 {
	switch {
	case m.DataBitOffset != 0 || m.ByteSize == 0:
		return 8*at + m.DataBitOffset
	case bigEndian:
		return 8*at + m.BitOffset
	}
	return 8*(at+m.ByteSize) - m.BitOffset - m.BitSize // DWARF 2 and 3: from the highest bit of a unit of memory
}

// Complete is a struct with its base classes, as unnamed members; one of which the unit has only the name, as another
// unit has it whole.
func (f *File) Complete(s *dwarf.StructType) *dwarf.StructType {
	if s.Incomplete && s.StructName != "" {
		if t, ok := f.TypeNamed(s.Kind, s.StructName).(*dwarf.StructType); ok {
			s = t
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.classOf(s).whole
}

// tags are the kinds of types that a definition names.
var tags = map[string][]dwarf.Tag{
	"struct": {dwarf.TagStructType, dwarf.TagClassType},
	"class":  {dwarf.TagStructType, dwarf.TagClassType},
	"union":  {dwarf.TagUnionType},
	"enum":   {dwarf.TagEnumerationType},
	"":       {dwarf.TagTypedef, dwarf.TagBaseType, dwarf.TagStructType, dwarf.TagClassType, dwarf.TagUnionType, dwarf.TagEnumerationType},
}

// TypeNamed finds a type by its name, of a kind: "struct", "class", "union", "enum", or "" for
// all and for names of typedef; nil where there is none.
func (f *File) TypeNamed(kind, name string) dwarf.Type {
	for _, tag := range tags[kind] {
		for t := range f.types().types() {
			if t.tag != tag || !f.nameIs(t.name, name) {
				continue
			}
			f.mu.Lock()
			found := f.typeAt(t.off)
			f.mu.Unlock()
			if found != nil {
				return found
			}
		}
	}
	return nil
}
