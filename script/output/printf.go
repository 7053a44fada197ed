package output

import (
	"fmt"
	"strconv"
	"strings"

	"kprobe/script/types"
)

// Printf puts a record's arguments into a format: args lie one behind the other.
func (n *Names) Printf(format string, ts []*types.Type, args []byte) string {
	var b strings.Builder
	i := 0
	for _, s := range types.SplitFormat(format) {
		if s.Verb == nil {
			b.WriteString(s.Text)
			continue
		}
		if i == len(ts) {
			break
		}
		size := ts[i].Slot()
		b.WriteString(n.verb(s.Verb, ts[i], args[:size]))
		args = args[size:]
		i++
	}
	return b.String()
}

// verb shows one argument.
func (n *Names) verb(v *types.Verb, t *types.Type, b []byte) string {
	switch v.Verb {
	case 's':
		return pad(v.Flags, n.Text(t, b))
	case 'r':
		data := b[8 : 8+min(word(b), uint64(len(b)-8))]
		return pad(v.Flags, Hex(data, v.Size != "h", v.Size == "x"))
	case 'c':
		return pad(v.Flags, string([]byte{byte(word(b))}))
	case 'p':
		return pad(v.Flags, fmt.Sprintf("0x%x", word(b)))
	}
	signed := v.Verb == 'd' || v.Verb == 'i'
	value := types.Truncate(number(t, b), types.IntOf(width(v.Size), signed))
	how := "%" + v.Flags
	switch {
	case signed:
		return fmt.Sprintf(how+"d", int64(value))
	case v.Verb == 'u':
		return fmt.Sprintf(how+"d", value)
	}
	return fmt.Sprintf(how+string(v.Verb), value)
}

// width is how many bytes of a number are shown: as in C, 4 where nothing is said.
func width(size string) int {
	switch size {
	case "hh":
		return 1
	case "h":
		return 2
	case "":
		return 4
	}
	return 8
}

// pad is a text in the width and precision of C's %s: bytes count.
func pad(flags, s string) string {
	width, precision, cut := strings.Cut(strings.TrimLeft(flags, "-+ #0"), ".")
	if cut {
		n, _ := strconv.Atoi(precision)
		s = s[:min(n, len(s))]
	}
	n, _ := strconv.Atoi(width)
	if fill := n - len(s); fill > 0 {
		if strings.Contains(flags[:len(flags)-len(strings.TrimLeft(flags, "-+ #0"))], "-") {
			return s + strings.Repeat(" ", fill)
		}
		return strings.Repeat(" ", fill) + s
	}
	return s
}
