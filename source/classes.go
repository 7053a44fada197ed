package source

import (
	"debug/dwarf"
	"slices"
)

// Of what C++ and Rust say of types, debug/dwarf reads what C has too. References, base classes and the parameters of
// templates are read here, from the entries that types come from.

// class is what is known of a struct or class besides its members of C.
type class struct {
	whole  *dwarf.StructType     // with base classes, as unnamed members, and references
	params map[string]dwarf.Type // of the template

	variants *Variants // nil: it is one thing only
}

// Variants is what a struct has that is one of several things, as an enum of Rust is.
type Variants struct {
	Tag   *dwarf.StructField // tells which of Cases it is; nil where there is one only
	Cases []Case
}

// Case is one of the things.
type Case struct {
	Value int64 // of the tag, as it was written
	Other bool  // it is this one with every value that no other has
	Field *dwarf.StructField
}

// Variants are those of a struct; nil where it has none, and without Cases where they are not known.
func (f *File) Variants(s *dwarf.StructType) *Variants {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.classOf(s).variants
}

// variantsOf reads the entries below that of the part of a struct that is one of several things: without Cases, where they make no sense.
// f.mu is held.
func (f *File) variantsOf(r *dwarf.Reader, part *dwarf.Entry) *Variants {
	v := new(Variants)
	tag, _ := part.Val(dwarf.AttrDiscr).(dwarf.Offset)
	member := func(e *dwarf.Entry) *dwarf.StructField {
		to, _ := e.Val(dwarf.AttrType).(dwarf.Offset)
		at, _ := e.Val(dwarf.AttrDataMemberLoc).(int64)
		name, _ := e.Val(dwarf.AttrName).(string)
		t := f.typeAt(to)
		if t == nil {
			return nil
		}
		return &dwarf.StructField{Name: name, Type: t, ByteOffset: at}
	}
	var in *Case // the variant that the entries are of
	depth := 1
	for depth > 0 {
		e, err := r.Next()
		switch {
		case err != nil || e == nil:
			return new(Variants)
		case e.Tag == 0:
			if depth--; depth == 1 {
				in = nil
			}
			continue
		case e.Tag == dwarf.TagMember && in == nil:
			if e.Offset == tag {
				v.Tag = member(e)
			}
		case e.Tag == dwarf.TagMember:
			in.Field = member(e)
		case e.Tag == dwarf.TagVariant && depth == 1:
			c := Case{Other: true}
			switch n := e.Val(dwarf.AttrDiscrValue).(type) {
			case int64:
				c.Value, c.Other = n, false
			case nil:
			default:
				return new(Variants) // of more than 8 bytes
			}
			v.Cases = append(v.Cases, c)
			in = &v.Cases[len(v.Cases)-1]
			if e.Children {
				depth++
				continue
			}
		}
		if e.Children {
			r.SkipChildren()
		}
	}
	for i := range v.Cases {
		if v.Cases[i].Field == nil {
			return new(Variants)
		}
	}
	if v.Tag == nil && len(v.Cases) > 1 {
		return new(Variants)
	}
	return v
}

// typeAt is the type of an entry, which is known from now on as the one that it comes from. f.mu is held.
func (f *File) typeAt(off dwarf.Offset) dwarf.Type {
	if f.unitAt(uint64(off)) == nil {
		return nil
	}
	e := f.entry(off)
	if e == nil {
		return nil
	}
	if e.Tag == dwarf.TagReferenceType || e.Tag == dwarf.TagRvalueReferenceType {
		to, ok := e.Val(dwarf.AttrType).(dwarf.Offset)
		u := f.unitAt(uint64(off))
		if t := f.typeAt(to); ok && t != nil {
			return &dwarf.PtrType{CommonType: dwarf.CommonType{ByteSize: int64(u.size), Name: reference}, Type: t}
		}
		return nil
	}
	t, err := f.typ(off)
	if err != nil {
		return nil
	}
	for known := t; ; {
		if _, ok := f.entries[known]; ok {
			break
		}
		f.entries[known] = off
		switch u := known.(type) { // what it is made of
		case *dwarf.TypedefType:
			known = u.Type
		case *dwarf.QualType:
			known = u.Type
		case *dwarf.PtrType:
			known = u.Type
		case *dwarf.ArrayType:
			known = u.Type
		default:
			return t
		}
		to, ok := e.Val(dwarf.AttrType).(dwarf.Offset)
		if !ok {
			break
		}
		if e = f.entry(to); e == nil {
			break
		}
		off = to
	}
	return t
}

