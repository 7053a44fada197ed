package image

import (
	"sync"

	"kprobe/arch"
	"kprobe/internal/patch"
	"kprobe/symbol"
)

// An indirect function's symbol has the address of its resolver, a function that chooses the
// implementation. The answer is not always stored: dlsym gives it to its caller alone, and the
// dynamic linker relocates a library after it has told debuggers of it. So a probe that waits for
// an indirect function learns the answer where the resolver returns.

// resolver names a resolver in a process. A library that is loaded again is another module.
type resolver struct {
	module *symbol.Module
	addr   uint64
}

func resolverOf(ifunc symbol.Loc) resolver {
	return resolver{ifunc.Module, ifunc.Func.Addr}
}

// resolvers has the resolvers whose returns are watched, and their answers.
type resolvers struct {
	mu     sync.Mutex // the answers come from the owner thread
	chosen map[resolver]uint64
	asked  map[resolver]bool
}

// Resolver gives the returns of the resolver that a name stands for, the first time that it is
// asked for it; none for another name.
func (im *Image) Resolver(name string) (locs []symbol.Loc) {
	loc, err := im.named(name, symbol.Func, nil)
	if err != nil || loc.Func.Kind != symbol.IFunc || loc.Module == nil || loc.Func.Size == 0 {
		return nil
	}
	r := &im.resolvers
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.asked[resolverOf(loc)] {
		return nil
	}
	code := make([]byte, loc.Func.Size)
	if im.pages.ReadAt(loc.Addr, code) != nil {
		return nil
	}
	exits, err := patch.FindExits(im.ISA, patch.Part{Addr: loc.Addr, Code: code}, loc.Addr,
		func(arch.Addr) (patch.Part, bool) { return patch.Part{}, false })
	if err != nil {
		return nil // then the probe goes on waiting for the answer that the linker stores
	}
	for _, x := range exits.Sites {
		if x.Kind == patch.Ret {
			locs = append(locs, loc.Plus(uint64(x.Addr-loc.Addr)))
		}
	}
	if r.asked == nil {
		r.asked, r.chosen = make(map[resolver]bool), make(map[resolver]uint64)
	}
	r.asked[resolverOf(loc)] = true
	return locs
}

// Chosen notes the answer of a resolver, at one of the returns that Resolver gave; other places are
// ignored. It may be called at any time.
func (im *Image) Chosen(at symbol.Loc, implementation uint64) {
	if at.Func.Kind != symbol.IFunc {
		return
	}
	r := &im.resolvers
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.asked[resolverOf(at)] {
		r.chosen[resolverOf(at)] = implementation
	}
}

// answered returns the implementation that the resolver has chosen.
func (im *Image) answered(ifunc symbol.Loc) (loc symbol.Loc, ok bool) {
	r := &im.resolvers
	r.mu.Lock()
	addr, ok := r.chosen[resolverOf(ifunc)]
	r.mu.Unlock()
	if !ok {
		return loc, false
	}
	loc, ok = im.Space.At(arch.Addr(addr))
	if !ok || loc.Module == nil || !loc.Module.Special && loc.Module != ifunc.Module {
		return loc, false
	}
	loc.Func.Name = ifunc.Func.Name
	return loc, true
}

// forget drops the resolvers of modules that are gone.
func (r *resolvers) forget(removed []*symbol.Module) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range removed {
		for of := range r.asked {
			if of.module == m {
				delete(r.asked, of)
				delete(r.chosen, of)
			}
		}
	}
}
