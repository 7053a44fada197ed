package bind

import (
	"cmp"
	"errors"
	"slices"

	"kprobe/arch"
	"kprobe/source"
	"kprobe/spec"
	"kprobe/symbol"
)

// Entered finds the value of a register when a function was entered: the first of Args, in terms of the registers in the middle
// of the function. The others are addresses that were called by pointers: the first one counts only if they are Called.
type Entered struct {
	Args   []spec.Arg
	Called []arch.Addr
}

// ErrDeeper says that more of the stack is needed.
var ErrDeeper = errors.New("the caller passes on what it was passed itself")

// EnteredWith tells of a register and the function that is under way at the first address of a stack. The other addresses are
// those that calls return to.
//
// Errors: ErrDeeper; source.ErrNotTold; else why it is not known.
func EnteredWith(space *symbol.Space, a *arch.Arch, stack []uint64, reg arch.Reg) (*Entered, error) {
	c := callers{space: space, a: a, stack: stack}
	n, ok := debugNumber(a, reg)
	if !ok {
		return nil, source.ErrNotTold
	}
	value, calls, err := c.passed(0, n)
	if err != nil {
		return nil, err
	}
	s, out := &Site{Arch: a}, &Entered{} // addresses are the process's already
	add := func(e *source.Expr) error {
		f, err := s.lower(e)
		if err == nil {
			out.Args = append(out.Args, spec.Arg{Name: a.RegName(reg), Fetch: *f, Type: spec.Type{Base: spec.Hex, Size: a.PtrSize}})
		}
		return err
	}
	if err := add(value); err != nil {
		return nil, err
	}
	for _, by := range calls {
		if err := add(by.expr); err != nil {
			return nil, err
		}
		out.Called = append(out.Called, by.to)
	}
	return out, nil
}

// callers are the functions under way on a stack.
type callers struct {
	space *symbol.Space
	a     *arch.Arch
	stack []uint64
}

// pointer is a call by one: the address that was called, which should be that of the function that is under way.
type pointer struct {
	expr *source.Expr
	to   arch.Addr
}

// frame is a function under way: its file, the debug data of that, and an address in the file, which is in the next instruction
// or in that of a call.
type frame struct {
	m    *symbol.Module
	data *source.File
	pc   uint64
}

func (c *callers) frame(k int) (f frame, err error) {
	pc := arch.Addr(c.stack[k])
	if k > 0 {
		pc--
	}
	if f.m = c.space.ModuleAt(pc); f.m == nil || f.m.File == nil {
		return f, source.ErrNotTold
	}
	f.data, err = Of(f.m.File)
	f.pc = f.m.InFile(pc)
	return f, err
}

// passed returns the value of a register when function k of the stack was entered, in terms of the function's own registers, and
// the calls by pointers that it depends on.
func (c *callers) passed(k int, reg uint64) (value *source.Expr, calls []pointer, err error) {
	if k+1 >= len(c.stack) {
		return nil, nil, ErrDeeper
	}
	f, err := c.frame(k)
	if err != nil {
		return nil, nil, err
	}
	caller, err := c.frame(k + 1)
	if err != nil {
		return nil, nil, err
	}
	entry, known := f.data.Entered(f.pc)
	call, err := caller.data.Call(caller.pc + 1)
	if err != nil || !known {
		return nil, nil, source.ErrNotTold
	}
	told, err := call.Passed(reg)
	if err != nil || call.Loose && !caller.still(c.a, told) {
		return nil, nil, cmp.Or(err, source.ErrNotTold)
	}
	if value, calls, err = c.below(told, k, f, caller.m.Bias); err != nil {
		return nil, nil, err
	}
	switch to, direct := caller.calls(); {
	case direct && to == f.m.InProcess(entry):
	case call.Target != nil && (!call.Loose || caller.still(c.a, call.Target)):
		target, more, err := c.below(call.Target, k, f, caller.m.Bias)
		if err != nil {
			return nil, nil, err
		}
		calls = append(append(calls, pointer{target, f.m.InProcess(entry)}), more...)
	case !slices.ContainsFunc(f.m.File.Lookup(call.To), func(s symbol.Symbol) bool { return s.Addr == entry && s.Name == call.To }):
		return nil, nil, source.ErrNotTold // another function was called, which has made way for this one
	}
	return value, calls, nil
}

// below puts an expression of the caller of function k in terms of the function's own registers, and returns the calls that parts
// of it depend on.
func (c *callers) below(e *source.Expr, k int, f frame, bias uint64) (out *source.Expr, calls []pointer, err error) {
	switch e.Op {
	case source.OpConst:
		return e, nil, nil
	case source.OpAddr:
		return &source.Expr{Op: source.OpConst, N: e.N + bias}, nil, nil
	case source.OpReg:
		out, err = c.saved(e.N, f)
		return out, nil, err
	case source.OpEntry:
		if e.A.Op != source.OpReg {
			return nil, nil, source.ErrNotTold
		}
		if out, calls, err = c.passed(k+1, e.A.N); err != nil {
			return nil, nil, err
		}
		for i := range calls {
			if calls[i].expr, _, err = c.below(calls[i].expr, k, f, 0); err != nil {
				return nil, nil, err
			}
		}
		out, _, err = c.below(out, k, f, 0)
		return out, calls, err
	case source.OpThread:
		return nil, nil, source.ErrNotTold
	}
	of := *e
	for _, part := range []**source.Expr{&of.A, &of.B} {
		if *part == nil {
			continue
		}
		var more []pointer
		if *part, more, err = c.below(*part, k, f, bias); err != nil {
			return nil, nil, err
		}
		calls = append(calls, more...)
	}
	return &of, calls, of.Sane()
}

// still tells whether an expression of LLVM's is of registers that have the same values all over the code that leads to the frame's
// call without a branch. It does not tell of memory.
func (f *frame) still(a *arch.Arch, e *source.Expr) bool {
	var regs arch.RegSet
	if !registersIn(a, e, &regs) {
		return false
	}
	if regs == 0 {
		return true
	}
	written, known := f.written()
	return known && written&regs == 0
}

// registersIn collects the registers of an expression, but for the stack pointer. It is false where there is memory, or another.
func registersIn(a *arch.Arch, e *source.Expr, regs *arch.RegSet) bool {
	switch {
	case e == nil || e.Op == source.OpEntry || e.Op == source.OpReg && e.N == a.Debug.SP:
		return true
	case e.Op == source.OpReg && slices.Contains(a.Debug.Kept, e.N):
		r, ok := a.RegByName(a.Debug.Regs[e.N])
		*regs |= arch.SetOf(r)
		return ok
	case e.Op == source.OpReg, e.Op == source.OpLoad:
		return false
	}
	return registersIn(a, e.A, regs) && registersIn(a, e.B, regs)
}

// saved returns a register of a function's caller, which the function keeps, in terms of the function's own.
func (c *callers) saved(reg uint64, f frame) (*source.Expr, error) {
	switch {
	case reg == c.a.Debug.SP:
		return f.data.CFA(f.pc)
	case slices.Contains(c.a.Debug.Kept, reg):
		return f.data.Saved(f.pc, reg)
	}
	return nil, source.ErrNotTold // it is not the call's any more
}
