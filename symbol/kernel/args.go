package kernel

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf/btf"

	"kprobe/arch"
	"kprobe/spec"
)

// Param is a parameter of a function.
type Param struct {
	Name string
	Type btf.Type
}

// Params are a function's parameters. Errors: that it is not known, wrapped
// ErrNoTypes where there is nothing to know it from.
func (t *Types) Params(function string) ([]Param, error) {
	proto, err := t.function(function)
	if err != nil {
		return nil, err
	}
	params := make([]Param, len(proto.Params))
	for i, p := range proto.Params {
		params[i] = Param{p.Name, p.Type}
	}
	return params, nil
}

func (t *Types) function(name string) (*btf.FuncProto, error) {
	if t == nil {
		return nil, ErrNoTypes
	}
	var f *btf.Func
	if err := t.spec.TypeByName(name, &f); err != nil {
		return nil, fmt.Errorf("function %s: %w", name, err)
	}
	if proto, ok := f.Type.(*btf.FuncProto); ok {
		return proto, nil
	}
	return nil, fmt.Errorf("function %s has no prototype", name)
}

// Offset is the offset of a member of a struct, and its size, both in bytes: of "task_struct" and
// "thread.sp", say.
func (t *Types) Offset(tag, path string) (off, size int, err error) { return t.field(tag, path) }

// Size is the size of a struct in bytes; 0 for one that is not known.
func (t *Types) Size(tag string) int {
	s, err := t.structure(tag)
	if err != nil {
		return 0
	}
	return int(s.Size)
}

// Bind gives the arguments of a definition in a function, off bytes from its start, in terms that
// need no type information. A parameter's name becomes $argN, each -> and . a dereference at an
// offset, $arg* all parameters; an argument by name gets the type that it has in C. An argument
// without such names stays as it is. Errors: *spec.SyntaxError, with the kernel's codes.
func (t *Types) Bind(sp *spec.Spec, function string, off uint64) ([]spec.Arg, error) {
	return spec.Bind(sp, &binder{types: t, sp: sp, function: function, entry: off == 0 || sp.Kind == spec.Return})
}

// binder binds the names of a definition, of which it is argument i that is bound.
type binder struct {
	types    *Types
	sp       *spec.Spec
	function string
	entry    bool // the parameters are where they were passed
	i        int
}

func (b *binder) fail(code spec.Code, part spec.Part, err error) error {
	return b.sp.ErrorAt(code, part, err)
}

// value is the result of a fetch: its C type, and where in it the bits are if it is a bit-field.
type value struct {
	fetch    spec.Fetch
	typ      btf.Type
	bit      btf.Bits // bit-field: offset from the fetched byte, in the order of memory
	bits     btf.Bits // bit-field: width; else 0
	inMemory bool     // fetch reads memory, so it can be read as text too
}

// Has implements spec.Names.
func (b *binder) Has(f *spec.Fetch) bool {
	return f.Op == spec.Var || f.Op == spec.Retval && len(f.Fields) > 0
}

// Value implements spec.Names.
func (b *binder) Value(i int, a spec.Arg) ([]spec.Arg, error) {
	b.i = i
	v, err := b.variable(&a.Fetch)
	if err != nil {
		return nil, err
	}
	if err := b.typed(&a, v); err != nil {
		return nil, err
	}
	return []spec.Arg{a}, nil
}

// Pointer implements spec.Names.
func (b *binder) Pointer(i int, f *spec.Fetch) (*spec.Fetch, error) {
	b.i = i
	v, err := b.variable(f)
	if err != nil {
		return nil, err
	}
	return &v.fetch, nil
}

// All expands $arg*.
func (b *binder) All(i int, op spec.Op) ([]spec.Arg, error) {
	b.i = i
	if op != spec.AllArgs {
		return nil, b.fail(spec.BadFetchArg, spec.PartFetch(i), nil)
	}
	proto, err := b.proto()
	if err != nil {
		return nil, err
	}
	var out []spec.Arg
	for _, p := range proto.Params {
		bound, err := b.Value(i, spec.Arg{Name: p.Name, Named: true, Fetch: spec.Fetch{Op: spec.Var, Name: p.Name}})
		if err != nil {
			return nil, err
		}
		out = append(out, bound...)
	}
	return out, nil
}

func (b *binder) proto() (*btf.FuncProto, error) {
	if !b.entry {
		return nil, b.fail(spec.NoFentryArgs, spec.PartFetch(b.i), nil)
	}
	proto, err := b.types.function(b.function)
	switch {
	case errors.Is(err, ErrNoTypes):
		return nil, b.fail(spec.NoSupBtfArg, spec.PartFetch(b.i), err)
	case err != nil:
		return nil, b.fail(spec.NoBtfEntry, spec.PartPlace, nil)
	}
	return proto, nil
}

// variable binds a parameter, or the returned value, with its member accesses.
func (b *binder) variable(f *spec.Fetch) (value, error) {
	proto, err := b.proto()
	if err != nil {
		return value{}, err
	}
	var v value
	if f.Op == spec.Retval {
		v = value{fetch: spec.Fetch{Op: spec.Retval}, typ: proto.Return}
	} else if v, err = b.param(proto, f.Name); err != nil {
		return v, err
	}
	for j, field := range f.Fields {
		if err := b.access(&v, j, field); err != nil {
			return v, err
		}
	}
	return v, nil
}

// param is a parameter by name. It is in the register of its number only if each
// one before it takes one register: structs by value and floats do not.
func (b *binder) param(proto *btf.FuncProto, name string) (value, error) {
	for i, p := range proto.Params {
		if p.Name == name && name != "" {
			return value{fetch: spec.Fetch{Op: spec.ArgN, N: int64(i + 1)}, typ: p.Type}, nil
		}
		if !b.scalar(p.Type) {
			break
		}
	}
	return value{}, b.fail(spec.NoBtfArg, spec.PartFetch(b.i), nil)
}

