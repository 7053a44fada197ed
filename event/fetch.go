package event

import (
	"errors"
	"fmt"
	"slices"

	"kprobe/arch"
	"kprobe/spec"
)

// ErrTypeInfo is returned, wrapped, by Compile and FormatFile for arguments that only type
// information can place: variables, members, $arg*, %pd, %pD. A caller with type information
// rewrites them as dereferences first, as the kernel does.
var ErrTypeInfo = errors.New("needs type information")

// The kernel's limits (kprobetrace.rst and what tracefs refuses).
const (
	maxArray = 64   // elements of TYPE[N]
	maxDeref = 14   // nested dereferences of one argument
	maxText  = 4095 // bytes of a string, without the terminating zero
)

// Resolver turns the names of definitions into addresses, when a definition
// is compiled, and addresses into names, at a hit.
type Resolver interface {
	// Symbol is the address of a symbol, for @SYM.
	Symbol(name string) (arch.Addr, error)
	// FileOffset is the address at which an offset of the probed file is mapped, for @+OFFS.
	FileOffset(off int64) (arch.Addr, error)
	// Name is "symbol+0xoff/0xsize", or "" for an address in no symbol.
	Name(addr arch.Addr) string
}

// fetch is one compiled argument: a word from src, replaced by the word in
// memory at word + hop for every hop, ends in a value by sink: as a Load, see there.
type fetch struct {
	src  LoadSource
	reg  arch.Reg
	n    uint64
	text string
	hops []uint64 // offsets; negative ones wrap
	user uint32   // bit i: hop i reads the program's memory rather than the kernel's
	sink LoadAs
	off  uint64
	from space // the memory that the sink reads

	result bool // it is of what the function returns

	count *fetch // counted: how many elements or bytes there are ...
	end   bool   // ... or where they end

	computed *computed // LoadComputed
	nested   int       // how deep it lies in computations

	null   bool    // the sink: at a null pointer is a 0, or nothing
	nulls  uint32  // bit i: hop i of a null pointer is a 0
	guards []guard // in the order of their hops

	name  string
	typ   spec.Type
	shift int    // bitfields: right shift ...
	mask  uint64 // ... then mask; all ones otherwise
}

// Capture is a definition's arguments, compiled. It never changes: goroutines
// may share it.
type Capture struct {
	arch    *arch.Arch
	mask    uint64 // of an address
	resolve Resolver
	fetches []fetch

	cond  *Condition // nil: every hit counts
	shown int        // where there is one: arguments that events have
}

// Compile turns arguments into the loads that a hit does. r may be nil where
// no argument names a symbol or file offset; symbols then print as numbers.
//
// Errors: the Resolver's, wrapped; ErrTypeInfo, wrapped; else the argument is
// one that spec.Parse would have refused, and the text says which.
func Compile(args []spec.Arg, a *arch.Arch, r Resolver) (*Capture, error) {
	c := &Capture{arch: a, mask: ptrMask(a), resolve: r, fetches: make([]fetch, len(args))}
	for i := range args {
		if err := c.compile(&c.fetches[i], &args[i]); err != nil {
			return nil, fmt.Errorf("argument %s: %w", args[i].Name, err)
		}
	}
	return c, nil
}

func ptrMask(a *arch.Arch) uint64 { return 1<<(8*a.PtrSize-1)<<1 - 1 }

func (c *Capture) compile(f *fetch, arg *spec.Arg) error {
	t, err := typeOf(arg, c.arch)
	if err != nil {
		return err
	}
	f.name, f.typ, f.mask = arg.Name, t, ^uint64(0)
	if ofBits(&t) {
		f.shift, f.mask = t.BitO, 1<<(t.BitW-1)<<1-1
	}
	if err := c.walk(f, &arg.Fetch, 0); err != nil {
		return err
	}
	if t.Counted {
		if err := c.counts(f, &arg.Fetch); err != nil {
			return err
		}
	}
	f.result = f.src != LoadText && (arg.Result || arg.Fetch.Any(func(x *spec.Fetch) bool { return x.Op == spec.Retval }))
	return f.finish(&arg.Fetch)
}

// Results tells whether any of the arguments is of what the function returns.
func (c *Capture) Results() bool {
	return slices.ContainsFunc(c.fetches, func(f fetch) bool { return f.result })
}

// counts compiles what tells how many elements there are.
func (c *Capture) counts(f *fetch, x *spec.Fetch) error {
	n := x.Count
	if f.end = n == nil; f.end {
		n = x.End
	}
	if x.Op != spec.Deref || n == nil || n.Count != nil || n.End != nil {
		return errors.New("elements that nothing counts")
	}
	f.count = new(fetch)
	return c.compile(f.count, &spec.Arg{Name: f.name, Fetch: *n, Type: spec.Type{Base: spec.Hex, Size: c.arch.PtrSize}})
}

