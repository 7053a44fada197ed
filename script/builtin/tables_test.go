package builtin

import "testing"

// One record is all there is to a builtin: it has a type, or a check that finds it, and makes a value, acts or gathers.
func TestEveryRecordIsWhole(t *testing.T) {
	for name, v := range values {
		if (v.typ == nil) == (v.check == nil) {
			t.Errorf("%s has a type, or a check that finds it: one of the two", name)
		}
		if v.number == nil && v.memory == nil && v.known == nil {
			t.Errorf("%s has no value", name)
		}
	}
	for name, f := range functions {
		makes := f.number != nil || f.memory != nil || f.act != nil || f.known != nil
		switch {
		case name == "container_of": // is written otherwise before anything is checked
		case f.check == nil:
			t.Errorf("%s() has no check", name)
		case makes && f.gathers, !makes && !f.gathers && !f.missing:
			t.Errorf("%s() makes a value, acts, gathers or is refused", name)
		case f.least > f.most:
			t.Errorf("%s() takes %d to %d arguments", name, f.least, f.most)
		}
	}
}