func (b *binder) scalar(t btf.Type) bool {
	switch u := plain(t).(type) {
	case *btf.Pointer, *btf.Enum:
		return true
	case *btf.Int:
		return int(u.Size) <= b.types.arch.PtrSize
	}
	return false
}

// access goes on from a value to its member.
func (b *binder) access(v *value, j int, field spec.Field) error {
	in := v.typ
	if field.Arrow {
		p, ok := plain(in).(*btf.Pointer)
		if !ok {
			return b.fail(spec.NoPtrStrct, spec.PartField(b.i, j), nil)
		}
		in = p.Target
	} else if j == 0 {
		return b.fail(spec.NoSupDatArg, spec.PartField(b.i, j), nil)
	}
	switch plain(in).(type) {
	case *btf.Struct, *btf.Union:
	default:
		return b.fail(spec.NoPtrStrct, spec.PartField(b.i, j), nil)
	}
	m, at, err := member(in, field.Name)
	if err != nil {
		return b.fail(spec.NoBtfField, spec.PartField(b.i, j), nil)
	}
	if field.Arrow { // the value so far is a pointer
		inner := v.fetch
		v.fetch = spec.Fetch{Op: spec.Deref, Inner: &inner}
	}
	v.fetch.N += int64(at / 8)
	v.typ, v.bits, v.bit, v.inMemory = m.Type, m.BitfieldSize, at%8, true
	if v.bits != 0 { // counted from the member's own unit, where that holds it
		if size, err := btf.Sizeof(m.Type); err == nil && size > 0 {
			unit := btf.Bits(8 * size)
			if in := at % unit; in+v.bits <= unit {
				v.fetch.N -= int64((in - v.bit) / 8)
				v.bit = in
			}
		}
	}
	return nil
}

// typed gives an argument its value and, where it was given none, its type.
func (b *binder) typed(a *spec.Arg, v value) error {
	a.Fetch = v.fetch
	switch a.Type.Base {
	case spec.String, spec.UString:
		// Text is behind a pointer to char, or is an array of char itself.
		switch u := plain(v.typ).(type) {
		case *btf.Pointer:
			if isChar(u.Target) {
				inner := v.fetch
				a.Fetch = spec.Fetch{Op: spec.Deref, User: a.Type.Base == spec.UString, Inner: &inner}
				return nil
			}
		case *btf.Array:
			if isChar(u.Type) && v.inMemory {
				a.Type = within(a.Type, u)
				return nil
			}
		}
		return b.fail(spec.BadType4Str, spec.PartType(b.i), nil)
	}
	if a.Type.Written != "" {
		return nil
	}
	t, ok := fetchType(v, b.types.arch)
	if !ok {
		return b.fail(spec.BadType, spec.PartFetch(b.i), nil)
	}
	a.Type = t
	return nil
}

// within is text in an array of characters: it ends with the array, where no NUL has ended it.
func within(text spec.Type, array *btf.Array) spec.Type {
	if array.Nelems > 0 && array.Nelems < 4096 && text.Base == spec.String && text.Array == 0 {
		text.Most = int(array.Nelems)
	}
	return text
}

func isChar(t btf.Type) bool {
	i, ok := plain(t).(*btf.Int)
	return ok && i.Size == 1 && i.Encoding != btf.Bool
}

// fetchType is the type of an argument whose value has a C type: pointers in
// hexadecimal, integers by size and sign, arrays of char as text.
func fetchType(v value, a *arch.Arch) (spec.Type, bool) {
	number := func(base spec.Base, size int) (spec.Type, bool) {
		letter := map[spec.Base]string{spec.Signed: "s", spec.Unsigned: "u", spec.Hex: "x"}[base]
		ok := size == 1 || size == 2 || size == 4 || size == 8
		return spec.Type{Written: fmt.Sprintf("%s%d", letter, 8*size), Base: base, Size: size}, ok
	}
	sign := func(signed bool) spec.Base {
		if signed {
			return spec.Signed
		}
		return spec.Unsigned
	}
	if v.bits != 0 {
		for _, size := range []int{1, 2, 4, 8} {
			if unit, err := btf.Sizeof(v.typ); err != nil || size < unit || int(v.bit+v.bits) > 8*size {
				continue
			}
			shift := int(v.bit)
			if a.Order.String() == "BigEndian" { // memory counts from the highest bit
				shift = 8*size - int(v.bit+v.bits)
			}
			return spec.Type{Written: fmt.Sprintf("b%d@%d/%d", v.bits, shift, 8*size), Base: spec.Bitfield,
				Size: size, BitW: int(v.bits), BitO: shift}, true
		}
		return spec.Type{}, false
	}
	switch u := plain(v.typ).(type) {
	case *btf.Pointer:
		return number(spec.Hex, a.PtrSize)
	case *btf.Int:
		return number(sign(u.Encoding == btf.Signed), int(u.Size))
	case *btf.Enum:
		return number(sign(u.Signed), int(u.Size))
	case *btf.Array:
		const most = 64 // elements that an argument can have
		if isChar(u.Type) && v.inMemory {
			return within(spec.Type{Written: "string", Base: spec.String}, u), true
		}
		v.typ = u.Type
		if _, nested := plain(u.Type).(*btf.Array); nested || !v.inMemory || u.Nelems == 0 {
			return spec.Type{}, false
		}
		t, ok := fetchType(v, a)
		t.Array = int(min(u.Nelems, most))
		return t, ok
	}
	return spec.Type{}, false
}
