package event

import (
	"bytes"
	"fmt"

	"kprobe/arch"
	"kprobe/spec"
)

// dataLoc is the type of text in a record: 4 bytes that say where in the
// record it lies and how long it is.
const (
	dataLoc     = "__data_loc char[]"
	dataLocSize = 4
)

// FormatFile is the "format" file of a definition's event, byte for byte what
// the kernel gives: the fields of a record, and how they are printed. id is
// the event's number in the "id" file.
// Errors: for an argument of a type that spec.Parse refuses; ErrTypeInfo.
func FormatFile(s *spec.Spec, id int, a *arch.Arch) ([]byte, error) {
	var f format
	fmt.Fprintf(&f.out, "name: %s\nID: %d\nformat:\n", s.Event, id)
	f.field("unsigned short", "common_type", 2, false)
	f.field("unsigned char", "common_flags", 1, false)
	f.field("unsigned char", "common_preempt_count", 1, false)
	f.field("int", "common_pid", 4, true)
	f.out.WriteByte('\n')
	if s.Kind == spec.Return {
		f.field("unsigned long", "__probe_func", a.PtrSize, false)
		f.field("unsigned long", "__probe_ret_ip", a.PtrSize, false)
		f.prints("(%lx <- %lx)", "REC->__probe_func", "REC->__probe_ret_ip")
	} else {
		f.field("unsigned long", "__probe_ip", a.PtrSize, false)
		f.prints("(%lx)", "REC->__probe_ip")
	}
	for i := range s.Args {
		arg := &s.Args[i]
		t, err := typeOf(arg, a)
		if err != nil {
			return nil, fmt.Errorf("argument %s: %w", arg.Name, err)
		}
		f.arg(arg.Name, t)
	}
	fmt.Fprintf(&f.out, "\nprint fmt: \"%s\"%s\n", f.text.Bytes(), f.refs.Bytes())
	return f.out.Bytes(), nil
}

type format struct {
	out, text, refs bytes.Buffer
	off             int
}

func (f *format) field(typ, name string, size int, signed bool) {
	sign := 0
	if signed {
		sign = 1
	}
	fmt.Fprintf(&f.out, "\tfield:%s %s;\toffset:%d;\tsize:%d;\tsigned:%d;\n", typ, name, f.off, size, sign)
	f.off += size
}

// prints appends to the print format and to the list of fields that it refers to.
func (f *format) prints(text string, refs ...string) {
	f.text.WriteString(text)
	for _, r := range refs {
		f.refs.WriteString(", ")
		f.refs.WriteString(r)
	}
}

func (f *format) arg(name string, t spec.Type) {
	typ, size, ref := fieldType(t), t.Size, "REC->%s"
	if isText(t.Base) {
		typ, size, ref = dataLoc, dataLocSize, "__get_str(%s)"
	}
	signed := t.Base == spec.Signed || t.Base == spec.Enumeration || isText(t.Base)
	if t.Array == 0 {
		f.field(typ, name, size, signed)
		f.prints(" "+name+"="+printfOf(t), fmt.Sprintf(ref, name))
		return
	}
	// The kernel hides the count of an array of numbers ("u8 arr[];") and
	// shows that of an array of text as part of the type.
	if isText(t.Base) {
		f.field(fmt.Sprintf("%s[%d]", typ, t.Array), name, size*t.Array, signed)
	} else {
		f.field(typ, name+"[]", size*t.Array, signed)
	}
	f.prints(" " + name + "={")
	for i := range t.Array {
		if i != 0 {
			f.prints(",")
		}
		f.prints(printfOf(t), fmt.Sprintf(ref, fmt.Sprintf("%s[%d]", name, i)))
	}
	f.prints("}")
}

// fieldType is the C type of a number's field.
func fieldType(t spec.Type) string {
	if t.Base == spec.Signed || t.Base == spec.Enumeration {
		return fmt.Sprintf("s%d", 8*t.Size)
	}
	return fmt.Sprintf("u%d", 8*t.Size)
}

// printfOf is the conversion by which the kernel's printf prints the type.
func printfOf(t spec.Type) string {
	long := ""
	if t.Size == 8 {
		long = "L"
	}
	switch t.Base {
	case spec.String, spec.UString, spec.SymStr:
		return `\"%s\"`
	case spec.Symbol:
		return "%pS"
	case spec.Char:
		return "'%c'"
	case spec.Hex:
		return "0x%" + long + "x"
	case spec.Signed, spec.Enumeration:
		return "%" + long + "d"
	}
	return "%" + long + "u"
}
