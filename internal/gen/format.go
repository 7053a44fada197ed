package gen

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"kprobe/arch"
	"kprobe/event"
)

// Layout is where a record has what: all that reading records takes, as data that a
// file can keep. See Generate for a record's form.
type Layout struct {
	Fields Fields
	Args   []LayoutArg
	Faults int // offset of the bits
	Values int // offset of element 0; the bits' too where nothing can fault
	Fixed  int // bytes before the texts
}

// LayoutArg is one argument in a record.
type LayoutArg struct {
	Text  bool
	Count int // elements of an array; 0: it is none

	Counted bool // two elements: how many there are, and the memory of those that were read
}

// Format is a Layout, and what the values in it mean.
type Format struct {
	Layout
	Form    event.Form
	At      []int // of each of the form's arguments, its index in the layout; -1: it is not in it
	PCArg   int   // that of the PC, -1 if there is none
	CommArg int   // that of the task's name, -1 if there is none
}

// layout is that of the recorder's program.
func (r *Recorder) layout() Layout {
	l := Layout{Fields: r.trace.Fields, Faults: r.faults, Values: r.values, Fixed: r.fixed}
	for k := range r.trace.Args {
		f := &r.trace.Args[k]
		l.Args = append(l.Args, LayoutArg{Text: isText(f), Count: array(f), Counted: f.As == event.LoadCounted})
	}
	return l
}

// Decode reads a record of the recorder's program: Layout.Decode into a Hit of its own.
func (r *Recorder) Decode(rec []byte) (h Hit, err error) {
	l := r.layout()
	err = l.Decode(rec, &h, func(b []byte) string { return string(b) })
	return h, err
}

// Head reads the fields that every record begins with, without the arguments. It is
// false for what is no record of this layout.
func (l *Layout) Head(rec []byte, h *Hit) bool {
	if len(rec) < l.Fixed || len(rec) < l.Faults {
		return false
	}
	off := 0
	for _, f := range [...]struct {
		bit Fields
		to  *uint64
	}{{FieldTime, &h.Time}, {FieldThread, &h.Thread}, {FieldCookie, &h.Cookie}} {
		*f.to = 0
		if l.Fields&f.bit != 0 {
			*f.to = binary.LittleEndian.Uint64(rec[off:])
			off += 8
		}
	}
	h.CPU = 0
	if l.Fields&FieldCPU != 0 {
		h.CPU = uint32(binary.LittleEndian.Uint64(rec[off:]))
	}
	return true
}

// Check tells what is wrong with a layout that somebody else has written: Decode
// believes it.
func (f *Format) Check() error {
	elems := 0
	for _, a := range f.Args {
		if a.Count < 0 || a.Count > 1<<16 {
			return fmt.Errorf("gen: an array of %d elements", a.Count)
		}
		elems += a.elems()
	}
	fields := 0
	for b := FieldTime; b <= FieldCPU; b <<= 1 {
		if f.Fields&b != 0 {
			fields += 8
		}
	}
	if f.Faults < fields || f.Values < f.Faults || f.Values > f.Faults && f.Values-f.Faults < (elems+63)/64*8 || f.Fixed != f.Values+8*elems {
		return fmt.Errorf("gen: %d elements at %d, faults at %d, %d bytes in all: that is no layout", elems, f.Values, f.Faults, f.Fixed)
	}
	if len(f.At) != len(f.Form) {
		return fmt.Errorf("gen: %d arguments, %d are in records", len(f.Form), len(f.At))
	}
	for i, k := range f.At {
		switch {
		case k >= len(f.Args):
			return fmt.Errorf("gen: there is no argument %d", k)
		case k >= 0 && f.Args[k].Counted != f.Form[i].Type.Counted, k >= 0 && f.Form[i].Type.Counted && f.Args[k].Text != (f.Form[i].Type.Array == 0):
			return fmt.Errorf("gen: argument %s: it is counted in one place only", f.Form[i].Name)
		case k >= 0 && f.Form[i].Type.Counted && f.Form[i].Type.Array != 0 && !slices.Contains([]int{1, 2, 4, 8}, f.Form[i].Type.Size):
			return fmt.Errorf("gen: argument %s: elements of %d bytes", f.Form[i].Name, f.Form[i].Type.Size)
		case k >= 0 && !f.Args[k].Counted && f.Args[k].Count != f.Form[i].Type.Array:
			return fmt.Errorf("gen: argument %s: %d elements of %d", f.Form[i].Name, f.Args[k].Count, f.Form[i].Type.Array)
		case k < 0 && f.Form[i].Type.Array != 0:
			return fmt.Errorf("gen: argument %s: an array that is constant", f.Form[i].Name)
		case k < 0 && !f.Form[i].Const:
			return fmt.Errorf("gen: argument %s is nowhere", f.Form[i].Name)
		case f.Form[i].Shift < 0 || f.Form[i].Type.BitW < 0 || f.Form[i].Type.BitW > 64:
			return fmt.Errorf("gen: argument %s: a field of %d bits at %d", f.Form[i].Name, f.Form[i].Type.BitW, f.Form[i].Shift)
		}
	}
	if f.PCArg >= len(f.Args) || f.CommArg >= len(f.Args) || f.CommArg >= 0 && !f.Args[f.CommArg].Text {
		return fmt.Errorf("gen: there is no argument %d", max(f.PCArg, f.CommArg))
	}
	return nil
}

