package event

import (
	"encoding/binary"
	"slices"

	"kprobe/arch"
	"kprobe/spec"
)

// A language's string, slice or vector says where its elements are, and how many. No more of them
// is read than the definition's type takes: the target may say anything.

// most is the largest number of elements, or bytes of text, that is read of a counted value.
func most(t *spec.Type) int {
	if t.Array != 0 {
		return t.Array
	}
	return maxText
}

// counted captures the elements from begin on, as many as its count says. ok: begin could be read.
func (c *Capture) counted(v *Value, f *fetch, ctx *Context, begin uint64, ok bool) {
	size := max(1, f.typ.Size)
	n, counts := c.follow(f.count, ctx)
	if n += f.count.off; counts && f.count.sink == LoadNumber {
		n, counts = c.load(ctx, n, c.arch.PtrSize, f.count.from)
	}
	n &= c.mask
	if f.end {
		n = (n - begin) & c.mask / uint64(size)
	}
	mem := ctx.room(int(min(n, uint64(most(&f.typ)))) * size)
	if v.Fault = !ok || !counts || !ctx.read(arch.Addr(begin&c.mask), mem, f.from); !v.Fault {
		v.counted(&f.typ, n, string(mem), c.arch.Order, c.symbol)
	}
}

// room is memory for the bytes that are read at this hit, until the next read.
func (ctx *Context) room(n int) []byte {
	ctx.text = slices.Grow(ctx.text[:0], n)[:n]
	return ctx.text
}

// counted makes the value of memory that holds the first of n elements, or bytes of text.
func (v *Value) counted(t *spec.Type, n uint64, mem string, order binary.ByteOrder, name func(arch.Addr) string) {
	if n > uint64(most(t)) {
		v.Of = n
	}
	if t.Array == 0 {
		v.Text = mem
		return
	}
	v.Array, v.Elems = true, slices.Grow(v.Elems[:0], len(mem)/t.Size)[:len(mem)/t.Size]
	for k := range v.Elems {
		var word [8]byte
		at := 0
		if order == binary.BigEndian {
			at = len(word) - t.Size
		}
		copy(word[at:at+t.Size], mem[k*t.Size:])
		v.Elems[k] = Value{Base: v.Base, Size: v.Size, Bits: order.Uint64(word[:])}
		v.Elems[k].named(t, name)
	}
}