// walk compiles the tree below a fetch, which itself is below depth
// dereferences: source first, hops in the order in which they are done.
func (c *Capture) walk(f *fetch, x *spec.Fetch, depth int) error {
	if len(x.Fields) != 0 {
		return fmt.Errorf("member %s %w", x.Fields[0].Name, ErrTypeInfo)
	}
	switch x.Op {
	case spec.Reg:
		reg, ok := c.arch.RegByName(x.Name)
		if !ok {
			return fmt.Errorf("%s has no register %q", c.arch.Name, x.Name)
		}
		f.src, f.reg = LoadReg, reg
	case spec.Stack:
		f.src, f.reg = LoadReg, c.arch.SP
	case spec.StackN:
		if x.N < 0 {
			return fmt.Errorf("$stack%d: no such word", x.N)
		}
		f.src, f.reg = LoadReg, c.arch.SP
		f.hops = append(f.hops, uint64(x.N)*uint64(c.arch.PtrSize))
	case spec.Retval:
		f.src, f.reg = LoadReg, c.arch.Ret
	case spec.ArgN:
		return c.argN(f, x)
	case spec.Comm:
		f.src = LoadComm
	case spec.DataAddr:
		f.src = LoadData
	case spec.StackTrace:
		if !c.arch.Stacks {
			return fmt.Errorf("stacks are walked on x86-64 only, not on %s", c.arch.Name)
		}
		f.src = LoadStack
	case spec.ImmStr:
		f.src, f.text = LoadText, x.Name
	case spec.Imm:
		f.n = uint64(x.N)
	case spec.Abs:
		f.n, f.hops = uint64(x.N), append(f.hops, 0)
	case spec.Sym, spec.FileOff:
		addr, err := c.place(x)
		if err != nil {
			return err
		}
		f.n, f.hops = uint64(addr), append(f.hops, 0)
	case spec.Deref:
		return c.deref(f, x, depth+1)
	case spec.Var:
		return fmt.Errorf("variable %q %w", x.Name, ErrTypeInfo)
	case spec.Expression:
		return fmt.Errorf("%s %w", x.Expr, ErrTypeInfo)
	case spec.AllArgs, spec.Locals:
		return fmt.Errorf("%s %w", x, ErrTypeInfo)
	case spec.Vector:
		f.src, f.n = LoadVector, uint64(x.N)
	case spec.Compute:
		return c.compute(f, x, f.nested)
	case spec.Entered:
		reg, ok := c.arch.RegByName(x.Name)
		if !ok {
			return fmt.Errorf("%s has no register %q", c.arch.Name, x.Name)
		}
		f.src, f.reg = LoadEntered, reg
	case spec.Plus:
		if x.Inner == nil || depth > maxDeref {
			return errors.New("an offset from nothing")
		}
		if err := c.walk(f, x.Inner, depth+1); err != nil {
			return err
		}
		f.off += uint64(x.N)
	default:
		return fmt.Errorf("unknown fetch %d", x.Op)
	}
	return nil
}

// argN is an argument as it was when the function was entered: in the register that is named, else by the C ABI, in
// the registers first, then in words of the stack past the return address.
func (c *Capture) argN(f *fetch, x *spec.Fetch) error {
	f.src = LoadEntry
	if x.Name != "" {
		reg, ok := c.arch.RegByName(x.Name)
		if !ok {
			return fmt.Errorf("%s has no register %q", c.arch.Name, x.Name)
		}
		f.reg = reg
		return nil
	}
	n := x.N
	if n < 1 {
		return fmt.Errorf("$arg%d: arguments count from 1", n)
	}
	inRegs := int64(len(c.arch.Args))
	if n <= inRegs {
		f.reg = c.arch.Args[n-1]
		return nil
	}
	f.reg = c.arch.SP
	f.hops = append(f.hops, uint64(c.arch.StackArg(int(n-1-inRegs))))
	return nil
}

func (c *Capture) place(x *spec.Fetch) (arch.Addr, error) {
	if c.resolve == nil {
		return 0, errors.New("nothing here resolves symbols and file offsets")
	}
	if x.Op == spec.FileOff {
		return c.resolve.FileOffset(x.N)
	}
	addr, err := c.resolve.Symbol(x.Name)
	return addr + arch.Addr(x.N), err
}

