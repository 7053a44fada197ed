package trace

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"kprobe"
	"kprobe/arch"
	"kprobe/source"
	"kprobe/spec"
	"kprobe/symbol"
)

// located is a definition's place: found, or a name that waits for its file.
type located struct {
	loc  symbol.Loc
	name string // SymbolName; "" to register where it was found
	off  uint64
	raw  bool // an address that was given: it means nothing in another program

	at      source.Point // of its debug data, where the place was found there
	inlined string       // what it is a copy of, and where; "" for a function's own code
	doubt   string       // why it is not probed: debug data does not tell whether it is a place of the definition
}

// fullName is a place's symbol as Kprobe.SymbolName has it.
func fullName(pl spec.Place) string {
	name := pl.Symbol
	if name != "" && pl.Version != "" {
		name += "@" + pl.Version
	}
	if name != "" && pl.Module != "" {
		name = pl.Module + ":" + name
	}
	return name
}

// maxActive is how many calls a definition has watched at once. Where it does not say so, that is what a kernel's has by default in a
// kernel (0), and in a process as many as there is room for.
func maxActive(s *kprobe.Session, sp *spec.Spec) int {
	const all = 1 << 20
	if sp.MaxActive == 0 && !s.OnCPUs() {
		return all
	}
	return sp.MaxActive
}

// probe makes the probe of a definition that was located here, without handlers. At a return it watches so many calls at once.
func (at located) probe(sp *spec.Spec, active int) kprobe.Probe {
	var (
		addr  arch.Addr
		found symbol.Loc // it is not looked for again
	)
	switch {
	case sp.Kind != spec.Watch && !at.raw && at.loc.Module != nil:
		found = at.loc
	case at.name == "":
		addr = at.loc.Addr
	}
	switch sp.Kind {
	case spec.Watch:
		return &kprobe.Watchpoint{
			Kp:  kprobe.Kprobe{SymbolName: at.name, Offset: at.off, Addr: addr},
			Len: sp.Place.Length, Access: accesses[sp.Place.Access], Later: at.raw,
		}
	case spec.Return:
		return &kprobe.Kretprobe{
			Kp:        kprobe.Kprobe{SymbolName: at.name, Offset: at.off, Addr: addr, Loc: found},
			MaxActive: active,
		}
	}
	return &kprobe.Kprobe{SymbolName: at.name, Offset: at.off, Addr: addr, Loc: found}
}

var accesses = map[string]kprobe.Access{"r": kprobe.Read, "w": kprobe.Write, "rw": kprobe.ReadWrite}

// parse reads a definition; nil for one of nothing. A file's name that leads on from the folder
// that we are in becomes a whole path: the target's folder is another.
func parse(o spec.Options, def string) (*spec.Spec, error) {
	sp, err := o.Parse(def)
	if err != nil || sp == nil {
		return nil, err
	}
	if m := sp.Place.Module; strings.Contains(m, "/") && !filepath.IsAbs(m) {
		if sp.Place.Module, err = filepath.Abs(m); err != nil {
			return nil, err
		}
	}
	return sp, nil
}

// extent is what of a function is meant by its name.
type extent uint8

const (
	whole  extent = iota // all code of it: inlined copies, too
	own                  // that which is its own
	called               // that, at the first instruction whatever is asked for there
)

// locate finds the places of a definition for the tracer.
func (tr *Tracer) locate(sp *spec.Spec) ([]located, error) {
	switch {
	case tr.Calls:
		return locate(tr.s, sp, called)
	case tr.OutOfLine:
		return locate(tr.s, sp, own)
	}
	return locate(tr.s, sp, whole)
}

// locate finds the places of a definition among what the target had mapped at the last Refresh.
func locate(s *kprobe.Session, sp *spec.Spec, of extent) ([]located, error) {
	pl, space := sp.Place, s.Symbols()
	switch {
	case pl.HasAddr:
		loc, _ := space.At(arch.Addr(pl.Addr))
		loc.Addr = arch.Addr(pl.Addr) // in no file, perhaps
		return []located{{loc: loc, raw: true}}, nil
	case pl.HasFileOff:
		return atFileOffset(s, sp)
	}
	full := fullName(pl)
	if sp.Kind == spec.Watch {
		return []located{{name: full, off: pl.Offset}}, nil // a variable: for the session to find
	}
	loc, err := s.Lookup(full)
	if err == nil && loc.Func.Kind == symbol.Data {
		err = &symbol.NotFoundError{Name: full, IsData: true}
	}
	var absent *symbol.NoModuleError
	var several *symbol.AmbiguousError
	switch {
	case errors.As(err, &several) && copies(several, pl) != nil:
		var found []located
		for _, loc := range copies(several, pl) {
			if pl.Offset >= max(loc.Size, 1) {
				return nil, fail(syscall.EILSEQ, "%s is %d bytes long", pl.Symbol, loc.Size)
			}
			found = append(found, inSource(s, sp, located{loc: loc.Plus(pl.Offset), off: pl.Offset}, of)...)
		}
		return found, nil
	case err == nil:
		if pl.Offset >= max(loc.Size, 1) {
			return nil, fail(syscall.EILSEQ, "%s is %d bytes long", pl.Symbol, loc.Size)
		}
		return inSource(s, sp, located{loc: loc.Plus(pl.Offset), name: full, off: pl.Offset}, of), nil
	case pl.IsGlob():
		return glob(space, pl)
	case errors.As(err, &absent), unbound(err):
		return []located{{name: full, off: pl.Offset}}, nil
	}
	return bySource(s, sp, err, of)
}

