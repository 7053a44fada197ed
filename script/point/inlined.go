package point

import (
	"fmt"

	"kprobe/script/syntax"
	"kprobe/symbol"
)

// Inlined finds the inlined copies of a function of a target's file. With fetch debug data that is not on this machine may be asked for.
type Inlined func(target string, name Name, fetch bool) Copies

// Copies are a compiler's copies of a function.
type Copies struct {
	Places []uint64 // where it is inlined, as symbols have addresses
	Body   bool     // it is there by itself, too
}

func counted(n int) string {
	if n == 1 {
		return "1 inlined copy"
	}
	return fmt.Sprintf("%d inlined copies", n)
}

// inlined adds the inlined copies of the function that a probe is at, where the script wants them; else it tells of them.
func (r *Reader) inlined(at syntax.Point, pt *Point) *Point {
	if pt == nil || pt.HasAddr || pt.Offset > 0 || r.Inlined == nil {
		return pt
	}
	if symbol.HasGlob(pt.pattern) {
		if r.ProbeInline {
			r.Warnf(at, "%s is a pattern: functions are left out where they are inlined", pt.Text)
		}
		return pt
	}
	copies := r.Inlined(pt.Target, pt.Name(), r.ProbeInline)
	n := len(copies.Places)
	switch {
	case n == 0:
		return pt
	case pt.AtReturn():
		r.Warnf(at, "%s has %s, where a return cannot be probed", pt.Function, counted(n))
		return pt
	case !r.ProbeInline:
		r.Warnf(at, "%s has %s, not probed: config = { probe_inline = 1 } probes them, too", pt.Function, counted(n))
		return pt
	}
	for _, place := range copies.Places {
		one := *pt
		one.Address, one.HasAddr, one.Virtual, one.Inlined = place, true, true, true
		r.more = append(r.more, &one)
	}
	if !copies.Body {
		pt, r.more = r.more[n-1], r.more[:n-1]
	}
	return pt
}
