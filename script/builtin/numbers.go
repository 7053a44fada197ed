package builtin

import (
	"kprobe/bpf"
	"kprobe/script/syntax"
	"kprobe/script/types"
)

// Numbers, and numbers that are shown as something else.

// worded is a number that is shown as a name: what says of what table.
func worded(what string) func(checker, *syntax.Call) *types.Type {
	return func(c checker, x *syntax.Call) *types.Type {
		c.Number(x.Args[0], x.Name+"()")
		return &types.Type{Kind: types.Error, Size: 8, Name: what}
	}
}

// first leaves the first argument in R0: the function says what it is shown as.
func (g generator) first(x *syntax.Call) { g.Number(x.Args[0]) }

func (g generator) last(x *syntax.Call) {
	g.Number(x.Args[len(x.Args)-1])
	g.OfProcess(g.Types[x])
}

func (c checker) bswap(x *syntax.Call) *types.Type {
	t := c.Number(x.Args[0], "bswap()")
	if t.Kind != types.Int {
		return types.Uint64
	}
	return &types.Type{Kind: types.Int, Size: t.Size}
}

func (g generator) bswap(x *syntax.Call) {
	g.Number(x.Args[0])
	if bits := int32(8 * g.Types[x].Size); bits > 8 {
		g.Emit(bpf.Insn{Op: bpf.ClassALU64 | bpf.End, Dst: bpf.R0, Imm: bits})
	}
}
