package trace

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"kprobe/arch"
	"kprobe/event"
	"kprobe/source"
	"kprobe/spec"
	"kprobe/symbol"
)

// A library may be mapped several times: from files of one name, or into namespaces of their own (dlmopen). A definition is about each
// copy, also about one that comes later, and its events say which it was.

// copies are the places of one function in several copies of its file; nil where they are different functions.
func copies(several *symbol.AmbiguousError, pl spec.Place) []symbol.Loc {
	first := several.Candidates[0].Module
	for i, at := range several.Candidates {
		again := slices.ContainsFunc(several.Candidates[:i], func(o symbol.Loc) bool { return o.Module == at.Module })
		if again || pl.Module == "" && at.Module.Path != first.Path || at.Func.Kind == symbol.IFunc {
			return nil
		}
	}
	return several.Candidates
}

// loads are the modules that definitions have been placed in.
type loads struct {
	known  map[*symbol.Module]bool
	shared atomic.Bool // some have the name of another
}

// look notes what is mapped now, and answers what has come since the last look.
func (l *loads) look(space *symbol.Space) (fresh []*symbol.Module) {
	known, names := map[*symbol.Module]bool{}, map[string]int{}
	for _, m := range space.Modules() {
		if !l.known[m] {
			fresh = append(fresh, m)
		}
		known[m] = true
		names[m.Name]++
		if names[m.Name] > 1 {
			l.shared.Store(true)
		}
	}
	l.known = known
	return fresh
}

// grown are the definitions among specs whose file has been mapped once more.
func grown(space *symbol.Space, fresh []*symbol.Module, specs []*spec.Spec, probes []*traced) (out []*spec.Spec) {
	if len(fresh) == 0 {
		return nil
	}
	byName := map[string]bool{} // what a name finds is looked for once
	fits := func(sp *spec.Spec) bool {
		if sp.Place.Module == "" {
			return slices.ContainsFunc(probes, func(t *traced) bool {
				m := t.at().Module
				return t.spec == sp && m != nil && slices.ContainsFunc(fresh, func(f *symbol.Module) bool { return f.Path == m.Path })
			})
		}
		yes, known := byName[sp.Place.Module]
		if !known {
			yes = slices.ContainsFunc(space.ModulesNamed(sp.Place.Module), func(m *symbol.Module) bool { return slices.Contains(fresh, m) })
			byName[sp.Place.Module] = yes
		}
		return yes
	}
	for _, sp := range specs {
		if !sp.Place.HasAddr && fits(sp) {
			out = append(out, sp)
		}
	}
	return out
}

// unwatched are the further copies of a watched variable: the processor has few watchpoints, and the
// definition has one of them.
func unwatched(space *symbol.Space, sp *spec.Spec, probes []*traced) (left []LeftOut) {
	_, err := space.Resolve(symbol.Query{Module: sp.Place.Module, Symbol: sp.Place.Symbol, Kind: symbol.Data})
	var several *symbol.AmbiguousError
	if !errors.As(err, &several) || copies(several, sp.Place) == nil {
		return nil
	}
	for _, loc := range several.Candidates {
		addr := loc.Addr + arch.Addr(sp.Place.Offset)
		if !slices.ContainsFunc(probes, func(t *traced) bool { return t.spec == sp && t.kprobe().PlacedAt() == addr }) {
			left = append(left, LeftOut{sp.Text(), loc, errors.New("only the copy that was mapped first is watched")})
		}
	}
	return left
}

// place is where a definition is at work.
type place struct {
	sp   *spec.Spec
	addr arch.Addr
	at   source.Point // copies of several functions may begin at one address
}

func (t *traced) placeNow() place { return place{t.spec, t.kprobe().PlacedAt(), t.at0.at} }

// unprobed leaves out those that a probe of their definition is at already, and those that wait.
func unprobed(fresh, probes []*traced) []*traced {
	has := map[place]bool{}
	for _, t := range probes {
		has[place{sp: t.spec}] = true
		has[t.placeNow()] = true
		has[place{sp: t.spec, addr: t.kprobe().PlacedAt()}] = true
	}
	return slices.DeleteFunc(fresh, func(t *traced) bool {
		return has[place{t.spec, t.place.Addr, t.at0.at}] || has[place{sp: t.spec, addr: t.place.Addr}]
	})
}

// surplus takes out probes of unmapped copies where several of them have come back in one copy. The
// probe that stays keeps the others' counts.
func surplus(probes []*traced) (left, over []*traced) {
	first := map[place]*traced{}
	for _, t := range probes {
		p := t.placeNow()
		if o := first[p]; o != nil && p.addr != 0 && t.wp == nil {
			o.merged, over = append(o.merged, t), append(over, t)
			continue
		}
		if first[p] == nil {
			first[p] = t
		}
		left = append(left, t)
	}
	return left, over
}

// all is a probe with those whose counts it keeps.
func (t *traced) all() []*traced { return append([]*traced{t}, t.merged...) }

// function names the function at a place in events as its source has it. The file is added where
// another function of that name is mapped, and the address where that is of the same file.
func (tr *Tracer) function(at symbol.Loc) string {
	if !at.Known() {
		return ""
	}
	return tr.copyOf(at) + shown(&at.Func)
}

// copyOf tells which copy of its file a place is in, as a prefix; "" where there is one.
func (tr *Tracer) copyOf(at symbol.Loc) string {
	if !tr.loads.shared.Load() || at.Module == nil {
		return ""
	}
	switch others, same := tr.space.Copies(at.Module); {
	case same:
		return fmt.Sprintf("%s(%#x):", at.Module.Path, at.Module.Start)
	case others:
		return at.Module.Path + ":"
	}
	return ""
}

// count tells what became of a probe's hits.
func (t *traced) count() (c event.Count) {
	c.Missed[event.Fault] = t.faults.Load()
	c.Missed[event.Lost] = t.lost()
	if t.rp == nil {
		c.Hits = t.kprobe().Hits()
		c.Missed[event.Recursion] = t.kprobe().NMissed()
		return c
	}
	c.Hits = t.rp.Hits()
	c.Missed[event.NoInstance] = t.rp.NMissed()
	lost := t.rp.Lost()
	c.Missed[event.Unwound], c.Missed[event.Longjmp] = lost.Unwound, lost.Longjmp
	c.Missed[event.Goexit], c.Missed[event.Exited] = lost.Goexit, lost.Exited
	return c
}
