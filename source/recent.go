package source

import "slices"

// recent keeps what was read last of a few units. The search for a line looks at each unit that has its file, and the search
// for a function looks at the unit of each copy.
type recent[V any] struct {
	units  []*unit // the last one at the end
	values []V
}

const recentUnits = 4

func (r *recent[V]) get(u *unit) (v V, ok bool) {
	i := slices.Index(r.units, u)
	if i < 0 {
		return v, false
	}
	v = r.values[i]
	r.drop(i)
	r.put(u, v)
	return v, true
}

func (r *recent[V]) put(u *unit, v V) {
	if len(r.units) == recentUnits {
		r.drop(0)
	}
	r.units, r.values = append(r.units, u), append(r.values, v)
}

func (r *recent[V]) drop(i int) {
	r.units, r.values = slices.Delete(r.units, i, i+1), slices.Delete(r.values, i, i+1)
}