// Decode reads a record; h and its slices are used again. text makes a string of what
// the record has. Every number in it is looked at before it is believed: the target may
// have overwritten it.
func (l *Layout) Decode(rec []byte, h *Hit, text func([]byte) string) error {
	if !l.Head(rec, h) {
		return fmt.Errorf("gen: a record of %d bytes, of %d or more", len(rec), l.Fixed)
	}
	h.Args = slices.Grow(h.Args[:0], len(l.Args))[:len(l.Args)]
	elem := 0
	for k := range l.Args {
		a, raw := &l.Args[k], &h.Args[k]
		if a.Counted {
			if !l.counted(rec, raw, elem, text) {
				return fmt.Errorf("gen: a text beyond a record of %d bytes", len(rec))
			}
			elem += a.elems()
			continue
		}
		if a.Count == 0 {
			raw.Elems = nil
			if !l.element(rec, raw, elem, a.Text, text) {
				return fmt.Errorf("gen: a text beyond a record of %d bytes", len(rec))
			}
			elem++
			continue
		}
		if cap(raw.Elems) < a.Count {
			raw.Elems = make([]Raw, a.Count)
		}
		*raw = Raw{Elems: raw.Elems[:a.Count]}
		for i := range raw.Elems {
			if !l.element(rec, &raw.Elems[i], elem, a.Text, text) {
				return fmt.Errorf("gen: a text beyond a record of %d bytes", len(rec))
			}
			elem++
		}
	}
	return nil
}

// elems are how many 8 bytes an argument has in a record.
func (a *LayoutArg) elems() int {
	if a.Counted {
		return 2
	}
	return max(1, a.Count)
}

func (l *Layout) fault(rec []byte, elem int) bool {
	return l.Faults < l.Values && binary.LittleEndian.Uint64(rec[l.Faults+elem/64*8:])>>(elem%64)&1 != 0
}

// counted reads how many there are, and the memory of those that were read, without the NUL behind it.
func (l *Layout) counted(rec []byte, raw *Raw, elem int, text func([]byte) string) bool {
	*raw = Raw{Fault: l.fault(rec, elem) || l.fault(rec, elem+1), Bits: binary.LittleEndian.Uint64(rec[l.Values+8*elem:])}
	v := binary.LittleEndian.Uint64(rec[l.Values+8*(elem+1):])
	place, n := uint64(uint32(v)), v>>32
	switch {
	case raw.Fault:
		return true
	case n == 0 || place > uint64(len(rec)) || n > uint64(len(rec))-place:
		return false
	}
	raw.Text = text(rec[place : place+n-1])
	return true
}

func (l *Layout) element(rec []byte, raw *Raw, elem int, isText bool, text func([]byte) string) bool {
	v := binary.LittleEndian.Uint64(rec[l.Values+8*elem:])
	raw.Fault, raw.Bits, raw.Text = false, 0, ""
	if l.fault(rec, elem) {
		raw.Fault = true
		return true
	}
	if !isText {
		raw.Bits = v
		return true
	}
	place, n := uint64(uint32(v)), v>>32
	if place > uint64(len(rec)) || n > uint64(len(rec))-place {
		return false
	}
	b := rec[place : place+n]
	if end := bytes.IndexByte(b, 0); end >= 0 {
		b = b[:end]
	}
	raw.Text = text(b)
	return true
}

// AppendTo appends the event's arguments of a decoded record. name names addresses.
func (f *Format) AppendTo(dst []event.Value, h *Hit, name func(arch.Addr) string) []event.Value {
	for i := range f.Form {
		var raw *Raw
		if k := f.At[i]; k >= 0 {
			raw = &h.Args[k]
		}
		dst = f.Form[i].AppendTo(dst, raw, name)
	}
	return dst
}

// Caller is the program counter that a decoded record has: false if it has none.
func (f *Format) Caller(h *Hit) (arch.Addr, bool) {
	if f.PCArg < 0 {
		return 0, false
	}
	return arch.Addr(h.Args[f.PCArg].Bits), true
}

// Task is the thread's name that a decoded record has: false if it has none.
func (f *Format) Task(h *Hit) (string, bool) {
	if f.CommArg < 0 {
		return "", false
	}
	return h.Args[f.CommArg].Text, true
}
