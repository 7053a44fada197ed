package main

import (
	"fmt"
	"strings"
)

// columns are those of topColumns that a line shows, in their order, and the room of the place.
type columns struct {
	shown []int
	place int // its width where it comes first; 0: it is the last, and has what is left
}

const (
	leastPlace  = 28 // of its characters the place keeps so many beside the figures
	figuresWide = 66 // of all of them
)

// inNeed are the columns, the most needed first.
var inNeed = []string{"hits/s", "p99", "average", "hits", "p50", "share", "max"}

// allColumns is for lines of any length.
func allColumns() (c columns) {
	for i := range topColumns {
		c.shown = append(c.shown, i)
	}
	return c
}

// columnsOf gives the columns of lines of a width. On a narrow terminal the place comes first, since
// it tells the row's subject. The figure that rows are sorted by and the most needed ones follow
// while there is room.
func columnsOf(width, sorted int) columns {
	if width >= 2+figuresWide+2+leastPlace {
		return allColumns()
	}
	last := len(topColumns) - 1
	room := max(0, width-2-min(leastPlace, width-2))
	fits := make([]bool, len(topColumns))
	take := func(i int) {
		if !fits[i] && topColumns[i].width <= room {
			fits[i], room = true, room-topColumns[i].width
		}
	}
	if sorted >= 0 && sorted != last {
		take(sorted)
	}
	for _, title := range inNeed {
		for i := range last {
			if topColumns[i].title == title {
				take(i)
			}
		}
	}
	c := columns{shown: []int{last}, place: max(1, min(leastPlace, width-2)+room)}
	for i, ok := range fits {
		if ok {
			c.shown = append(c.shown, i)
		}
	}
	return c
}

// titles is the line above the rows, with a mark at what they are sorted by; -1 for none.
func (c columns) titles(sorted int) string {
	return "  " + c.cells(func(i int) string {
		if i == sorted {
			return topColumns[i].title + "*"
		}
		return topColumns[i].title
	})
}

func (c columns) line(r *topRow) string {
	return c.cells(func(i int) string { return topColumns[i].text(r) })
}

func (c columns) cells(text func(int) string) string {
	var b strings.Builder
	for _, i := range c.shown {
		switch w := topColumns[i].width; {
		case w > 0:
			fmt.Fprintf(&b, "%*s", w, text(i))
		case c.place > 0:
			fmt.Fprintf(&b, "%-*s", c.place, cut(text(i), c.place))
		default:
			b.WriteString("  " + text(i))
		}
	}
	return b.String()
}

// cut is a text of a width at most. One that is longer ends in an ellipsis.
func cut(text string, width int) string {
	r := []rune(text)
	switch {
	case len(r) <= width:
		return text
	case width < 1:
		return ""
	}
	return string(r[:width-1]) + "…"
}
