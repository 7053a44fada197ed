package script

import (
	"errors"
	"fmt"
	"strings"

	"kprobe/script/debug"
	"kprobe/script/point"
	"kprobe/symbol"
)

// Attach points at functions: uprobe and uretprobe, kprobe and kretprobe, fentry and fexit.

// atPattern are the functions that a pattern matches, in all files that another matches.
func (t *target) atPattern(pt *point.Point, module string) (all []spot, err error) {
	space := t.session.Symbols()
	at := []string{pt.Provider}
	if pt.Target != "" {
		at = append(at, pt.Target)
	}
	for _, m := range t.modules(module) {
		found := space.Match
		if pt.Source {
			found = space.MatchReadable
		}
		for _, loc := range found(m, pt.Name().Pattern) {
			if loc.Func.Source == symbol.Plt || loc.Func.Kind == symbol.IFunc {
				continue
			}
			if pt.Offset > 0 {
				if pt.Offset >= loc.Size {
					return nil, outside(pt, loc.Size)
				}
				all = append(all, t.inFile(pt, loc.Module, loc.Module.InFile(loc.Addr)+pt.Offset))
				continue
			}
			all = append(all, spot{loc: loc, text: strings.Join(append(at, debug.Told(loc.Func, pt.Name())), ":")})
		}
	}
	if len(all) == 0 {
		if module != "" && !hasGlob(module) && len(space.ModulesNamed(module)) == 0 {
			return nil, notMapped(module)
		}
		if !symbol.HasGlob(pt.Name().Pattern) {
			return nil, sentence(fmt.Sprintf("Could not resolve symbol: %s:%s", pt.Target, pt.Function))
		}
		return nil, noMatches(pt)
	}
	return all, nil
}

// atFunction is a function by its name. That of a file which is not mapped yet is looked for when it is.
func (t *target) atFunction(pt *point.Point, module string) ([]spot, error) {
	full := pt.Function
	if strings.Contains(module, ":") { // a name would be cut there
		return t.spotIn(module, pt)
	}
	if module != "" {
		full = module + ":" + full
	}
	var absent *symbol.NoModuleError
	loc, err := t.function(full)
	switch {
	case err != nil && (!errors.As(err, &absent) || pt.OfKernel()): // a module that the kernel has not may never come
		return nil, sentence(fmt.Sprintf("Could not resolve symbol: %s:%s: %v", pt.Target, pt.Function, err))
	case err == nil && loc.Size > 0 && pt.Offset >= loc.Size:
		return nil, outside(pt, loc.Size)
	}
	return []spot{{name: full, offset: pt.Offset, text: pt.Text}}, nil
}

// spotIn is a function's place in a mapped file: a process that maps it later is looked at again then.
func (t *target) spotIn(module string, pt *point.Point) ([]spot, error) {
	space := t.session.Symbols()
	if len(space.ModulesNamed(module)) == 0 {
		return nil, notMapped(module)
	}
	found, err := space.Resolve(symbol.Query{Module: module, Symbol: pt.Function, Offset: pt.Offset})
	switch {
	case err != nil:
		return nil, sentence(fmt.Sprintf("Could not resolve symbol: %s:%s: %v", pt.Target, pt.Function, err))
	case found[0].Off != pt.Offset:
		return nil, sentence(fmt.Sprintf("Offset outside the function bounds ('%s')", pt.Function))
	case found[0].Func.Kind == symbol.IFunc:
		return nil, fmt.Errorf("%s chooses its function when the program starts, and the path of its file has a colon", pt.Function)
	}
	return []spot{{loc: found[0], text: pt.Text}}, nil
}

// function finds one that is mapped.
func (t *target) function(name string) (symbol.Loc, error) {
	loc, err := t.session.Lookup(name)
	if err == nil && loc.Func.Kind == symbol.Data {
		err = &symbol.NotFoundError{Name: name, IsData: true}
	}
	return loc, err
}
