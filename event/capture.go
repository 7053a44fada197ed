package event

import (
	"bytes"
	"encoding/binary"
	"slices"

	"kprobe/arch"
	"kprobe/spec"
)

// UserMemory is memory of a kernel whose programs have address spaces of their own, where an
// address alone does not tell which one is meant (s390x). It is read where a definition says so:
// +u0(FETCH), ustring.
type UserMemory interface {
	arch.Reader
	// ReadUser is ReadAt for the program that was interrupted by the hit.
	ReadUser(addr arch.Addr, p []byte) error
}

// space tells the two memories apart.
type space uint8

const (
	common space = iota // the kernel's, where they are two
	user
)

// Context holds the things that a capture may look at, and the room that it works in. It is reused
// from hit to hit, by one goroutine at a time.
type Context struct {
	// Regs are the registers at the hit; at a return probe those at the
	// return, where $retval is right.
	Regs *arch.Regs

	// Entry are the registers at the function's entry, for $argN at a return
	// probe; nil where Regs are they.
	Entry *arch.Regs

	// Tail tells that the function has ended in a jump to another one, so that what it returns is not
	// known yet: values of it are faults.
	Tail bool

	Data arch.Addr // where the data is whose access it was, for $addr

	// Mem is the target's memory. An aligned block of 256 bytes is readable in whole or
	// not at all, as pages are: reads are rounded to such blocks. (Device memory of a
	// kernel that a definition points at is therefore read around the word that was
	// asked for.)
	Mem arch.Reader

	// Entered tells what a register had when the function was entered that the hit is in the middle of, where that is
	// known; nil: nowhere.
	Entered func(arch.Reg) (uint64, bool)
	gone    bool // Entered did not know it

	// Vector reads a vector register; nil: none is known.
	Vector func(n int) ([16]byte, error)

	Comm string // the thread's name, for $comm

	TID, PID int // for conditions

	// Stack walks the stack of the hit, and says why it ended before its end; nil: there is none.
	Stack func() (pcs []uint64, end string)

	blocks [8]block
	word   [8]byte
	text   []byte
}

// A block is memory read at this hit. Arguments mostly read the same few
// objects and the stack; one read of a block costs what one of a word does (a
// system call, or a round trip to a stub), so that the second word is free.
// A block lies inside of one page: text is never read past a page's end
// before its own end was looked for.
type block struct {
	at    arch.Addr
	space space
	state blockState
	mem   [blockSize]byte
}

const blockSize = 256

type blockState uint8

const (
	unread blockState = iota
	readable
	faulting
)

// Run captures the arguments at a hit. See AppendTo.
func (c *Capture) Run(ctx *Context) []Value { return c.AppendTo(nil, ctx) }

// AppendTo captures the arguments at a hit and appends them, one value for each. It never fails: an
// argument that cannot be read is a Value with Fault set. It allocates for text, and where dst
// lacks room; the room that dst has, and the arrays of values left in it from an earlier hit, are
// used again.
func (c *Capture) AppendTo(dst []Value, ctx *Context) []Value {
	for i := range ctx.blocks {
		ctx.blocks[i].state = unread // the target has run since
	}
	dst = slices.Grow(dst, len(c.fetches))
	for i := range c.fetches {
		f := &c.fetches[i]
		dst = dst[:len(dst)+1]
		v := &dst[len(dst)-1]
		elems := v.Elems[:0]
		*v = Value{Name: f.name, Base: f.typ.Base, Size: uint8(f.typ.Size)}
		if f.result && ctx.Tail {
			v.Fault, v.Tail = true, true
			continue
		}
		ctx.gone = false
		c.capture(v, f, ctx, elems)
		v.Gone = v.Fault && ctx.gone
	}
	return dst
}

func (c *Capture) capture(v *Value, f *fetch, ctx *Context, elems []Value) {
	switch f.src {
	case LoadComm:
		v.Text = ctx.Comm
		return
	case LoadText:
		v.Text = f.text
		return
	case LoadStack:
		if v.Fault = ctx.Stack == nil; !v.Fault {
			v.stack(ctx.Stack())
		}
		return
	}
	word, ok := c.follow(f, ctx)
	if f.sink == LoadCounted {
		v.Elems = elems
		if ok && word == 0 && f.null {
			v.counted(&f.typ, 0, "", c.arch.Order, c.symbol)
			return
		}
		c.counted(v, f, ctx, word+f.off, ok)
		return
	}
	if f.typ.Array == 0 {
		switch {
		case ok && word == 0 && f.null:
			v.named(&f.typ, c.symbol)
		case ok:
			c.value(v, f, ctx, word+f.off)
		default:
			v.Fault = true
		}
		return
	}
	v.Array, v.Elems = true, slices.Grow(elems, f.typ.Array)[:f.typ.Array]
	step := uint64(f.typ.Size)
	if f.sink == LoadTextPtr {
		step = uint64(c.arch.PtrSize)
	}
	for i := range v.Elems {
		e := &v.Elems[i]
		*e = Value{Base: v.Base, Size: v.Size, Fault: !ok}
		if ok {
			c.value(e, f, ctx, word+f.off+uint64(i)*step)
		}
	}
}

// vector is half of a vector register.
func (ctx *Context) vector(n uint64) (uint64, bool) {
	if ctx.Vector == nil {
		return 0, false
	}
	v, err := ctx.Vector(int(n / 2))
	return binary.LittleEndian.Uint64(v[n%2*8:]), err == nil
}

