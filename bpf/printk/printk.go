// Package printk puts formats of bpf_trace_printk and its like into words, and reads what programs
// have written for them.
package printk

import (
	"encoding/binary"
	"fmt"
	"strings"
	"unicode"
)

// The record that trace_printk and trace_vprintk write into the trace ring: the values, the
// format's bytes, padded to 8, and for each %s the text that its value points to. The reader makes
// the text of it.
const (
	Thread = 0  // u32: the tid
	Len    = 4  // u32: of the format, its NUL included
	Count  = 8  // u32: of values
	Texts  = 12 // u32: of texts
	Args   = 16 // u64[Count]

	Text = 128 // bytes of each text, its NUL included; a text that could not be read is a NUL and a 1
)

// Line is one of trace_printk or trace_vprintk before it is put into words.
type Line struct {
	Thread uint32 // tid
	Format string
	Args   []uint64
	Texts  []string // of each %s that has a value, in order; see Unreadable
}

// Unreadable is the text of an address where none could be read.
const Unreadable = "(efault)"

// Parse reads a record of the trace ring.
func Parse(rec []byte) (p Line, err error) {
	bad := func() (Line, error) {
		return p, fmt.Errorf("bpf: trace record of %d bytes: it does not fit", len(rec))
	}
	if len(rec) < Args {
		return bad()
	}
	word := func(off int) uint64 { return uint64(binary.LittleEndian.Uint32(rec[off:])) }
	p.Thread = uint32(word(Thread))
	format := Args + 8*word(Count)
	texts := format + (word(Len)+7)&^7
	if texts+Text*word(Texts) > uint64(len(rec)) {
		return bad()
	}
	for at := uint64(Args); at < format; at += 8 {
		p.Args = append(p.Args, binary.LittleEndian.Uint64(rec[at:]))
	}
	p.Format = CString(rec[format : format+word(Len)])
	for n := range min(textsOf(p.Format, len(p.Args)), int(word(Texts))) {
		at := texts + Text*uint64(n)
		p.Texts = append(p.Texts, textAt(rec[at:at+Text]))
	}
	return p, nil
}

// textAt is a text of a record.
func textAt(b []byte) string {
	if b[0] == 0 && b[1] == 1 {
		return Unreadable
	}
	return CString(b)
}

// textsOf counts the conversions to text among the first n of a format.
func textsOf(format string, n int) (texts int) {
	for c := range Conversions(format) {
		if n--; n < 0 {
			break
		}
		if c.Verb == 's' {
			texts++
		}
	}
	return texts
}

// Conversion is one of a format: the text before it, "%", how, and what. Verb 0 is the text behind
// the last.
type Conversion struct {
	Before, How string
	Verb        byte
	Tail        string // text behind the verb that belongs to it
}

// Conversions goes over the conversions of a format. The text behind a cut one is text. Pointers to
// text, as the kernel has them (%pks, %pus), are 's'.
func Conversions(format string) func(yield func(Conversion) bool) {
	return func(yield func(Conversion) bool) {
		before := ""
		for {
			text, rest, found := strings.Cut(format, "%")
			before += text
			n := strings.IndexFunc(rest, func(r rune) bool { return !strings.ContainsRune("-+ #0123456789.lhzj", r) })
			if found && n >= 0 && rest[n] == '%' {
				before, format = before+"%", rest[n+1:]
				continue
			}
			if !found || n < 0 {
				if found {
					before += "%" + rest
				}
				yield(Conversion{Before: before})
				return
			}
			c := Conversion{before, rest[:n], rest[n], ""}
			format, before = rest[n+1:], ""
			switch {
			case c.Verb != 'p':
			case strings.HasPrefix(format, "ks") || strings.HasPrefix(format, "us"):
				c.Verb, c.Tail, format = 's', format[:2], format[2:]
			default: // %px, %pK, and the kernel's ways to hide addresses: here they are shown as they are
				tail := strings.TrimLeftFunc(format, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) })
				c.Tail, format = format[:len(format)-len(tail)], tail
			}
			if !yield(c) {
				return
			}
		}
	}
}

// String puts a printed line into words.
func (p Line) String() string {
	var b strings.Builder
	args, texts := p.Args, p.Texts
	for c := range Conversions(p.Format) {
		b.WriteString(c.Before)
		switch {
		case c.Verb == 0:
		case len(args) == 0:
			fmt.Fprintf(&b, "%%%s%c%s", c.How, c.Verb, c.Tail) // more than a program has given
		case c.Verb == 's' && len(texts) > 0:
			fmt.Fprintf(&b, "%"+strings.TrimRight(c.How, "lhzj")+"s", texts[0])
			args, texts = args[1:], texts[1:]
		default:
			c.write(&b, args[0])
			args = args[1:]
		}
	}
	return b.String()
}

// write puts a number into words.
func (c *Conversion) write(b *strings.Builder, v uint64) {
	long := strings.ContainsAny(c.How, "lzj")
	how := "%" + strings.TrimRight(c.How, "lhzj")
	if !long && c.Verb != 'p' && c.Verb != 's' {
		v = uint64(uint32(v))
	}
	switch c.Verb {
	case 'd', 'i':
		signed := int64(v)
		if !long {
			signed = int64(int32(v))
		}
		fmt.Fprintf(b, how+"d", signed)
	case 'u':
		fmt.Fprintf(b, how+"d", v)
	case 'x', 'X', 'c', 'o':
		fmt.Fprintf(b, how+string(c.Verb), v)
	default:
		fmt.Fprintf(b, "0x%x", v)
	}
}

// CString is the text before the NUL.
func CString(b []byte) string {
	text, _, _ := strings.Cut(string(b), "\x00")
	return text
}
