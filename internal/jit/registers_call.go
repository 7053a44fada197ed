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
	call, result := c.proof.Calls[i], c.regs[bpf.R0]
	if off, ok := c.answered(call.Helper.ID); ok {
		c.a.load(8, false, result, c.state, off)
		return
	}
	if _, inline := c.inlined(i); !inline {
		for k := call.Set; k < len(call.Helper.Args); k++ {
			c.a.constant(c.regs[bpf.R1+uint8(k)], 0)
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
	case bpf.FnGetCurrentComm: // the last byte is a NUL in any case
		to := c.regs[bpf.R1]
		c.a.load(8, false, c.s0, c.state, StateComm)
		c.a.load(8, false, c.s1, c.state, StateComm+8)
		c.a.store(8, c.s0, to, 0)
		c.a.store(8, c.s1, to, 8)
		c.a.store(1, c.zero, to, commSize-1)
		c.a.constant(result, 0)
	case bpf.FnRingbufSubmit, bpf.FnRingbufDiscard:
		// The word before the record says that it is being written. Its reader sees earlier stores
		// first.
		flip := uint32(layout.RecordBusy)
		if call.Helper.ID == bpf.FnRingbufDiscard {
			flip |= layout.RecordDiscard
		}
		c.a.addConst(8, c.s1, c.regs[bpf.R1], -layout.RecordHeader)
		c.a.load(4, false, c.s0, c.s1, 0)
		c.a.constant(c.s2, uint64(flip))
		c.a.operate(4, bpf.Xor, c.s0, c.s0, c.s2)
		c.a.storeRelease(c.s0, c.s1)
		c.a.constant(result, 0)
	}
}

// bound sees that what R3 points to, of R2 bytes, is in the context: if not, R3 becomes an
// address where nothing can be.
func (c *compiler64) bound() {
	size := int64(8 * max(len(c.proof.Program.Context.Regs), ContextWords))
	outside, inside := c.a.newLabel(), c.a.newLabel()
	c.a.load(8, false, c.s0, c.state, StateContext)
	c.a.operate(8, bpf.Sub, c.s0, c.regs[bpf.R3], c.s0)
	c.a.jumpConst(bpf.Jgt, 8, c.s0, size, outside)
	c.a.operate(8, bpf.Add, c.s0, c.s0, c.regs[bpf.R2])
	c.a.jumpConst(bpf.Jle, 8, c.s0, size, inside)
	c.a.bind(outside)
	c.a.constant(c.regs[bpf.R3], c.nowhere)
	c.a.bind(inside)
}

// inlinedLookup asks for an array.
func (c *compiler64) inlinedLookup(call *bpf.HelperCall) bool {
	if call.Map < 0 {
		return false
	}
	spec := c.proof.Program.Maps[call.Map]
	return spec.Indexed() && spec.MaxEntries <= math.MaxInt32
}

// lookup finds an element of an array: the address of its value, or 0.
func (c *compiler64) lookup(m int) {
	spec, l, result := c.proof.Program.Maps[m], c.env.Layout, c.regs[bpf.R0]
	done := c.a.newLabel()
	c.a.load(4, false, c.s0, c.regs[bpf.R2], 0)
	c.a.constant(result, 0)
	c.a.jumpConst(bpf.Jge, 4, c.s0, int64(spec.MaxEntries), done)
	// values + slot*stride + index*stride
	c.a.constant(result, uint64(c.env.Segment)+l.Values(m))
	if stride := l.SlotStride(m); stride != 0 {
		c.a.load(4, false, c.s1, c.state, StateSlot)
		c.a.constant(c.s2, uint64(stride))
		c.a.addProduct(result, c.s1, c.s2)
	}
	c.a.constant(c.s2, uint64(l.ValueStride(m)))
	c.a.addProduct(result, c.s0, c.s2)
	c.a.bind(done)
}
