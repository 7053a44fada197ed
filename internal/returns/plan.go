package returns

import (
	"errors"
	"fmt"

	"kprobe/arch"
	"kprobe/internal/isa"
	"kprobe/internal/patch"
	"kprobe/symbol"
)

// Planner is what is known of the target in which returns are to be probed.
type Planner struct {
	Space       *symbol.Space
	ISA         isa.ISA
	Text        func(arch.Addr, []byte) error // reads the program's own bytes
	GoProgram   string                        // the program's name, if it is a Go program
	ShadowStack bool
	Untouched   bool // see Facts
	Goroutines  bool // a thread's goroutine can be found
	Programs    bool // run in the target where the function returns

	// Of a kernel: Rewritten says why what is at an address may become something else; "" where it
	// does not. Unreturnable says why a function's return must not be probed; "" where it may be.
	Kernel       bool
	Rewritten    func(arch.Addr) string
	Unreturnable func(entry arch.Addr) string
}

// Plan is how the returns of one function are noticed.
type Plan struct {
	Engine  Engine
	Why     string       // it is that one
	Exits   *patch.Exits // for engine Exits
	Unwinds bool         // what ends calls without a return is an exception or panic, rather than longjmp
}

// IsEntry tells whether a place is a function's first instruction, or the one
// after the landing pad that it may begin with; code is what stands at an address.
func IsEntry(loc symbol.Loc, m isa.ISA, code func(arch.Addr) ([]byte, error)) bool {
	if loc.Func.Size == 0 && loc.Func.Name == "" {
		return false
	}
	if loc.Off == 0 {
		return true
	}
	first, err := code(loc.Start())
	if err != nil {
		return false
	}
	in, err := m.Decode(first, loc.Start())
	return err == nil && in.Landing && loc.Off == uint64(in.Len)
}

// Swaps tells whether the return address is swapped.
func (p *Plan) Swaps() bool { return p.Engine == Swap }

// Told tells of the plan in words, where so many exits are probed; of nil, which is that of a function that is refused, nothing.
func (p *Plan) Told(exits int) string {
	switch {
	case p == nil:
		return ""
	case p.Swaps():
		return "trap, return address swapped (" + p.Why + ")"
	}
	told := fmt.Sprintf("trap, %d exits probed (%s)", exits, p.Why)
	if p.Exits != nil && p.Exits.Ends(patch.TailJump) {
		told += ", with no result at jumps to other functions"
	}
	return told
}

// Barred is the error for a function whose return the target itself wants left alone; in words, why.
type Barred string

func (b Barred) Error() string { return string(b) }

// Plan plans a function; want is the engine that was asked for, or None for the
// one that is right. Errors: in words, why there is no right one, or why it is
// not the one that was asked for.
func (pl *Planner) Plan(fn symbol.Loc, want Engine) (*Plan, error) {
	facts := pl.facts(fn)
	engine, why := Choose(facts)
	if pl.Unreturnable != nil {
		if bar := pl.Unreturnable(fn.Start()); bar != "" {
			return nil, Barred(bar)
		}
	}
	inKernel := pl.Kernel && pl.Programs
	if inKernel && engine == Swap {
		engine, why = Exits, whyExits
	}
	switch {
	case engine == None:
		return nil, errors.New(why)
	case engine == Exits && want == Swap:
		return nil, fmt.Errorf("its return address must not be swapped: %s", why)
	case engine == Swap && want == Exits:
		engine, why = Exits, "asked for"
	case engine == Swap && pl.Programs && pl.PopsArguments(fn):
		engine, why = Exits, "it takes its arguments off the stack, which no detour could call it with"
	}
	p := &Plan{Engine: engine, Why: why, Unwinds: facts.Unwinds != ""}
	if p.Swaps() {
		return p, nil
	}
	if facts.Go && !pl.Goroutines {
		return nil, errors.New("where the program keeps its current goroutine is not known")
	}
	var err error
	if inKernel {
		p.Exits, err = pl.inKernel(fn)
	} else {
		p.Exits, err = pl.exits(fn)
	}
	if err != nil {
		return nil, fmt.Errorf("%s; and its exits are not all known: %w", why, err)
	}
	return p, nil
}

func (pl *Planner) facts(fn symbol.Loc) Facts {
	f := Facts{Name: fn.Func.Name, GoProgram: pl.GoProgram, ShadowStack: pl.ShadowStack, NoFile: true,
		Untouched: pl.Untouched, Register: !pl.ISA.Arch().RetAddrOnStack}
	if m := fn.Module; m != nil && m.File != nil {
		f.NoFile, f.Go, f.Unwinds = false, m.File.IsGo(), whyUnwinds(m)
		f.Start = !pl.Kernel && fn.Start() == m.InProcess(m.File.Entry())
		f.Uncalled = m.File.Uncalled(m.InFile(fn.Start()))
		f.Scanner = m.File.StackScanner()
		f.Jumped = m.File.Haskell(fn.Func)
	}
	if a := pl.ISA.Arch(); a.RetAddrOnStack && len(a.Args) == 0 {
		f.Pops = func() string { return pl.pops(fn, nil) }
	}
	if a := pl.ISA.Arch(); a.RetAddrOnStack && (a.PtrSize == 4 || !pl.Kernel) {
		f.KnowsCaller = pl.readsCaller(fn)
	}
	f.Throwers = func() string {
		for _, m := range pl.Space.Modules() {
			if why := whyUnwinds(m); why != "" {
				return m.Name + ": " + why
			}
		}
		return ""
	}
	return f
}

func whyUnwinds(m *symbol.Module) string {
	if m.File == nil {
		return ""
	}
	may, why := m.File.Unwinds()
	if !may {
		return ""
	}
	return why
}

// exits analyses a function, with the parts that the compiler moved away.
func (pl *Planner) exits(fn symbol.Loc) (*patch.Exits, error) {
	part := func(l symbol.Loc) (patch.Part, error) {
		p := patch.Part{Addr: l.Start(), Code: make([]byte, l.Func.Size)}
		return p, pl.Text(p.Addr, p.Code)
	}
	whole, err := part(fn)
	if err != nil {
		return nil, err
	}
	return patch.FindExits(pl.ISA, whole, fn.Addr, func(to arch.Addr) (patch.Part, bool) {
		l, ok := pl.Space.At(to)
		if !ok || l.Module != fn.Module || l.Func.Size == 0 || l.Func.Source == symbol.Plt || !IsPart(l.Func.Name) {
			return patch.Part{}, false
		}
		p, err := part(l)
		return p, err == nil
	})
}
