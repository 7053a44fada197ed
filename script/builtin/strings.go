package builtin

import (
	"strings"

	"kprobe/bpf"
	"kprobe/script/compile"
	"kprobe/script/syntax"
	"kprobe/script/types"
)

// Strings.

// str is a string of at most max_strlen bytes, or of as many as a second argument says: its NUL is one of them.
func (c checker) str(x *syntax.Call) *types.Type {
	var t *types.Type
	if text, ok := c.paramText(x.Args[0]); ok {
		c.Provided(x.Args[0])
		t = types.StringOf(len(text) + 1)
	} else {
		t = c.Expr(x.Args[0])
	}
	own := t.Kind == types.String || t.Kind == types.Array
	if t.Kind != types.None && t.Kind != types.Int && t.Kind != types.Pointer && t.Kind != types.String && !(t.Kind == types.Array && t.Elem.Size == 1) {
		c.Errorf(x.Args[0], "str() expects an integer or a pointer type as first argument (%s provided)", t.Family())
	}
	room := &types.Type{Kind: types.String, Size: c.Set.MaxStrlen, Filled: true}
	if len(x.Args) == 2 {
		c.Number(x.Args[1], "str()")
		switch n, ok := c.Constant(x.Args[1]); {
		case !ok && own:
			c.Errorf(x.Args[1], "str() of a string that is there already takes no length but one that is known before the script runs")
		case !ok:
		case int64(n) < 0:
			c.Errorf(x.Args[1], "str() cannot use negative length (%d)", int64(n))
		case n > uint64(room.Size):
			if !own {
				c.Warnf(x.Args[1], "length param (%d) is too long and will be shortened to %d bytes (see BPFTRACE_MAX_STRLEN)", n, room.Size)
			}
		default:
			room = types.StringOf(max(int(n), 1))
		}
	}
	if t.Kind == types.String && t.Size <= room.Size {
		return t
	}
	return room
}

// cut is the text that str() makes of a parameter: its NUL counts.
func (c checker) cut(x *syntax.Call) (string, bool) {
	text, ok := c.paramText(x.Args[0])
	room := uint64(c.Set.MaxStrlen)
	if len(x.Args) > 1 {
		n, known := c.Constant(x.Args[1])
		room, ok = min(room, max(n, 1)), ok && known
	}
	if uint64(len(text)) >= room {
		text = text[:room-1]
	}
	return text, ok
}

// paramText is the text of $1, or of a part: $1 + 2 is what stands behind its first 2 bytes.
func (c checker) paramText(x syntax.Expr) (string, bool) {
	switch x := x.(type) {
	case *syntax.Positional:
		switch {
		case x.N == 0:
			return "", false
		case x.N > len(c.Opts.Params):
			return "", true
		}
		return c.Opts.Params[x.N-1], true
	case *syntax.Binary:
		if x.Op != "+" {
			return "", false
		}
		text, ok := c.paramText(x.X)
		by, known := c.Constant(x.Y)
		if !ok {
			text, ok = c.paramText(x.Y)
			by, known = c.Constant(x.X)
		}
		if ok && known {
			return text[min(by, uint64(len(text))):], true
		}
	}
	return "", false
}

func (g generator) str(x *syntax.Call, dst compile.Place, t *types.Type) {
	text, known := g.checks().paramText(x.Args[0])
	if !known {
		text, known = g.StringLiteral(x.Args[0])
	}
	switch own := g.Types[x.Args[0]]; {
	case known:
		g.Text(dst, text[:min(len(text), t.Size-1)], t.Slot())
	case own.Kind == types.String && own.Size <= t.Size:
		g.Into(x.Args[0], dst, t)
	case own.Kind == types.String, own.Kind == types.Array:
		g.Zero(dst, t.Slot())
		if t.Size > 1 {
			g.Convert(dst, types.StringOf(t.Size-1), g.Memory(x.Args[0]), types.StringOf(own.Size)) // a NUL comes behind them
		}
	default:
		g.readText(x, dst, t)
	}
}

