package event

import (
	"encoding/binary"
	"slices"

	"kprobe/arch"
	"kprobe/spec"
)

// Form describes a capture's arguments without the way to read them: it is data that a file can
// keep. There is one FormArg for each argument that events have.
type Form []FormArg

// FormArg is one argument.
type FormArg struct {
	Name  string
	Type  spec.Type
	Const bool   // nothing is read: it is Text
	Text  string // of a constant
	Shift int    // of a bit field: it is shifted down ...
	Mask  uint64 // ... and masked; all ones otherwise
}

// Form describes the arguments that events have.
func (c *Capture) Form() Form {
	form := make(Form, c.Shown())
	for i := range form {
		f := &c.fetches[i]
		form[i] = FormArg{Name: f.name, Type: f.typ, Const: f.src == LoadText, Text: f.text, Shift: f.shift, Mask: f.mask}
	}
	return form
}

// AppendTo makes the value of a hit of a raw value that was read elsewhere, as Capture.AppendTo
// does of values that it reads itself. The room that dst has is used again, and so are its values'
// elements. name is Resolver.Name.
func (f *FormArg) AppendTo(dst []Value, raw *Raw, name func(arch.Addr) string) []Value {
	dst = slices.Grow(dst, 1)[:len(dst)+1]
	v := &dst[len(dst)-1]
	elems := v.Elems[:0]
	*v = Value{Name: f.Name, Base: f.Type.Base, Size: uint8(f.Type.Size)}
	if f.Const {
		v.Text = f.Text
		return dst
	}
	if f.Type.Counted {
		if v.Elems, v.Fault = elems, raw.Fault; !v.Fault {
			v.counted(&f.Type, raw.Bits, raw.Text, binary.LittleEndian, name)
		}
		return dst
	}
	if f.Type.Array == 0 {
		f.value(v, raw, name)
		return dst
	}
	v.Array, v.Elems = true, slices.Grow(elems, f.Type.Array)[:f.Type.Array]
	for k := range v.Elems {
		v.Elems[k] = Value{Base: v.Base, Size: v.Size}
		f.value(&v.Elems[k], &raw.Elems[k], name)
	}
	return dst
}

func (f *FormArg) value(v *Value, r *Raw, name func(arch.Addr) string) {
	v.Text = r.Text
	if v.Fault = r.Fault; v.Fault || v.Size == 0 {
		return
	}
	v.Bits = r.Bits & (1<<(8*v.Size-1)<<1 - 1) >> f.Shift & f.Mask
	v.named(&f.Type, name)
}

// Names tells whether the argument's values are addresses that are named.
func (f *FormArg) Names() bool { return f.Type.Base == spec.Symbol || f.Type.Base == spec.SymStr }
