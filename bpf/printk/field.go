package printk

import (
	"strconv"
	"strings"
)

// MaxField is the greatest width of a conversion.
const MaxField = 64

// Field is one conversion of a format, of those that bpf_snprintf has.
type Field struct {
	Verb        byte // 'd', 'u', 'x', 'X', 'c' or 's'
	Long        bool // of 64 bits
	Left, Zeros bool
	Sign        byte // before a number that is not negative, 0 for nothing
	Width       int
}

// Field reads a conversion, false for one that the kernel's helper does not know, or that is not
// supported here.
func (c *Conversion) Field(word int) (f Field, ok bool) {
	f.Verb = c.Verb
	how := strings.TrimLeft(c.How, "0+- ")
	for _, flag := range c.How[:len(c.How)-len(how)] {
		switch flag {
		case '0':
			f.Zeros = true
		case '-':
			f.Left = true
		case '+':
			f.Sign = '+'
		case ' ':
			f.Sign = max(f.Sign, ' ')
		}
	}
	digits := strings.TrimRight(how, "l")
	f.Long = digits != how
	if digits != "" {
		f.Width, _ = strconv.Atoi(digits)
		if f.Width < 1 || f.Width > MaxField {
			return f, false
		}
	}
	switch f.Verb {
	case 'i':
		f.Verb = 'd'
	case 'p':
		ok = !f.Long && (c.Tail == "" || c.Tail == "x" || c.Tail == "K")
		f.Verb, f.Long = 'x', word == 8
		if f.Width == 0 {
			f.Width, f.Zeros = 2*word, true
		}
		return f, ok
	case 'c', 's':
		return f, !f.Long
	}
	return f, len(how)-len(digits) <= 2 && strings.IndexByte("duxX", f.Verb) >= 0
}
