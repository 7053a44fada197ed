package trace

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"syscall"

	"kprobe"
	"kprobe/event"
	"kprobe/source/bind"
	"kprobe/spec"
	"kprobe/symbol"
)

// A definition whose file is not mapped yet waits for it. Of a function's name the session has a probe that waits. Of what can
// be told only when the file is there (a pattern's functions, an offset, a function whose variables are asked for) the definition waits
// here, and its places are looked for again whenever the target has mapped something.

// pending tells whether such a definition waits.
func pending(s *kprobe.Session, sp *spec.Spec) bool {
	pl := sp.Place
	if pl.Module == "" || len(s.Symbols().ModulesNamed(pl.Module)) > 0 {
		return false
	}
	return pl.IsGlob() || pl.HasFileOff && isLibrary(pl.Module) || pl.Symbol != "" && sp.Kind != spec.Watch && (bind.Needs(sp) || bind.Plain(sp) || slices.ContainsFunc(sp.Args, func(a spec.Arg) bool { return hasSymbol(&a.Fetch) }))
}

// hasSymbol tells whether a variable is told by its symbol, whose file may come together with the place's.
func hasSymbol(f *spec.Fetch) bool {
	return f != nil && (f.Op == spec.Sym || hasSymbol(f.Inner))
}

// unbound tells the error of an indirect function that nothing in the process has been bound to yet.
func unbound(err error) bool {
	var several *symbol.AmbiguousError
	return errors.Is(err, syscall.EADDRNOTAVAIL) && !errors.As(err, &several)
}

// isLibrary tells the name of a library from that of a source, whose lines are written as offsets in files are.
func isLibrary(module string) bool { return strings.Contains(path.Base(module), ".so") }

// awaited is a definition's place in words.
func awaited(sp *spec.Spec) string {
	pl := sp.Place
	if pl.HasFileOff {
		return fmt.Sprintf("%s:%#x", pl.Module, pl.FileOff)
	}
	return symbol.Readable(fullName(pl))
}

// Awaited is a place of definitions that waits for its file, or has waited up to the end. An indirect function waits also when its file is
// mapped, until something in the process is bound to it.
type Awaited struct {
	Place, File string
	Mapped      bool
	Data        bool // nothing is mapped at the address that is watched
}

func (a Awaited) String() string {
	if a.Data {
		return a.Place + " waits: nothing is mapped there yet"
	}
	if a.Mapped {
		return a.Place + " waits: it is an indirect function, and nothing in the process is bound to it yet"
	}
	return fmt.Sprintf("%s waits: %s is not mapped yet", a.Place, a.File)
}

// Never says it at the end.
func (a Awaited) Never() string {
	if a.Data {
		return a.Place + " had no access: nothing was mapped there at the beginning"
	}
	if a.Mapped {
		return a.Place + " had no place: it is an indirect function, and nothing in the process was bound to it meanwhile"
	}
	return fmt.Sprintf("%s had no place: %s was never mapped", a.Place, a.File)
}

// Waiting are the places that have been in no mapped file so far, each once.
func (tr *Tracer) Waiting() []Awaited {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return waiting(tr.s, tr.waiting, tr.probes)
}

func waiting(s *kprobe.Session, specs []*spec.Spec, ts []*traced) (all []Awaited) {
	add := func(sp *spec.Spec) {
		a := Awaited{Place: awaited(sp), File: sp.Place.Module}
		if locs, err := s.Symbols().Resolve(symbol.Query{Module: a.File, Symbol: sp.Place.Symbol}); err == nil {
			a.Mapped = locs[0].Func.Kind == symbol.IFunc
		}
		if (a.File != "" || a.Mapped) && !slices.Contains(all, a) {
			all = append(all, a)
		}
	}
	for _, sp := range specs {
		add(sp)
	}
	for _, t := range ts {
		switch {
		case t.wp == nil && t.at().Addr == 0:
			add(t.spec)
		case t.wp != nil && t.later && t.wp.Hits() == 0:
			all = append(all, Awaited{Place: fmt.Sprintf("%#x", t.spec.Place.Addr), Data: true})
		}
	}
	return all
}

