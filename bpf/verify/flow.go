package verify

import "kprobe/bpf"

// Which parts of a state can still matter. The verifier walks every path, and a path ends early
// where it meets a state that was already found safe. Two states are the same if they differ only
// in parts that will not be read. A number that never decides anything (whether a jump is taken,
// where a pointer points) is the same as any other.

// regset is a set of registers, and above them of the 8-byte stack words (bit 11 is
// the word below R10) that are loaded back as a whole, by R10 and a constant.
type regset struct {
	regs  uint16
	words uint64
}

func (s regset) or(o regset) regset      { return regset{s.regs | o.regs, s.words | o.words} }
func (s regset) without(o regset) regset { return regset{s.regs &^ o.regs, s.words &^ o.words} }
func (s regset) meets(o regset) bool     { return s.regs&o.regs|uint16(boolBit(s.words&o.words != 0)) != 0 }
func (s regset) reg(r uint8) bool        { return s.regs>>r&1 != 0 }

func boolBit(b bool) uint16 {
	if b {
		return 1
	}
	return 0
}

func reg(rs ...uint8) (s regset) {
	for _, r := range rs {
		s.regs |= 1 << r
	}
	return s
}

// stackWord is the word that a load or store of 8 bytes at R10+off is, -1 for others.
func stackWord(base uint8, i bpf.Insn) int {
	if base != bpf.R10 || i.Size() != 8 || i.Off >= 0 || i.Off < -bpf.MaxStack || i.Off%8 != 0 || i.Mode() != bpf.ModeMem {
		return -1
	}
	return int(-i.Off)/8 - 1
}

func word(n int) regset { return regset{words: 1 << n} }

// flow holds the facts that are true just before each instruction.
type flow struct {
	live  []regset // will be read before it is written
	exact []regset // and its content may decide something
	fills []uint64 // of the function: stack words that are loaded as a whole
}

// flows works both out, backwards until nothing changes.
func flows(p *bpf.Program, funcs []bpf.Func) *flow {
	f := &flow{make([]regset, len(p.Insns)), make([]regset, len(p.Insns)), make([]uint64, len(p.Insns))}
	for _, fn := range funcs {
		var fills uint64
		for pc := fn.Start; pc < fn.End; pc++ {
			if i := p.Insns[pc]; i.Class() == bpf.ClassLDX {
				if w := stackWord(i.Src, i); w >= 0 {
					fills |= 1 << w
				}
			}
		}
		for pc := fn.Start; pc < fn.End; pc++ {
			f.fills[pc] = fills
		}
		for changed := true; changed; {
			changed = false
			for pc := fn.End - 1; pc >= fn.Start; pc-- {
				live, exact := f.before(p, pc, fn)
				if live != f.live[pc] || exact != f.exact[pc] {
					f.live[pc], f.exact[pc], changed = live, exact, true
				}
			}
		}
	}
	return f
}

// before is the step of the analysis over one instruction.
func (f *flow) before(p *bpf.Program, pc int, fn bpf.Func) (live, exact regset) {
	i := p.Insns[pc]
	next := pc + 1
	if i.Wide() {
		next++
	}
	falls := !i.IsExit() && i.Op != bpf.ClassJMP|bpf.Ja && i.Op != bpf.ClassJMP32|bpf.Ja
	if falls && next < fn.End {
		live, exact = f.live[next], f.exact[next]
	}
	if to, ok := i.Target(pc); ok && !i.IsCall(bpf.CallLocal) {
		live, exact = live.or(f.live[to]), exact.or(f.exact[to])
	}

	var def, use, decides regset // decides: read for more than to be passed on
	passes := false              // def is made of use
	src := regset{}
	if i.X() {
		src = reg(i.Src)
	}
	switch i.Class() {
	case bpf.ClassALU, bpf.ClassALU64:
		// Adding to a pointer decides where it points; whether Dst is one is not
		// known here, but then it is dereferenced and so itself exact.
		def, use, passes = reg(i.Dst), reg(i.Dst).or(src), true
		if i.Alu() == bpf.Mov {
			use = src
		}
	case bpf.ClassLD:
		def = reg(i.Dst)
	case bpf.ClassLDX:
		def, use, decides = reg(i.Dst), reg(i.Src), reg(i.Src)
		if w := stackWord(i.Src, i); w >= 0 {
			use, passes = use.or(word(w)), true
		}
	case bpf.ClassST:
		use, decides = reg(i.Dst), reg(i.Dst)
	case bpf.ClassSTX:
		use, decides = reg(i.Dst, i.Src), reg(i.Dst)
		if i.Mode() == bpf.ModeAtomic {
			if i.Imm == bpf.AtomicCmpxchg {
				def, use = reg(bpf.R0), use.or(reg(bpf.R0))
			} else if i.Imm&bpf.AtomicFetch != 0 {
				def = reg(i.Src)
			}
		} else if w := stackWord(i.Dst, i); w >= 0 {
			def, passes = word(w), true
		}
	case bpf.ClassJMP, bpf.ClassJMP32:
		switch {
		case i.IsExit():
			use = reg(bpf.R0)
			if fn.Start != 0 {
				decides = use // the caller's
			}
		case i.IsCall(bpf.CallLocal):
			def, use = reg(bpf.R0, bpf.R1, bpf.R2, bpf.R3, bpf.R4, bpf.R5), reg(bpf.R1, bpf.R2, bpf.R3, bpf.R4, bpf.R5)
			decides = use
		case i.IsCall(bpf.CallHelper):
			def = reg(bpf.R0, bpf.R1, bpf.R2, bpf.R3, bpf.R4, bpf.R5)
			if h := bpf.Helpers[i.Imm]; h != nil {
				for k, a := range h.Args {
					use = use.or(reg(bpf.R1 + uint8(k)))
					if a.Decides() {
						decides = decides.or(reg(bpf.R1 + uint8(k)))
					}
				}
			}
		case i.Jump() != bpf.Ja && i.Jump() != bpf.MayGoto:
			use, decides = reg(i.Dst).or(src), reg(i.Dst).or(src)
		}
	}
	wanted := exact.meets(def)
	live, exact = live.without(def).or(use), exact.without(def).or(decides)
	if passes && wanted {
		exact = exact.or(use)
	}
	return live, exact
}
