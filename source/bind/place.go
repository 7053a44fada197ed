package bind

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"kprobe/arch"
	"kprobe/source"
	"kprobe/symbol"
)

// Found is an address in the process that a place in terms of the source leads to.
type Found struct {
	Loc     symbol.Loc
	At      source.Point // in the file's debug data
	Func    string       // whose code it is there, with namespaces
	Inlined bool         // it is a copy of Func
	In      string       // of which function it became a part, if so
	Doubt   string       // why it may be no place of what was asked for; "" where it is one
}

const (
	doubtCall = "whether a call begins there, debug data does not tell"
	doubtLine = "the line has code there, too, and debug data does not tell whether it is executed once more"
)

// Note tells in words what is not to be seen from the address.
func (f *Found) Note() string {
	if f.Inlined {
		return fmt.Sprintf("%s, inlined in %s", f.Func, f.In)
	}
	return ""
}

// errNoSource says that no mapped file has debug data, or none that could have what was asked for.
var errNoSource = &source.NotFoundError{What: "no mapped file has debug data"}

// each asks the mapped files that have debug data, in order of address, which puts the program first, until
// one answers, and those of its name. The error is the last that knows the name.
func each(space *symbol.Space, module string, ask func(*symbol.Module, *source.File) ([]Found, error)) ([]Found, error) {
	modules := space.Modules()
	if module != "" {
		modules = space.ModulesNamed(module)
	}
	var last error = errNoSource
	var why error
	var all []Found
	var answered *symbol.Module
	for _, m := range modules {
		if m.File == nil || answered != nil && m.Name != answered.Name { // copies of the file that has answered do so, too
			continue
		}
		d, err := Of(m.File)
		if err != nil {
			if why == nil {
				why = fmt.Errorf("%s: %w", m.Name, err)
			}
			continue
		}
		found, err := ask(m, d)
		if err == nil {
			all, answered = append(all, found...), m
			continue
		}
		var nf *source.NotFoundError
		if last == error(errNoSource) || errors.As(err, &nf) && nf.Known {
			last = err
		}
	}
	if answered != nil {
		return all, nil
	}
	if last == error(errNoSource) && why != nil {
		return nil, why
	}
	return nil, last
}

// Line finds the places of NAME:LINE, NAME a source file, or a function, FUNC@FILE too; then lines count from
// its beginning. Of module, or for "" of all files that are mapped: NAME may begin with the name of one and a
// colon.
//
// Errors: *source.NotFoundError; source.ErrNone, wrapped.
func Line(space *symbol.Space, name string, line int) ([]Found, error) {
	module := ""
	if m, rest, ok := strings.Cut(name, ":"); ok && !strings.HasPrefix(rest, ":") && len(space.ModulesNamed(m)) > 0 {
		module, name = m, rest
	}
	return each(space, module, func(m *symbol.Module, d *source.File) ([]Found, error) {
		var sites []source.Site
		var err error
		if fn, file, ok := strings.Cut(name, "@"); ok {
			sites, err = d.FunctionLine(fn, file, line)
		} else if sites, err = d.Line(name, line); err != nil && !d.HasFile(name) {
			if f, ferr := d.FunctionLine(name, "", line); ferr == nil || d.HasFunction(name) {
				sites, err = f, ferr
			}
		}
		if err != nil {
			return nil, err
		}
		var out []Found
		for _, s := range sites {
			found := Found{Loc: locate(space, m, s.Addr), At: s.Point(), Func: s.Func, Inlined: s.Inlined, In: s.In}
			if s.Doubtful {
				found.Doubt = doubtLine
			}
			out = append(out, found)
		}
		return out, nil
	})
}

func locate(space *symbol.Space, m *symbol.Module, addr uint64) symbol.Loc {
	loc, _ := space.At(m.InProcess(addr))
	return loc
}

// Function finds all code of a function of the source: its own and its inlined copies. body asks for
// where parameters can be read, not for the first instruction. file is "" or the end of the path of the source
// file that declares it.
//
// Errors: *source.NotFoundError; source.ErrNone, wrapped; that the name is that of several functions.
func Function(space *symbol.Space, module, name, file string, body bool) ([]Found, error) {
	return each(space, module, func(m *symbol.Module, d *source.File) ([]Found, error) {
		fns, err := d.Function(name, file)
		if err != nil {
			return nil, err
		}
		if len(fns) > 1 && file == "" && !strings.Contains(name, "::") {
			var where []string
			for _, fn := range fns {
				where = append(where, fmt.Sprintf("%s@%s", fn.Name, fn.File))
			}
			return nil, &source.NotFoundError{What: fmt.Sprintf("%q is the name of %d functions: %s", name, len(fns), strings.Join(where, ", ")), Known: true}
		}
		var out []Found
		for _, fn := range fns {
			out = append(out, copies(space, m, &fn, body)...)
		}
		return out, nil
	})
}

func copies(space *symbol.Space, m *symbol.Module, fn *source.Function, body bool) []Found {
	var out []Found
	add := func(c source.Copy, doubt string) {
		at := c.Entry
		if body {
			at = c.Body
		}
		p := c.Point()
		p.Addr = at
		out = append(out, Found{locate(space, m, at), p, fn.Name, c.Inlined, c.In, doubt})
	}
	for _, c := range fn.Copies {
		add(c, "")
	}
	for _, c := range fn.Doubtful {
		add(c, doubtCall)
	}
	return out
}

