package builtin

import (
	"strings"

	"kprobe/bpf"
	"kprobe/script/compile"
	"kprobe/script/syntax"
	"kprobe/script/types"
)

// Questions that are answered before the script runs: about types, and about the kernel.

func (c checker) sizeof(x *syntax.Call) *types.Type {
	c.SizeArg(x.Args[0])
	return types.Uint64
}

// sizeOf is the size of the type that sizeof is asked about.
func (c checker) sizeOf(x *syntax.Call) (uint64, bool) {
	if t := c.Sized(x.Args[0]); t != nil && t.Kind != types.None {
		return uint64(t.Sizeof()), true
	}
	return 0, false
}

func (g generator) constantNumber(x *syntax.Call) {
	n, _ := g.Constant(x)
	g.Imm(bpf.R0, n)
}

// offsetof(struct foo, a.b).
func (c checker) offsetof(x *syntax.Call) *types.Type {
	if t := c.SizeArg(x.Args[0]); t != nil && t.Kind != types.None {
		c.memberOffset(x, t, x.Args[1])
	}
	return types.Uint64
}

// offsetOf gives the offset of the member that offsetof names.
func (c checker) offsetOf(x *syntax.Call) (uint64, bool) {
	if t := c.Sized(x.Args[0]); t != nil && t.Kind != types.None {
		off, member := c.memberOffset(x, t, x.Args[1])
		return off, member != nil
	}
	return 0, false
}

// memberOffset gives the offset of a member, and its type.
func (c checker) memberOffset(x *syntax.Call, t *types.Type, path syntax.Expr) (uint64, *types.Type) {
	name, off := "", uint64(0)
	switch p := path.(type) {
	case *syntax.Ident:
		name = p.Name
	case *syntax.Field:
		off, t = c.memberOffset(x, t, p.X)
		name = p.Name
	}
	if t == nil {
		return 0, nil
	}
	if c.Complete(t); t.Kind != types.Record || t.Name == "" {
		c.Errorf(x, "'%s' is not a c_struct type.", t)
		return 0, nil
	}
	i := t.Field(name)
	if i < 0 {
		c.Errorf(x, "'%s' has no field named '%s'", t, name)
		return 0, nil
	}
	return off + uint64(t.Fields[i].Offset), t.Fields[i].Type
}

// question is one about a type: it is answered before the script runs.
func (c checker) question(x *syntax.Call) *types.Type {
	if m, ok := x.Args[0].(*syntax.Map); ok && m.Key == nil {
		c.MapOf(m.Name, m)
	} else {
		c.SizeArg(x.Args[0])
	}
	return types.BoolT
}

// isLiteral answers is_literal: of what is known before the script runs.
func (c checker) isLiteral(x *syntax.Call) (uint64, bool) {
	_, str := c.StringLiteral(x.Args[0])
	_, num := c.LiteralNumber(x.Args[0])
	return types.Word(str || num), true
}

// isScalar answers is_scalar: of a map that has no keys.
func (c checker) isScalar(x *syntax.Call) (uint64, bool) {
	m, isMap := x.Args[0].(*syntax.Map)
	if !isMap || c.Maps[m.Name] == nil {
		return 0, false
	}
	return types.Word(!c.Maps[m.Name].Keyed), c.Maps[m.Name].Keyed || c.Maps[m.Name].Keyless
}

// ofType answers a question about a type, when it has been found.
func ofType(holds func(*types.Type) bool) func(checker, *syntax.Call) (uint64, bool) {
	return func(c checker, x *syntax.Call) (uint64, bool) {
		t := c.Types[x.Args[0]]
		if t == nil || t.Kind == types.None {
			return 0, false
		}
		return types.Word(holds(t)), true
	}
}

// no answers a question of which no argument can be true here.
func no(checker, *syntax.Call) (uint64, bool) { return 0, true }

// kernelFunction is a question about the kernel's functions for programs: none of them can be called here.
func (c checker) kernelFunction(x *syntax.Call) *types.Type {
	c.literal(x, 0)
	return types.BoolT
}

// defaultLength checks default_str_length: the value of the setting max_strlen.
func (c checker) defaultLength(*syntax.Call) *types.Type {
	return types.LiteralOf(uint64(c.Set.MaxStrlen), false)
}

// stringLength gives the most bytes that a string of the target may have.
func (c checker) stringLength(*syntax.Call) (uint64, bool) { return uint64(c.Set.MaxStrlen), true }

// typeinfo is a record of a type's names and number.
func (c checker) typeinfo(x *syntax.Call) *types.Type {
	c.Stable(x, "unstable_typeinfo")
	t := c.SizeArg(x.Args[0])
	if t == nil || t.Kind == types.None {
		if c.Final {
			c.Errorf(x.Args[0], "Could not resolve the type of this variable")
		}
		return nil
	}
	c.Types[x.Args[0]] = t
	return types.TupleOf([]string{"base_type", "full_type", "btf_id"}, types.StringOf(len(t.Family())+1), types.StringOf(len(t.String())+1), types.Int64)
}

func (g generator) typeinfo(x *syntax.Call, dst compile.Place, t *types.Type) {
	about := g.Sized(x.Args[0])
	g.Text(dst.Plus(t.Fields[0].Offset), about.Family(), t.Fields[0].Type.Slot())
	g.Text(dst.Plus(t.Fields[1].Offset), about.String(), t.Fields[1].Type.Slot())
	g.StoreImm(dst.Plus(t.Fields[2].Offset), 0)
}

func (c checker) staticAssert(x *syntax.Call) *types.Type {
	c.Expr(x.Args[0])
	n, ok := c.Constant(x.Args[0])
	if !ok && !c.First {
		c.Errorf(x.Args[0], "Unable to resolve comptime expression: static_assert is about what is known before the script runs")
	}
	if ok && n == 0 {
		text := ""
		if s, ok := x.Args[len(x.Args)-1].(*syntax.Str); ok {
			text = ": " + s.Value
		}
		c.Errorf(x, "static assertion failed%s", text)
	}
	return types.VoidT
}

// fail refuses the script where it is not cut off by comptime.
func (c checker) fail(x *syntax.Call) *types.Type {
	format, ok := c.literal(x, 0)
	if !ok {
		return types.VoidT
	}
	var b strings.Builder
	args := x.Args[1:]
	for _, s := range types.SplitFormat(format) {
		if s.Verb == nil {
			b.WriteString(s.Text)
			continue
		}
		if len(args) == 0 {
			break
		}
		c.Expr(args[0])
		if str, ok := args[0].(*syntax.Str); ok {
			b.WriteString(str.Value)
		} else if n, ok := c.Constant(args[0]); ok {
			b.WriteString(s.Verb.Number(n))
		}
		args = args[1:]
	}
	c.Errorf(x, "%s", b.String())
	return types.VoidT
}
