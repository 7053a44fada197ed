package output

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"kprobe/script/types"
)

// Reduce makes one value of the threads' values of an aggregate.
func Reduce(t *types.Type, threads [][]byte) []byte {
	total := append([]byte(nil), threads[0]...)
	for _, v := range threads[1:] {
		if t.Kind == types.TSeries {
			reduceSeries(t, total, v)
			continue
		}
		if t.Kind == types.Min || t.Kind == types.Max {
			if word(v) != 0 && (word(total) == 0 || better(t, word(v[8:]), word(total[8:]))) {
				copy(total, v)
			}
			continue
		}
		for i := 0; i+8 <= len(v); i += 8 {
			putWord(total[i:], word(total[i:])+word(v[i:]))
		}
	}
	return total
}

func putWord(b []byte, n uint64) {
	for i := range 8 {
		b[i] = byte(n >> (8 * i))
	}
}

// better compares what two words of a Min or Max stand for.
func better(t *types.Type, a, b uint64) bool {
	a, b = a^t.Mask(), b^t.Mask()
	less := a < b
	if t.Signed {
		less = int64(a) < int64(b)
	}
	return less == (t.Kind == types.Min) && a != b
}

// gathered is the number that an aggregate stands for.
func gathered(t *types.Type, b []byte) uint64 {
	switch t.Kind {
	case types.Avg, types.Stats:
		n, total := word(b), word(b[8:])
		switch {
		case n == 0:
			return 0
		case t.Signed:
			return uint64(int64(total) / int64(n))
		}
		return total / n
	case types.Min, types.Max:
		if word(b) == 0 {
			return 0
		}
		return word(b[8:]) ^ t.Mask()
	}
	return word(b)
}

// divided is a number by the divisor of print(@m, top, div).
func divided(t *types.Type, v, div uint64) uint64 {
	if div <= 1 {
		return v
	}
	if t.Signed {
		return uint64(int64(v) / int64(div))
	}
	return v / div
}

// bucket is one line of a histogram.
type bucket struct {
	low, high   label // high is open
	noLow, last bool  // from below everything; up to everything
	count       uint64
}

// label is a bound: a number and how it is shown.
type label struct {
	n     int64
	text  string
	plain bool // the text is the number
}

func plainLabel(n int64) label { return label{n, strconv.FormatInt(n, 10), true} }

// powerLabel is the bound behind bucket i of a hist.
func powerLabel(i, bits int) label {
	if i <= 2<<bits {
		return plainLabel(int64(i))
	}
	n := uint64(1) << bits
	power := i>>bits - 1
	value := (n + uint64(i)&(n-1))
	text := strconv.FormatUint(value<<(power%10), 10)
	if d := power / 10; d > 0 {
		text += string("KMGTPE"[d-1])
	}
	return label{int64(value << power), text, false}
}

// stepLabel is a bound of an lhist.
func stepLabel(n, step int64) label {
	l := plainLabel(n)
	if step%1024 != 0 || n == 0 {
		l.plain = step%1024 != 0
		return l
	}
	switch {
	case n%(1<<20) == 0:
		return label{n, strconv.FormatInt(n>>20, 10) + "M", false}
	case n%(1<<10) == 0:
		return label{n, strconv.FormatInt(n>>10, 10) + "K", false}
	}
	l.plain = false
	return l
}

// buckets are a histogram's, from the first that is not empty to the last.
func buckets(t *types.Type, b []byte, div uint64) (all []bucket) {
	first, last := -1, -1
	for i := range len(b) / 8 {
		if word(b[8*i:]) != 0 {
			if first < 0 {
				first = i
			}
			last = i
		}
	}
	for i := max(first, 0); i <= last; i++ {
		k := bucket{count: word(b[8*i:])}
		if t.Kind == types.Hist {
			k.count /= max(div, 1)
			k.noLow = i == 0
			if i > 0 {
				k.low = powerLabel(i-1, t.Bits)
			}
			k.high = powerLabel(i, t.Bits)
		} else {
			k.noLow = i == 0
			if i > 0 {
				k.low = stepLabel(t.Low+int64(i-1)*t.Step, t.Step)
			}
			bound := t.Low + int64(i)*t.Step
			k.last = bound > t.High
			k.high = stepLabel(bound, t.Step)
		}
		all = append(all, k)
	}
	return all
}

// barWidth is that of the longest bar.
const barWidth = 52

// histogram is its lines.
func histogram(t *types.Type, b []byte, div uint64) string {
	var s strings.Builder
	all := buckets(t, b, div)
	most := uint64(0)
	for _, k := range all {
		most = max(most, k.count)
	}
	for _, k := range all {
		head := "[" + k.low.text + ", " + k.high.text + ")"
		switch {
		case k.noLow:
			head = "(..., " + k.high.text + ")"
		case k.last:
			head = "[" + k.low.text + ", ...)"
		case k.low.plain && k.high.plain && k.low.n != math.MaxInt64 && k.low.n+1 == k.high.n:
			head = "[" + k.low.text + "]"
		}
		bar := int(float32(k.count) / float32(max(most, 1)) * barWidth)
		fmt.Fprintf(&s, "%-16s%8d |%-*s|\n", head, k.count, barWidth, strings.Repeat("@", bar))
	}
	return s.String()
}

// histogramJSON is its objects.
func histogramJSON(t *types.Type, b []byte, div uint64) string {
	var all []string
	for _, k := range buckets(t, b, div) {
		var parts []string
		if !k.noLow {
			parts = append(parts, `"min": `+jsonInt(k.low.n))
		}
		if !k.last {
			parts = append(parts, `"max": `+jsonInt(k.high.n-1)) // closed, whatever the text says
		}
		all = append(all, "{"+strings.Join(append(parts, fmt.Sprintf(`"count": %d`, k.count)), ", ")+"}")
	}
	return "[" + strings.Join(all, ",") + "]"
}

// total is how many values a histogram has.
func total(b []byte) (n uint64) {
	for i := 0; i+8 <= len(b); i += 8 {
		n += word(b[i:])
	}
	return n
}

// value is an aggregate, or any other value, in one line of text.
func (n *Names) value(t *types.Type, b []byte, div uint64) string {
	switch {
	case t.Kind == types.Stats:
		num := &types.Type{Kind: types.Int, Size: 8, Signed: t.Signed}
		return fmt.Sprintf("{ .count = %d, .average = %s, .total = %s }", word(b), integer(num, divided(num, gathered(t, b), div)), integer(num, word(b[8:])))
	case t.Aggregate():
		return integer(t, divided(t, gathered(t, b), div))
	case t.Kind == types.Int:
		return integer(t, divided(t, number(t, b), div))
	}
	return n.Text(t, b)
}
