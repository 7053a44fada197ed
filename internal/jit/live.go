package jit

import (
	"slices"

	"kprobe/bpf"
)

// Facts about a program before a machine is chosen: which registers are still wanted after each
// instruction, which instructions do nothing that is wanted, and which are jumped to.

// regSet is a set of eBPF's registers, a bit each.
type regSet uint16

func (s regSet) has(r uint8) bool { return s>>r&1 != 0 }

func setOf(regs ...uint8) (s regSet) {
	for _, r := range regs {
		s |= 1 << r
	}
	return s
}

// The registers that a call may change, and those that it may take.
const (
	callerSaved  regSet = 0b00_0011_1111
	argumentRegs regSet = 0b00_0011_1110
)

// analysis has an entry for each slot.
type analysis struct {
	live   []regSet // wanted after the instruction
	dead   []bool   // not reached, the second half of another, or without a wanted effect
	target []bool   // jumped to or called
	skip   map[int]bool
}

// analyse finds the registers that are wanted. arguments says which registers the code of a helper
// call will read; skip are slots that are not compiled in any case.
func analyse(p *bpf.Proof, arguments func(slot int) (args regSet, inline bool), skip map[int]bool) analysis {
	insns := p.Program.Insns
	a := analysis{live: make([]regSet, len(insns)), dead: make([]bool, len(insns)), target: targets(p), skip: skip}
	a.flow(p, arguments, false)
	// Where the stack's address is used for nothing but stores, the stored words are never read:
	// the keys of lookups that are compiled as constants.
	for i, in := range insns {
		if uses, _ := a.effect(p, i, arguments); !a.dead[i] && uses.has(bpf.R10) && !storesToStack(in) {
			return a
		}
	}
	a.flow(p, arguments, true)
	return a
}

// targets are the slots where control may come from elsewhere.
func targets(p *bpf.Proof) []bool {
	target := make([]bool, len(p.Program.Insns))
	for i, in := range p.Program.Insns {
		if to, ok := in.Target(i); ok && p.Reached[i] {
			target[to] = true
		}
	}
	return target
}

// storesToStack tells of a store by R10 of anything but R10 itself.
func storesToStack(in bpf.Insn) bool {
	return in.Dst == bpf.R10 && in.Mode() == bpf.ModeMem && (in.Class() == bpf.ClassST || in.Class() == bpf.ClassSTX && in.Src != bpf.R10)
}

// flow goes backwards until nothing changes. An instruction whose only effect is unwanted wants
// nothing itself: a number that was computed for it alone is dead too.
func (a *analysis) flow(p *bpf.Proof, arguments func(slot int) (regSet, bool), stackUnread bool) {
	insns := p.Program.Insns
	before := make([]regSet, len(insns)+1)
	for changed := true; changed; {
		changed = false
		for i := len(insns) - 1; i >= 0; i-- {
			if !p.Reached[i] || a.skip[i] || i > 0 && insns[i-1].Wide() && p.Reached[i-1] {
				a.dead[i] = true
				before[i] = before[i+1] // of no meaning, or passed on to the first half
				continue
			}
			in := insns[i]
			after := before[i+1]
			if to, jumps := in.Target(i); in.IsExit() {
				after = 0
			} else if jumps && !in.IsCall(bpf.CallLocal) {
				if in.Jump() == bpf.Ja {
					after = 0
				}
				after |= before[to]
			}
			uses, defs := a.effect(p, i, arguments)
			a.live[i] = after
			a.dead[i] = pure(in) && defs&after == 0 || stackUnread && storesToStack(in)
			b := after
			if !a.dead[i] {
				b = after&^defs | uses
			}
			if b != before[i] {
				before[i], changed = b, true
			}
		}
	}
}

// effect lists the registers that the code of an instruction reads and writes.
func (a *analysis) effect(p *bpf.Proof, i int, arguments func(slot int) (regSet, bool)) (uses, defs regSet) {
	uses, defs = effects(p.Program.Insns[i])
	if p.Calls[i] != nil {
		uses, _ = arguments(i)
	}
	return uses, defs
}

// pure tells whether an instruction does nothing but change a register.
func pure(in bpf.Insn) bool {
	switch in.Class() {
	case bpf.ClassLD, bpf.ClassLDX, bpf.ClassALU, bpf.ClassALU64:
		return true
	}
	return false
}

