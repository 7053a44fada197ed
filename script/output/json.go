package output

import (
	"fmt"
	"strconv"
	"strings"

	"kprobe/script/types"
)

// Quote is a string in JSON, with the escapes that bpftrace uses.
func Quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"', c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\r':
			b.WriteString(`\r`)
		case c == '\t':
			b.WriteString(`\t`)
		case c < ' ':
			fmt.Fprintf(&b, `\u%04x`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// jsonInt is a number; one that a double cannot hold is a string.
func jsonInt(n int64) string {
	s := strconv.FormatInt(n, 10)
	if f := float64(n); f >= 1<<63 || int64(f) != n {
		return Quote(s)
	}
	return s
}

func jsonUint(n uint64) string {
	s := strconv.FormatUint(n, 10)
	if f := float64(n); f >= 1<<64 || uint64(f) != n {
		return Quote(s)
	}
	return s
}

func jsonNumber(t *types.Type, v uint64) string {
	if t.Signed {
		return jsonInt(int64(v))
	}
	return jsonUint(v)
}

// JSON is a value.
func (n *Names) JSON(t *types.Type, b []byte, div uint64) string {
	switch t.Kind {
	case types.Int:
		return jsonNumber(t, divided(t, number(t, b), div))
	case types.Pointer, types.Enum:
		return jsonNumber(t, number(t, b))
	case types.Bool, types.Float:
		return n.Text(t, b)
	case types.Stats:
		num := &types.Type{Kind: types.Int, Size: 8, Signed: t.Signed}
		return fmt.Sprintf(`{"count": %s, "average": %s, "total": %s}`, jsonUint(word(b)), jsonNumber(num, divided(num, gathered(t, b), div)), jsonNumber(num, word(b[8:])))
	case types.TSeries:
		return n.seriesJSON(t, b, 0)
	case types.Hist, types.LHist:
		return histogramJSON(t, b, div)
	case types.Buffer:
		var all []string
		for _, c := range b[8 : 8+min(word(b), uint64(len(b)-8))] {
			all = append(all, strconv.Itoa(int(int8(c))))
		}
		return "[" + strings.Join(all, ",") + "]"
	case types.Array:
		var all []string
		for i := range t.Len {
			all = append(all, n.JSON(t.Elem, b[i*t.Elem.Size:(i+1)*t.Elem.Size], 1))
		}
		return "[" + strings.Join(all, ",") + "]"
	case types.Tuple:
		var all []string
		for _, f := range t.Fields {
			all = append(all, n.JSON(f.Type, b[f.Offset:f.Offset+f.Type.Slot()], 1))
		}
		return "[" + strings.Join(all, ",") + "]"
	case types.Record:
		var all []string
		for _, f := range t.Fields {
			all = append(all, Quote(f.Name)+": "+n.JSON(f.Type, member(t, f, b), 1))
		}
		return "{" + strings.Join(all, ", ") + "}"
	}
	if t.Aggregate() {
		return jsonNumber(t, divided(t, gathered(t, b), div))
	}
	return Quote(n.Text(t, b))
}

// Event is one line: {"type": KIND, "data": TEXT}.
func Event(kind, data string) string {
	return fmt.Sprintf("{\"type\": %s, \"data\": %s}\n", Quote(kind), data)
}
