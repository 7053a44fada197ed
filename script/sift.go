package script

import (
	"slices"

	"kprobe/script/plan"
	"kprobe/script/point"
)

// passes tells whether the filter of the options lets a probe of that name through.
func (s *Script) passes(text string) bool { return s.filter == nil || s.filter.MatchString(text) }

// sift takes the attach points out that the filter does not let through, and keeps what is the script's own: begin, end and signals.
// Of a pattern each place is asked about when it is known.
func (s *Script) sift() error {
	left := false
	for _, p := range s.plan.Probes {
		p.Points = slices.DeleteFunc(p.Points, func(pt *point.Point) bool {
			own := pt.Type() == "special"
			several := pt.Many() || pt.Source || hasGlob(pt.Target)
			gone := !own && !several && !s.passes(pt.Text)
			left = left || !own && !gone
			return gone
		})
	}
	s.plan.Probes = slices.DeleteFunc(s.plan.Probes, func(p *plan.Probe) bool { return len(p.Points) == 0 })
	if !left {
		return sentence("No probes to attach: the filter lets none through")
	}
	return nil
}