// reference is the name of pointers that the source has as references.
const reference = "&"

// IsReference tells whether a pointer is a reference in the source, which stands for what it points at.
func IsReference(t dwarf.Type) bool {
	p, ok := Plain(t).(*dwarf.PtrType)
	return ok && p.Name == reference
}

// classOf reads what a struct's entry says besides. f.mu is held.
func (f *File) classOf(s *dwarf.StructType) *class {
	if c := f.classes[s]; c != nil {
		return c
	}
	whole := *s
	c := &class{whole: &whole, params: map[string]dwarf.Type{}}
	f.classes[s], f.classes[&whole] = c, c
	off, ok := f.entries[s]
	if !ok {
		return c
	}
	r := f.data.Reader()
	r.Seek(off)
	if e, err := r.Next(); err != nil || e == nil || !e.Children {
		return c
	}
	whole.Field = append([]*dwarf.StructField(nil), s.Field...)
	member := 0
	for {
		e, err := r.Next()
		if err != nil || e == nil || e.Tag == 0 {
			whole.Field = slices.DeleteFunc(whole.Field, func(f *dwarf.StructField) bool { return f == nil })
			shorten(&whole)
			return c
		}
		if e.Tag == dwarf.TagVariantPart && e.Children {
			c.variants = f.variantsOf(r, e)
			continue
		}
		var t dwarf.Type
		if to, ok := e.Val(dwarf.AttrType).(dwarf.Offset); ok {
			t = f.typeAt(to)
		}
		switch e.Tag {
		case dwarf.TagMember:
			if static(e) { // a variable of the class, which objects have no room for
				if member < len(s.Field) {
					whole.Field[member] = nil
				}
				member++
				continue
			}
			if t != nil && member < len(s.Field) && (IsReference(t) || shortened(s.Field[member].Type, t)) {
				m := *s.Field[member]
				m.Type = t
				whole.Field[member] = &m
			}
			member++
		case dwarf.TagTemplateTypeParameter:
			if name, _ := e.Val(dwarf.AttrName).(string); t != nil {
				c.params[name] = t
			}
		case dwarf.TagInheritance:
			base, ok := Plain(t).(*dwarf.StructType)
			at, constant := e.Val(dwarf.AttrDataMemberLoc).(int64)
			if ok && constant { // a virtual base is elsewhere in each object
				whole.Field = append(whole.Field, &dwarf.StructField{Type: f.classOf(base).whole, ByteOffset: at})
			}
		}
		if e.Children {
			r.SkipChildren()
		}
	}
}

// shortened tells whether debug/dwarf has made an array one of no elements: as it does to one before a member at the same offset, which a static
// member or a bit-field seems to be, since old compilers wrote arrays of none as such of one.
func shortened(as, t dwarf.Type) bool {
	a, ok := as.(*dwarf.ArrayType)
	own, is := t.(*dwarf.ArrayType)
	return ok && is && a.Count == 0 && own.Count > 0
}

// shorten does so with those arrays of one element that have no room in their struct.
func shorten(s *dwarf.StructType) {
	for i, m := range s.Field {
		a, ok := m.Type.(*dwarf.ArrayType)
		if !ok || a.Count != 1 || s.Kind == "union" {
			continue
		}
		end := s.ByteSize
		for _, next := range s.Field[i+1:] {
			if next.Name != "" && next.BitSize == 0 && next.ByteOffset >= m.ByteOffset { // no base class
				end = min(end, next.ByteOffset)
			}
		}
		if m.ByteOffset+a.Size() > end {
			none, copied := *a, *m
			none.Count, copied.Type = 0, &none
			s.Field[i] = &copied
		}
	}
}

// static tells the members that are variables, which DWARF before version 5 has as members.
func static(e *dwarf.Entry) bool {
	external, _ := e.Val(dwarf.AttrExternal).(bool)
	declared, _ := e.Val(dwarf.AttrDeclaration).(bool)
	return external || declared
}

// Parameter is the type that a template's parameter stands for in an instance of it, a struct; nil where that is not
// known.
func (f *File) Parameter(s *dwarf.StructType, name string) dwarf.Type {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.classOf(s).params[name]
}
