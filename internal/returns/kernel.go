package returns

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"kprobe/arch"
	"kprobe/internal/patch"
	"kprobe/symbol"
)

// Programs run at a kernel's exits: what sleeps in a function has nothing of ours on its stack then, and the
// kernel's unwinder and its own return probes find what they expect. The return value must be there, so
// a function that ends in a jump to another comes back where that one does, and its exits
// are the function's. They are others' exits as well: whose call it is, the slot of the return address tells.

// whyExits is the reason in words.
const whyExits = "programs in a kernel leave what sleeps alone"

// maxExits bounds how many places one return probe may have.
const maxExits = 64

// inKernel finds the exits of a kernel's function. All of them are returns. Errors: in words, where they
// are not all known, or may become others.
func (pl *Planner) inKernel(fn symbol.Loc) (*patch.Exits, error) {
	if pl.Rewritten == nil {
		return nil, errors.New("who rewrites its text is not known")
	}
	var names []string
	part := func(l symbol.Loc) (patch.Part, error) {
		p := patch.Part{Addr: l.Start(), Code: make([]byte, l.Func.Size)}
		names = append(names, l.Func.Name)
		return p, pl.Text(p.Addr, p.Code)
	}
	whole, err := part(fn)
	if err != nil {
		return nil, err
	}
	exits, err := patch.FindExits(pl.ISA, whole, fn.Addr, func(to arch.Addr) (patch.Part, bool) {
		l, ok := pl.Space.At(to)
		if !ok || l.Module != fn.Module || l.Func.Size == 0 || isThunk(l.Func.Name) || strings.HasPrefix(l.Func.Name, staticCall) {
			return patch.Part{}, false
		}
		p, err := part(l)
		return p, err == nil
	})
	if err != nil {
		return nil, err
	}
	for i := range exits.Sites {
		x := &exits.Sites[i]
		switch x.Kind {
		case patch.TailJump:
			name, err := pl.leadsTo(exits, x.Addr)
			if err != nil {
				return nil, err
			}
			if !isReturn(name) {
				return nil, fmt.Errorf("at %v it goes on in %s, and where that comes back is not known", x.Addr, name)
			}
			x.Kind = patch.Ret
		case patch.IndirectJump:
			return nil, fmt.Errorf("at %v it goes on in another function, which is known only when it does", x.Addr)
		case patch.Restart:
			return nil, fmt.Errorf("at %v it begins anew", x.Addr)
		}
	}
	for _, at := range exits.Joins {
		if why := pl.Rewritten(at); why != "" {
			return nil, fmt.Errorf("where it goes on at %v may change: %s", at, why)
		}
	}
	switch {
	case len(exits.Sites) == 0:
		return nil, errors.New("it never returns")
	case len(exits.Sites) > maxExits:
		return nil, fmt.Errorf("it has %d exits, with those of the functions that it ends in", len(exits.Sites))
	}
	return exits, pl.wholly(exits, fn.Module, names)
}

// leadsTo names what a jump leads to.
func (pl *Planner) leadsTo(exits *patch.Exits, at arch.Addr) (string, error) {
	in, err := pl.ISA.Decode(exits.Code(at), at)
	if err != nil {
		return "", err
	}
	l, ok := pl.Space.At(in.Target)
	if !ok || l.Off != 0 {
		return in.Target.String(), nil
	}
	return l.Func.Name, nil
}

// staticCall begins the names of what Linux writes jumps into as it goes.
const staticCall = "__SCT__"

// isThunk tells whether a function is what Linux on x86 has in the place of an instruction, for processors
// that guess wrongly.
func isThunk(name string) bool {
	return strings.HasSuffix(name, "_thunk") || strings.Contains(name, "_thunk_")
}

// isReturn tells whether it is that in the place of a return.
func isReturn(name string) bool { return strings.HasSuffix(name, "return_thunk") }

// wholly makes sure that no part of a function was overlooked because only what the kernel writes in later
// leads there.
func (pl *Planner) wholly(exits *patch.Exits, m *symbol.Module, names []string) error {
	for _, name := range names {
		cold := m.File.Lookup(name + ".cold")
		seen := func(s symbol.Symbol) bool { return exits.Contains(m.InProcess(s.Addr)) }
		if len(cold) > 0 && !slices.ContainsFunc(cold, seen) {
			return fmt.Errorf("what leads to %s is not known", cold[0].Name)
		}
	}
	return nil
}
