// Package btftext prints values by the types that an eBPF object has for them (BTF).
package btftext

import (
	"encoding/binary"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/cilium/ebpf/btf"
)

// Format prints a value as the object's types say: structures by member, numbers with their sign,
// enumerations by name, arrays of char as text. Of a structure that is cut short, as records are that end in a buffer of which
// not all is sent, what is there of its members. Without a type (nil), or where the bytes are too few for
// it, it is a number if it is as long as one, text if it is printable, else hexadecimal.
func Format(b []byte, t btf.Type) string {
	var s strings.Builder
	if t != nil && (format(&s, b, t, 0) || formatCut(&s, b, t)) {
		return s.String()
	}
	return plain(b)
}

// formatCut is format of a structure that ends within an array, or between members.
func formatCut(s *strings.Builder, b []byte, t btf.Type) bool {
	all, ok := btf.UnderlyingType(t).(*btf.Struct)
	if !ok {
		return false
	}
	s.Reset()
	there := slices.Clone(all.Members)
	cut := slices.IndexFunc(there, func(m btf.Member) bool {
		size, err := btf.Sizeof(m.Type)
		return err != nil || int(m.Offset.Bytes())+size > len(b)
	})
	if cut < 0 {
		cut = len(there) // only padding is missing
	} else if a, ok := btf.UnderlyingType(there[cut].Type).(*btf.Array); ok {
		one, err := btf.Sizeof(a.Type)
		if n := len(b) - int(there[cut].Offset.Bytes()); err == nil && one > 0 && n >= one && n%one == 0 {
			there[cut].Type = &btf.Array{Index: a.Index, Type: a.Type, Nelems: uint32(n / one)}
			cut++
		}
	}
	if cut == 0 || !formatMembers(s, b, there[:cut], 0) {
		return false
	}
	if cut < len(there) {
		text := s.String()
		s.Reset()
		s.WriteString(text[:len(text)-1] + ", ...}")
	}
	return true
}

// Limits of what is printed of one value.
const (
	formatDepth    = 8
	formatElements = 64
)

// format is Format, false where the bytes are too few, or the type is none of data.
func format(s *strings.Builder, b []byte, t btf.Type, depth int) bool {
	t = btf.UnderlyingType(t)
	size, err := btf.Sizeof(t)
	if err != nil || size > len(b) || depth > formatDepth {
		return false
	}
	b = b[:size]
	switch t := t.(type) {
	case *btf.Int:
		s.WriteString(formatInt(b, 0, 8*size, t.Encoding))
	case *btf.Enum:
		s.WriteString(formatEnum(b, 0, 8*size, t))
	case *btf.Pointer:
		fmt.Fprintf(s, "%#x", number64(b))
	case *btf.Float:
		return false
	case *btf.Array:
		return formatArray(s, b, t, depth)
	case *btf.Struct:
		return formatMembers(s, b, t.Members, depth)
	case *btf.Union:
		return formatMembers(s, b, t.Members, depth)
	default:
		return false
	}
	return true
}

func formatMembers(s *strings.Builder, b []byte, members []btf.Member, depth int) bool {
	s.WriteByte('{')
	for i, m := range members {
		if i > 0 {
			s.WriteString(", ")
		}
		if m.Name != "" {
			s.WriteString(m.Name + "=")
		}
		if m.BitfieldSize > 0 {
			at, n := int(m.Offset), int(m.BitfieldSize)
			if at+n > 8*len(b) {
				return false
			}
			switch t := btf.UnderlyingType(m.Type).(type) {
			case *btf.Int:
				s.WriteString(formatInt(b, at, n, t.Encoding))
			case *btf.Enum:
				s.WriteString(formatEnum(b, at, n, t))
			default:
				return false
			}
			continue
		}
		if int(m.Offset.Bytes()) > len(b) || !format(s, b[m.Offset.Bytes():], m.Type, depth+1) {
			return false
		}
	}
	s.WriteByte('}')
	return true
}

