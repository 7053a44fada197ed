package jit

import (
	"math"

	"kprobe/bpf"
	"kprobe/bpf/layout"
)

// inlined says whether the helper call at a slot is compiled in place, and which arguments it
// takes from their registers.
func (c *compiler64) inlined(i int) (args regSet, inline bool) {
	call := c.proof.Calls[i]
	if _, ok := answers[call.Helper.ID]; ok {
		return 0, true
	}
	switch call.Helper.ID {
	case bpf.FnMapLookupElem:
		if c.inlinedLookup(call) {
			return setOf(bpf.R2), true
		}
	case bpf.FnGetCurrentComm:
		if call.Known[1] && call.Const[1] == commSize {
			return setOf(bpf.R1), true
		}
	case bpf.FnRingbufSubmit, bpf.FnRingbufDiscard:
		return setOf(bpf.R1), true
	}
	return argumentRegs & (2<<call.Set - 1), false
}

// call compiles the call of a helper.
func (c *compiler64) call(i int) {
	call, result := c.proof.Calls[i], regs64[bpf.R0]
	if off, ok := c.answered(call.Helper.ID); ok {
		c.a.access(a64Load, 8, result, state64, off, s0)
		return
	}
	if _, inline := c.inlined(i); !inline {
		for k := call.Set; k < len(call.Helper.Args); k++ {
			c.a.constant(regs64[bpf.R1+uint8(k)], 0)
		}
		if call.Bounded {
			c.bound()
		}
		c.a.callHelper(call.Helper.ID)
		return
	}
	switch call.Helper.ID {
	case bpf.FnMapLookupElem:
		c.lookup(call.Map)
	case bpf.FnGetCurrentComm: // the last byte is a NUL whatever is there
		to := regs64[bpf.R1]
		c.a.access(a64Load, 8, s0, state64, StateComm, s1)
		c.a.access(a64Load, 8, s1, state64, StateComm+8, s1)
		c.a.bitfield(8, false, s1, s1, 0, 55)
		c.a.access(a64Store, 8, s0, to, 0, s2)
		c.a.access(a64Store, 8, s1, to, 8, s2)
		c.a.constant(result, 0)
	case bpf.FnRingbufSubmit, bpf.FnRingbufDiscard:
		// The word before the record says that it is being written. Its reader sees what was
		// stored before first.
		flip := uint32(layout.RecordBusy)
		if call.Helper.ID == bpf.FnRingbufDiscard {
			flip |= layout.RecordDiscard
		}
		c.a.addImm(8, s1, regs64[bpf.R1], -layout.RecordHeader)
		c.a.access(a64Load, 4, s0, s1, 0, s2)
		if !c.a.logical(4, a64Eor, s0, s0, uint64(flip)) {
			c.a.constant(s2, uint64(flip))
			c.a.rrr(4, a64Eor, s0, s0, s2)
		}
		c.a.storeRelease(s0, s1)
		c.a.constant(result, 0)
	}
}

// nowhere64 is an address that is none: it is no canonical one, whatever its tag.
const nowhere64 = 1 << 54

// bound sees that what R3 points to, of R2 bytes, is in the context: if not, R3 becomes an
// address where nothing can be.
func (c *compiler64) bound() {
	size := int64(8 * max(len(c.proof.Program.Context.Regs), ContextWords))
	outside, inside := c.a.newLabel(), c.a.newLabel()
	c.a.access(a64Load, 8, s0, state64, StateContext, s1)
	c.a.rrr(8, a64Sub, s0, regs64[bpf.R3], s0)
	c.a.compareImm(8, s0, size)
	c.a.when(a64HI, outside)
	c.a.rrr(8, a64Add, s0, s0, regs64[bpf.R2])
	c.a.compareImm(8, s0, size)
	c.a.when(a64LS, inside)
	c.a.bind(outside)
	c.a.constant(regs64[bpf.R3], nowhere64)
	c.a.bind(inside)
}

// inlinedLookup asks for an array.
func (c *compiler64) inlinedLookup(call *bpf.HelperCall) bool {
	if call.Map < 0 {
		return false
	}
	spec := c.proof.Program.Maps[call.Map]
	return (spec.Type == bpf.Array || spec.Type == bpf.PerCPUArray) && spec.MaxEntries <= math.MaxInt32
}

// lookup finds an element of an array: the address of its value, or 0.
func (c *compiler64) lookup(m int) {
	spec, l, result := c.proof.Program.Maps[m], c.env.Layout, regs64[bpf.R0]
	done := c.a.newLabel()
	c.a.access(a64Load, 4, s0, regs64[bpf.R2], 0, s1)
	c.a.constant(result, 0)
	c.a.constant(s1, uint64(spec.MaxEntries))
	c.a.rrr(4, a64Subs, zr, s0, s1)
	c.a.when(a64HS, done)
	// values + slot*stride + index*stride
	c.a.constant(result, uint64(c.env.Segment)+l.Values(m))
	if stride := l.SlotStride(m); stride != 0 {
		c.a.access(a64Load, 4, s1, state64, StateSlot, s2)
		c.a.constant(s2, uint64(stride))
		c.a.rrrr(8, a64Madd, result, s1, s2, result)
	}
	c.a.constant(s2, uint64(l.ValueStride(m)))
	c.a.rrrr(8, a64Madd, result, s0, s2, result)
	c.a.bind(done)
}
