package types

import (
	"fmt"
	"strings"
)

// Verb is a conversion of a format.
type Verb struct {
	Text  string // "%-10s"
	Flags string // what stands between % and the letters: "-10"
	Size  string // "", "h", "hh", "l", "ll", "j", "z", "t"
	Verb  byte   // 'd', 's', ...; 'r' and the like of buffers
}

// Segment is a part of a format: text, or a conversion.
type Segment struct {
	Text string
	Verb *Verb
}

// SplitFormat cuts a format into text and conversions.
func SplitFormat(format string) (segments []Segment) {
	var text strings.Builder
	flush := func() {
		if text.Len() > 0 {
			segments = append(segments, Segment{Text: text.String()})
			text.Reset()
		}
	}
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			text.WriteByte(format[i])
			continue
		}
		if i+1 < len(format) && format[i+1] == '%' {
			text.WriteByte('%')
			i++
			continue
		}
		j := i + 1
		for j < len(format) && strings.IndexByte("-+ #0123456789.", format[j]) >= 0 {
			j++
		}
		k := j
		for k < len(format) && strings.IndexByte("hljztq", format[k]) >= 0 {
			k++
		}
		if k == len(format) || strings.IndexByte("diuxXopcsr", format[k]) < 0 {
			text.WriteByte('%')
			continue
		}
		end := k + 1
		v := &Verb{Flags: format[i+1 : j], Size: format[j:k], Verb: format[k]}
		if v.Verb == 'r' && end < len(format) && (format[end] == 'x' || format[end] == 'h') {
			v.Size = format[end : end+1]
			end++
		}
		v.Text = format[i:end]
		flush()
		segments = append(segments, Segment{Verb: v})
		i = end - 1
	}
	flush()
	return segments
}

// Verbs are a format's conversions.
func Verbs(format string) (verbs []*Verb) {
	for _, s := range SplitFormat(format) {
		if s.Verb != nil {
			verbs = append(verbs, s.Verb)
		}
	}
	return verbs
}

// Takes tells whether the conversion can show the type.
func (v *Verb) Takes(t *Type) bool {
	switch v.Verb {
	case 's':
		return t.Kind != Void
	case 'r':
		return t.Kind == Buffer
	case 'c':
		return t.Number()
	}
	return t.Number() || t.Kind == User
}

// Expects names what the conversion is for.
func (v *Verb) Expects() string {
	switch v.Verb {
	case 's':
		return "string"
	case 'r':
		return "buffer"
	case 'p':
		return "pointer"
	}
	return "integer"
}

// Number shows a number as the conversion says, as far as messages of the compiler need it.
func (v *Verb) Number(n uint64) string {
	switch v.Verb {
	case 'x', 'X', 'o':
		return fmt.Sprintf("%"+string(v.Verb), n)
	case 'c':
		return string(rune(n))
	}
	return fmt.Sprint(int64(n))
}
