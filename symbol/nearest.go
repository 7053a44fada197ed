package symbol

import (
	"cmp"
	"slices"
	"strings"
)

// Nearest gives up to n function names that may be meant by name, the likeliest first: clones of
// it, names it is the beginning of, names a few letters away.
func (f *File) Nearest(name string, n int) []string {
	var near nearest
	for i := range f.table().funcs {
		if s := &f.table().funcs[i]; s.Name != "" && s.Source != Plt {
			near.add(name, s.Name)
		}
	}
	return near.best(n)
}

// nearest collects candidates for "did you mean".
type nearest struct {
	found []scored
}

type scored struct {
	name  string
	score int
}

// Scores, the lower the likelier; a distance counts tenfold and lies between.
const (
	scoreClone  = 1
	scorePrefix = 15 // after one wrong letter, before two
	scoreInside = 35
	minInside   = 4 // shorter names are inside of anything
)

func (n *nearest) add(want, name string) {
	if len(want) > 256 || len(name) > 4096 {
		return
	}
	score := -1
	if rest, ok := strings.CutPrefix(name, want); ok && isClone(rest) {
		score = scoreClone
	} else if strings.EqualFold(strings.Trim(name, "_"), strings.Trim(want, "_")) {
		score = scoreClone
	} else {
		limit := min(1+len(want)/8, 4) // more is another word
		if d := editDistance(want, name, limit); d <= limit {
			score = 10 * d
		}
		if ok && len(want) >= minInside {
			score = minScore(score, scorePrefix)
		} else if len(want) >= minInside && strings.Contains(name, want) {
			score = minScore(score, scoreInside)
		}
	}
	if score >= 0 {
		n.found = append(n.found, scored{name, score})
	}
}

func minScore(score, other int) int {
	if score < 0 {
		return other
	}
	return min(score, other)
}

func (n *nearest) best(limit int) []string {
	slices.SortFunc(n.found, func(a, b scored) int {
		return cmp.Or(cmp.Compare(a.score, b.score), cmp.Compare(len(a.name), len(b.name)), strings.Compare(a.name, b.name))
	})
	var names []string
	for _, s := range n.found {
		if len(names) >= limit {
			break
		}
		if !slices.Contains(names, s.name) {
			names = append(names, s.name)
		}
	}
	return names
}

// editDistance counts inserted, removed, replaced and swapped bytes between a
// and b; any value above limit stands for "more".
func editDistance(a, b string, limit int) int {
	if len(a)-len(b) > limit || len(b)-len(a) > limit {
		return limit + 1
	}
	before, prev, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		lowest := i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(prev[j]+1, row[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
			lowest = min(lowest, row[j])
		}
		if lowest > limit {
			return limit + 1
		}
		before, prev, row = prev, row, before
	}
	return prev[len(b)]
}
