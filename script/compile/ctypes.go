package compile

import (
	"errors"
	"strings"

	"kprobe/script/headers"
	"kprobe/script/point"
	"kprobe/script/syntax"
	"kprobe/script/types"
)

// cDecl takes what a declaration in C says: types and constants.
func (c *checker) cDecl(d syntax.CDecl) {
	switch {
	case strings.HasPrefix(d.Text, "#define"):
		c.define(d)
		return
	case strings.HasPrefix(d.Text, "#"):
		if _, name, ok := strings.Cut(d.Text, "include"); ok {
			c.headers = append(c.headers, strings.Trim(strings.TrimSpace(name), `<>"`))
		}
		return // of a few the constants are known, of none the types
	}
	decl, err := syntax.ParseC(&syntax.Source{Name: c.src.Name, Text: d.Text})
	if err != nil {
		var all syntax.Errors
		if errors.As(err, &all) {
			for _, e := range all {
				c.errorf(syntax.Span{From: d.From + e.From, To: d.From + e.To}, "%s", e.Msg)
			}
		}
		return
	}
	switch decl := decl.(type) {
	case *syntax.CStruct:
		c.structure(d, decl)
	case *syntax.CEnum:
		c.enum(d, decl)
	case *syntax.CType:
		if t := c.typeAt(d, decl.Type); t != nil {
			c.named[decl.Alias] = t
		}
	}
}

// define takes what a #define says where it is a number or a text.
func (c *checker) define(d syntax.CDecl) {
	words := strings.Fields(d.Text)
	if !strings.HasPrefix(d.Text, "#define") || len(words) < 3 {
		return
	}
	x, err := syntax.ParseExpr(&syntax.Source{Name: c.src.Name, Text: strings.TrimSpace(d.Text[strings.Index(d.Text, words[1])+len(words[1]):])})
	if err != nil {
		return
	}
	if n, ok := c.constant(x); ok {
		c.consts[words[1]] = n
	} else if text, ok := x.(*syntax.Str); ok {
		c.texts[words[1]] = text.Value
	}
}

// typeAt is typeOf with errors at the declaration.
func (c *checker) typeAt(d syntax.CDecl, t *syntax.Type) *types.Type {
	here := *t
	here.Span = d.Span
	return c.typeOf(&here)
}

func (c *checker) enum(d syntax.CDecl, e *syntax.CEnum) {
	t := &types.Type{Kind: types.Enum, Size: 4, Name: e.Name, Names: map[uint64]string{}}
	next := uint64(0)
	for _, item := range e.Items {
		if item.Value != nil {
			n, ok := c.constant(item.Value)
			if !ok {
				c.errorf(d, "the value of %s is no constant", item.Name)
			}
			next = n
		}
		c.consts[item.Name] = next
		c.enums[item.Name] = t
		if _, there := t.Names[next]; !there {
			t.Names[next] = item.Name
		}
		if next > 1<<32-1 {
			t.Size = 8
		}
		next++
	}
	for _, name := range []string{e.Name, e.Alias} {
		if name != "" {
			c.named[name] = t
		}
	}
}

// structure lays a structure out as C does.
func (c *checker) structure(d syntax.CDecl, s *syntax.CStruct) *types.Type {
	name := s.Name
	if name == "" {
		name = s.Alias
	}
	if name == "" {
		name = "struct"
	}
	t := &types.Type{Kind: types.Record, Name: name}
	if ahead := c.ahead[s.Name]; ahead != nil {
		t = ahead // others have pointers to it already
	}
	for _, n := range []string{s.Name, s.Alias} {
		if n != "" {
			c.named[n] = t // before its members, which may point to it
		}
	}
	laying := &types.Laying{Record: t, Packed: s.Packed, Union: s.Union}
	for _, f := range s.Fields {
		ft := c.memberType(d, f)
		if ft == nil {
			return t
		}
		if f.Bits == nil {
			laying.Add(f.Name, ft)
			continue
		}
		n, ok := c.constant(f.Bits)
		if !ok || int(n) > 8*ft.Size {
			c.errorf(d, "the width of %s is no constant, or more than its type has", f.Name)
			return t
		}
		laying.AddBits(f.Name, ft, int(n))
	}
	laying.Done()
	return t
}

