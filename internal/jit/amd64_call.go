package jit

import (
	"math"

	"kprobe/bpf"
	"kprobe/bpf/layout"
	"kprobe/internal/asm/x86"
)

// inlined says whether the helper call at a slot is compiled in place, and which arguments it takes
// from their registers. Other helpers are long, or rare, or must stand beside a table of places
// that may fault.
func (c *compiler) inlined(i int) (args regSet, inline bool) {
	call := c.proof.Calls[i]
	if _, ok := answers[call.Helper.ID]; ok {
		return 0, true
	}
	switch call.Helper.ID {
	case bpf.FnMapLookupElem:
		if c.inlinedHash(call) {
			return setOf(bpf.R2), true
		}
		if !c.inlinedLookup(call) {
			break
		}
		switch k, ok := c.keys[i]; {
		case !ok:
			return setOf(bpf.R2), true
		case k.unknown:
			return setOf(k.reg), true
		}
		return 0, true
	case bpf.FnRingbufReserve:
		if c.inlinedReserve(call) {
			return 0, true
		}
	case bpf.FnVector:
		return 0, call.Const[0] <= halves
	case bpf.FnKtimeGetNs:
		return 0, c.env.Clock != nil
	case bpf.FnGetCurrentComm:
		if call.Known[1] && call.Const[1] == commSize {
			return setOf(bpf.R1), true
		}
	case bpf.FnGetSmpProcessorID:
		return 0, c.env.CPU != nil
	case bpf.FnRingbufSubmit, bpf.FnRingbufDiscard:
		return setOf(bpf.R1), true
	}
	return argumentRegs & (2<<call.Set - 1), false
}

// findKeys notes the keys of lookups that are compiled in place, and answers which
// loads would overwrite them.
func (c *compiler) findKeys() (skip map[int]bool) {
	c.keys, skip = map[int]key{}, map[int]bool{}
	target := targets(c.proof)
	for i, call := range c.proof.Calls {
		if call != nil && call.Helper.ID == bpf.FnMapLookupElem && c.inlinedLookup(call) {
			k, ok := keyAt(c.proof, target, i)
			if ok && (k.unknown || k.value < c.proof.Program.Maps[call.Map].MaxEntries) {
				c.keys[i] = k
				skip[k.load] = true
			}
		}
	}
	return skip
}

func (c *compiler) inlinedLookup(call *bpf.HelperCall) bool {
	if call.Map < 0 {
		return false
	}
	spec, l := c.proof.Program.Maps[call.Map], c.env.Layout
	return spec.Indexed() &&
		spec.MaxEntries <= math.MaxInt32 && l.SlotStride(call.Map) <= math.MaxInt32
}

// inlinedHash asks for keys of one word, and for a size at which 32 bits are enough.
func (c *compiler) inlinedHash(call *bpf.HelperCall) bool {
	if call.Map < 0 {
		return false
	}
	spec, l := c.proof.Program.Maps[call.Map], c.env.Layout
	return l.Buckets(call.Map) > 0 && l.Buckets(call.Map) < 1<<24 && (spec.KeySize == 4 || spec.KeySize == 8) &&
		l.SlotStride(call.Map) <= math.MaxInt32
}

// inlinedReserve asks for a known size, for which there is room at all.
func (c *compiler) inlinedReserve(call *bpf.HelperCall) bool {
	return call.Map >= 0 && call.Known[1] && c.env.Layout.SlotStride(call.Map) <= math.MaxInt32 &&
		recordSize(call) <= uint64(c.proof.Program.Maps[call.Map].MaxEntries)
}

// recordSize is the room in the ring that a reserved record takes.
func recordSize(call *bpf.HelperCall) uint64 { return layout.RecordHeader + (call.Const[1]+7)&^7 }

// halves are those of the vector registers that every processor has.
const halves = 2 * 16

// vector puts half of a vector register into rax. The detour and its programs leave these registers
// alone, so the value is the target's. The upper half goes through the word below the stack, since
// no instruction of every processor moves it directly.
func (c *compiler) vector(half uint64) {
	const slot = -8
	xmm := x86.Reg(half / 2)
	if half%2 == 0 {
		c.asm.code = append(c.asm.code, 0x66) // movq rax, xmm
		c.emit(8, x86.OpMovqXMM, xmm, x86.In(x86.RAX))
	} else {
		c.emit(4, x86.OpMovhps, xmm, x86.At(x86.RSP, slot))
		c.load(8, x86.RAX, x86.At(x86.RSP, slot))
	}
	c.wrote(x86.RAX)
}

