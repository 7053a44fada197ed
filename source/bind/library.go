package bind

import (
	"debug/dwarf"
	"errors"
	"fmt"
	"strings"

	"kprobe/source"
	"kprobe/spec"
)

// layout is a type of a language or its library that has its elements elsewhere. It is known by the beginning of its
// name and by members, which are paths; a type of the name without these members is a struct like any other.
type layout struct {
	name string
	data string // a pointer to the elements
	len  string // how many there are ...
	end  string // ... or a pointer behind the last
	text bool   // they are text
	elem string // the template's parameter that they are of, where that is not what data points at
}

var layouts = []layout{
	{name: "string", data: "str", len: "len", text: true},       // Go
	{name: "[]", data: "array", len: "len"},                     //
	{name: "&str", data: "data_ptr", len: "length", text: true}, // Rust
	{name: "&mut str", data: "data_ptr", len: "length", text: true},
	{name: "&[", data: "data_ptr", len: "length"},
	{name: "&mut [", data: "data_ptr", len: "length"},
	{name: "String", data: "vec.buf.inner.ptr.pointer.pointer", len: "vec.len", text: true},
	{name: "String", data: "vec.buf.ptr.pointer.pointer", len: "vec.len", text: true}, // before 1.82
	{name: "Vec<", data: "buf.inner.ptr.pointer.pointer", len: "len", elem: "T"},
	{name: "Vec<", data: "buf.ptr.pointer.pointer", len: "len"},
	{name: "basic_string<char,", data: "_M_dataplus._M_p", len: "_M_string_length", text: true}, // libstdc++
	{name: "basic_string<", data: "_M_dataplus._M_p", len: "_M_string_length"},                  // of wider characters
	{name: "basic_string_view<char,", data: "_M_str", len: "_M_len", text: true},
	{name: "basic_string_view<", data: "_M_str", len: "_M_len"},
	{name: "vector<", data: "_M_impl._M_start", end: "_M_impl._M_finish"},
}

// library makes a value an argument whose type is one of layouts; false where it is none, or where something else
// than its elements is asked for.
func (b *binder) library(a *spec.Arg, v value) (bool, error) {
	t, ok := source.Plain(v.typ).(*dwarf.StructType)
	if !ok || a.Type.Written != "" && a.Type.Base != spec.String && a.Type.Array == 0 {
		return false, nil
	}
	for i := range layouts {
		if l := &layouts[i]; strings.HasPrefix(t.StructName, l.name) {
			if done, err := b.elements(a, v, l); done || err != nil {
				return done, err
			}
		}
	}
	return false, nil
}

// elements makes what a layout says an argument; false where the type is not of the layout after all.
func (b *binder) elements(a *spec.Arg, v value, l *layout) (bool, error) {
	data, ok, err := b.path(v, l.data)
	if !ok || err != nil {
		return false, err
	}
	to, ok := source.Plain(data.typ).(*dwarf.PtrType)
	if !ok {
		return false, nil
	}
	count, ok, err := b.path(v, l.len+l.end)
	if !ok || err != nil || count.typ.Size() != int64(b.site.Arch.PtrSize) {
		return false, err
	}
	typ := a.Type
	switch elem := b.elem(v, to, l); {
	case elem == nil:
		return false, nil
	case l.text || typ.Base == spec.String && elem.Size() == 1:
		if typ.Written != "" && typ.Base != spec.String {
			break // its bytes
		}
		if typ.Array != 0 {
			return false, nil
		}
		typ = spec.Type{Written: "string", Base: spec.String}
	case typ.Base == spec.String:
		return false, nil
	case typ.Written == "":
		if typ, err = b.printed(value{typ: elem, addr: &spec.Fetch{}}); err != nil || typ.Array != 0 || typ.Base == spec.String {
			return false, nil
		}
		typ.Array = most
	}
	from, err := b.site.word(data)
	if err != nil {
		return false, err
	}
	n, err := b.site.word(count)
	if err != nil {
		return false, err
	}
	if n.Op == spec.Maybe { // what is counted says so itself
		n = n.Inner
	}
	typ.Counted = true
	a.Type, a.Fetch = typ, *load(from)
	if l.end != "" {
		a.Fetch.End = n
	} else {
		a.Fetch.Count = n
	}
	return true, nil
}

// elem is the type of a layout's elements; nil where that is not known.
func (b *binder) elem(v value, data *dwarf.PtrType, l *layout) dwarf.Type {
	if l.elem == "" {
		return data.Type
	}
	return b.site.Data.Parameter(source.Plain(v.typ).(*dwarf.StructType), l.elem)
}

// path goes from a struct to a member of its members; false where there is none.
func (b *binder) path(v value, path string) (value, bool, error) {
	for name := range strings.SplitSeq(path, ".") {
		t, ok := source.Plain(v.typ).(*dwarf.StructType)
		if !ok {
			return v, false, nil
		}
		m, off, ok := source.Member(b.site.Data.Complete(t), name)
		if !ok || m.BitSize != 0 {
			return v, false, nil
		}
		var err error
		if v, err = b.site.part(v, off, max(0, m.Type.Size()), m.Type); err != nil {
			return v, false, err
		}
	}
	return v, true, nil
}

// farthest is how far in an element may lie that is named by its index: one that is not there is read at that
// address, where nothing is.
const farthest = 1 << 16

// element is element n of a value whose type is one of layouts. Where there are not so many, it cannot be read.
func (b *binder) element(v value, t *dwarf.StructType, n int64, e *spec.Expr) (value, error) {
	for i := range layouts {
		l := &layouts[i]
		if !strings.HasPrefix(t.StructName, l.name) {
			continue
		}
		data, ok, err := b.path(v, l.data)
		to, is := source.Plain(data.typ).(*dwarf.PtrType)
		if !ok || !is || err != nil {
			continue
		}
		count, ok, err := b.path(v, l.len+l.end)
		elem := b.elem(v, to, l)
		if !ok || err != nil || elem == nil || elem.Size() <= 0 || count.typ.Size() != int64(b.site.Arch.PtrSize) {
			continue
		}
		size := elem.Size()
		if n < 0 || n >= farthest/size {
			return v, fmt.Errorf("%s: elements 0 to %d can be named", e, farthest/size-1)
		}
		from, err1 := b.site.word(data)
		many, err2 := b.site.word(count)
		if err := errors.Join(err1, err2); err != nil {
			return v, err
		}
		g := &spec.Guard{Of: many, Size: b.site.Arch.PtrSize, N: n, Must: true}
		if l.end != "" {
			g.Minus, g.N = from, (n+1)*size-1
		}
		return value{typ: elem, addr: plus(&spec.Fetch{Op: spec.Maybe, Inner: from, Guard: g}, uint64(n*size))}, nil
	}
	return v, fmt.Errorf("%s is a %s: it has no elements", e.L, typeName(t))
}
