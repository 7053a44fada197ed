package trace

import (
	"errors"
	"strings"
	"syscall"

	"kprobe"
	"kprobe/source"
	"kprobe/source/bind"
	"kprobe/spec"
	"kprobe/symbol"
)

// What is told in terms of the program's source, its debug data tells: which addresses a line or a function
// has, and where a variable is at each.

// inSource is a function that was found by its symbol, with what debug data knows of it: where its parameters
// can be read, if the definition asks for such, its versions for some callers, and its inlined copies, which a probe of
// the function takes in.
func inSource(s *kprobe.Session, sp *spec.Spec, at located, of extent) []located {
	if _, ok := s.Target().(binder); ok || sp.Place.Offset != 0 {
		return []located{at}
	}
	entry := at.loc
	body := sp.Kind == spec.Probe && bind.Needs(sp) && of != called
	if body {
		at.loc, at.at = bind.Body(s.Symbols(), at.loc)
		at.off = uint64(at.loc.Addr - entry.Addr)
	}
	var more []bind.Found
	if of != called {
		more = bind.Clones(s.Symbols(), entry, body)
	}
	if of == whole && sp.Kind == spec.Probe {
		more = append(more, bind.Copies(s.Symbols(), entry)...)
	}
	found := []located{at}
	for _, c := range more {
		found = append(found, copyOf(c))
	}
	return found
}

func copyOf(f bind.Found) located {
	return located{loc: f.Loc, at: f.At, inlined: f.Note(), doubt: f.Doubt}
}

// bySource finds a function that has no symbol of its own: all of it is inlined, or several have the name, and
// FUNC@FILE tells which. failed is why there is no symbol.
func bySource(s *kprobe.Session, sp *spec.Spec, failed error, of extent) ([]located, error) {
	var other *symbol.NotFoundError
	_, types := s.Target().(binder)
	if types || sp.Place.Version == "" && !errors.As(failed, &other) {
		return nil, failed
	}
	found, err := bind.Function(s.Symbols(), sp.Place.Module, sp.Place.Symbol, sp.Place.Version, of != called && sp.Kind == spec.Probe && bind.Needs(sp))
	var nf *source.NotFoundError
	switch {
	case errors.As(err, &nf) && nf.Known:
		return nil, fail(syscall.ENOENT, "%v", nf)
	case err != nil:
		return nil, failed
	}
	var out []located
	copies := 0
	for _, f := range found {
		if f.Inlined {
			if f.Doubt == "" {
				copies++
			}
			if of != whole || sp.Kind == spec.Return {
				continue
			}
		}
		at := copyOf(f)
		at.loc = at.loc.Plus(sp.Place.Offset)
		out = append(out, at)
	}
	if len(out) == 0 {
		return nil, fail(syscall.ENOENT, "%s is inlined everywhere (%d copies): it has no code of its own, and does not return", sp.Place.Symbol, copies)
	}
	return out, nil
}

// sourceLine finds FILE:LINE and FUNC:LINE, which look like an offset in a file.
func sourceLine(s *kprobe.Session, sp *spec.Spec) ([]located, error) {
	if _, ok := s.Target().(binder); ok || sp.Place.HasRefCtr || sp.Place.FileOff > 1<<30 {
		return nil, errors.New("it is none")
	}
	found, err := bind.Line(s.Symbols(), sp.Place.Module, int(sp.Place.FileOff))
	if err != nil {
		return nil, err
	}
	var out []located
	for _, f := range found {
		if sp.Kind == spec.Return && f.Loc.Off != 0 {
			return nil, errors.New("a line is no function: a return probe is on the function's name")
		}
		out = append(out, copyOf(f))
	}
	return out, nil
}

// bindArgs gives the arguments of one of the tracer's definitions.
func (tr *Tracer) bindArgs(sp *spec.Spec, at symbol.Loc, point source.Point, several bool) ([]spec.Arg, error) {
	if tr.Calls && at.Addr != 0 {
		if point == (source.Point{}) {
			point = bind.Start(at)
		}
		return bind.Call(sp, bind.SiteAt(tr.s.Arch(), at, point), several)
	}
	return bindArgs(tr.s, sp, at, point, several)
}

// bindArgs gives a definition's arguments at a place without names of variables. lenient: where a variable is
// optimized out, its value is a text that says so.
func bindArgs(s *kprobe.Session, sp *spec.Spec, at symbol.Loc, point source.Point, lenient bool) ([]spec.Arg, error) {
	if b, ok := s.Target().(binder); ok {
		return b.Bind(sp, at)
	}
	if bind.Plain(sp) && at.Addr != 0 {
		sp = bind.Typed(sp, bind.SiteAt(s.Arch(), at, point), lenient)
	}
	if !bind.Needs(sp) {
		return sp.Args, nil
	}
	switch {
	case sp.Kind == spec.Watch:
		return nil, sp.ErrorAt(spec.NoSupBtfArg, spec.PartCommand, errors.New("an access may be anywhere, where variables are elsewhere"))
	case at.Addr == 0:
		return nil, sp.ErrorAt(spec.NoSupBtfArg, spec.PartPlace, errors.New("the file is not mapped yet, and where its variables are is told by what it is then"))
	}
	return bind.Args(sp, bind.SiteAt(s.Arch(), at, point), lenient)
}

// partWords turns the way to a part of a value into words.
var partWords = strings.NewReplacer(spec.PartSep+spec.PartLow, ".low:", spec.PartSep+spec.PartHigh, ".high", spec.PartSep, ".")

// planned tells of a place what debug data says: of what it is a copy, and where the variables are.
func planned(s *kprobe.Session, sp *spec.Spec, at located, several bool) (string, error) {
	var notes []string
	if at.inlined != "" {
		notes = append(notes, at.inlined)
	}
	if bind.Needs(sp) {
		args, err := bindArgs(s, sp, at.loc, at.at, several)
		if err != nil {
			return "", err
		}
		for _, a := range args {
			notes = append(notes, partWords.Replace(a.Name)+" is "+a.Fetch.String()+":"+a.Type.String())
		}
	}
	return strings.Join(notes, "; "), nil
}
