package event

import (
	"strings"

	"kprobe/arch"
	"kprobe/spec"
)

// Frame is one function of a stack: the first is where the hit was, each other one called the one
// before.
type Frame struct {
	Addr    arch.Addr // where it goes on; of the first, where it is; of one that has made way, behind its jump
	Func    string    // "function+0xoff", "" where there is none
	File    string    // that the code is in, "" where there is none
	Source  string    // "file.c:12", "" where no debug data tells
	Inlined bool      // its code is a copy inside the next one's function
	Tail    bool      // it has made way, by a jump, for the one before it, and has no frame: debug data tells of it
}

// Name is the function's name, or where there is none the place.
func (f *Frame) Name() string {
	if i := strings.LastIndex(f.Func, "+0x"); i > 0 {
		return f.Func[:i]
	}
	return string(appendSymbol(nil, f.Func, f.Addr))
}

// appendStack appends the frames of a stack, each on a line of its own, with a newline in front:
//
//	=> deep+0x1c (/usr/bin/prog) prog.c:12
func (v *Value) appendStack(dst []byte) []byte {
	for i := range v.Frames {
		f := &v.Frames[i]
		dst = append(dst, "\n => "...)
		dst = appendSymbol(dst, f.Func, f.Addr)
		switch {
		case f.Inlined:
			dst = append(dst, " (inlined)"...)
		case f.Tail:
			dst = append(dst, " (tail call)"...)
		case f.File != "":
			dst = append(appendText(append(dst, " ("...), f.File), ')')
		}
		if f.Source != "" {
			dst = appendText(append(dst, ' '), f.Source)
		}
	}
	if v.Text != "" {
		dst = append(appendText(append(dst, "\n => ("...), v.Text), ')')
	}
	return dst
}

// appendJSONStack appends it as an object: frames, and end where there is more than there are
// frames.
func (v *Value) appendJSONStack(dst []byte) []byte {
	dst = append(dst, `{"frames":[`...)
	for i := range v.Frames {
		f := &v.Frames[i]
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendJSONAddr(append(dst, `{"addr":`...), f.Addr)
		for _, m := range []struct{ name, text string }{{"func", f.Func}, {"file", f.File}, {"source", f.Source}} {
			if m.text != "" {
				dst = append(append(append(dst, `,"`...), m.name...), `":`...)
				dst = appendJSONText(dst, m.text)
			}
		}
		if f.Inlined {
			dst = append(dst, `,"inlined":true`...)
		}
		if f.Tail {
			dst = append(dst, `,"tail_call":true`...)
		}
		dst = append(dst, '}')
	}
	dst = append(dst, ']')
	if v.Text != "" {
		dst = appendJSONText(append(dst, `,"end":`...), v.Text)
	}
	return append(dst, '}')
}

// stack makes a value of addresses, which get their names later.
func (v *Value) stack(pcs []uint64, end string) {
	v.Text, v.Frames = end, make([]Frame, len(pcs))
	for i, pc := range pcs {
		v.Frames[i].Addr = arch.Addr(pc)
	}
}

func (v *Value) isStack() bool { return v.Base == spec.Trace }
