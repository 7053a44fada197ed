// Package output shows values of scripts as bpftrace does: text, or JSON, one object a
// line. Names behind numbers are asked for when they are shown.
package output

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"kprobe/script/types"
)

// Names finds words for numbers.
type Names struct {
	USym   func(addr uint64) string
	KSym   func(addr uint64) string
	User   func(id uint32) string
	Probe  func(cookie uint64) string
	Cgroup func(id uint64) string
	Call   func(number uint64) string            // of a system call; "" for none
	Stack  func(id uint64, t *types.Type) string // its lines
	Wall   func(boot uint64) time.Time           // when it was so many ns after boot
	TAI    func(ns uint64) time.Time             // when it was so late by atomic time

	Trailer string // behind a string that was cut
}

func word(b []byte) uint64 {
	var w [8]byte
	copy(w[:], b)
	return binary.LittleEndian.Uint64(w[:])
}

// number is a scalar as it lies in memory, extended by its sign: a word, or in a
// structure its own size.
func number(t *types.Type, b []byte) uint64 {
	if len(b) >= 8 || len(b) == 0 {
		return word(b)
	}
	n := word(b)
	if t.Signed {
		shift := 64 - 8*len(b)
		return uint64(int64(n<<shift) >> shift)
	}
	return n
}

// Cut is a string's text, and whether it filled its room.
func Cut(t *types.Type, b []byte) (string, bool) {
	s := b[:min(t.Size, len(b))]
	if i := slices.Index(s, 0); i >= 0 {
		return string(s[:i]), t.Filled && i == t.Size-1
	}
	return string(s), !t.Chars
}

// Text is a value that is not gathered, in words.
func (n *Names) Text(t *types.Type, b []byte) string {
	switch t.Kind {
	case types.Int:
		return integer(t, number(t, b))
	case types.Bool:
		return strconv.FormatBool(number(t, b) != 0)
	case types.Pointer:
		return fmt.Sprintf("0x%x", word(b))
	case types.Enum:
		v := number(t, b)
		if name, ok := t.Names[v]; ok {
			return name
		}
		return integer(t, v)
	case types.USym:
		return n.USym(word(b))
	case types.KSym:
		return n.KSym(word(b))
	case types.UStack, types.KStack:
		if id := word(b); id != 0 {
			return n.Stack(id-1, t)
		}
		return ""
	case types.User:
		return n.User(uint32(word(b)))
	case types.Probe:
		return n.Probe(word(b))
	case types.CgroupPath:
		return n.Cgroup(word(b))
	case types.Mac:
		return fmt.Sprintf("%02X:%02X:%02X:%02X:%02X:%02X", b[0], b[1], b[2], b[3], b[4], b[5])
	case types.Error:
		return n.named(t.Name, int64(word(b)))
	case types.Time:
		return Strftime(n.Wall(word(b)), t.Name)
	case types.String:
		s, cut := Cut(t, b)
		if cut {
			s += n.Trailer
		}
		return s
	case types.Buffer:
		return Hex(b[8:8+min(word(b), uint64(len(b)-8))], true, false)
	case types.Float:
		return "null"
	case types.Inet:
		return inet(word(b), b[8:24])
	case types.Array:
		var all []string
		for i := range t.Len {
			all = append(all, n.Text(t.Elem, b[i*t.Elem.Size:(i+1)*t.Elem.Size]))
		}
		return "[" + strings.Join(all, ",") + "]"
	case types.Tuple:
		return "(" + strings.Join(n.fields(t, b, func(string) string { return "" }), ", ") + ")"
	case types.Record:
		if len(t.Fields) == 0 {
			return "{}"
		}
		return "{ " + strings.Join(n.fields(t, b, func(name string) string { return "." + name + " = " }), ", ") + " }"
	}
	return ""
}

// inet is an address of the network.
func inet(family uint64, b []byte) string {
	switch family {
	case 2:
		return netip.AddrFrom4([4]byte(b)).String()
	case 10:
		return netip.AddrFrom16([16]byte(b)).String()
	}
	return fmt.Sprintf("Got unsupported AF type: %d", family)
}

func (n *Names) fields(t *types.Type, b []byte, lead func(name string) string) (all []string) {
	for _, f := range t.Fields {
		all = append(all, lead(f.Name)+n.Text(f.Type, member(t, f, b)))
	}
	return all
}