func atFileOffset(s *kprobe.Session, sp *spec.Spec) ([]located, error) {
	var found []located
	pl := sp.Place
	for _, loc := range s.Symbols().AtFileOffset(pl.Module, pl.FileOff) {
		found = append(found, located{loc: loc})
	}
	if len(found) > 0 {
		return found, nil
	}
	lines, err := sourceLine(s, sp)
	if err != nil {
		return nil, fail(syscall.ENOENT, "offset 0x%x of %s is not mapped, and as a line of the source: %v", pl.FileOff, pl.Module, err)
	}
	return lines, nil
}

// glob finds every function that a pattern matches, by its symbol or the name that its source has, and that can be probed;
// stubs and functions that others stand for are not meant.
func glob(space *symbol.Space, pl spec.Place) ([]located, error) {
	var found []located
	locs := space.Match(pl.Module, pl.Symbol)
	known := map[arch.Addr]bool{}
	for _, loc := range locs {
		known[loc.Addr] = true
	}
	for _, loc := range space.MatchReadable(pl.Module, pl.Symbol) {
		if !known[loc.Addr] && !strings.Contains(readable(loc.Func.Name), "[clone") {
			locs = append(locs, loc)
		}
	}
	slices.SortStableFunc(locs, func(a, b symbol.Loc) int { return cmp.Compare(a.Addr, b.Addr) })
	for _, loc := range locs {
		if loc.Func.Source == symbol.Plt || loc.Func.Kind == symbol.IFunc {
			continue
		}
		found = append(found, located{loc: loc.Plus(pl.Offset)})
	}
	if len(found) == 0 {
		return nil, fail(syscall.ENOENT, "no function matches %q", pl.Symbol)
	}
	return found, nil
}

// resolver finds what definitions name besides their place.
type resolver struct {
	space  *symbol.Space
	module string // of the place: "same file" of @+OFFSET
	own    *symbol.Module
}

func (r resolver) Symbol(name string) (arch.Addr, error) {
	module, name := symbol.SplitName(name)
	locs, failed := r.space.Resolve(symbol.Query{Module: module, Symbol: name, Kind: symbol.Data})
	var several *symbol.AmbiguousError
	if errors.As(failed, &several) { // of copies of one file, it is that of the place's own
		own := slices.IndexFunc(several.Candidates, func(l symbol.Loc) bool { return l.Module == r.own })
		if own >= 0 && (module != "" || copies(several, spec.Place{}) != nil) {
			return several.Candidates[own].Addr, nil
		}
		return 0, fmt.Errorf("%w: @FILE:%s tells which", failed, name)
	}
	if failed != nil {
		var err error
		if locs, err = r.space.Resolve(symbol.Query{Module: module, Symbol: name}); err != nil {
			return 0, failed
		}
	}
	return locs[0].Addr, nil
}

func (r resolver) FileOffset(off int64) (arch.Addr, error) {
	if locs := r.space.AtFileOffset(r.module, uint64(off)); len(locs) > 0 {
		return locs[0].Addr, nil
	}
	return 0, fail(syscall.ENOENT, "offset %d of %s is not mapped", off, r.module)
}

func (r resolver) Name(a arch.Addr) string { return nameOf(r.space, a) }

// nameOf is symbol+0xoff/0xsize, or "" where no symbol is known.
func nameOf(space *symbol.Space, a arch.Addr) string {
	loc, ok := space.At(a)
	if !ok {
		return ""
	}
	loc.Func.Name = readable(loc.Func.Name)
	return loc.String()
}

// placeOf is a place in tables, with the name that its function has in the source.
func placeOf(at symbol.Loc) string {
	at.Func.Name = readable(at.Func.Name)
	return at.Place()
}

// shown is a function's name in events: as its source has it.
func shown(s *symbol.Symbol) string { return readable(s.Label()) }

// readables are the mangled names that were made readable: that takes microseconds each time.
var readables sync.Map

func readable(name string) string {
	if !strings.HasPrefix(name, "_") {
		return name
	}
	if known, ok := readables.Load(name); ok {
		return known.(string)
	}
	out := symbol.Readable(name)
	readables.Store(name, out)
	return out
}

func fail(errno syscall.Errno, format string, args ...any) error {
	return &kprobe.Error{Errno: errno, Reason: fmt.Sprintf(format, args...)}
}
