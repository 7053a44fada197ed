package bpf

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// Printk is a line of trace_printk or trace_vprintk before it is put into words.
type Printk struct {
	Thread uint32 // tid
	Format string
	Args   []uint64
	Texts  []string // of each %s that has a value, in order; see unreadable
}

// unreadable is the text of an address where none could be read.
const unreadable = "(efault)"

// ParsePrintk reads a record of the trace ring.
func ParsePrintk(rec []byte) (p Printk, err error) {
	bad := func() (Printk, error) {
		return p, fmt.Errorf("bpf: trace record of %d bytes: it does not fit", len(rec))
	}
	if len(rec) < PrintkArgs {
		return bad()
	}
	word := func(off int) uint64 { return uint64(binary.LittleEndian.Uint32(rec[off:])) }
	p.Thread = uint32(word(PrintkThread))
	format := PrintkArgs + 8*word(PrintkCount)
	texts := format + roundUp(word(PrintkLen), 8)
	if texts+PrintkText*word(PrintkTexts) > uint64(len(rec)) {
		return bad()
	}
	for at := uint64(PrintkArgs); at < format; at += 8 {
		p.Args = append(p.Args, binary.LittleEndian.Uint64(rec[at:]))
	}
	p.Format = cString(rec[format : format+word(PrintkLen)])
	for n := range min(textsOf(p.Format, len(p.Args)), int(word(PrintkTexts))) {
		at := texts + PrintkText*uint64(n)
		p.Texts = append(p.Texts, textAt(rec[at:at+PrintkText]))
	}
	return p, nil
}

// textAt is a text of a record.
func textAt(b []byte) string {
	if b[0] == 0 && b[1] == 1 {
		return unreadable
	}
	return cString(b)
}

// textsOf counts the conversions to text among the first n of a format.
func textsOf(format string, n int) (texts int) {
	for c := range conversions(format) {
		if n--; n < 0 {
			break
		}
		if c.verb == 's' {
			texts++
		}
	}
	return texts
}

// conversion is one of a format: the text before it, "%", how, and what. Verb 0 is the text behind
// the last.
type conversion struct {
	before, how string
	verb        byte
	tail        string // what stands behind the verb and belongs to it
}

// conversions goes over those of a format. What follows a cut one is text. Pointers to text, as the
// kernel has them (%pks, %pus), are 's'.
func conversions(format string) func(yield func(conversion) bool) {
	return func(yield func(conversion) bool) {
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
				yield(conversion{before: before})
				return
			}
			c := conversion{before, rest[:n], rest[n], ""}
			format, before = rest[n+1:], ""
			if c.verb == 'p' && (strings.HasPrefix(format, "ks") || strings.HasPrefix(format, "us")) {
				c.verb, c.tail, format = 's', format[:2], format[2:]
			}
			if !yield(c) {
				return
			}
		}
	}
}

// String puts a printed line into words.
func (p Printk) String() string {
	var b strings.Builder
	args, texts := p.Args, p.Texts
	for c := range conversions(p.Format) {
		b.WriteString(c.before)
		switch {
		case c.verb == 0:
		case len(args) == 0:
			fmt.Fprintf(&b, "%%%s%c%s", c.how, c.verb, c.tail) // more than a program has given
		case c.verb == 's' && len(texts) > 0:
			fmt.Fprintf(&b, "%"+strings.TrimRight(c.how, "lhzj")+"s", texts[0])
			args, texts = args[1:], texts[1:]
		default:
			c.write(&b, args[0])
			args = args[1:]
		}
	}
	return b.String()
}

// write puts a number into words.
func (c *conversion) write(b *strings.Builder, v uint64) {
	long := strings.ContainsAny(c.how, "lzj")
	how := "%" + strings.TrimRight(c.how, "lhzj")
	if !long && c.verb != 'p' && c.verb != 's' {
		v = uint64(uint32(v))
	}
	switch c.verb {
	case 'd', 'i':
		signed := int64(v)
		if !long {
			signed = int64(int32(v))
		}
		fmt.Fprintf(b, how+"d", signed)
	case 'u':
		fmt.Fprintf(b, how+"d", v)
	case 'x', 'X', 'c', 'o':
		fmt.Fprintf(b, how+string(c.verb), v)
	default:
		fmt.Fprintf(b, "0x%x", v)
	}
}
