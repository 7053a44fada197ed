package event

import (
	"strconv"

	"kprobe/arch"
	"kprobe/spec"
)

// AppendJSON appends the event as one JSON object on one line, without the
// newline. The members, in this order:
//
//	time_ns       since boot (CLOCK_MONOTONIC), nanoseconds
//	cpu pid tid   numbers
//	comm          string
//	group event   strings
//	kind          "p", "r" for a return probe, "w" for an access to data
//	addr          "0x...", the probed place, or behind what made the access
//	func off size the symbol that holds it; left out where there is none
//	ret_addr ret  where a return probe's function returns to, and the symbol
//	              there; left out of other events, ret where there is none
//	args          object: a member for each argument, in the definition's order
//
// An argument is a number for the types u, s, b and f (u64 and s64 may be beyond 2^53, and numbers
// of 16 bytes beyond those: read them as integers, not as floating point), but a string for an f
// that is NaN or infinite; a string for x ("0x1f"), char, string, symbol and a value of an
// enumeration that has a name; an array for arrays; for a stack an object with frames (addr, func,
// file, source, inlined) and, where there are more, end: why; for a struct an object; for what is
// one of several things its name or, if that has parts, an object with the name as its member; for
// a text or an array of which only the beginning was read, an object with first, that, and of: how
// many bytes or elements there are; null where memory could not be read. Strings are always valid
// UTF-8: other bytes are \xNN in their text.
func (e *Event) AppendJSON(dst []byte) []byte {
	dst = strconv.AppendInt(append(dst, `{"time_ns":`...), int64(e.Time), 10)
	dst = strconv.AppendInt(append(dst, `,"cpu":`...), int64(e.CPU), 10)
	dst = strconv.AppendInt(append(dst, `,"pid":`...), int64(e.PID), 10)
	dst = strconv.AppendInt(append(dst, `,"tid":`...), int64(e.TID), 10)
	dst = appendJSONText(append(dst, `,"comm":`...), e.Comm)
	dst = appendJSONText(append(dst, `,"group":`...), e.Group)
	dst = appendJSONText(append(dst, `,"event":`...), e.Name)
	kind := spec.Probe
	switch {
	case e.Return:
		kind = spec.Return
	case e.Access:
		kind = spec.Watch
	}
	dst = append(dst, `,"kind":"`...)
	dst = append(dst, byte(kind), '"')
	dst = appendJSONAddr(append(dst, `,"addr":`...), e.Addr)
	if e.Func != "" {
		dst = appendJSONText(append(dst, `,"func":`...), e.Func)
		dst = strconv.AppendUint(append(dst, `,"off":`...), e.Off, 10)
		dst = strconv.AppendUint(append(dst, `,"size":`...), e.Size, 10)
	}
	if e.Return {
		dst = appendJSONAddr(append(dst, `,"ret_addr":`...), e.RetAddr)
		if e.RetSym != "" {
			dst = appendJSONText(append(dst, `,"ret":`...), e.RetSym)
		}
	}
	dst = append(dst, `,"args":{`...)
	args := Fold(e.Args)
	for i := range args {
		if i != 0 {
			dst = append(dst, ',')
		}
		v := &args[i]
		dst = append(appendJSONText(dst, v.Name), ':')
		dst = v.AppendJSON(dst)
	}
	return append(dst, "}}"...)
}

func appendJSONAddr(dst []byte, a arch.Addr) []byte {
	return append(appendHex(append(dst, '"'), uint64(a)), '"')
}

// AppendJSON appends the value as AppendJSON of Event does.
func (v *Value) AppendJSON(dst []byte) []byte {
	if v.Of != 0 {
		whole := *v
		whole.Of = 0
		dst = whole.AppendJSON(append(dst, `{"first":`...))
		dst = strconv.AppendUint(append(dst, `,"of":`...), v.Of, 10)
		return append(dst, '}')
	}
	switch {
	case v.Array:
		dst = append(dst, '[')
		for i := range v.Elems {
			if i != 0 {
				dst = append(dst, ',')
			}
			dst = v.Elems[i].AppendJSON(dst)
		}
		return append(dst, ']')
	case v.Fault:
		return append(dst, "null"...)
	case v.Parts != nil:
		return v.appendJSONParts(dst)
	case v.Size > 8 && (v.Base != spec.Float || v.finite()):
		return v.appendWide(dst)
	case v.Size > 8:
		return appendJSONText(dst, string(v.appendWide(nil)))
	}
	switch v.Base {
	case spec.Trace:
		return v.appendJSONStack(dst)
	case spec.String, spec.UString, spec.SymStr:
		return appendJSONText(dst, v.Text)
	case spec.Symbol:
		if v.Text == "" {
			return appendJSONAddr(dst, arch.Addr(v.Bits))
		}
		return appendJSONText(dst, v.Text)
	case spec.Char:
		return appendJSONText(dst, string([]byte{byte(v.Bits)}))
	case spec.Hex:
		return appendJSONAddr(dst, arch.Addr(v.Bits))
	case spec.Enumeration, spec.UnsignedEnum:
		switch {
		case v.Text != "":
			return appendJSONText(dst, v.Text)
		case v.Base == spec.UnsignedEnum:
			return strconv.AppendUint(dst, v.Bits, 10)
		}
		return strconv.AppendInt(dst, v.Int(), 10)
	case spec.Signed:
		return strconv.AppendInt(dst, v.Int(), 10)
	case spec.Float:
		if !v.finite() {
			return appendJSONText(dst, string(v.AppendText(nil)))
		}
		return strconv.AppendFloat(dst, v.Float(), 'g', -1, 8*int(v.Size))
	}
	return strconv.AppendUint(dst, v.Bits, 10)
}