func (c *Capture) deref(f *fetch, x *spec.Fetch, depth int) error {
	if x.Inner == nil {
		return errors.New("dereference of nothing")
	}
	if x.Inner.Op == spec.Comm || x.Inner.Op == spec.ImmStr {
		return errors.New("text cannot be dereferenced")
	}
	if depth > maxDeref { // on the way down: a tree may be its own child
		return fmt.Errorf("more than %d nested dereferences", maxDeref)
	}
	if err := c.walk(f, x.Inner, depth); err != nil {
		return err
	}
	if x.User {
		f.user |= 1 << len(f.hops)
	}
	if x.Nil {
		f.nulls |= 1 << len(f.hops)
	}
	if x.Guard != nil {
		if err := c.guard(f, x.Guard); err != nil {
			return err
		}
	}
	f.hops = append(f.hops, f.off+uint64(x.N))
	f.off = 0
	return nil
}

// finish chooses the sink. It takes the place of the last hop of a fetch of memory: the value lies
// there, with the type's own size, and is not a word.
func (f *fetch) finish(x *spec.Fetch) error {
	text := isText(f.typ.Base) && f.typ.Base != spec.SymStr
	switch x.Op {
	case spec.StackTrace:
		return nil
	case spec.Comm, spec.ImmStr:
		if !text || f.typ.Array != 0 {
			return fmt.Errorf("type %s: text has type string", f.typ.Written)
		}
		return nil
	case spec.Deref, spec.Abs, spec.Sym, spec.FileOff:
	default:
		if text {
			return fmt.Errorf("type %s: not a fetch of memory", f.typ.Written)
		}
		if f.typ.Array != 0 {
			return errors.New("array: not a fetch of memory")
		}
		if f.typ.Base == spec.SymStr && x.Op == spec.Imm {
			return errors.New("type symstr: not for constants")
		}
		f.sink = LoadWord
		return nil
	}
	last := len(f.hops) - 1
	f.from = f.space(last)
	f.off, f.hops, f.null = f.hops[last], f.hops[:last], x.Nil
	if f.typ.Base == spec.UString {
		f.from = user
	}
	switch {
	case f.count != nil:
		f.sink = LoadCounted
	case !text:
		f.sink = LoadNumber
	case f.typ.Array != 0:
		f.sink = LoadTextPtr // string[N] is an array of pointers, even string[1]
	default:
		f.sink = LoadTextAt
	}
	return nil
}

// space is the sort of memory that a hop reads.
func (f *fetch) space(hop int) space {
	return space(f.user >> hop & 1)
}

// ofBits tells the types whose values are some bits of a word.
func ofBits(t *spec.Type) bool {
	return t.Base == spec.Bitfield || t.BitW != 0 && t.Base.Named()
}

// isText tells the types that are stored as text.
func isText(b spec.Base) bool {
	return b == spec.String || b == spec.UString || b == spec.SymStr
}

// typeOf completes and checks an argument's type. An argument without a type is text where the
// fetch is text, else a word in hexadecimal.
func typeOf(arg *spec.Arg, a *arch.Arch) (spec.Type, error) {
	t := arg.Type
	if t.Written == "" {
		if op := arg.Fetch.Op; op == spec.Comm || op == spec.ImmStr {
			t.Base, t.Size = spec.String, 0
		} else if t.Size == 0 && t.Base == spec.Unsigned {
			t.Base, t.Size = spec.Hex, a.PtrSize
		}
	}
	switch t.Base {
	case spec.Unsigned, spec.Signed, spec.Hex, spec.Bitfield, spec.Enumeration, spec.UnsignedEnum, spec.Float:
		if t.Size != 1 && t.Size != 2 && t.Size != 4 && t.Size != 8 {
			return t, fmt.Errorf("type %s: no integer has %d bytes", t.Written, t.Size)
		}
	case spec.Char:
		t.Size = 1
	case spec.Symbol, spec.SymStr:
		t.Size = a.PtrSize
	case spec.String, spec.UString, spec.Trace:
		t.Size = 0
	case spec.Dentry, spec.FileP:
		return t, fmt.Errorf("type %s %w", t.Written, ErrTypeInfo)
	default:
		return t, fmt.Errorf("unknown type %s", t.Written)
	}
	if ofBits(&t) && (t.BitW < 1 || t.BitO < 0 || t.BitO > 8*t.Size-t.BitW) {
		return t, fmt.Errorf("type %s: bits outside of the container", t.Written)
	}
	if t.Most < 0 || t.Most > maxText || t.Most != 0 && (t.Array != 0 || t.Base != spec.String && t.Base != spec.UString) {
		return t, fmt.Errorf("type %s: text of at most %d bytes", t.Written, t.Most)
	}
	if t.Counted && t.Array == 0 && !isText(t.Base) {
		return t, errors.New("elements without an end: they have a most")
	}
	if t.Array < 0 || t.Array > maxArray {
		return t, fmt.Errorf("array of %d elements: 1 to %d are possible", t.Array, maxArray)
	}
	return t, nil
}