// readText reads a string of the target, its NUL included.
func (g generator) readText(x *syntax.Call, dst compile.Place, t *types.Type) {
	g.Number(x.Args[0])
	from := g.Save()
	limited, limit := false, compile.Place{}
	if len(x.Args) == 2 {
		if _, known := g.Constant(x.Args[1]); !known {
			g.Number(x.Args[1])
			limited, limit = true, g.Save()
		}
	}
	g.Zero(dst, t.Slot())
	g.Addr(bpf.R1, dst)
	g.Imm(bpf.R2, uint64(t.Size))
	if limited {
		long := g.NewLabel()
		g.Load(bpf.R0, limit, 8, false)
		g.IfImm(bpf.Jgt, bpf.R0, int32(t.Size), long)
		g.Mov(bpf.R2, bpf.R0)
		g.Put(long)
	}
	g.Load(bpf.R3, from, 8, false)
	g.Fetch(true)
}

// source leaves the address that str and buf read at in R0.
func (g generator) source(x syntax.Expr) {
	if g.Types[x].Scalar() {
		g.Number(x)
	} else if g.InTarget(x) {
		g.Address(x)
	} else {
		g.Errorf(x, "only values of the target can be read here, not those that the script keeps")
	}
}

// text holds that an argument is a string.
func (c checker) text(x *syntax.Call, i int) *types.Type {
	t := c.Expr(x.Args[i])
	if (t.Kind == types.Pointer || t.Kind == types.Array) && t.Elem != nil && t.Elem.Kind == types.Int && t.Elem.Size == 1 { // of characters
		x.Args[i] = &syntax.Call{Span: x.Args[i].At(), Name: "str", Args: []syntax.Expr{x.Args[i]}}
		t = c.Expr(x.Args[i])
	}
	if t.Kind != types.None && t.Kind != types.String {
		c.Errorf(x, "%s() only supports string arguments (%s provided)", x.Name, t.Family())
	}
	return t
}

func (c checker) strlen(x *syntax.Call) *types.Type {
	c.text(x, 0)
	return types.Uint64
}

// strlen counts the bytes before the NUL.
func (g generator) strlen(x *syntax.Call) {
	p := g.Memory(x.Args[0])
	var at compile.Place
	g.each(p, g.Types[x.Args[0]].Size, func(i compile.Place, end compile.Label) {
		at = i
		g.Load(bpf.R0, compile.Cell(bpf.R1, 0), 1, false)
		g.IfImm(bpf.Jeq, bpf.R0, 0, end)
	})
	g.Load(bpf.R0, at, 8, false)
}

func (g generator) strcap(x *syntax.Call) { g.Imm(bpf.R0, uint64(g.Types[x.Args[0]].Size)) }

func (c checker) strncmp(x *syntax.Call) *types.Type {
	c.text(x, 0)
	c.text(x, 1)
	c.Expr(x.Args[2])
	if n, ok := c.Constant(x.Args[2]); !ok || int64(n) < 0 {
		c.Errorf(x.Args[2], "Builtin strncmp requires a non-negative literal")
	}
	return types.Uint64
}

func (g generator) strncmp(x *syntax.Call) {
	ta, tb := g.Types[x.Args[0]], g.Types[x.Args[1]]
	n, _ := g.Constant(x.Args[2])
	g.compare(g.Memory(x.Args[0]), g.Memory(x.Args[1]), ta, tb, n)
}

