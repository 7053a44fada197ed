package bpf

import (
	"fmt"
	"strings"
)

// String puts a printed line into words. What a program gives for %s is an address,
// and shown as one: the text may be gone by now.
func (p Printk) String() string {
	var b strings.Builder
	format, args := p.Format, p.Args[:]
	for {
		text, rest, found := strings.Cut(format, "%")
		b.WriteString(text)
		if !found {
			return b.String()
		}
		n := strings.IndexFunc(rest, func(r rune) bool { return !strings.ContainsRune("-+ #0123456789.lhzj", r) })
		if n < 0 {
			return b.String() + "%" + rest
		}
		how, verb := rest[:n], rest[n]
		format = rest[n+1:]
		if verb == '%' {
			b.WriteByte('%')
			continue
		}
		if len(args) == 0 {
			fmt.Fprintf(&b, "%%%s%c", how, verb) // more than a program can give
			continue
		}
		v := args[0]
		args = args[1:]
		long := strings.ContainsAny(how, "lzj")
		how = "%" + strings.TrimRight(how, "lhzj")
		if !long && verb != 'p' && verb != 's' {
			v = uint64(uint32(v))
		}
		switch verb {
		case 'd', 'i':
			signed := int64(v)
			if !long {
				signed = int64(int32(v))
			}
			fmt.Fprintf(&b, how+"d", signed)
		case 'u':
			fmt.Fprintf(&b, how+"d", v)
		case 'x', 'X', 'c', 'o':
			fmt.Fprintf(&b, how+string(verb), v)
		default:
			fmt.Fprintf(&b, "0x%x", v)
		}
	}
}