// call compiles the call of a helper at a slot, and answers the next slot.
func (c *compiler) call(i int) (next int) {
	call := c.proof.Calls[i]
	if off, ok := c.answered(call.Helper.ID); ok {
		c.load(8, x86.RAX, x86.At(x86.R12, off))
		return i + 1
	}
	if _, inline := c.inlined(i); !inline {
		for k := call.Set; k < len(call.Helper.Args); k++ {
			c.movImm(regs[bpf.R1+uint8(k)], 0)
		}
		if call.Bounded {
			c.bound()
		}
		c.callHelper(call.Helper.ID)
		return i + 1
	}
	switch call.Helper.ID {
	case bpf.FnMapLookupElem:
		if c.inlinedHash(call) {
			return c.lookupHash(i, call.Map)
		}
		return c.lookup(i, call.Map)
	case bpf.FnRingbufReserve:
		return c.reserve(i, call)
	case bpf.FnGetCurrentComm:
		c.comm()
		if c.live[i].has(bpf.R0) {
			c.movImm(x86.RAX, 0)
		}
	case bpf.FnGetSmpProcessorID:
		c.loadGS(x86.RAX, *c.env.CPU)
	case bpf.FnVector:
		c.vector(call.Const[0] - 1)
	case bpf.FnKtimeGetNs:
		c.clock()
	case bpf.FnRingbufSubmit, bpf.FnRingbufDiscard:
		// The word before the record says that it is being written. Its reader sees earlier stores
		// first: this machine stores in order.
		if word := x86.At(x86.RDI, -layout.RecordHeader); call.Helper.ID == bpf.FnRingbufSubmit {
			c.aluImm(4, x86.Xor, word, math.MinInt32) // RecordBusy
		} else {
			c.aluImm(4, x86.Xor, word, math.MinInt32|layout.RecordDiscard)
		}
		if c.live[i].has(bpf.R0) {
			c.movImm(x86.RAX, 0)
		}
	}
	return i + 1
}

// bound sees that what R3 points to, of R2 bytes, is in the context: if not, R3 becomes an
// address where nothing can be.
func (c *compiler) bound() {
	const end = x86.R9
	outside, inside := c.newLabel(), c.newLabel()
	c.mov(8, end, regs[bpf.R3])
	c.emit(8, x86.Sub.ToReg(), end, x86.At(x86.R12, StateContext))
	c.aluImm(8, x86.Cmp, x86.In(end), 8*ContextWords)
	c.jump(x86.CondA, outside)
	c.alu(8, x86.Add, end, regs[bpf.R2])
	c.aluImm(8, x86.Cmp, x86.In(end), 8*ContextWords)
	c.jump(x86.CondA, outside)
	c.bind(inside)
	c.later(func() {
		c.bind(outside)
		c.movImm(regs[bpf.R3], nowhere)
		c.jump(always, inside)
	})
}

// nowhere is an address that is none on x86-64.
const nowhere = 1 << 63

// zeroCheck looks for a check of R0 against 0 behind the call at a slot: where the
// code already knows, it goes to the right place itself. here is bound behind the
// call and the check.
func (c *compiler) zeroCheck(i int) (next int, here, null, found label) {
	here = c.newLabel()
	next, null, found = i+1, here, here
	if j := c.follow(i); j >= 0 && c.insns[j].Dst == bpf.R0 && c.insns[j].Imm == 0 {
		to, _ := c.insns[j].Target(j)
		switch c.insns[j].Op {
		case bpf.ClassJMP | bpf.Jeq:
			next, null = j+1, label(to)
		case bpf.ClassJMP | bpf.Jne:
			next, found = j+1, label(to)
		}
	}
	return next, here, null, found
}

