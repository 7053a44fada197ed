package script

import (
	"slices"
	"strings"

	"kprobe/script/point"
)

// matches notes whether the attach points of one probe have found something. A pattern that matches nothing does no harm where another
// has found something, so it is told of when all have been looked at.
type matches struct {
	any  bool
	none []unmatched
}

// unmatched is a pattern that matches nothing, and why.
type unmatched struct {
	pt  *point.Point
	why error
}

func isPattern(pt *point.Point) bool { return pt.Many() || hasGlob(pt.Target) }

// noMatches says that a pattern matches nothing: No matches for uprobe bash zzz*.
func noMatches(pt *point.Point) error {
	words := []string{"No matches for", pt.Provider, pt.Target, pt.Function}
	return sentence(strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), " "))
}

// keep keeps a pattern that matches nothing; false: it is none, or of no probe that is looked at.
func (m *matches) keep(pt *point.Point, why error) bool {
	if m == nil || !isPattern(pt) {
		return false
	}
	m.none = append(m.none, unmatched{pt, why})
	return true
}

// found says that an attach point has places.
func (m *matches) found() {
	if m != nil {
		m.any = true
	}
}

// matched tells of the patterns that match nothing, when all attach points of a probe have been looked at.
func (t *target) matched() error {
	m := t.matches
	t.matches = nil
	if m.any {
		return nil
	}
	for _, u := range m.none {
		if err := t.missing(u.pt, u.why); err != nil {
			return err
		}
	}
	return nil
}
