package view

import (
	_ "embed"
	"io"
	"maps"
	"math/bits"
	"slices"
	"time"

	"kprobe/graph"
)

// Heat counts calls by when they ended and how long they took.
type Heat struct {
	start time.Duration // of the first column
	width time.Duration // of a column
	funcs map[string][]column
}

// column is calls by how long they took: two rows for each doubling.
type column [heatRows]uint32

const (
	heatColumns = 240
	heatRows    = 2 * 40 // up to 2^40 ns, 18 minutes
)

// NewHeat makes one without calls.
func NewHeat() *Heat { return &Heat{width: time.Millisecond, funcs: make(map[string][]column)} }

// Add adds a call that is over.
func (h *Heat) Add(s *graph.Span) {
	if len(h.funcs) == 0 {
		h.start = s.End.Truncate(time.Millisecond)
	}
	for s.End-h.start >= heatColumns*h.width {
		h.halve()
	}
	i := int(max(0, s.End-h.start) / h.width)
	columns := h.funcs[s.Name]
	for len(columns) <= i {
		columns = append(columns, column{})
	}
	columns[i][heatRow(s.Took())]++
	h.funcs[s.Name] = columns
}

// heatRow is the row of a time.
func heatRow(took time.Duration) int {
	n := uint64(max(1, took))
	log := bits.Len64(n) - 1
	row := 2 * log
	if log > 0 && n>>(log-1)&1 != 0 {
		row++ // the upper half: 1.5 times or more
	}
	return min(row, heatRows-1)
}

// halve makes one column of two.
func (h *Heat) halve() {
	h.width *= 2
	for name, columns := range h.funcs {
		half := make([]column, (len(columns)+1)/2)
		for i := range columns {
			for k, n := range columns[i] {
				half[i/2][k] += n
			}
		}
		h.funcs[name] = half
	}
}

//go:embed heat.html
var heatPage string

// heatData is what the page draws.
type heatData struct {
	About about      `json:"about"`
	Width int64      `json:"width"` // of a column, ns
	Rows  int        `json:"rows"`
	Funcs []heatFunc `json:"funcs"`
}

type heatFunc struct {
	Name  string      `json:"name"`
	Cells [][3]uint32 `json:"cells"` // column, row, calls
}

// WriteHTML writes the heat map as one page that needs nothing else.
func (h *Heat) WriteHTML(to io.Writer, a About) error {
	d := heatData{About: a.page(), Width: int64(h.width), Rows: heatRows, Funcs: []heatFunc{}}
	for _, name := range slices.Sorted(maps.Keys(h.funcs)) {
		f := heatFunc{Name: name}
		for x, c := range h.funcs[name] {
			for y, n := range c {
				if n > 0 {
					f.Cells = append(f.Cells, [3]uint32{uint32(x), uint32(y), n})
				}
			}
		}
		d.Funcs = append(d.Funcs, f)
	}
	return writePage(to, heatPage, d)
}