// lookup finds an element of an array: the address of its value, or 0.
func (c *compiler) lookup(i, m int) int {
	spec, l := c.proof.Program.Maps[m], c.env.Layout
	next, here, null, found := c.zeroCheck(i)
	values := uint64(c.env.Segment) + l.Values(m)
	k, seen := c.keys[i]
	known := seen && !k.unknown
	if known {
		values += uint64(k.value) * uint64(l.ValueStride(m))
	} else {
		if seen {
			c.mov(4, x86.RSI, regs[k.reg])
		} else {
			c.load(4, x86.RSI, x86.At(x86.RSI, 0))
		}
		c.movImm(x86.RAX, 0)
		c.aluImm(4, x86.Cmp, x86.In(x86.RSI), int32(spec.MaxEntries))
		c.jump(x86.CondAE, null)
	}
	// values + slot*stride + index*stride
	c.slotAddr(x86.RAX, x86.R9, m, values)
	if !known {
		c.addScaled(x86.RAX, x86.RSI, l.ValueStride(m))
	}
	if found != here {
		c.jump(always, found)
	}
	c.bind(here)
	return next
}

// lookupHash finds an element of a hash: in its key's home, where most are, or in the
// other bucket. See bpf's layout.go.
func (c *compiler) lookupHash(i, m int) int {
	const word, tag, hash, number, bucket, n, elem, keys = x86.RDI, x86.RAX, x86.R11, x86.RDX, x86.R9, x86.RCX, x86.R10, x86.R8
	spec, l := c.proof.Program.Maps[m], c.env.Layout
	next, here, null, found := c.zeroCheck(i)
	search, try, again, same, other, none := c.newLabel(), c.newLabel(), c.newLabel(), c.newLabel(), c.newLabel(), c.newLabel()
	// choose makes a bucket's number of a hash's upper half.
	choose := func() {
		c.imulImm(8, number, number, int32(l.Buckets(m)))
		c.shiftImm(8, x86.Shr, number, 32)
	}

	c.load(int(spec.KeySize), word, x86.At(x86.RSI, 0))
	c.movImm(hash, layout.HashMul)
	c.imul(8, hash, word)
	c.mov(8, number, hash)
	c.shiftImm(8, x86.Shr, number, 32)
	c.alu(8, x86.Xor, hash, number)
	c.mov(4, tag, hash)
	c.aluImm(4, x86.Or, x86.In(tag), layout.TagKey)
	choose()
	c.bind(search)
	c.mov(4, bucket, number)
	c.scale(bucket, layout.BucketSize)
	c.movImm(n, uint64(c.env.Segment)+l.Index(m))
	c.alu(8, x86.Add, bucket, n)
	c.movImm(n, 0)
	c.bind(try)
	c.emit(4, x86.Cmp.ToReg(), tag, x86.Indexed(bucket, n, 2, layout.BucketTags))
	c.jump(x86.CondE, same)
	c.bind(again)
	c.aluImm(4, x86.Add, x86.In(n), 1)
	c.aluImm(4, x86.Cmp, x86.In(n), layout.BucketSlots)
	c.jump(x86.CondNE, try)
	c.jump(always, other)

	c.bind(same)
	c.lea(8, elem, x86.Indexed(n, number, 3, 0))
	c.movImm(keys, uint64(c.env.Segment)+l.Keys(m))
	c.emit(8, x86.Cmp.ToRM(), word, x86.Indexed(keys, elem, 3, 0))
	c.jump(x86.CondNE, again)
	if spec.Type == bpf.LRUHash || spec.Type == bpf.LRUPerCPUHash {
		c.storeImm(1, x86.Indexed(bucket, n, 0, layout.BucketUsed), 1)
	}
	c.slotAddr(x86.RAX, x86.RDX, m, uint64(c.env.Segment)+l.Values(m))
	c.addScaled(x86.RAX, elem, l.ValueStride(m))
	if found != here {
		c.jump(always, found)
	}
	c.bind(here)

	c.later(func() {
		c.bind(other)
		c.test(8, hash) // 0 when it was searched, or where it is the home
		c.jump(x86.CondE, none)
		c.movImm(number, layout.HashMul)
		c.imul(8, number, hash)
		c.shiftImm(8, x86.Shr, number, 32)
		choose()
		c.movImm(hash, 0)
		c.jump(always, search)
		c.bind(none)
		c.movImm(x86.RAX, 0)
		c.jump(always, null)
	})
	return next
}

// addScaled is dst += index*stride.
func (c *compiler) addScaled(dst, index x86.Reg, stride uint32) {
	if stride == 8 {
		c.lea(8, dst, x86.Indexed(dst, index, 3, 0))
		return
	}
	c.scale(index, int32(stride))
	c.alu(8, x86.Add, dst, index)
}

