package image

import (
	"errors"
	"strings"
	"syscall"

	"kprobe/arch"
	"kprobe/internal/errno"
	"kprobe/internal/mem"
	"kprobe/symbol"
)

// ErrUnbound: the dynamic linker has not chosen an implementation yet.
var ErrUnbound = errno.New(syscall.EADDRNOTAVAIL, "nothing in the process has bound it yet")

// Place finds the code that a probe is on: at an address or, where that is 0, in a
// function. Errors: ENOENT, EADDRNOTAVAIL, EILSEQ, EINVAL.
func (im *Image) Place(name string, addr arch.Addr, offset uint64) (symbol.Loc, error) {
	return im.PlaceAfter(symbol.Loc{}, name, addr, offset)
}

// PlaceAfter is Place for a probe that had a place before. If that was unmapped, the name is looked
// for in the modules that were mapped since.
func (im *Image) PlaceAfter(was symbol.Loc, name string, addr arch.Addr, offset uint64) (symbol.Loc, error) {
	if addr != 0 {
		loc, ok := im.Space.At(addr + arch.Addr(offset))
		if made := loc.Module == nil && im.executable(loc.Addr); !ok && !made { // made: the program compiles as it runs
			return loc, errno.New(syscall.EINVAL, "%v is in no mapped file and in no executable memory", addr)
		}
		return loc, nil
	}
	loc, err := im.function(name, was.Module)
	if err != nil || offset == 0 {
		return loc, err
	}
	if offset >= loc.Size {
		return loc, errno.New(syscall.EILSEQ, "%s is %d bytes long, so +%d is not an instruction of it", name, loc.Size, offset)
	}
	return loc.Plus(offset), nil
}

// Again finds a place that was found before: see symbol.Space. Errors: ENOENT.
func (im *Image) Again(loc symbol.Loc) (symbol.Loc, error) {
	loc, err := im.Space.Again(loc)
	return loc, symbolError(err)
}

// Function finds a function by name. An indirect function (IFUNC) stands for the function that the
// dynamic linker has bound it to. Errors: as Place.
func (im *Image) Function(name string) (symbol.Loc, error) { return im.function(name, nil) }

func (im *Image) function(name string, was *symbol.Module) (symbol.Loc, error) {
	loc, err := im.named(name, symbol.Func, was)
	if err == nil && loc.Func.Kind == symbol.IFunc {
		return im.bound(loc)
	}
	return loc, err
}

// Symbol finds a function as Function does, or the variable where no function has that name.
// Errors: as Place.
func (im *Image) Symbol(name string) (symbol.Loc, error) {
	loc, err := im.Function(name)
	if other := (*symbol.NotFoundError)(nil); errors.As(err, &other) && other.IsData {
		return im.named(name, symbol.Data, nil)
	}
	return loc, err
}

// Data finds n bytes of data as Place finds code; later lets an address pass where nothing is
// mapped yet. Errors: as Place.
func (im *Image) Data(name string, addr arch.Addr, offset uint64, n int, later bool) (symbol.Loc, error) {
	loc := symbol.Loc{Addr: addr}
	if addr == 0 {
		var err error
		if loc, err = im.named(name, symbol.Data, nil); err != nil {
			return loc, err
		}
	}
	loc, _ = im.Space.At(loc.Addr + arch.Addr(offset))
	if at := loc.Addr; at%arch.Addr(n) != 0 {
		return loc, errno.New(syscall.EINVAL, "%v is not a multiple of %d, which the processor needs to watch %d bytes", at, n, n)
	} else if !later && im.t.ReadAt(at, make([]byte, n)) != nil {
		return loc, errno.New(syscall.EINVAL, "nothing is mapped at %v", at)
	}
	return loc, nil
}

func (im *Image) named(name string, kind symbol.Kind, was *symbol.Module) (symbol.Loc, error) {
	module, name := symbol.SplitName(name)
	locs, err := im.Space.Resolve(symbol.Query{Module: module, Symbol: name, Kind: kind, Was: was})
	if err != nil {
		return symbol.Loc{}, symbolError(err)
	}
	return locs[0], nil
}

// bound finds the implementation that an indirect function stands for in this process.
func (im *Image) bound(ifunc symbol.Loc) (symbol.Loc, error) {
	loc, ok := im.Space.Bound(ifunc, func(at arch.Addr) (uint64, error) { return mem.Word(im.t, im.Arch, at) })
	if !ok {
		loc, ok = im.answered(ifunc)
	}
	name, _, _ := strings.Cut(ifunc.Func.Name, "@")
	switch {
	case !ok:
		return loc, &errno.Error{Errno: syscall.EADDRNOTAVAIL, Err: ErrUnbound,
			Reason: name + " is an indirect function; probe its implementation by address"}
	case loc.Module.Special:
		return symbol.Loc{}, errno.New(syscall.EINVAL, "%s is an indirect function, bound to %s, which belongs to the kernel and must not be probed",
			name, loc.Place())
	}
	return loc, nil
}

// symbolError gives the symbol package's errors their errno and their text.
func symbolError(err error) error {
	var (
		notFound  *symbol.NotFoundError
		noModule  *symbol.NoModuleError
		ambiguous *symbol.AmbiguousError
	)
	switch {
	case errors.As(err, &notFound), errors.As(err, &noModule):
		return &errno.Error{Errno: syscall.ENOENT, Err: err}
	case errors.As(err, &ambiguous):
		return &errno.Error{Errno: syscall.EADDRNOTAVAIL, Err: err}
	}
	return err
}

// RangeOf is the memory of a module; where there is none, an address.
func RangeOf(m *symbol.Module, at arch.Addr) arch.Range {
	if m == nil {
		return arch.Range{Start: at, End: at + 1}
	}
	return m.Range()
}

// Padding finds an address that is code, so that a return there can be fetched, and that nothing
// executes: behind a function of the program, or kernel, itself, which stays. Compilers that fill
// up with something else than traps leave none; then the module of a place may have some, until
// that is unloaded. Errors: ENOMEM.
func (im *Image) Padding(near symbol.Loc) (arch.Addr, error) {
	for _, m := range []*symbol.Module{im.Program(), near.Module} {
		for i := 0; m != nil && i < len(m.Mappings); i++ {
			mapping := m.Mappings[i]
			if !mapping.Exec {
				continue
			}
			if at, ok := mem.Padding(im.pages, im.Arch, mapping.Start, mapping.End); ok {
				return at, nil
			}
		}
	}
	return 0, errno.New(syscall.ENOMEM, "there is no padding for a return trampoline near %v", near)
}
