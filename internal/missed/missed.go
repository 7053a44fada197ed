// Package missed counts hits whose probes' programs or handlers did not run, and says so in the words of every command.
package missed

import "fmt"

// Of is how many hits some probes have missed.
func Of[P any](probes []P) (n uint64) {
	for _, p := range probes {
		if p, ok := any(p).(interface{ NMissed() uint64 }); ok {
			n += p.NMissed()
		}
	}
	return n
}

// Told counts what was told of.
type Told struct{ n uint64 }

// Fresh is how many of all that are missed so far were not told of, and now are.
func (t *Told) Fresh(all uint64) uint64 {
	fresh := all - min(all, t.n)
	t.n += fresh
	return fresh
}

// Line says it in one line.
func Line(n uint64) string {
	return fmt.Sprintf("Missed %d hits: there was no room for more calls, or a probe's program was running\n", n)
}