// compare leaves in R0 whether two strings differ within their first n bytes.
func (g generator) compare(a, b compile.Place, ta, tb *types.Type, n uint64) {
	differ, end := g.NewLabel(), g.NewLabel()
	for i := 0; i < int(min(n, uint64(max(ta.Size, tb.Size)))); i++ {
		// Behind its end a string has a NUL.
		for j, s := range []struct {
			p compile.Place
			t *types.Type
		}{{a, ta}, {b, tb}} {
			if i < s.t.Size {
				g.Load(uint8(j), s.p.Plus(i), 1, false)
			} else {
				g.Imm(uint8(j), 0)
			}
		}
		g.IfReg(bpf.Jne, bpf.R0, bpf.R1, differ)
		g.IfImm(bpf.Jeq, bpf.R0, 0, end) // and R0 says that they do not differ
	}
	g.Imm(bpf.R0, 0)
	g.GoTo(end)
	g.Put(differ)
	g.Imm(bpf.R0, 1)
	g.Put(end)
}

func (c checker) strcontains(x *syntax.Call) *types.Type {
	c.text(x, 0)
	c.text(x, 1)
	if x.Name == "strstr" {
		return types.Int64
	}
	return types.BoolT
}

// search is strcontains and strstr: at each byte of the one string the other may begin.
func (g generator) search(x *syntax.Call) {
	hay, needle := g.Types[x.Args[0]], g.Types[x.Args[1]]
	found := g.Room(8)
	text, known := g.StringLiteral(x.Args[1])
	text, _, _ = strings.Cut(text, "\x00")
	var b compile.Place
	if !known {
		b = g.Memory(x.Args[1])
	}
	// Behind the string there is a NUL, and room for as much as may be looked at.
	n := needle.Size
	if known {
		n = len(text)
	}
	a := g.Room(hay.Slot() + (n+8)&^7)
	g.Zero(a.Plus(hay.Slot()), (n+8)&^7)
	g.Into(x.Args[0], a, hay)
	g.StoreImm(found, ^uint64(0))
	if n == 0 {
		g.StoreImm(found, 0)
	} else {
		g.each(a, hay.Size, func(i compile.Place, end compile.Label) {
			next, yes := g.NewLabel(), g.NewLabel()
			for j := range n {
				g.Load(bpf.R0, compile.Cell(bpf.R1, j), 1, false)
				if !known {
					g.Load(bpf.R3, b.Plus(j), 1, false)
					g.IfImm(bpf.Jeq, bpf.R3, 0, yes)
				}
				if j == 0 { // what is behind the string's NUL is no part of it
					g.IfImm(bpf.Jeq, bpf.R0, 0, end)
				}
				if known {
					g.IfImm(bpf.Jne, bpf.R0, int32(text[j]), next)
				} else {
					g.IfReg(bpf.Jne, bpf.R0, bpf.R3, next)
				}
			}
			g.Put(yes)
			g.Load(bpf.R0, i, 8, false)
			g.Store(found, bpf.R0)
			g.GoTo(end)
			g.Put(next)
		})
	}
	g.Load(bpf.R0, found, 8, false)
	if x.Name == "strcontains" {
		g.Flag(func(yes compile.Label) { g.IfImm(bpf.Jsge, bpf.R0, 0, yes) })
	}
}

// each goes over the bytes of a string: body finds the address of one in R1, and its number at i.
func (g generator) each(p compile.Place, n int, body func(i compile.Place, end compile.Label)) {
	i := g.Counter()
	g.StoreImm(i, 0)
	again, end := g.NewLabel(), g.NewLabel()
	g.Put(again)
	g.Rounds(end)
	g.Load(bpf.R2, i, 8, false)
	g.IfImm(bpf.Jge, bpf.R2, int32(n), end)
	g.Addr(bpf.R1, p)
	g.Alu(bpf.Add, bpf.R1, bpf.R2)
	body(i, end)
	g.Load(bpf.R2, i, 8, false)
	g.AluImm(bpf.Add, bpf.R2, 1)
	g.Store(i, bpf.R2)
	g.GoTo(again)
	g.Put(end)
}

// assertText holds that an expression is text.
func (c checker) assertText(x *syntax.Call) *types.Type {
	c.text(x, 0)
	return types.VoidT
}
