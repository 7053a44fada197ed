package event

import (
	"fmt"
	"strconv"
	"time"

	"kprobe/arch"
	"kprobe/spec"
)

// TextHeader is the text above the lines of a trace file: events that it holds, events that were
// captured, CPUs of the machine.
func TextHeader(held, written uint64, cpus int) string {
	return fmt.Sprintf(`# tracer: nop
#
# entries-in-buffer/entries-written: %d/%d   #P:%d
#
#                                _-----=> irqs-off/BH-disabled
#                               / _----=> need-resched
#                              | / _---=> hardirq/softirq
#                              || / _--=> preempt-depth
#                              ||| / _-=> migrate-disable
#                              |||| /     delay
#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION
#              | |         |   |||||     |         |
`, held, written, cpus)
}

// AppendText appends the event as a line of the kernel's trace file, without
// the newline:
//
//	head-144     [000] .....     3.747170: myp: (vfs_open+0x0/0x30) a=0x1
//
// It differs from the kernel's in three ways: the flags column (interrupts, preemption) is always
// empty, bytes that do not print are escaped as \xNN (the kernel writes them raw), and a number
// that could not be read is "(fault)", as a string is (the kernel writes 0). A stack follows on
// lines of its own, " => " and a function each.
func (e *Event) AppendText(dst []byte) []byte {
	dst = e.appendTask(dst)
	dst = append(dst, " ["...)
	dst = appendUint(dst, uint64(e.CPU), 3, '0')
	dst = append(dst, "] ..... "...)
	us := uint64((e.Time + time.Microsecond/2) / time.Microsecond)
	dst = appendUint(dst, us/1e6, 5, ' ')
	dst = append(dst, '.')
	dst = appendUint(dst, us%1e6, 6, '0')
	dst = append(dst, ": "...)
	dst = appendText(dst, e.Name)
	dst = append(dst, ": "...)
	dst = e.appendPlace(dst)
	args := Fold(e.Args)
	for i := range args {
		v := &args[i]
		if v.isStack() && !v.Fault {
			continue
		}
		dst = append(dst, ' ')
		dst = appendText(dst, v.Name)
		dst = append(dst, '=')
		dst = v.AppendText(dst)
	}
	for i := range args {
		if v := &args[i]; v.isStack() {
			dst = v.appendStack(dst)
		}
	}
	return dst
}

// appendTask appends %16s-%-7d.
func (e *Event) appendTask(dst []byte) []byte {
	comm := e.Comm
	if comm == "" {
		comm = "<...>" // the kernel's word for a forgotten name
	}
	var room [64]byte
	name := appendText(room[:0], comm)
	for n := len(name); n < 16; n++ {
		dst = append(dst, ' ')
	}
	dst = append(append(dst, name...), '-')
	start := len(dst)
	dst = strconv.AppendInt(dst, int64(e.TID), 10)
	for len(dst)-start < 7 {
		dst = append(dst, ' ')
	}
	return dst
}

// appendPlace appends "(func+0xoff/0xsize)", or for a return
// "(caller+0xoff/0xsize <- func)". Addresses stand where no symbol is known.
func (e *Event) appendPlace(dst []byte) []byte {
	dst = append(dst, '(')
	if e.Return {
		dst = appendSymbol(dst, e.RetSym, e.RetAddr)
		dst = append(dst, " <- "...)
		return append(appendSymbol(dst, e.Func, e.Addr), ')')
	}
	dst = appendSymbol(dst, e.Func, e.Addr)
	if e.Func != "" {
		dst = strconv.AppendUint(append(dst, "+0x"...), e.Off, 16)
		dst = strconv.AppendUint(append(dst, "/0x"...), e.Size, 16)
	}
	return append(dst, ')')
}

func appendSymbol(dst []byte, name string, addr arch.Addr) []byte {
	if name == "" {
		return appendHex(dst, uint64(addr))
	}
	return appendText(dst, name)
}

func appendHex(dst []byte, n uint64) []byte {
	return strconv.AppendUint(append(dst, "0x"...), n, 16)
}

// appendUint right-aligns n in width columns.
func appendUint(dst []byte, n uint64, width int, pad byte) []byte {
	for limit := uint64(10); width > 1; width, limit = width-1, limit*10 {
		if n < limit {
			for ; width > 1; width-- {
				dst = append(dst, pad)
			}
			break
		}
	}
	return strconv.AppendUint(dst, n, 10)
}

// AppendText appends the value as it stands behind "name=" in a trace line.
func (v *Value) AppendText(dst []byte) []byte {
	switch {
	case v.Array:
		dst = append(dst, '{')
		for i := range v.Elems {
			if i != 0 {
				dst = append(dst, ',')
			}
			dst = v.Elems[i].AppendText(dst)
		}
		if v.Of != 0 {
			dst = append(dst, ",..."...)
		}
		return append(dst, '}')
	case v.Tail:
		return append(dst, "(tail call)"...)
	case v.Gone:
		return append(dst, "(optimized out)"...)
	case v.Fault:
		return append(dst, "(fault)"...)
	case v.Parts != nil:
		return v.appendParts(dst)
	case v.Size > 8:
		return v.appendWide(dst)
	}
	switch v.Base {
	case spec.String, spec.UString, spec.SymStr:
		dst = append(appendText(append(dst, '"'), v.Text), '"')
		if v.Of != 0 {
			dst = append(dst, "..."...)
		}
		return dst
	case spec.Symbol:
		return appendSymbol(dst, v.Text, arch.Addr(v.Bits))
	case spec.Char:
		dst = appendText(append(dst, '\''), string([]byte{byte(v.Bits)}))
		return append(dst, '\'')
	case spec.Enumeration, spec.UnsignedEnum:
		switch {
		case v.Text != "":
			return appendText(dst, v.Text)
		case v.Base == spec.UnsignedEnum:
			return strconv.AppendUint(dst, v.Bits, 10)
		}
		return strconv.AppendInt(dst, v.Int(), 10)
	case spec.Signed:
		return strconv.AppendInt(dst, v.Int(), 10)
	case spec.Hex:
		return appendHex(dst, v.Bits)
	case spec.Float:
		return strconv.AppendFloat(dst, v.Float(), 'g', -1, 8*int(v.Size))
	}
	return strconv.AppendUint(dst, v.Bits, 10)
}