// effects says which registers an instruction reads and writes.
func effects(in bpf.Insn) (uses, defs regSet) {
	src, dst := setOf(in.Src), setOf(in.Dst)
	switch in.Class() {
	case bpf.ClassLD:
		return 0, dst
	case bpf.ClassLDX:
		return src, dst
	case bpf.ClassST:
		return dst, 0
	case bpf.ClassSTX:
		uses = src | dst
		if in.Mode() == bpf.ModeAtomic {
			if in.Imm == bpf.AtomicCmpxchg {
				return uses | setOf(bpf.R0), setOf(bpf.R0)
			}
			if in.Imm&bpf.AtomicFetch != 0 {
				defs = src
			}
		}
		return uses, defs
	case bpf.ClassALU, bpf.ClassALU64:
		if in.Alu() != bpf.Mov {
			uses = dst
		}
		if in.X() && in.Alu() != bpf.End {
			uses |= src
		}
		return uses, dst
	}
	switch {
	case in.IsExit():
		return setOf(bpf.R0), 0
	case in.IsCall(in.Src):
		return argumentRegs, callerSaved
	case in.Jump() == bpf.Ja, in.Jump() == bpf.MayGoto:
		return 0, 0
	case in.X():
		return src | dst, 0
	}
	return dst, 0
}

// key is the knowledge of a key of 4 bytes: its value, or the register that has it.
type key struct {
	value   uint32
	reg     uint8
	unknown bool // the value

	// load is the slot that puts the map into R1, where that is the register of the
	// key: it must not be compiled. Else -1.
	load int
}

// keyAt finds the key of 4 bytes that R2 points to at a call, where the code right
// before it shows it:
//
//	*(u32 *)(r10 - 4) = r6
//	r2 = r10
//	r2 += -4
func keyAt(p *bpf.Proof, target []bool, call int) (k key, ok bool) {
	insns := p.Program.Insns
	// back shows f the instructions before one, the nearest first, as long as control
	// comes from nowhere else and f does not answer that it is done.
	back := func(from int, f func(j int, in bpf.Insn) (done bool)) {
		for j := from - 1; j >= 0 && !target[j+1]; j-- {
			if j > 0 && insns[j-1].Wide() {
				continue
			}
			if !p.Reached[j] || f(j, insns[j]) {
				return
			}
		}
	}
	off, pointer, found := int32(0), bpf.R2, false
	back(call, func(_ int, in bpf.Insn) bool {
		if _, defs := effects(in); !defs.has(pointer) {
			return false
		}
		switch {
		case in.Op == bpf.ClassALU64|bpf.Add:
			off += in.Imm
			return false
		case in.Op == bpf.ClassALU64|bpf.Mov|bpf.SrcX && in.Off == 0:
			pointer = in.Src
			found = pointer == bpf.R10
			return found
		}
		return true
	})
	if !found {
		return k, false
	}
	var changed, read regSet // between the store and the call
	store, load := -1, -1
	back(call, func(j int, in bpf.Insn) bool {
		uses, defs := effects(in)
		if in.Op == bpf.OpLoadImm64 && in.Src == bpf.LoadMap && in.Dst == bpf.R1 && !read.has(bpf.R1) && load < 0 {
			load = j // for this call alone
		} else {
			changed |= defs
		}
		read |= uses
		switch {
		case in.Class() == bpf.ClassJMP && in.Jump() == bpf.Call:
			return p.Calls[j] == nil || slices.ContainsFunc(p.Calls[j].Helper.Args, func(a bpf.Arg) bool {
				return a == bpf.ArgMemOut || a == bpf.ArgKeyOut || a == bpf.ArgPosition
			})
		case in.Class() != bpf.ClassST && in.Class() != bpf.ClassSTX:
			return false
		case in.Dst != bpf.R10 || in.Mode() != bpf.ModeMem:
			return p.Access[j]&bpf.MemStack != 0
		case int32(in.Off)+int32(in.Size()) <= off || int32(in.Off) >= off+4:
			return false
		case int32(in.Off) == off && in.Size() == 4:
			store = j
		}
		return true
	})
	if store < 0 {
		return k, false
	}
	in := insns[store]
	if in.Class() == bpf.ClassST {
		return key{value: uint32(in.Imm), load: -1}, true
	}
	k = key{reg: in.Src, unknown: true, load: -1}
	back(store, func(_ int, in bpf.Insn) bool {
		_, defs := effects(in)
		if defs.has(k.reg) && (in.Op == bpf.ClassALU64|bpf.Mov || in.Op == bpf.ClassALU|bpf.Mov) {
			k.value, k.unknown = uint32(in.Imm), false
		}
		return defs.has(k.reg)
	})
	if k.unknown && k.reg == bpf.R1 {
		k.load = load
	}
	return k, !k.unknown || !changed.has(k.reg)
}

// follow is the next instruction that does something, -1 where another may come
// there by a jump.
func (a *analysis) follow(i int) int {
	for i++; i < len(a.dead); i++ {
		switch {
		case a.target[i]:
			return -1
		case !a.dead[i]:
			return i
		}
	}
	return -1
}