func (c *checker) memberType(d syntax.CDecl, f syntax.CField) *types.Type {
	var t *types.Type
	if f.Inner != nil {
		t = c.structure(d, f.Inner)
		for range f.Stars {
			t = types.PointerTo(t)
		}
	} else if t = types.Floats[f.Type.Name]; t != nil && f.Type.Stars == 0 {
		// shown, and no more
	} else if f.Type.Stars > 0 && c.known(f.Type.Name) == nil {
		t = types.PointerTo(c.aheadOf(f.Type.Name)) // to something that is not declared yet
		for range f.Type.Stars - 1 {
			t = types.PointerTo(t)
		}
	} else if t = c.typeAt(d, f.Type); t == nil {
		return nil
	}
	for i := len(f.Dims) - 1; i >= 0; i-- {
		n, ok := c.constant(f.Dims[i])
		if !ok || n > 1<<20 {
			c.errorf(d, "the number of elements of %s is no constant", f.Name)
			return nil
		}
		if t.Kind == types.Int && t.Size == 1 && t.Signed && i == len(f.Dims)-1 {
			t = types.CharsOf(int(n))
			continue
		}
		t = &types.Type{Kind: types.Array, Elem: t, Len: int(n), Size: t.Size * int(n)}
	}
	return t
}

// aheadOf is a structure that a pointer names before it is declared; nil for what is none.
func (c *checker) aheadOf(name string) *types.Type {
	if !strings.HasPrefix(name, "struct ") && !strings.HasPrefix(name, "union ") {
		return nil
	}
	if c.ahead[name] == nil {
		c.ahead[name] = &types.Type{Kind: types.Record, Name: name}
	}
	return c.ahead[name]
}

// known is a type by its name, nil for none.
func (c *checker) known(name string) *types.Type {
	if t := types.Ints[name]; t != nil {
		return t
	}
	if kind, ok := types.Gathered[name]; ok {
		return &types.Type{Kind: kind, Size: 8, Signed: true}
	}
	if t := c.named[name]; t != nil {
		return t
	}
	if t := c.ofTarget(name); t != nil || name != "struct pt_regs" {
		return t
	}
	return ptRegs
}

// constantOf takes a constant of a header that the script includes for one of its own, or one that an enumeration of
// the kernel or the file names, where probes of that alone ask for it.
func (c *checker) constantOf(name string) {
	for _, h := range c.headers {
		if n, ok := headers.Constant(h, name); ok {
			c.consts[name] = n
			return
		}
	}
	if _, known := c.consts[name]; known || len(c.at) == 0 {
		return
	}
	from, target := point.Debug(nil), c.at[0].Target
	switch {
	case c.everywhere((*point.Point).OfKernelAlone):
		if c.opts.Types != nil {
			from = c.opts.Types
		}
	case c.everywhere(func(p *point.Point) bool { return p.OfFile() && p.Target == target }):
		from = c.opts.Debug
	}
	if from == nil {
		return
	}
	if n, t, ok := from.Constant(target, name); ok {
		c.consts[name], c.enums[name] = n, t
	}
}

// complete has the members of a record looked up, where it is the kernel's.
func (c *checker) complete(t *types.Type) *types.Type {
	if t != nil && c.ahead[t.Name] == t && t.Size == 0 { // the script does not declare it
		if whole := c.ofTarget(t.Name); whole != nil {
			return c.complete(whole)
		}
	}
	if t != nil && t.Kind == types.Record && len(t.Fields) == 0 && c.opts.Types != nil {
		c.opts.Types.Complete(t)
	}
	return t
}

// ofTarget is a type of the program that is probed, as its debug data has it.
func (c *checker) ofTarget(name string) *types.Type {
	if c.ofKernel {
		return c.opts.Types.Type("", name)
	}
	for _, pt := range c.at {
		if pt.OfKernel() && c.opts.Types != nil {
			if t := c.opts.Types.Type("", name); t != nil {
				return t
			}
		}
		if c.opts.Debug == nil || !pt.OfFile() {
			continue
		}
		if t := c.opts.Debug.Type(pt.Target, name); t != nil {
			return t
		}
	}
	return nil
}
