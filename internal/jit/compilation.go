package jit

import (
	"fmt"
	"slices"

	"kprobe/bpf"
)

// compilation is the part of compiling a program that all machines share.
type compilation struct {
	analysis
	out   assembler
	proof *bpf.Proof
	env   *Env
	insns []bpf.Insn
	code  *Code
	fns   map[int]*function // by their first slot
	frame bool              // R10 is used
}

// function is the machine's view of one of the program's.
type function struct {
	*bpf.Func
	entry     label // for calls; a loop to its first slot comes behind the prologue
	outermost bool
	saved     []uint8 // the eBPF registers that it keeps for its caller; none at the outermost level
	depth     int     // bytes that it and those it calls push
}

func newCompilation(p *bpf.Proof, env *Env, to assembler, link linker) compilation {
	return compilation{out: to, proof: p, env: env, insns: p.Program.Insns, code: &Code{Context: p.Context, link: link}}
}

// plan finds out which registers the functions keep, whether any uses R10, and whether anything is
// called. inlined is as for analyse.
func (c *compilation) plan(inlined func(slot int) (args regSet, inline bool)) (calls bool) {
	for range c.insns { // the first labels are the slots
		c.out.newLabel()
	}
	c.fns = make(map[int]*function)
	for i := range c.proof.Funcs {
		f := &c.proof.Funcs[i]
		c.fns[f.Start] = &function{Func: f, entry: c.out.newLabel(), outermost: i == 0, depth: -1}
		var used, written regSet
		for slot := f.Start; slot < f.End; slot++ {
			if c.dead[slot] {
				continue
			}
			uses, defs := c.effect(c.proof, slot, inlined)
			if c.proof.Calls[slot] != nil {
				_, inline := inlined(slot)
				calls = calls || !inline
			}
			calls = calls || c.insns[slot].IsCall(bpf.CallLocal)
			used |= uses
			written |= defs
		}
		c.frame = c.frame || used.has(bpf.R10)
		for r := bpf.R6; r <= bpf.R9 && i > 0; r++ {
			if written.has(r) {
				c.fns[f.Start].saved = append(c.fns[f.Start].saved, r)
			}
		}
	}
	return calls
}

// depth is the number of bytes that a function and those it calls push, where a return address
// takes a word and a register 8 bytes.
func (c *compilation) depth(f *function, word int) int {
	if f.depth < 0 {
		below := 0
		for i := f.Start; i < f.End; i++ {
			if to, ok := c.insns[i].Target(i); ok && c.insns[i].IsCall(bpf.CallLocal) && c.proof.Reached[i] {
				below = max(below, word+c.depth(c.fns[to], word))
			}
		}
		f.depth = 8*len(f.saved) + below
	}
	return f.depth
}

// body compiles a function's instructions; insn does one, and perhaps some that follow, and
// answers the next slot.
func (c *compilation) body(f *function, insn func(f *function, i int) (next int, err error)) error {
	for i := f.Start; i < f.End; {
		if c.target[i] {
			c.out.bind(label(i))
		} else {
			c.out.mark(label(i))
		}
		if c.dead[i] {
			i++
			continue
		}
		next, err := insn(f, i)
		if err != nil {
			return fmt.Errorf("insn %d: %w", i, err)
		}
		for i++; i < next; i++ {
			c.out.mark(label(i))
		}
	}
	return nil
}

// done completes the code. Errors: a jump does not reach.
func (c *compilation) done() (err error) {
	if c.code.Bytes, c.code.Calls, err = c.out.finish(); err != nil {
		return err
	}
	for i := range c.insns {
		c.code.Lines = append(c.code.Lines, c.out.offset(label(i)))
	}
	return nil
}

// bounds tells whether the program has reads of its context that must be bounded.
func (c *compilation) bounds() bool {
	return slices.ContainsFunc(c.proof.Calls, func(call *bpf.HelperCall) bool { return call != nil && call.Bounded })
}

// rounds tells whether the program has loops whose rounds are counted.
func (c *compilation) rounds() bool {
	for i, in := range c.insns {
		if c.proof.Reached[i] && in.Op == bpf.ClassJMP|bpf.MayGoto {
			return true
		}
	}
	return false
}

// follows tells whether control comes to a slot anyway behind another: there is nothing between
// that has code.
func (c *compilation) follows(i, to int) bool {
	for j := i + 1; ; j++ {
		if j == to {
			return true
		}
		if j >= len(c.dead) || !c.dead[j] {
			return false
		}
	}
}

// answer is a helper that answers a word of the state.
type answer struct {
	off  int32
	need Needs // the things that the detour prepares for it
}

var answers = map[int32]answer{
	bpf.FnGetCurrentPidTgid: {off: StatePidTgid},
	bpf.FnGetCurrentTask:    {off: StateTask},
	bpf.FnGetFuncIP:         {StateFuncIP, NeedsFuncIP},
	bpf.FnGetAttachCookie:   {StateCookie, NeedsCookie},
	bpf.FnCallData:          {StateData, NeedsData},
	bpf.FnCallWord:          {StateData, NeedsData},
}

// answered is the offset in the state of a helper's answer, if it is there. It notes that the
// answer is needed.
func (c *compilation) answered(helper int32) (off int32, ok bool) {
	a, ok := answers[helper]
	c.code.Needs |= a.need
	return a.off, ok
}

// constant is the number that an ld_imm64 loads.
func (c *compilation) constant(i int) (uint64, error) {
	in, hi := c.insns[i], c.insns[i+1]
	switch in.Src {
	case bpf.LoadImm:
		return bpf.Imm64(in, hi), nil
	case bpf.LoadMap:
		return c.mapAddr(int(in.Imm)), nil
	case bpf.LoadMapValue:
		return uint64(c.env.Segment) + c.env.Layout.Values(int(in.Imm)) + uint64(uint32(hi.Imm)), nil
	}
	return 0, fmt.Errorf("load of a constant of kind %d", in.Src)
}

// mapAddr is the address that programs know a map by.
func (c *compilation) mapAddr(m int) uint64 { return uint64(c.env.Segment) + c.env.Layout.Offs[m] }

// contended tells whether another thread may change the memory of an atomic instruction at
// the same time: not on the stack, in a record, or in a per-thread map.
func (c *compilation) contended(i int) bool {
	m := c.proof.Value[i]
	return c.proof.Access[i]&bpf.MemMap != 0 && (m == 0 || c.env.Layout.SlotStride(m-1) == 0)
}
