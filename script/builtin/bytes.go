package builtin

import (
	"encoding/binary"

	"kprobe/bpf"
	"kprobe/script/compile"
	"kprobe/script/syntax"
	"kprobe/script/types"
)

// Bytes.

// buf is bytes of the target: its length comes first.
func (c checker) buf(x *syntax.Call) *types.Type {
	t := c.Expr(x.Args[0])
	size := c.Set.MaxStrlen
	if len(x.Args) == 2 {
		c.Number(x.Args[1], "buf()")
		if n, ok := c.Constant(x.Args[1]); ok {
			if int64(n) < 0 {
				c.Errorf(x.Args[1], "buf() cannot use negative length (%d)", int64(n))
			} else if n > uint64(size) {
				c.Warnf(x.Args[1], "length param (%d) is too long and will be shortened to %d bytes (see BPFTRACE_MAX_STRLEN)", n, size)
			} else {
				size = max(int(n), 1)
			}
		}
	} else if t.Kind == types.Array {
		size = t.Size
	} else if t.Kind != types.None {
		c.Errorf(x, "buf() expects a length argument for non-array type %s", t.Family())
	}
	if t.Kind != types.None && t.Kind != types.Int && t.Kind != types.Pointer && t.Kind != types.String && t.Kind != types.Array {
		c.Errorf(x.Args[0], "buf() expects an integer, a pointer, a string or an array (%s provided)", t.Family())
	}
	return &types.Type{Kind: types.Buffer, Size: 8 + size}
}

// buffer reads bytes of the target, their number before them.
func (g generator) buffer(x *syntax.Call, dst compile.Place, t *types.Type) {
	if own := g.Types[x.Args[0]]; !own.Scalar() && !g.InTarget(x.Args[0]) {
		g.ownBuffer(x, dst, t, own)
		return
	}
	g.source(x.Args[0])
	from, n := g.Save(), g.Temp()
	g.Zero(dst, t.Slot())
	g.bufferLength(x, t)
	g.Store(n, bpf.R0)
	g.Store(dst, bpf.R0)
	g.Addr(bpf.R1, dst.Plus(8))
	g.Load(bpf.R2, n, 8, false)
	g.Load(bpf.R3, from, 8, false)
	g.Fetch(false)
}

// ownBuffer makes a buffer of a value that the script keeps.
func (g generator) ownBuffer(x *syntax.Call, dst compile.Place, t, own *types.Type) {
	from := g.Memory(x.Args[0])
	g.Zero(dst, t.Slot())
	g.Copy(dst.Plus(8), from, min(own.Slot(), t.Slot()-8))
	g.bufferLength(x, t)
	g.Store(dst, bpf.R0)
}

// bufferLength leaves in R0 how many bytes buf() is to give: those that fit, where that is asked for, fewer.
func (g generator) bufferLength(x *syntax.Call, t *types.Type) {
	most := t.Size - 8
	if len(x.Args) == 2 {
		if _, known := g.Constant(x.Args[1]); !known {
			short := g.NewLabel()
			g.Number(x.Args[1])
			g.IfImm(bpf.Jle, bpf.R0, int32(most), short)
			g.Imm(bpf.R0, uint64(most))
			g.Put(short)
			return
		}
	}
	g.Imm(bpf.R0, uint64(most))
}

// memcmp compares so many first bytes of two values.
func (c checker) memcmp(x *syntax.Call) *types.Type {
	n, ok := c.natural(x, x.Args[2], "count")
	for _, a := range x.Args[:2] {
		if t := c.Expr(a); ok && t.Kind != types.None && n > uint64(t.Slot()) {
			c.Errorf(a, "memcmp() cannot compare %d bytes of a value that has %d", n, t.Size)
		}
	}
	return types.Int32
}

// memcmp leaves in R0 how the first bytes that differ do: 0 where none does.
func (g generator) memcmp(x *syntax.Call) {
	n, _ := g.Constant(x.Args[2])
	var at [2]compile.Place
	for i, a := range x.Args[:2] {
		t := g.Types[a]
		at[i] = g.Room(t.Slot())
		g.Into(a, at[i], t)
	}
	end := g.NewLabel()
	for i := range int(n) {
		g.Load(bpf.R0, at[0].Plus(i), 1, false)
		g.Load(bpf.R1, at[1].Plus(i), 1, false)
		g.Alu(bpf.Sub, bpf.R0, bpf.R1)
		g.IfImm(bpf.Jne, bpf.R0, 0, end)
	}
	g.Imm(bpf.R0, 0)
	g.Put(end)
}

// bytes writes what is known.
func (g generator) bytes(dst compile.Place, b []byte, n int) {
	all := make([]byte, (n+7)&^7)
	copy(all, b)
	for i := 0; i < n; i += 8 {
		g.StoreImm(dst.Plus(i), binary.LittleEndian.Uint64(all[i:]))
	}
}
