package output

import (
	"strings"
	"testing"
	"time"

	"kprobe/script/types"
)

// slot is a value's slot: an interval's number, how many numbers came in it, and what they make.
func slot(epoch, n, v uint64) []byte {
	b := make([]byte, slotSize)
	putWord(b, epoch+1)
	putWord(b[8:], n)
	putWord(b[16:], v)
	return b
}

// All series of a map end with the newest interval of any. In JSON an interval without a number is left out.
func TestSeries(t *testing.T) {
	n := &Names{TAI: func(ns uint64) time.Time { return time.Unix(0, int64(ns)).UTC() }}
	of := func(step int64) *types.Type {
		return &types.Type{Kind: types.TSeries, Name: "max", Step: step, Len: 6, Size: 6 * slotSize}
	}
	series := func(slots ...[]byte) (v []byte) {
		for _, s := range slots {
			v = append(v, s...)
		}
		return append(v, make([]byte, 6*slotSize-len(v))...)
	}
	m := &Map{Name: "@s", Key: types.Int64, Value: of(1e8), Entries: []Entry{
		{Key: []byte{2, 0, 0, 0, 0, 0, 0, 0}, Value: series(slot(14, 1, 9), slot(16, 1, 11))},
		{Key: []byte{1, 0, 0, 0, 0, 0, 0, 0}, Value: series(slot(12, 2, 5), slot(13, 1, 1<<60+1))},
	}}
	m.Sort()
	for _, tt := range []struct{ name, want string }{
		{"text", "00:00:01.200 *                                                   | 5\n" +
			"00:00:01.300 |                                                   * 1152921504606846977\n" +
			"00:00:01.400 |                                                   | -\n" +
			"00:00:01.500 |                                                   | -\n" +
			"00:00:01.600 |                                                   | -\n"},
		{"text", "00:00:01.400 *                                                   | 9\n" +
			"00:00:01.500 |                                                   | -\n" +
			"00:00:01.600 |                                                   * 11\n             v__"},
		{"json", `"1": [{"interval_start":"1970-01-01T00:00:01.200000000","value":5},{"interval_start":"1970-01-01T00:00:01.300000000","value":1152921504606846977}], ` +
			`"2": [{"interval_start":"1970-01-01T00:00:01.400000000","value":9},{"interval_start":"1970-01-01T00:00:01.600000000","value":11}]`},
	} {
		var b strings.Builder
		write := n.WriteText
		if tt.name == "json" {
			write = n.WriteJSON
		}
		if err := write(&b, m, 1); err != nil || !strings.Contains(b.String(), tt.want) {
			t.Errorf("%s: %v\n%s\nhas not\n%s", tt.name, err, &b, tt.want)
		}
	}
	for _, tt := range []struct {
		step  int64
		slots [][]byte
		want  string
	}{
		{15e8, [][]byte{slot(1, 1, 1), slot(2, 1, 1)}, "\nhh:mm:ss |_"},
		{1500, [][]byte{slot(1, 1, 1), slot(2, 1, 1)}, "\nhh:mm:ss.\u03bcs    |_"}, // its first letter has two bytes
		{999, [][]byte{slot(1, 1, 1), slot(2, 1, 1)}, "\nhh:mm:ss.ns        |_"},
		{1e9, [][]byte{slot(1, 1, 1)}, "\nhh:mm:ss.ns        |_"},
	} {
		if got := n.series(of(tt.step), series(tt.slots...), 0); !strings.Contains(got, tt.want) {
			t.Errorf("intervals of %d ns: %s\nhas not %q", tt.step, got, tt.want)
		}
	}
}
