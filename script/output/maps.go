package output

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"kprobe/script/types"
)

// Entry is an element of a map.
type Entry struct{ Key, Value []byte }

// Map is a map at one moment.
type Map struct {
	Name    string
	Key     *types.Type // nil without
	Value   *types.Type
	Entries []Entry
}

// lines tells whether the values are shown on lines of their own.
func lines(t *types.Type) bool {
	return t.Kind == types.Hist || t.Kind == types.LHist || t.Kind == types.TSeries
}

// Sort puts the entries in bpftrace's order: by value for what counts, histograms by
// their totals, else by key. Ties are in the order of their keys.
func (m *Map) Sort() {
	byKey := func(a, b Entry) int { return compare(m.Key, a.Key, b.Key) }
	slices.SortStableFunc(m.Entries, byKey)
	t := m.Value
	var by func(Entry) uint64
	switch {
	case t.Kind == types.TSeries:
		by = func(e Entry) uint64 { return newest(e.Value) }
	case lines(t):
		by = func(e Entry) uint64 { return total(e.Value) }
	case t.Aggregate():
		by = func(e Entry) uint64 { return gathered(t, e.Value) }
	case t.Kind == types.Int:
		by = func(e Entry) uint64 { return number(t, e.Value) }
	default:
		return
	}
	signed := t.Signed && t.Kind != types.Min && t.Kind != types.Max // whose order is that of their bits
	slices.SortStableFunc(m.Entries, func(a, b Entry) int { return order(signed, by(a), by(b)) })
}

// latest is the newest interval of all series.
func (m *Map) latest() (n uint64) {
	if m.Value.Kind == types.TSeries {
		for _, e := range m.Entries {
			n = max(n, newest(e.Value))
		}
	}
	return n
}

func order(signed bool, a, b uint64) int {
	if signed {
		a, b = a^1<<63, b^1<<63
	}
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// compare orders keys.
func compare(t *types.Type, a, b []byte) int {
	switch {
	case t == nil:
		return 0
	case t.Kind == types.Int: // as if it had a sign, in its own size
		shift := 64 - 8*t.Size
		return order(true, number(t, a)<<shift, number(t, b)<<shift)
	case t.Scalar():
		return order(t.Signed, number(t, a), number(t, b))
	case t.Kind == types.Tuple || t.Kind == types.Record:
		for _, f := range t.Fields {
			end := f.Offset + f.Type.Slot()
			if c := compare(f.Type, a[f.Offset:end], b[f.Offset:end]); c != 0 {
				return c
			}
		}
		return 0
	}
	return bytes.Compare(a, b)
}

// Top keeps the last n of what is sorted: the greatest.
func (m *Map) Top(n uint64) {
	if n > 0 && uint64(len(m.Entries)) > n {
		m.Entries = m.Entries[uint64(len(m.Entries))-n:]
	}
}

// key is how a key stands in a line: a tuple without its brackets.
func (n *Names) key(t *types.Type, b []byte) string {
	s := n.Text(t, b)
	if t.Kind == types.Tuple {
		s = s[1 : len(s)-1]
	}
	return s
}

// jsonKey is a key of an object: no blanks but those of the key itself.
func (n *Names) jsonKey(t *types.Type, b []byte) string {
	s := n.compact(t, b)
	if t.Kind == types.Tuple {
		s = s[1 : len(s)-1]
	}
	return s
}

// compact is Text without the blanks that part what a value is made of.
func (n *Names) compact(t *types.Type, b []byte) string {
	var all []string
	switch {
	case t.Kind == types.Tuple:
		for _, f := range t.Fields {
			all = append(all, n.compact(f.Type, b[f.Offset:f.Offset+f.Type.Slot()]))
		}
		return "(" + strings.Join(all, ",") + ")"
	case t.Kind == types.Record:
		for _, f := range t.Fields {
			all = append(all, "."+f.Name+"="+n.compact(f.Type, member(t, f, b)))
		}
		return "{" + strings.Join(all, ",") + "}"
	case t.Kind.Stack():
		return strings.ReplaceAll(n.Text(t, b), " ", "")
	}
	return n.Text(t, b)
}

// WriteText shows a map.
func (n *Names) WriteText(w io.Writer, m *Map, div uint64) error {
	var s strings.Builder
	latest := m.latest()
	for _, e := range m.Entries {
		s.WriteString(m.Name)
		if m.Key != nil {
			s.WriteString("[" + n.key(m.Key, e.Key) + "]")
		}
		if lines(m.Value) {
			s.WriteString(":\n" + n.graph(m.Value, e.Value, div, latest) + "\n")
		} else {
			s.WriteString(": " + n.value(m.Value, e.Value, div) + "\n")
		}
	}
	_, err := io.WriteString(w, s.String())
	return err
}

// WriteJSON shows a map as an object.
func (n *Names) WriteJSON(w io.Writer, m *Map, div uint64) error {
	kind := "map"
	switch {
	case m.Value.Kind == types.Stats || m.Value.Kind == types.Avg:
		kind = "stats"
	case m.Value.Kind == types.TSeries:
		kind = "tseries"
	case lines(m.Value):
		kind = "hist"
	}
	latest := m.latest()
	value := func(e Entry) string {
		if m.Value.Kind == types.TSeries {
			return n.seriesJSON(m.Value, e.Value, latest)
		}
		return n.JSON(m.Value, e.Value, div)
	}
	data := ""
	if m.Key == nil {
		for _, e := range m.Entries {
			data = value(e)
		}
	} else {
		var all []string
		for _, e := range m.Entries {
			all = append(all, Quote(n.jsonKey(m.Key, e.Key))+": "+value(e))
		}
		data = "{" + strings.Join(all, ", ") + "}"
	}
	_, err := fmt.Fprintf(w, "{\"type\": %s, \"data\": {%s: %s}}\n", Quote(kind), Quote(m.Name), data)
	return err
}

// graph is a value that takes several lines.
func (n *Names) graph(t *types.Type, b []byte, div, latest uint64) string {
	if t.Kind == types.TSeries {
		return n.series(t, b, latest)
	}
	return histogram(t, b, div)
}

// Value shows what print() was given, with the end of its line.
func (n *Names) Value(t *types.Type, b []byte) string {
	if lines(t) {
		return n.graph(t, b, 1, 0) + "\n"
	}
	return n.value(t, b, 1) + "\n"
}