// slotAddr is dst = the address base, in the thread's own slot of a map.
func (c *compiler) slotAddr(dst, scratch x86.Reg, m int, base uint64) {
	c.movImm(dst, base)
	if stride := c.env.Layout.SlotStride(m); stride != 0 {
		c.load(4, scratch, x86.At(x86.R12, StateSlot))
		c.scale(scratch, int32(stride))
		c.alu(8, x86.Add, dst, scratch)
	}
}

// reserve is ringbuf_reserve; see bpf's layout.go.
func (c *compiler) reserve(i int, call *bpf.HelperCall) int {
	const ring, head, off, tmp = x86.R9, x86.RDI, x86.RSI, x86.RDX
	size, need := int32(c.proof.Program.Maps[call.Map].MaxEntries), int32(recordSize(call))
	next, here, null, found := c.zeroCheck(i)
	around, write, full := c.newLabel(), c.newLabel(), c.newLabel()
	// room sees whether there is any, for a new head in rax.
	room := func() {
		c.mov(8, tmp, x86.RAX)
		c.emit(8, x86.Sub.ToReg(), tmp, x86.At(ring, layout.RingTail))
		c.aluImm(8, x86.Cmp, x86.In(tmp), size)
		c.jump(x86.CondA, full)
	}

	c.slotAddr(ring, x86.RAX, call.Map, uint64(c.env.Segment)+c.env.Layout.Values(call.Map))
	c.load(8, head, x86.At(ring, layout.RingHead))
	c.mov(4, off, head)
	c.aluImm(4, x86.And, x86.In(off), size-1)
	c.aluImm(4, x86.Cmp, x86.In(off), size-need)
	c.jump(x86.CondA, around)
	c.lea(8, x86.RAX, x86.At(head, need))
	room()
	c.bind(write)
	c.movImm(x86.RCX, call.Const[1]|layout.RecordBusy)
	c.store(8, x86.Indexed(ring, off, 0, layout.RingData), x86.RCX)
	c.store(8, x86.At(ring, layout.RingHead), x86.RAX)
	c.lea(8, x86.RAX, x86.Indexed(ring, off, 0, layout.RingData+layout.RecordHeader))
	if found != here {
		c.jump(always, found)
	}
	c.bind(here)

	c.later(func() {
		c.bind(around) // fill the rest of the ring, begin again
		c.movImm(x86.RCX, uint64(size))
		c.alu(8, x86.Sub, x86.RCX, off)
		c.lea(8, x86.RAX, x86.Indexed(head, x86.RCX, 0, need))
		room()
		c.lea(4, x86.RCX, x86.At(x86.RCX, layout.RecordDiscard-layout.RecordHeader))
		c.store(8, x86.Indexed(ring, off, 0, layout.RingData), x86.RCX)
		c.movImm(off, 0)
		c.jump(always, write)
		c.bind(full)
		c.aluImm(8, x86.Add, x86.At(ring, layout.RingLost), 1)
		c.movImm(x86.RAX, 0)
		c.jump(always, null)
	})
	return next
}

// scale is dst *= n.
func (c *compiler) scale(dst x86.Reg, n int32) { c.mulImm(8, dst, dst, n) }

// commSize is the room that programs have for a name, mostly.
const commSize = 16

// comm copies the thread's name to where rdi points. The last byte is a NUL in any case.
func (c *compiler) comm() {
	c.load(8, x86.RAX, x86.At(x86.R12, StateComm))
	c.store(8, x86.At(x86.RDI, 0), x86.RAX)
	c.load(8, x86.RAX, x86.At(x86.R12, StateComm+8))
	c.shiftImm(8, x86.Shl, x86.RAX, 8)
	c.shiftImm(8, x86.Shr, x86.RAX, 8)
	c.store(8, x86.At(x86.RDI, 8), x86.RAX)
}

// clock reads the time-stamp counter and makes nanoseconds of it.
func (c *compiler) clock() {
	k := c.env.Clock
	c.rdtsc()
	c.shiftImm(8, x86.Shl, x86.RDX, 32)
	c.alu(8, x86.Or, x86.RAX, x86.RDX)
	c.movImm(x86.R9, k.Mult)
	c.unary(8, x86.Mul, x86.R9)
	c.emit(8, x86.OpShrdImm, x86.RDX, x86.In(x86.RAX))
	c.imm(1, int32(k.Shift))
	if k.Base != 0 {
		c.movImm(x86.R9, k.Base)
		c.alu(8, x86.Add, x86.RAX, x86.R9)
	}
}
