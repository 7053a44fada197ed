package patch

import (
	"fmt"
	"strings"

	"kprobe/arch"
	"kprobe/internal/isa"
)

// Choice is the set of values of one byte of a jump's displacement: one value, or one of these.
type Choice uint16

const (
	Any      Choice = 0x100 + iota
	Trapping        // one that traps where an instruction begins with it: isa.Guard
)

// Reach is the set of addresses that a jump may lead to: From plus a displacement whose bytes, the
// least significant first, are as Bytes says. The displacement is signed.
type Reach struct {
	From  arch.Addr
	Bytes [4]Choice
}

func anywhere(from arch.Addr) Reach {
	return Reach{from, [4]Choice{Any, Any, Any, Any}}
}

// Fixed counts the bytes that have one value only.
func (r *Reach) Fixed() (n int) {
	for _, c := range r.Bytes {
		if c < Any {
			n++
		}
	}
	return n
}

// Free tells that every displacement will do.
func (r *Reach) Free() bool { return r.Bytes == [4]Choice{Any, Any, Any, Any} }

// String prints the bytes as they stand in memory: "..", "!!" for one that
// traps, or the value.
func (r *Reach) String() string {
	var b strings.Builder
	for _, c := range r.Bytes {
		switch c {
		case Any:
			b.WriteString("..")
		case Trapping:
			b.WriteString("!!")
		default:
			fmt.Fprintf(&b, "%02x", byte(c))
		}
	}
	return b.String()
}

// guardSet answers which is the next byte, from a given one on, that traps.
type guardSet [256]uint16 // 256: none

func newGuardSet(f *isa.JumpForm) *guardSet {
	var g guardSet
	var is [256]bool
	for _, b := range f.Guards {
		is[b.Byte] = true
	}
	next := uint16(256)
	for b := 255; b >= 0; b-- {
		if is[b] {
			next = uint16(b)
		}
		g[b] = next
	}
	return &g
}

// next is the least value from b on that a choice allows; false for none.
func (g *guardSet) next(c Choice, b int) (int, bool) {
	switch {
	case b > 255:
		return 0, false
	case c == Any:
		return b, true
	case c == Trapping:
		n := int(g[b])
		return n, n < 256
	}
	return int(c), int(c) >= b
}

// bias maps signed displacements to numbers in the same order.
const bias = 1 << 31

// first is the lowest address from lo on that is in reach; false for none.
func (r *Reach) first(g *guardSet, lo arch.Addr) (arch.Addr, bool) {
	d := int64(lo-r.From) + bias
	if d > 1<<32-1 {
		return 0, false
	}
	at := uint32(max(d, 0))
	// Byte by byte from the top, as one reads a number: as long as the bytes of
	// at are allowed they are kept; the first that is not is raised to the next
	// one allowed, and all below it are then the least. Where there is none to
	// raise it to, a higher one must give.
	var out [4]int
	i, raised := 3, false
	for i >= 0 {
		from := int(at >> (8 * i) & 0xff)
		if raised {
			from = 0
		}
		c, ok := r.allowed(g, i, from)
		for !ok {
			if i++; i > 3 {
				return 0, false
			}
			c, ok = r.allowed(g, i, out[i]+1)
			raised = true
		}
		if c != int(at>>(8*i)&0xff) {
			raised = true
		}
		out[i] = c
		i--
	}
	v := uint32(out[3])<<24 | uint32(out[2])<<16 | uint32(out[1])<<8 | uint32(out[0])
	return r.From + arch.Addr(int64(v)-bias), true
}

// allowed is the least value from b on for byte i, biased as the number is.
func (r *Reach) allowed(g *guardSet, i, b int) (int, bool) {
	if i < 3 {
		return g.next(r.Bytes[i], b)
	}
	// The top byte counts from 80, the most negative, up to 7f.
	if b < 0x80 {
		if c, ok := g.next(r.Bytes[i], b^0x80); ok && c >= 0x80 {
			return c ^ 0x80, true
		}
		b = 0x80
	}
	c, ok := g.next(r.Bytes[i], b^0x80)
	return c ^ 0x80, ok && c < 0x80
}
