package bpf

// What of a state can still matter: the verifier walks every path, and a path ends
// early where it meets a state that was already found safe. Two states that differ
// only in what nobody will read are the same, and a number that never decides
// anything (whether a jump is taken, where a pointer points) is the same as any other.

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
func stackWord(base uint8, i Insn) int {
	if base != R10 || i.Size() != 8 || i.Off >= 0 || i.Off < -MaxStack || i.Off%8 != 0 || i.Mode() != ModeMem {
		return -1
	}
	return int(-i.Off)/8 - 1
}

func word(n int) regset { return regset{words: 1 << n} }

// flow is what holds just before each instruction.
type flow struct {
	live  []regset // will be read before it is written
	exact []regset // and what it holds may decide something
	fills []uint64 // of the function: stack words that are loaded as a whole
}

// flows works both out, backwards until nothing changes.
func (p *Program) flows(funcs []Func) *flow {
	f := &flow{make([]regset, len(p.Insns)), make([]regset, len(p.Insns)), make([]uint64, len(p.Insns))}
	for _, fn := range funcs {
		var fills uint64
		for pc := fn.Start; pc < fn.End; pc++ {
			if i := p.Insns[pc]; i.Class() == ClassLDX {
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
func (f *flow) before(p *Program, pc int, fn Func) (live, exact regset) {
	i := p.Insns[pc]
	next := pc + 1
	if i.Wide() {
		next++
	}
	falls := !i.IsExit() && i.Op != ClassJMP|Ja && i.Op != ClassJMP32|Ja
	if falls && next < fn.End {
		live, exact = f.live[next], f.exact[next]
	}
	if to, ok := i.Target(pc); ok && !i.IsCall(CallLocal) {
		live, exact = live.or(f.live[to]), exact.or(f.exact[to])
	}

	var def, use, decides regset // decides: read for more than to be passed on
	passes := false              // def is made of use
	src := regset{}
	if i.X() {
		src = reg(i.Src)
	}
	switch i.Class() {
	case ClassALU, ClassALU64:
		// Adding to a pointer decides where it points; whether Dst is one is not
		// known here, but then it is dereferenced and so itself exact.
		def, use, passes = reg(i.Dst), reg(i.Dst).or(src), true
		if i.Alu() == Mov {
			use = src
		}
	case ClassLD:
		def = reg(i.Dst)
	case ClassLDX:
		def, use, decides = reg(i.Dst), reg(i.Src), reg(i.Src)
		if w := stackWord(i.Src, i); w >= 0 {
			use, passes = use.or(word(w)), true
		}
	case ClassST:
		use, decides = reg(i.Dst), reg(i.Dst)
	case ClassSTX:
		use, decides = reg(i.Dst, i.Src), reg(i.Dst)
		if i.Mode() == ModeAtomic {
			if i.Imm == AtomicCmpxchg {
				def, use = reg(R0), use.or(reg(R0))
			} else if i.Imm&AtomicFetch != 0 {
				def = reg(i.Src)
			}
		} else if w := stackWord(i.Dst, i); w >= 0 {
			def, passes = word(w), true
		}
	case ClassJMP, ClassJMP32:
		switch {
		case i.IsExit():
			use = reg(R0)
			if fn.Start != 0 {
				decides = use // the caller's
			}
		case i.IsCall(CallLocal):
			def, use = reg(R0, R1, R2, R3, R4, R5), reg(R1, R2, R3, R4, R5)
			decides = use
		case i.IsCall(CallHelper):
			def = reg(R0, R1, R2, R3, R4, R5)
			if h := Helpers[i.Imm]; h != nil {
				for k, a := range h.Args {
					use = use.or(reg(R1 + uint8(k)))
					if a.decides() {
						decides = decides.or(reg(R1 + uint8(k)))
					}
				}
			}
		case i.Jump() != Ja && i.Jump() != MayGoto:
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