// Copies are the inlined copies of the function at a location, which is its first instruction. None where
// there is no debug data.
func Copies(space *symbol.Space, loc symbol.Loc) []Found {
	fn := functionAt(loc)
	if fn == nil {
		return nil
	}
	return slices.DeleteFunc(copies(space, loc.Module, fn, false), func(f Found) bool { return !f.Inlined })
}

// Clones are the versions of the function at a location, which is its first instruction, that the compiler has made for some of its
// callers (FUNC.constprop.0, FUNC.isra.0), and that run in its place there. body is as in Function.
func Clones(space *symbol.Space, loc symbol.Loc, body bool) []Found {
	fn := functionAt(loc)
	if fn == nil {
		return nil
	}
	return slices.DeleteFunc(copies(space, loc.Module, fn, body), func(f Found) bool {
		return f.Inlined || !strings.HasPrefix(f.Loc.Func.Name, loc.Func.Name+".")
	})
}

// functionAt is the function of the source that begins at a location; nil for none.
func functionAt(loc symbol.Loc) *source.Function {
	c := beginsAt(loc)
	if c == nil {
		return nil
	}
	// Looked for once, however many processes have the file.
	return loc.Module.File.Memo(beginning(c.Entry), func() any { return functionOf(loc.Module.File, c) }).(*source.Function)
}

// beginning is the key of a file's memo of the function that begins there.
type beginning uint64

func functionOf(f *symbol.File, c *source.Copy) *source.Function {
	d, _ := Of(f)
	frames := d.Frames(c.Entry)
	if len(frames) == 0 {
		return nil
	}
	fns, err := d.Function(frames[len(frames)-1].Func, "")
	if err != nil {
		return nil
	}
	for i := range fns {
		if slices.ContainsFunc(fns[i].Copies, func(o source.Copy) bool { return !o.Inlined && o.Entry == c.Entry }) {
			return &fns[i]
		}
	}
	return nil
}

// beginsAt is the own code of the function that begins at a location; nil for none.
func beginsAt(loc symbol.Loc) *source.Copy {
	if loc.Module == nil || loc.Module.File == nil || loc.Func.Name == "" {
		return nil
	}
	d, err := Of(loc.Module.File)
	if err != nil {
		return nil
	}
	return d.Begins(loc.Module.InFile(loc.Addr))
}

// Body is where the parameters of the function that begins at a location can be read: the location itself in
// code that is optimized, else behind the prologue. The point is the function's, not that of a copy that begins there.
func Body(space *symbol.Space, loc symbol.Loc) (symbol.Loc, source.Point) {
	c := beginsAt(loc)
	switch {
	case c == nil:
		return loc, source.Point{}
	case c.Body != c.Entry:
		return locate(space, loc.Module, c.Body), c.Point()
	}
	return loc, c.EntryPoint()
}

// Start is the point of the function that begins at a location, at that.
func Start(loc symbol.Loc) source.Point {
	if c := beginsAt(loc); c != nil {
		return c.EntryPoint()
	}
	return source.Point{}
}

// SiteAt is an address of the process as its file's debug data has it. at says which part of the function is meant;
// its zero value, that it is the innermost one.
func SiteAt(a *arch.Arch, loc symbol.Loc, at source.Point) *Site {
	s := &Site{Arch: a, At: at}
	m := loc.Module
	if m == nil || m.File == nil {
		s.Err = &source.NotFoundError{What: fmt.Sprintf("%#x is in no mapped file: what the source calls it is not known", loc.Addr)}
		return s
	}
	s.Bias = m.Bias
	if s.Data, s.Err = Of(m.File); s.Err != nil {
		s.Err = fmt.Errorf("%s: %w", m.Name, s.Err)
		return s
	}
	addr := m.InFile(loc.Addr)
	if at == (source.Point{}) {
		s.At = source.At(addr)
	}
	s.Entry, s.Func = loc.Off == 0, loc.Func.Label()
	s.code, s.entry, s.global = m.File, loc.Func.Addr, loc.Func.Global
	if c := beginsAt(loc); c != nil {
		s.Unoptimized, s.Body = c.Body != c.Entry, c.Body
	}
	if n, ok := m.File.ThreadStorage(); ok && a.Debug.ThreadStorage {
		s.Thread, s.HasThread = n, true
	}
	return s
}

// EntryOf is the entry of a function of a file, as the file has it: no process is needed.
func EntryOf(a *arch.Arch, f *symbol.File, fn symbol.Symbol) *Site {
	loc := symbol.Loc{Addr: arch.Addr(fn.Addr), Module: &symbol.Module{File: f, Name: f.Path()}, Func: fn}
	c := beginsAt(loc)
	if c == nil {
		s := SiteAt(a, loc, source.Point{})
		if s.Err == nil {
			s.Data, s.Err = nil, &source.NotFoundError{What: fmt.Sprintf("no function of the source begins at %s", fn.Label())}
		}
		return s
	}
	return SiteAt(a, loc, c.EntryPoint())
}
