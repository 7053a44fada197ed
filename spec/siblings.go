package spec

// Several definitions with one name are one event with several places. They
// have to be of one kind and to record the same, or no reader could tell what
// is in the event's record.

// Append checks that s may be defined beside existing: nil, or DiffProbeType,
// DiffArgType or SameProbe, each with EEXIST. It does not add s.
func Append(existing []*Spec, s *Spec) error {
	group, event := s.Names()
	for _, o := range existing {
		if g, e := o.Names(); g != group || e != event {
			continue
		}
		if o.Kind != s.Kind {
			return s.ErrorAt(DiffProbeType, PartCommand, nil)
		}
		if i := differ(o.Args, s.Args); i >= 0 {
			return s.ErrorAt(DiffArgType, PartArg(i), nil)
		}
		if o.Place.sameSpot(s.Place) && sameArgs(o.Args, s.Args) {
			return s.ErrorAt(SameProbe, PartCommand, nil)
		}
	}
	return nil
}

// differ finds the first argument whose field in the record differs; -1 if all agree. Of bitfields
// the container counts: it is the field that is recorded.
func differ(a, b []Arg) int {
	for i := range min(len(a), len(b)) {
		x, y := &a[i], &b[i]
		if x.Name != y.Name || x.Type.Base != y.Type.Base ||
			x.Type.Size != y.Type.Size || x.Type.Array != y.Type.Array {
			return i
		}
	}
	if len(a) != len(b) {
		return min(len(a), len(b))
	}
	return -1
}

// sameArgs tells whether the first arguments of a equal those of b.
func sameArgs(a, b []Arg) bool {
	if len(a) < len(b) {
		return false
	}
	for i := range b {
		if a[i].Name != b[i].Name || a[i].body() != b[i].body() {
			return false
		}
	}
	return true
}

// Remove gives existing without the definitions that the deletion d names. These are all of an
// event, or of a group ("-:GROUP/"), or those at d's place that record d's arguments first. An
// event without a group is looked for in every group. Where nothing is found the error is NoEvent
// with ENOENT.
func Remove(existing []*Spec, d *Spec) ([]*Spec, error) {
	var rest []*Spec
	for _, s := range existing {
		if !d.names(s) {
			rest = append(rest, s)
		}
	}
	if len(rest) == len(existing) {
		return existing, d.ErrorAt(NoEvent, PartEvent, nil)
	}
	return rest, nil
}

// names tells whether the deletion d means s.
func (d *Spec) names(s *Spec) bool {
	group, event := s.Names()
	return (d.Group == "" || d.Group == group) && (d.Event == "" || d.Event == event) &&
		(d.Place == (Place{}) || d.Place.sameSpot(s.Place) && sameArgs(s.Args, d.Args))
}
