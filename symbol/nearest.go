package symbol

import (
	"cmp"
	"iter"
	"slices"
	"strings"
)

// Nearest gives up to n function names that may be meant by name, the likeliest first: clones of
// it, names it is the beginning of, names a few letters away.
func (f *File) Nearest(name string, n int) []string {
	var near nearest
	near.addFrom(f, name)
	return near.best(n)
}

// addFrom adds the functions of a file.
func (n *nearest) addFrom(f *File, want string) {
	for i := range f.table().funcs {
		s := &f.table().funcs[i]
		switch {
		case s.Name == "" || s.Source == Plt:
		case isMangled(s.Name) && !isMangled(want):
			n.addMangled(want, s.Name)
		default:
			n.add(want, s.Name)
		}
	}
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
	if without := generic(name); without != name && (isTail(without, want) || isTail(pointerless.Replace(without), want)) {
		score = scoreClone
	} else if rest, ok := strings.CutPrefix(name, want); ok && isClone(rest) {
		score = scoreClone
	} else if strings.EqualFold(strings.Trim(name, "_"), strings.Trim(want, "_")) {
		score = scoreClone
	} else {
		limit := allowed(want)
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

// addMangled is add for a function of C++ or Rust: it is shown, and compared, as its source has it. To demangle
// takes tens of microseconds, so that is done only where an identifier is like the last one that is wanted.
func (n *nearest) addMangled(want, mangled string) {
	want, _, _ = strings.Cut(want, "(") // other parameters, perhaps
	last := want[strings.LastIndexByte(want, ':')+1:]
	for id := range idents(mangled) {
		if limit := allowed(last); editDistance(last, id, limit) <= limit {
			n.addReadable(want, mangled)
			return
		}
	}
}

// addReadable adds a function by its name in the source, which may have more scopes in front and a template's
// arguments behind. A clone goes by its symbol: it is not the function that the source has.
func (n *nearest) addReadable(want, mangled string) {
	bare, _, cloned := strings.Cut(demangledGlobName(mangled), " [clone ")
	tail := generic(bare)
	for strings.Count(tail, "::") > strings.Count(want, "::") {
		_, tail, _ = strings.Cut(tail, "::")
	}
	if cloned {
		bare = mangled
	}
	if d := editDistance(want, tail, allowed(want)); d <= allowed(want) {
		n.found = append(n.found, scored{bare, 10 * d})
	}
}

// generic is a name of the source without the arguments of templates (<...>) and generics ([...]), and without parameters.
func generic(name string) string {
	if strings.HasPrefix(name, "<") { // Rust's, of a type that has no other name
		return name
	}
	var out strings.Builder
	depth := 0
	for i, c := range name {
		before := name[:i]
		ofOperator := strings.HasSuffix(strings.TrimRight(before, "<>-="), "operator")
		switch {
		case (c == '<' || c == '>') && ofOperator:
			out.WriteRune(c)
		case c == '<', c == '[':
			depth++
		case (c == '>' || c == ']') && depth > 0:
			depth--
		case depth > 0:
		case c == '(' && i > 0 && !strings.HasSuffix(before, ".") && !strings.HasSuffix(before, "::") && !strings.HasSuffix(before, "operator"):
			return out.String()
		default:
			out.WriteRune(c)
		}
	}
	return out.String()
}

// pointerless makes T.M of Go's (*T).M.
var pointerless = strings.NewReplacer("(*", "", ")", "")

// isTail tells whether a name of Go is another one, or ends with it behind a package or type.
func isTail(name, want string) bool {
	return name == want || strings.HasSuffix(name, "."+want)
}

// allowed tells how many letters of a name may be wrong. One with more is another name.
func allowed(name string) int { return min(1+len(name)/8, 4) }

// idents are the identifiers in a mangled name: each has its length in front.
func idents(mangled string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for at := 0; at < len(mangled); {
			length := 0
			for ; at < len(mangled) && mangled[at] >= '0' && mangled[at] <= '9' && length < len(mangled); at++ {
				length = 10*length + int(mangled[at]-'0')
			}
			if length == 0 || at+length > len(mangled) {
				at++
				continue
			}
			if !yield(mangled[at : at+length]) {
				return
			}
			at += length
		}
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