// member is where a member of a tuple or record lies; of a bit-field its bits, as a word.
func member(t *types.Type, f types.Field, b []byte) []byte {
	size := f.Type.Slot()
	if t.Name != "" {
		size = f.Type.Size
	}
	if f.BitSize == 0 {
		return b[f.Offset:min(f.Offset+size, len(b))]
	}
	b = b[f.Offset:min(f.Offset+f.Bytes(), len(b))]
	bits := word(b) >> f.BitOff
	if len(b) > 8 {
		bits |= uint64(b[8]) << (64 - f.BitOff)
	}
	bits <<= 64 - f.BitSize
	if f.Type.Signed {
		bits = uint64(int64(bits) >> (64 - f.BitSize))
	} else {
		bits >>= 64 - f.BitSize
	}
	return binary.LittleEndian.AppendUint64(nil, bits)
}

func integer(t *types.Type, v uint64) string {
	if t.Signed {
		return strconv.FormatInt(int64(v), 10)
	}
	return strconv.FormatUint(v, 10)
}

// Errno is an error's text as C has it.
func Errno(err error) string {
	var n syscall.Errno
	if errors.As(err, &n) {
		return errno(int64(n))
	}
	return err.Error()
}

// named is the name that a number has in a table: "signal", "syscall", or "" for errors.
func (names *Names) named(table string, n int64) string {
	name := ""
	switch table {
	case "":
		return errno(n)
	case "syscall":
		name = names.Call(uint64(n))
	case "signal":
		if n > 0 && n < int64(len(signals)) {
			name = signals[n]
		}
	}
	if name == "" {
		return fmt.Sprintf("Unknown %s %d", table, n)
	}
	return name
}

// errno is an error's text as strerror has it.
func errno(n int64) string {
	if n == 0 {
		return "Success"
	}
	text := syscall.Errno(n).Error()
	if n < 0 || strings.HasPrefix(text, "errno ") {
		return fmt.Sprintf("Unknown error %d", n)
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

// Hex shows bytes: those that can be printed as they are, with all as \xNN.
func Hex(b []byte, escape, all bool) string {
	var s strings.Builder
	for i, c := range b {
		switch {
		case !escape:
			if i > 0 {
				s.WriteByte(' ')
			}
			fmt.Fprintf(&s, "%02x", c)
		case !all && c >= ' ' && c <= '~':
			s.WriteByte(c)
		default:
			fmt.Fprintf(&s, `\x%02x`, c)
		}
	}
	return s.String()
}

// Strftime puts a time into words as C's strftime does; %f is microseconds.
func Strftime(t time.Time, format string) string {
	var b strings.Builder
	layouts := map[byte]string{
		'Y': "2006", 'm': "01", 'd': "02", 'H': "15", 'M': "04", 'S': "05", 'y': "06", 'b': "Jan", 'B': "January", 'a': "Mon", 'A': "Monday",
		'F': "2006-01-02", 'T': "15:04:05", 'R': "15:04", 'D': "01/02/06", 'I': "03", 'p': "PM", 'Z': "MST", 'z': "-0700", 'e': "_2", 'h': "Jan",
		'c': "Mon Jan _2 15:04:05 2006", 'x': "01/02/06", 'X': "15:04:05", 'r': "03:04:05 PM",
	}
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		switch c := format[i]; c {
		case '%':
			b.WriteByte('%')
		case 'n':
			b.WriteByte('\n')
		case 't':
			b.WriteByte('\t')
		case 'f':
			fmt.Fprintf(&b, "%06d", t.Nanosecond()/1000)
		case 'N':
			fmt.Fprintf(&b, "%09d", t.Nanosecond())
		case 'L':
			fmt.Fprintf(&b, "%03d", t.Nanosecond()/1e6)
		case 's':
			fmt.Fprint(&b, t.Unix())
		case 'j':
			fmt.Fprintf(&b, "%03d", t.YearDay())
		default:
			if l, ok := layouts[c]; ok {
				b.WriteString(t.Format(l))
			} else {
				b.WriteString(format[i-1 : i+1])
			}
		}
	}
	return b.String()
}