// notMapped are the rows of definitions that wait.
func notMapped(specs []*spec.Spec) (rows []event.Count) {
	for _, sp := range specs {
		_, name := sp.Names()
		rows = append(rows, event.Count{Name: name, Place: unmapped(sp)})
	}
	return rows
}

// NotMapped stands behind a place in tables that is in no mapped file.
const NotMapped = " (not mapped)"

func unmapped(sp *spec.Spec) string { return awaited(sp) + NotMapped }

// Remap is for kprobe.Options.Mapped: it places the definitions that have waited for what the target has mapped since. It answers
// the places that cannot be probed. What it cannot place at all waits no longer. Errors: as Add.
func (tr *Tracer) Remap() ([]LeftOut, error) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	look(tr.probes)
	if err := tr.s.Refresh(); err != nil {
		return nil, ended(tr.s, err)
	}
	tr.forgetNames()
	var over []*traced
	if tr.probes, over = surplus(tr.probes); len(over) > 0 {
		if err := tr.unregister(over); err != nil {
			return nil, ended(tr.s, err)
		}
	}
	fresh, left, err := tr.arrived()
	if len(fresh) == 0 {
		tr.leftOut = append(tr.leftOut, left...)
		return left, err
	}
	if !tr.Strict {
		tr.optional(fresh)
	}
	tr.settleAll(fresh)
	if failed := tr.register(fresh); failed != nil {
		return left, errors.Join(err, ended(tr.s, failed))
	}
	fresh, out := takeOut(fresh)
	tr.probes = append(tr.probes, fresh...)
	left = append(left, out...)
	tr.leftOut = append(tr.leftOut, left...)
	return left, err
}

// arrived makes the probes of waiting definitions whose file is mapped now, and of further copies
// of files.
func (tr *Tracer) arrived() (fresh []*traced, left []LeftOut, err error) {
	var still []*spec.Spec
	placed := slices.DeleteFunc(slices.Clone(tr.specs), func(sp *spec.Spec) bool { return slices.Contains(tr.waiting, sp) })
	more := grown(tr.space, tr.loads.look(tr.space), placed, tr.probes)
	for _, sp := range slices.Concat(tr.waiting, more) {
		if sp.Kind == spec.Watch && slices.Contains(more, sp) {
			left = append(left, unwatched(tr.space, sp, tr.probes)...)
			continue
		}
		ts, out, failed := tr.prepare(sp)
		switch {
		case waits(tr.s, failed):
			if !has(tr.probes, sp) { // else those wait
				still = append(still, sp)
			}
		case failed != nil:
			err = errors.Join(err, failed)
			tr.specs = slices.DeleteFunc(tr.specs, func(o *spec.Spec) bool { return o == sp && slices.Contains(tr.waiting, sp) })
		}
		fresh, left = append(fresh, ts...), append(left, out...)
	}
	tr.waiting = still
	return unprobed(fresh, tr.probes), left, err
}

// waits tells whether a definition that could not be placed goes on waiting: its file is not mapped, or the session is over.
func waits(s *kprobe.Session, failed error) bool {
	return errors.Is(failed, errPending) || failed != nil && ended(s, failed) == nil
}

// has tells whether a definition has probes.
func has(ts []*traced, sp *spec.Spec) bool {
	return slices.ContainsFunc(ts, func(t *traced) bool { return t.spec == sp })
}

// ended forgets an error of a session that is over.
func ended(s *kprobe.Session, err error) error {
	select {
	case <-s.Done():
		return nil
	default:
	}
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}

// look notes where probes are that have waited, so that this is known when their file is unmapped again.
func look(ts []*traced) {
	for _, t := range ts {
		t.at()
	}
}

// errPending is prepare's answer for a definition that waits.
var errPending = errors.New("its file is not mapped yet")