func formatArray(s *strings.Builder, b []byte, t *btf.Array, depth int) bool {
	size, err := btf.Sizeof(t.Type)
	if err != nil {
		return false
	}
	if i, ok := btf.UnderlyingType(t.Type).(*btf.Int); ok && size == 1 && (i.Encoding == btf.Char || typeName(t.Type) == "char") {
		text, _, _ := strings.Cut(string(b), "\x00")
		fmt.Fprintf(s, "%q", text)
		return true
	} else if ok && size == 1 && i.Encoding == btf.Unsigned && isText(b) {
		text, _, _ := strings.Cut(string(b), "\x00")
		fmt.Fprintf(s, "%q", text)
		return true
	}
	s.WriteByte('[')
	// Of structures, those that are not all zeros.
	_, numbers := btf.UnderlyingType(t.Type).(*btf.Int)
	sparse := !numbers && t.Nelems > 8
	shown := 0
	for i := range int(t.Nelems) {
		if sparse && strings.Trim(string(b[i*size:(i+1)*size]), "\x00") == "" {
			continue
		}
		if shown > 0 {
			s.WriteString(", ")
		}
		if shown++; shown > formatElements {
			s.WriteString("...")
			break
		}
		if sparse {
			fmt.Fprintf(s, "%d: ", i)
		}
		if !format(s, b[i*size:], t.Type, depth+1) {
			return false
		}
	}
	s.WriteByte(']')
	return true
}

// isText tells whether bytes that are called numbers begin with a text: several printable characters,
// and then nothing or a NUL.
func isText(b []byte) bool {
	text, _, _ := strings.Cut(string(b), "\x00")
	return len(b) >= 8 && len(text) >= 2 && !strings.ContainsFunc(text, func(r rune) bool {
		return (r < ' ' || r > '~') && r != '\n' && r != '\r' && r != '\t'
	})
}

// typeName is a type's name behind its qualifiers.
func typeName(t btf.Type) string {
	for {
		switch q := t.(type) {
		case *btf.Const:
			t = q.Type
		case *btf.Volatile:
			t = q.Type
		default:
			return t.TypeName()
		}
	}
}

// bitsOf are n bits of little-endian bytes, from bit at on.
func bitsOf(b []byte, at, n int, signed bool) *big.Int {
	v := new(big.Int)
	for i := n - 1; i >= 0; i-- {
		v.Lsh(v, 1)
		v.SetBit(v, 0, uint(b[(at+i)/8]>>((at+i)%8)&1))
	}
	if signed && n > 0 && v.Bit(n-1) == 1 {
		v.Sub(v, new(big.Int).Lsh(big.NewInt(1), uint(n)))
	}
	return v
}

func formatInt(b []byte, at, n int, e btf.IntEncoding) string {
	v := bitsOf(b, at, n, e == btf.Signed)
	if e == btf.Bool && n <= 8 {
		return fmt.Sprint(v.Sign() != 0)
	}
	return v.String()
}

// formatEnum is the value's name, or the number that has none.
func formatEnum(b []byte, at, n int, t *btf.Enum) string {
	v := bitsOf(b, at, n, t.Signed)
	for _, e := range t.Values {
		named := new(big.Int).SetUint64(e.Value)
		if t.Signed {
			named.SetInt64(int64(e.Value))
		}
		if named.Cmp(v) == 0 {
			return e.Name
		}
	}
	return v.String()
}

func number64(b []byte) (v uint64) {
	for i := len(b) - 1; i >= 0; i-- {
		v = v<<8 | uint64(b[i])
	}
	return v
}

// plain is bytes of no type.
func plain(b []byte) string {
	text, rest, padded := strings.Cut(string(b), "\x00")
	printable := !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' })
	switch {
	case len(b) == 4:
		return fmt.Sprint(binary.LittleEndian.Uint32(b))
	case len(b) == 8:
		return fmt.Sprint(binary.LittleEndian.Uint64(b))
	case text != "" && padded && printable && strings.Trim(rest, "\x00") == "":
		return fmt.Sprintf("%q", text)
	}
	return fmt.Sprintf("% x", b)
}
