package trace

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"kprobe"
	"kprobe/spec"
	"kprobe/symbol"
)

// LeftOut is a place of a definition that has no probe, and why.
type LeftOut struct {
	Definition string
	Place      symbol.Loc
	Err        error
}

// reason is the error without the names and addresses of its place: what has happened
// to many is told once.
func (l LeftOut) reason() string {
	var e *kprobe.Error
	text := l.Err.Error()
	if s := (*spec.SyntaxError)(nil); errors.As(l.Err, &s) && s.Err != nil {
		text = s.Err.Error() // what it is about stands above
	}
	for err := l.Err; errors.As(err, &e); err = e.Err {
		text = e.Error()
		if e.Err == nil {
			break
		}
		text = e.Err.Error()
	}
	for _, name := range []string{l.Place.String(), l.Place.Func.Label()} {
		if l.Place.Func.Label() != "" {
			text = strings.ReplaceAll(text, name, "it")
		}
	}
	return location.ReplaceAllString(strings.TrimPrefix(text, "it "), "an address")
}

// location is an address in a text, or a place in a function.
var location = regexp.MustCompile(`\b0x[0-9a-f]{4,}\b`)

// WriteLeftOut tells for each definition how many of its places have no probe, and why: the
// commonest reasons, with some places for each.
func WriteLeftOut(w io.Writer, all []LeftOut) error {
	const mostReasons, mostPlaces = 8, 3
	for len(all) > 0 {
		def := all[0].Definition
		n := slices.IndexFunc(all, func(l LeftOut) bool { return l.Definition != def })
		if n < 0 {
			n = len(all)
		}
		places := "places"
		if n == 1 {
			places = "place"
		}
		if _, err := fmt.Fprintf(w, "%q goes without %d %s:\n", def, n, places); err != nil {
			return err
		}
		reasons := byReason(all[:n])
		for i, r := range reasons {
			if i == mostReasons {
				fmt.Fprintf(w, "  and %d more reasons\n", len(reasons)-i)
				break
			}
			var names []string
			for _, l := range r.of[:min(mostPlaces, len(r.of))] {
				names = append(names, l.Place.Offset())
			}
			if len(r.of) > mostPlaces {
				names = append(names, "...")
			}
			fmt.Fprintf(w, "  %6d  %s (%s)\n", len(r.of), r.why, strings.Join(names, ", "))
		}
		all = all[n:]
	}
	return nil
}

// reason is one that several places have.
type reason struct {
	why string
	of  []LeftOut
}

// byReason sorts places by why they are left out, the commonest reason first.
func byReason(all []LeftOut) []*reason {
	index := map[string]*reason{}
	var rs []*reason
	for _, l := range all {
		why := l.reason()
		r := index[why]
		if r == nil {
			r = &reason{why: why}
			index[why], rs = r, append(rs, r)
		}
		r.of = append(r.of, l)
	}
	slices.SortStableFunc(rs, func(a, b *reason) int { return cmp.Compare(len(b.of), len(a.of)) })
	return rs
}

// takeOut gives the probes that were placed, and says of the others why not.
func takeOut(ts []*traced) (placed []*traced, out []LeftOut) {
	for _, t := range ts {
		if err := t.kprobe().Refusal(); err != nil {
			out = append(out, LeftOut{t.spec.Text(), t.place, err})
			continue
		}
		placed = append(placed, t)
	}
	return placed, out
}

// optional tells the session which probes it may leave out: those of patterns and of inlined
// copies, of which nobody has named each, and where calls are watched their returns.
func (tr *Tracer) optional(ts []*traced) {
	for _, t := range ts {
		t.kprobe().Optional = isPattern(t.spec) || t.at0.inlined != "" || tr.Calls && t.rp != nil
	}
}

func isPattern(sp *spec.Spec) bool { return sp.Place.IsGlob() }
