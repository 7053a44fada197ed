package output

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"kprobe/script/types"
)

// Time series: each slot of a value has its interval's number and one more, how many numbers came, and what
// they make.

const slotSize = 24

// moment is what one interval shows.
type moment struct {
	epoch uint64
	there bool
	value int64 // as a word
}

// newest is the number of the last interval that has something, and one more; 0 for none.
func newest(b []byte) (latest uint64) {
	for i := 0; i+slotSize <= len(b); i += slotSize {
		latest = max(latest, word(b[i:]))
	}
	return latest
}

// moments are the intervals from the first that has something to the last: that of the whole map's newest, of which
// older ones than a series has room for are out of sight.
func moments(t *types.Type, b []byte, latest uint64) (all []moment) {
	latest = max(latest, newest(b))
	for i := 0; i+slotSize <= len(b); i += slotSize {
		epoch, n, v := word(b[i:]), word(b[i+8:]), word(b[i+16:])
		if epoch == 0 || n == 0 || epoch+uint64(t.Len) <= latest {
			continue
		}
		if t.Name == "avg" {
			if t.Signed {
				v = uint64(int64(v) / int64(n))
			} else {
				v /= n
			}
		}
		all = append(all, moment{epoch - 1, true, int64(v)})
	}
	slices.SortFunc(all, func(a, b moment) int { return order(false, a.epoch, b.epoch) })
	for i := 1; i < len(all); i++ {
		if all[i].epoch > all[i-1].epoch+1 {
			all = slices.Insert(all, i, moment{epoch: all[i-1].epoch + 1})
		}
	}
	for n := len(all); n > 0 && all[n-1].epoch+1 < latest; n++ {
		all = append(all, moment{epoch: all[n-1].epoch + 1})
	}
	return all
}

// reduceSeries adds a thread's series to another's.
func reduceSeries(t *types.Type, total, more []byte) {
	for i := 0; i+slotSize <= len(total); i += slotSize {
		a, b := total[i:i+slotSize], more[i:i+slotSize]
		switch {
		case word(b) > word(a):
			copy(a, b)
			continue
		case word(b) < word(a) || word(b[8:]) == 0:
			continue
		case word(a[8:]) == 0:
			copy(a, b)
			continue
		}
		va, vb := word(a[16:]), word(b[16:])
		switch t.Name {
		case "avg", "sum":
			va += vb
		case "min", "max":
			if (order(t.Signed, vb, va) < 0) == (t.Name == "min") {
				va = vb
			}
		}
		putWord(a[8:], word(a[8:])+word(b[8:]))
		putWord(a[16:], va)
	}
}

// interval is the unit that an interval is shown in, by its size: digits behind the second, and its name. Of a series of one there
// is none to see: it is shown as the smallest is.
func interval(ns int64, moments int) (digits int, name string) {
	switch {
	case moments < 2:
		return 9, "ns"
	case ns >= 1e9:
		return 0, ""
	case ns >= 1e6:
		return 3, "ms"
	case ns >= 1e3:
		return 6, "\u03bcs"
	}
	return 9, "ns"
}

const graphWidth = 53

// series draws a series, up to an interval.
func (n *Names) series(t *types.Type, b []byte, latest uint64) string {
	all := moments(t, b, latest)
	if len(all) == 0 {
		return "<no data>"
	}
	low, high, first := int64(0), int64(0), true
	for _, m := range all {
		if !m.there {
			continue
		}
		if first || order(t.Signed, uint64(m.value), uint64(low)) < 0 {
			low = m.value
		}
		if first || order(t.Signed, uint64(m.value), uint64(high)) > 0 {
			high = m.value
		}
		first = false
	}
	if low == high {
		if t.Signed || low > 0 {
			low--
		}
		high++
	}
	num := &types.Type{Kind: types.Int, Size: 8, Signed: t.Signed}
	show := func(v int64) string { return integer(num, uint64(v)) }
	digits, unit := interval(t.Step, len(all))
	head, width := "hh:mm:ss", 8
	if digits > 0 {
		head += "." + unit
		width += 1 + digits
	}
	var s strings.Builder
	ends := fmt.Sprintf("%-21s%*s\n", show(low), graphWidth-21, show(high))
	fmt.Fprintf(&s, "%*s%s", width+1, "", ends)
	fmt.Fprintf(&s, "%s|%s|\n", pad("-"+strconv.Itoa(width+1), head), strings.Repeat("_", graphWidth-2))
	zero := 0
	if t.Signed && low < 0 && high > 0 {
		zero = int(float32(graphWidth) * float32(-low) / float32(high-low))
	}
	for _, m := range all {
		at := n.TAI(m.epoch * uint64(t.Step))
		s.WriteString(at.Format("15:04:05"))
		if digits > 0 {
			s.WriteString(at.Format("." + strings.Repeat("0", digits)))
		}
		line := []byte(strings.Repeat(" ", graphWidth))
		line[0], line[graphWidth-1] = '|', '|'
		if zero > 0 {
			line[zero] = '.'
		}
		value := "-"
		if m.there {
			point := int(float32(graphWidth-1) * float32(uint64(m.value-low)) / float32(uint64(high-low)))
			line[max(0, min(graphWidth-1, point))] = '*'
			value = show(m.value)
		}
		fmt.Fprintf(&s, " %s %s\n", line, value)
	}
	fmt.Fprintf(&s, "%*s v%sv\n", width, "", strings.Repeat("_", graphWidth-2))
	fmt.Fprintf(&s, "%*s %s", width, "", ends)
	return s.String()
}

// seriesJSON is its objects: of the intervals that have something. Numbers are as in text.
func (n *Names) seriesJSON(t *types.Type, b []byte, latest uint64) string {
	var all []string
	num := &types.Type{Kind: types.Int, Size: 8, Signed: t.Signed}
	for _, m := range moments(t, b, latest) {
		if !m.there {
			continue
		}
		at := n.TAI(m.epoch * uint64(t.Step))
		all = append(all, fmt.Sprintf(`{"interval_start":%s,"value":%s}`, Quote(at.Format("2006-01-02T15:04:05.000000000")), integer(num, uint64(m.value))))
	}
	return "[" + strings.Join(all, ",") + "]"
}
