package view

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// WriteFolded writes a line for each stack: the functions from the outermost, with semicolons, and the
// microseconds that were spent there; where no call was timed, how often it was seen.
func (t *Tree) WriteFolded(to io.Writer) error {
	w := bufio.NewWriter(to)
	for _, th := range t.Threads() {
		timed := timed(th.Roots)
		for _, n := range th.Roots {
			n.fold(w, fmt.Sprintf("%s-%d", foldable(th.Comm), th.TID), timed)
		}
	}
	return w.Flush()
}

func (n *Node) fold(w io.Writer, path string, timed bool) {
	path += ";" + foldable(n.Name)
	value := int64(n.Calls)
	if timed {
		value = n.Self().Microseconds()
	}
	if value > 0 {
		fmt.Fprintf(w, "%s %d\n", path, value)
	}
	for _, k := range n.Kids {
		k.fold(w, path, timed)
	}
}

// foldable is a name without what divides a line.
func foldable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == ';' || r < ' ' {
			return '_'
		}
		return r
	}, s)
}
