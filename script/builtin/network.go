package builtin

import (
	"net/netip"

	"kprobe/bpf"
	"kprobe/script/compile"
	"kprobe/script/syntax"
	"kprobe/script/types"
)

// Addresses of the network.

// ntop is an address of the network: ntop([family,] address).
func (c checker) ntop(x *syntax.Call) *types.Type {
	if len(x.Args) == 2 {
		c.Number(x.Args[0], "ntop()")
	}
	last := x.Args[len(x.Args)-1]
	t := c.Expr(last)
	switch {
	case t.Kind == types.None || t.Kind == types.Int:
	case syntax.IsText(last):
		c.Errorf(x, "ntop() expects an integer or array argument, got %s", t.Family())
	case (t.Kind == types.Array || t.Kind == types.String) && (c.Stored[last].Size == 4 || c.Stored[last].Size == 16):
	default:
		c.Errorf(x, "ntop() expects an integer or array argument, got %s", t)
	}
	return &types.Type{Kind: types.Inet, Size: 24}
}

// inet puts a family, and an address as it goes over the network, into memory.
func (g generator) inet(x *syntax.Call, dst compile.Place, _ *types.Type) {
	last := x.Args[len(x.Args)-1]
	t := g.Stored[last]
	family := uint64(2) // AF_INET
	if t.Size == 16 {
		family = 10 // AF_INET6
	}
	g.Zero(dst, 24)
	if len(x.Args) == 2 {
		g.Number(x.Args[0])
	} else {
		g.Imm(bpf.R0, family)
	}
	g.Store(dst, bpf.R0)
	if t.Scalar() {
		g.Number(last)
		g.Store(dst.Plus(8), bpf.R0)
	} else if g.InTarget(last) { // characters, too, are bytes here: a NUL ends nothing
		g.source(last)
		g.Mov(bpf.R3, bpf.R0)
		g.Addr(bpf.R1, dst.Plus(8))
		g.Imm(bpf.R2, uint64(t.Size))
		g.Fetch(false)
	} else {
		g.CopyBytes(dst.Plus(8), g.Memory(last), t.Size)
	}
}

// pton is an address of the network in bytes.
func (c checker) pton(x *syntax.Call) *types.Type {
	text, ok := c.literal(x, 0)
	if !ok {
		return nil
	}
	addr, err := netip.ParseAddr(text)
	if err != nil || addr.Zone() != "" {
		c.Errorf(x, "pton() expects an string argument of an IPv4/IPv6 address, got %s", text)
		return nil
	}
	return types.ArrayOf(types.Uint8, len(addr.AsSlice()))
}

func (g generator) pton(x *syntax.Call, dst compile.Place, t *types.Type) {
	addr, _ := netip.ParseAddr(x.Args[0].(*syntax.Str).Value)
	g.bytes(dst, addr.AsSlice(), t.Slot())
}

// macaddr is six bytes of the target.
func (c checker) macaddr(x *syntax.Call) *types.Type {
	t := c.Expr(x.Args[0])
	_, literal := x.Args[0].(*syntax.Str)
	switch {
	case t.Kind == types.None || t.Kind == types.Int || t.Kind == types.Pointer:
	case (t.Kind == types.Array || t.Kind == types.String) && c.Stored[x.Args[0]].Size == 6 && !literal:
	case t.Kind == types.Array || t.Kind == types.String:
		c.Errorf(x, "macaddr() argument must be 6 bytes in size")
	default:
		c.Errorf(x, "macaddr() only supports array or pointer arguments (%s provided)", t.Family())
	}
	return &types.Type{Kind: types.Mac, Size: 8}
}

func (g generator) macaddr(x *syntax.Call) { g.macAddress(x.Args[0]) }

// macAddress leaves the six bytes at an address, or of an array, in R0.
func (g generator) macAddress(x syntax.Expr) {
	if t := g.Types[x]; !t.Scalar() && !g.InTarget(x) {
		g.Load(bpf.R0, g.Memory(x), 8, false)
	} else {
		g.source(x)
		p := g.Temp()
		g.StoreImmKeeping(p)
		g.Mov(bpf.R3, bpf.R0)
		g.Addr(bpf.R1, p)
		g.Imm(bpf.R2, 6)
		g.Fetch(false)
		g.Load(bpf.R0, p, 8, false)
	}
	g.AluImm(bpf.Lsh, bpf.R0, 16)
	g.AluImm(bpf.Rsh, bpf.R0, 16)
}
