package script

import (
	"fmt"
	"time"

	"kprobe/internal/missed"
)

// missedEvery is how often it is asked whether hits were missed.
const missedEvery = time.Second

// missedHits is what is known of the hits that probes have missed.
type missedHits struct {
	told   missed.Told
	before uint64    // of processes that have ended
	asked  time.Time // last
}

// missed is how many hits of the target's probes were missed.
func (t *target) missed() uint64 {
	t.arming.Lock()
	defer t.arming.Unlock()
	return missed.Of(t.probes)
}

// tellMissed says how many hits were missed since it was last said; now and then, or at the end.
func (r *Run) tellMissed(end bool) error {
	m := &r.missing
	if !end && time.Since(m.asked) < missedEvery {
		return nil
	}
	m.asked = time.Now()
	n := m.before
	for _, t := range r.all() {
		n += t.missed()
	}
	if n = m.told.Fresh(n); n == 0 {
		return nil
	}
	if r.s.opts.JSON {
		_, err := fmt.Fprintf(r.s.opts.Output, "{\"type\": \"lost_events\", \"count\": %d, \"data\": {\"events\": %[1]d, \"cause\": \"missed\"}}\n", n)
		return err
	}
	_, err := fmt.Fprint(r.s.opts.Errors, missed.Line(n))
	return err
}
