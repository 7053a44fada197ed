package debug

import (
	"fmt"
	"strings"

	"github.com/cilium/ebpf/btf"

	"kprobe/script/machine"
	"kprobe/script/point"
	"kprobe/script/types"
)

// Kernel is what a kernel's BTF says of its functions and types: point.Debug, for no file. It is for one goroutine.
type Kernel struct {
	spec      *btf.Spec
	made      map[btf.Type]*types.Type
	bare      map[*types.Type]btf.Type // records whose members nobody has asked for
	constants map[string]constant
}

type constant struct {
	value uint64
	typ   *types.Type
}

// OfKernel is for the types of one kernel.
func OfKernel(spec *btf.Spec) *Kernel {
	return &Kernel{spec: spec, made: map[btf.Type]*types.Type{}, bare: map[*types.Type]btf.Type{}}
}

// Functions are the one of that name, with its parameters.
func (k *Kernel) Functions(_ string, of point.Name) ([]point.Function, error) {
	name := of.Pattern
	var f *btf.Func
	if err := k.spec.TypeByName(name, &f); err != nil {
		return nil, fmt.Errorf("the kernel's types know no function %s", name)
	}
	proto, ok := f.Type.(*btf.FuncProto)
	if !ok {
		return nil, fmt.Errorf("the kernel's types know nothing of %s", name)
	}
	fn := point.Function{Name: name, Result: k.typ(proto.Return, "")}
	word := 0
	for _, p := range proto.Params {
		fn.Params = append(fn.Params, k.param(p, &word))
	}
	return []point.Function{fn}, nil
}

// param is a parameter, and where it lies: word counts those in registers and on the stack behind them.
func (k *Kernel) param(p btf.FuncParam, word *int) point.Param {
	out := point.Param{Name: p.Name, Type: k.typ(p.Type, ""), C: Written(p.Type)}
	size, err := btf.Sizeof(p.Type)
	switch {
	case err != nil || out.Type == nil:
		out.Err = fmt.Errorf("its type has no counterpart in scripts")
		*word++
	case !out.Type.Scalar():
		out.Err = fmt.Errorf("a %s that is passed by value is not read yet", out.Type)
		if size <= 16 {
			*word += (size + 7) / 8
		}
	case *word < len(machine.AMD64.Args):
		out.Regs = []string{machine.AMD64.Args[*word]}
		*word++
	default:
		out.Stack = machine.AMD64.FirstStack + 8*(*word-len(machine.AMD64.Args))
		*word++
	}
	return out
}

// Type is a type by its name: "struct foo", "foo_t"; nil for none.
func (k *Kernel) Type(_, name string) *types.Type {
	kind, rest, _ := strings.Cut(name, " ")
	var t btf.Type
	var err error
	switch kind {
	case "struct":
		var s *btf.Struct
		err, t = k.spec.TypeByName(rest, &s), s
	case "union":
		var u *btf.Union
		err, t = k.spec.TypeByName(rest, &u), u
	case "enum":
		var e *btf.Enum
		err, t = k.spec.TypeByName(rest, &e), e
	default:
		var d *btf.Typedef
		err, t = k.spec.TypeByName(name, &d), d
	}
	if err != nil {
		return nil
	}
	return k.typ(t, "")
}

// Constant is one that an enumeration names.
func (k *Kernel) Constant(_, name string) (value uint64, t *types.Type, ok bool) {
	if k.constants == nil {
		k.constants = map[string]constant{}
		for t, err := range k.spec.All() {
			e, is := t.(*btf.Enum)
			if err != nil || !is {
				continue
			}
			for _, v := range e.Values {
				if _, there := k.constants[v.Name]; !there {
					k.constants[v.Name] = constant{v.Value, k.typ(e, "")}
				}
			}
		}
	}
	c, ok := k.constants[name]
	if !ok || c.typ == nil {
		return 0, nil, false
	}
	return types.Truncate(c.value, c.typ), c.typ, true
}

// typ is a type as scripts have it; nil for those that they have not. name is what a type without a name of its own is
// called. A kernel's structures lead to thousands of others: the members of one are looked at by Complete.
func (k *Kernel) typ(t btf.Type, name string) *types.Type {
	switch u := t.(type) {
	case *btf.Typedef:
		return k.typ(u.Type, u.Name)
	case *btf.Volatile:
		return k.typ(u.Type, name)
	case *btf.Const:
		return k.typ(u.Type, name)
	case *btf.Restrict:
		return k.typ(u.Type, name)
	case *btf.TypeTag:
		return k.typ(u.Type, name)
	case *btf.Int:
		if u.Encoding == btf.Bool {
			return types.BoolT
		}
		return integer(int64(u.Size), u.Encoding == btf.Signed || u.Encoding == btf.Char)
	case *btf.Pointer:
		return types.PointerTo(k.typ(u.Target, ""))
	case *btf.Enum:
		return k.enum(u, name)
	case *btf.Array:
		elem := k.typ(u.Type, "")
		switch n, isInt := btf.UnderlyingType(u.Type).(*btf.Int); {
		case elem == nil:
			return nil
		case isInt && n.Size == 1 && u.Nelems > 0 && n.Encoding != btf.Unsigned || isInt && n.Name == "char" && u.Nelems > 0:
			return types.CharsOf(int(u.Nelems))
		}
		return types.ArrayOf(elem, int(u.Nelems))
	case *btf.Struct:
		return k.record(u, "struct", u.Name, name, u.Size)
	case *btf.Union:
		return k.record(u, "union", u.Name, name, u.Size)
	}
	return nil
}

func (k *Kernel) enum(u *btf.Enum, name string) *types.Type {
	t := k.made[u]
	if t != nil || integer(int64(u.Size), false) == nil {
		return t
	}
	if u.Name != "" {
		name = "enum " + u.Name
	}
	t = &types.Type{Kind: types.Enum, Size: int(u.Size), Signed: u.Signed, Name: name, Names: map[uint64]string{}}
	for _, v := range u.Values {
		if n := types.Truncate(v.Value, t); t.Names[n] == "" {
			t.Names[n] = v.Name
		}
	}
	k.made[u] = t
	return t
}

func (k *Kernel) record(u btf.Type, kind, tag, name string, size uint32) *types.Type {
	t := k.made[u]
	if t != nil {
		return t
	}
	switch {
	case tag != "":
		name = kind + " " + tag
	case name == "":
		name = kind
	}
	t = &types.Type{Kind: types.Record, Name: name, Size: int(size), Len: 8}
	k.made[u], k.bare[t] = t, u
	return t
}

// Complete gives a record its members. Those of types that scripts have not are left out.
func (k *Kernel) Complete(t *types.Type) {
	var members []btf.Member
	switch u := k.bare[t].(type) {
	case *btf.Struct:
		members = u.Members
	case *btf.Union:
		members = u.Members
	default:
		return
	}
	delete(k.bare, t)
	for _, m := range members {
		mt := k.typ(m.Type, "")
		if mt == nil {
			continue
		}
		for in := mt; in.Kind == types.Record || in.Kind == types.Array; in = in.Elem { // it is shown with what is in it
			if in.Kind == types.Record {
				k.Complete(in)
				break
			}
		}
		f := types.Field{Name: m.Name, Type: mt, Offset: int(m.Offset.Bytes())}
		if m.BitfieldSize > 0 {
			f = types.BitField(m.Name, mt, int(m.Offset), int(m.BitfieldSize))
		}
		t.Add(f)
	}
}