// follow takes the argument's word from its source and along its hops.
func (c *Capture) follow(f *fetch, ctx *Context) (word uint64, ok bool) {
	switch f.src {
	case LoadConst:
		word = f.n
	case LoadReg:
		word = ctx.Regs[f.reg]
	case LoadData:
		word = uint64(ctx.Data)
	case LoadVector:
		if word, ok = ctx.vector(f.n); !ok {
			return 0, false
		}
	case LoadComputed:
		if word, ok = f.computed.number(c, ctx); !ok {
			return 0, false
		}
	case LoadEntered:
		if ctx.Entered != nil {
			word, ok = ctx.Entered(f.reg)
		}
		if ctx.gone = !ok; !ok {
			return 0, false
		}
	case LoadEntry:
		regs := ctx.Entry
		if regs == nil {
			regs = ctx.Regs
		}
		word = regs[f.reg]
	}
	for i, hop := range f.hops {
		if len(f.guards) > 0 {
			if yes, ok := c.passes(f, i, ctx); !ok {
				return 0, false
			} else if !yes {
				word = 0
			}
		}
		if word == 0 && f.nulls>>i&1 != 0 {
			continue
		}
		if word, ok = c.load(ctx, word+hop, c.arch.PtrSize, f.space(i)); !ok {
			return 0, false
		}
	}
	if len(f.guards) > 0 {
		if yes, ok := c.passes(f, len(f.hops), ctx); !ok {
			return 0, false
		} else if !yes {
			word = 0
		}
	}
	return word, true
}

// value makes one value of a word, or of the memory at it.
func (c *Capture) value(v *Value, f *fetch, ctx *Context, word uint64) {
	ok := true
	switch f.sink {
	case LoadNumber:
		word, ok = c.load(ctx, word, f.typ.Size, f.from)
	case LoadTextPtr:
		word, ok = c.load(ctx, word, c.arch.PtrSize, f.from)
	}
	if ok && (f.sink == LoadTextAt || f.sink == LoadTextPtr) {
		v.Text, ok = ctx.readText(arch.Addr(word&c.mask), f.from, f.typ.Most)
		word = 0
	}
	if v.Fault = !ok; !ok {
		return
	}
	if n := f.typ.Size; n != 0 {
		word &= 1<<(8*n-1)<<1 - 1
	}
	v.Bits = word >> f.shift & f.mask
	v.named(&f.typ, c.symbol)
}

// named gives a value its name, where its type has such. An address is named now: once the
// event is printed, the library may be gone.
func (v *Value) named(t *spec.Type, name func(arch.Addr) string) {
	switch t.Base {
	case spec.Symbol, spec.SymStr:
		v.Text = name(arch.Addr(v.Bits))
		if v.Text == "" && v.Base == spec.SymStr {
			v.Text = arch.Addr(v.Bits).String()
		}
	case spec.Bitfield:
		if t.BitSign {
			v.Base = spec.Signed
			v.extend(t)
		}
	case spec.Enumeration, spec.UnsignedEnum:
		if t.Base == spec.Enumeration && ofBits(t) {
			v.extend(t)
		}
		n := int64(v.Bits)
		if t.Base == spec.Enumeration {
			n = v.Int()
		}
		if t.Enum != nil {
			v.Text = t.Enum.Text(n)
		}
	}
}

// extend makes what some bits say, of which the highest is the sign, a number of 8 bytes.
func (v *Value) extend(t *spec.Type) {
	n := 64 - t.BitW
	v.Size, v.Bits = 8, uint64(int64(v.Bits<<n)>>n)
}

// symbol names an address, where the capture was made with names.
func (c *Capture) symbol(a arch.Addr) string {
	if c.resolve == nil {
		return ""
	}
	return c.resolve.Name(a)
}

// load reads a number of size bytes.
func (c *Capture) load(ctx *Context, at uint64, size int, in space) (uint64, bool) {
	p := ctx.word[:size]
	if !ctx.read(arch.Addr(at&c.mask), p, in) {
		return 0, false
	}
	switch size {
	case 1:
		return uint64(p[0]), true
	case 2:
		return uint64(c.arch.Order.Uint16(p)), true
	case 4:
		return uint64(c.arch.Order.Uint32(p)), true
	}
	return c.arch.Order.Uint64(p), true
}

func (ctx *Context) read(addr arch.Addr, p []byte, in space) bool {
	for len(p) > 0 {
		mem := ctx.from(addr, in)
		if mem == nil {
			return false
		}
		n := copy(p, mem)
		p = p[n:]
		addr += arch.Addr(n)
	}
	return true
}

// readText reads up to the terminating zero, or most bytes (0: maxText), as the kernel
// does; text that runs into memory that cannot be read is a fault.
func (ctx *Context) readText(addr arch.Addr, in space, most int) (string, bool) {
	out := ctx.text[:0]
	if most == 0 {
		most = maxText
	}
	for len(out) < most {
		mem := ctx.from(addr, in)
		if mem == nil {
			return "", false
		}
		mem = mem[:min(len(mem), most-len(out))]
		end := bytes.IndexByte(mem, 0)
		if end >= 0 {
			out = append(out, mem[:end]...)
			break
		}
		out = append(out, mem...)
		addr += arch.Addr(len(mem))
	}
	ctx.text = out
	return string(out), true
}

// from gives the memory from addr to the end of its block, nil where it
// cannot be read.
func (ctx *Context) from(addr arch.Addr, in space) []byte {
	base := addr &^ (blockSize - 1)
	b := &ctx.blocks[addr/blockSize%arch.Addr(len(ctx.blocks))]
	if b.state == unread || b.at != base || b.space != in {
		b.at, b.space, b.state = base, in, readable
		read := ctx.Mem.ReadAt
		if m, ok := ctx.Mem.(UserMemory); ok && in == user {
			read = m.ReadUser
		}
		if read(base, b.mem[:]) != nil {
			b.state = faulting
		}
	}
	if b.state == faulting {
		return nil
	}
	return b.mem[addr-base:]
}
