package source

import (
	"debug/dwarf"
	"strings"
)

// What decides how a value is passed, and debug/dwarf does not tell.

const (
	attrGNUVector = dwarf.Attr(0x2107)
	attrAlignment = dwarf.Attr(0x88)

	calledOtherwise                  = 3    // DW_CC_nocall
	passedByReference, passedByValue = 4, 5 // DW_CC_pass_by_reference, DW_CC_pass_by_value
)

// entryOf is the entry that a type comes from; nil where that is not known. f.mu is held.
func (f *File) entryOf(t dwarf.Type) *dwarf.Entry {
	off, ok := f.entries[t]
	if !ok {
		return nil
	}
	return f.entry(off)
}

// IsVector tells whether an array is a vector, which registers of its own hold.
func (f *File) IsVector(t *dwarf.ArrayType) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.entryOf(t)
	if e == nil {
		return false
	}
	is, _ := e.Val(attrGNUVector).(bool)
	return is
}

// Alignment is the one that a type's entry names, in bytes; 0 for none.
func (f *File) Alignment(t dwarf.Type) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e := f.entryOf(t); e != nil {
		n, _ := e.Val(attrAlignment).(int64)
		return n
	}
	return 0
}

// ByAddress tells whether a class is passed by the address of a copy, as C++'s ABI has it for classes that are not copied by their bytes: a class with
// a destructor, a copy constructor, virtual functions or bases of its own, or with a member or base of such a class. A compiler may say so; else
// what is declared in the class does. A constructor that only default arguments make one that copies is taken for such.
func (f *File) ByAddress(s *dwarf.StructType) bool {
	return f.byAddress(s, 0)
}

func (f *File) byAddress(s *dwarf.StructType, depth int) bool {
	whole := f.Complete(s)
	f.mu.Lock()
	e := f.entryOf(s)
	if e == nil {
		e = f.entryOf(whole)
	}
	said, own := false, false
	if e != nil {
		switch e.Val(dwarf.AttrCalling) {
		case int64(passedByReference):
			said, own = true, true
		case int64(passedByValue):
			said = true
		default:
			own = f.copies(e, s.StructName)
		}
	}
	f.mu.Unlock()
	if said || own || depth > 20 {
		return own
	}
	for _, m := range whole.Field {
		if in, ok := Plain(elementOf(m.Type)).(*dwarf.StructType); ok && in != s && f.byAddress(in, depth+1) {
			return true
		}
	}
	return false
}

// elementOf is what an array is of, in the end.
func elementOf(t dwarf.Type) dwarf.Type {
	for range 20 {
		a, ok := Plain(t).(*dwarf.ArrayType)
		if !ok {
			break
		}
		t = a.Type
	}
	return t
}

// copies tells whether a class declares what makes its copies more than their bytes. f.mu is held.
func (f *File) copies(class *dwarf.Entry, name string) bool {
	if !class.Children {
		return false
	}
	name, _, _ = strings.Cut(name, "<")
	r := f.data.Reader()
	r.Seek(class.Offset)
	r.Next()
	for {
		e, err := r.Next()
		if err != nil || e == nil || e.Tag == 0 {
			return false
		}
		own, _ := e.Val(dwarf.AttrName).(string)
		virtual, _ := e.Val(dwarf.AttrVirtuality).(int64)
		defaulted, _ := e.Val(dwarf.Attr(0x8b)).(int64) // DW_AT_defaulted
		switch {
		case e.Tag == dwarf.TagInheritance && virtual != 0, e.Tag == dwarf.TagMember && strings.HasPrefix(own, "_vptr"):
			return true
		case e.Tag != dwarf.TagSubprogram || defaulted == 1: // DW_DEFAULTED_in_class
		case virtual != 0, strings.HasPrefix(own, "~"):
			return true
		case own == name && e.Children && f.copiesOne(e.Offset, class.Offset):
			return true
		}
		if e.Children {
			r.SkipChildren()
		}
	}
}

// copiesOne tells whether a constructor's first parameter, behind the object, is a reference to its class. f.mu is held.
func (f *File) copiesOne(constructor, class dwarf.Offset) bool {
	r := f.data.Reader()
	r.Seek(constructor)
	r.Next()
	for {
		e, err := r.Next()
		if err != nil || e == nil || e.Tag == 0 {
			return false
		}
		if artificial, _ := e.Val(dwarf.AttrArtificial).(bool); e.Tag == dwarf.TagFormalParameter && !artificial {
			to, _ := e.Val(dwarf.AttrType).(dwarf.Offset)
			p, ok := f.typeAt(to).(*dwarf.PtrType)
			if !ok || p.Name != reference {
				return false
			}
			of := Plain(p.Type)
			off, known := f.entries[of]
			return known && off == class
		}
		if e.Children {
			r.SkipChildren()
		}
	}
}
