package bind

import (
	"debug/dwarf"
	"errors"
	"slices"
	"strings"

	"kprobe/arch"
	"kprobe/source"
	"kprobe/spec"
)

// wide adds the halves of a number of more than 8 bytes; false for any other value.
func (w *parts) wide(path string, v value) bool {
	format := w.site.wideFormat(v.typ)
	if format == "" || v.bits != 0 {
		return false
	}
	upper := int64(8)
	if format == spec.WideX87 {
		upper = 2
	}
	low, high := int64(0), int64(8)
	if w.site.Arch.Order.String() == "BigEndian" {
		low, high = high, low
	}
	w.half(below(path, spec.PartLow+format), v, low, 8)
	w.half(below(path, spec.PartHigh), v, high, upper)
	return true
}

// half adds size bytes of a value, at an offset, as a number.
func (w *parts) half(path string, v value, at, size int64) {
	t := &dwarf.UintType{BasicType: dwarf.BasicType{CommonType: dwarf.CommonType{ByteSize: size}}}
	a := spec.Arg{Name: path, Named: true}
	h, err := w.site.part(v, at, size, t)
	if err == nil {
		err = w.typed(&a, h)
	}
	if err != nil {
		a = said(path, "<"+err.Error()+">")
	}
	w.add(a)
}

// wideFormat is the format of a number of more than 8 bytes, as events name it; "" for any other type.
func (s *Site) wideFormat(t dwarf.Type) string {
	switch u := source.Plain(t).(type) {
	case *dwarf.IntType:
		if u.Size() == 16 {
			return spec.WideSigned
		}
	case *dwarf.UintType:
		if u.Size() == 16 {
			return spec.WideUnsigned
		}
	case *dwarf.FloatType:
		return s.floatFormat(u)
	}
	return ""
}

// floatFormat tells by its name what a floating-point type of more than 8 bytes is: machines have up
// to two of one size.
func (s *Site) floatFormat(t *dwarf.FloatType) string {
	of := s.Arch.Debug.LongDouble
	switch {
	case t.Size() == 16 && (strings.Contains(t.Name, "128") || t.Name == "real(kind=16)"):
		return spec.WideQuad
	case t.Name != "long double" && t.Name != "_Float64x" && t.Name != "real(kind=10)":
		return ""
	case of == arch.X87 && t.Size() >= 12:
		return spec.WideX87
	case of == arch.Quad && t.Size() == 16:
		return spec.WideQuad
	}
	return ""
}

// complex adds the real and the imaginary part of a number.
func (w *parts) complex(path string, v value, t *dwarf.ComplexType) bool {
	size := t.Size() / 2
	half := &dwarf.FloatType{BasicType: dwarf.BasicType{CommonType: dwarf.CommonType{ByteSize: size, Name: strings.TrimPrefix(t.Name, "complex ")}}}
	for i, name := range []string{"re", "im"} {
		name = below(path, name)
		m, err := w.site.part(v, int64(i)*size, size, half)
		if err != nil {
			w.add(said(name, "<"+err.Error()+">"))
			continue
		}
		w.part(name, m, 0)
	}
	return true
}

// order puts the halves of an integer of 16 bytes that is a parameter in order. GCC 12 tells those
// that are passed in rdi and rsi the wrong way round, which it numbers from rsi on; gdb believes it.
// At the function's entry the convention knows better: the lower half is in the earlier register.
// Errors: behind the entry it may be right, too.
func (s *Site) order(v *value) error {
	if f := s.wideFormat(v.typ); len(v.pieces) != 2 || f != spec.WideSigned && f != spec.WideUnsigned || !s.psABI() {
		return nil
	}
	var nth [2]int // of the registers for arguments
	for i, p := range v.pieces {
		if p.Location.Value == nil { // LLVM before 18 passes a half in memory, the upper one
			return nil
		}
		reg, _ := s.passedIn(p.Location)
		nth[i] = slices.Index(s.Arch.Args, reg)
	}
	entry := s.Entry && s.Data.OwnCode(s.At) // a copy that is inlined there has what its caller computes
	switch {
	case nth[0] >= 0 && nth[1] == nth[0]+1:
	case nth[1] >= 0 && nth[0] == nth[1]+1 && entry:
		slices.Reverse(v.pieces)
	case nth[1] >= 0 && nth[0] == nth[1]+1:
		return errors.New("its halves may be told the wrong way round here: probe the entry")
	case entry && (nth[0] >= 0 || nth[1] >= 0):
		return errors.New("debug data has it in registers in which no argument is passed")
	}
	return nil
}
