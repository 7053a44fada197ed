package trace

import (
	"errors"
	"strings"
	"syscall"

	"kprobe"
	"kprobe/spec"
)

// Plan tells, for one definition, what registering it would do; nothing is
// changed. Errors: as Tracer.Add.
func Plan(s *kprobe.Session, def string) ([]kprobe.PlanEntry, error) {
	if err := s.Refresh(); err != nil {
		return nil, err
	}
	sp, err := parse(parser(s), def)
	if err != nil {
		return nil, err
	}
	if sp == nil || sp.Kind == spec.Delete {
		return nil, fail(syscall.EINVAL, "not a probe: %q", def)
	}
	if pending(s, sp) {
		return []kprobe.PlanEntry{{Place: awaited(sp), Verdict: kprobe.VerdictPending, Reason: errPending.Error()}}, nil
	}
	places, err := locate(s, sp, whole)
	if err != nil {
		return nil, syntax(sp, err)
	}
	var es []kprobe.PlanEntry
	for _, at := range places {
		if at.name != "" { // one that a pattern found has its address
			if _, err := s.Lookup(at.name); unbound(err) {
				es = append(es, kprobe.PlanEntry{Place: awaited(sp), Verdict: kprobe.VerdictPending, Reason: err.Error()})
				continue
			}
		}
		if at.doubt != "" {
			es = append(es, kprobe.PlanEntry{Place: at.loc.Place(), Addr: at.loc.Addr, Verdict: kprobe.VerdictLeave, Reason: at.inlined + ": " + at.doubt})
			continue
		}
		e := s.Plan(at.probe(sp, maxActive(s, sp)))
		if errors.Is(e.Err, syscall.ESRCH) { // the target has ended: nothing is said of its places
			return nil, e.Err
		}
		note, err := planned(s, sp, at, len(places) > 1)
		if err != nil {
			return nil, err
		}
		if note != "" {
			e.Reason = strings.TrimPrefix(e.Reason+"; "+note, "; ")
		}
		es = append(es, e)
	}
	return es, nil
}
