package arm64

import (
	"kprobe/arch"
	"kprobe/internal/asm/a64"
	"kprobe/internal/isa"
)

// An instruction somewhere else. An instruction that refers to its own place is replaced by a few
// that do the same. They use no register but the one that the instruction sets anyway, and change
// no flag. So until the last of them has run, the program's state is the one before it, but for a
// register whose old value is not needed any more. A thread that is interrupted in between is said
// to stand before the instruction, and then begins it anew.
//
// A slot is on a page that is not guarded (PROT_BTI). There br and blr lead to every kind of
// landing pad, so a call can be replaced by a jump.

// sequence is code that is being made.
type sequence struct {
	at    arch.Addr // where its first word is
	words []uint32
	marks []isa.Mark
	body  int    // bytes of the work
	why   string // it cannot be done, for this reason
}

// maxWords is the largest number of words that a sequence takes.
const maxWords = 4

func (s *sequence) here() arch.Addr { return s.at + arch.Addr(length*len(s.words)) }

// emit adds words, before each of which the program stands at pc.
func (s *sequence) emit(pc arch.Addr, words ...uint32) {
	for _, w := range words {
		s.marks = append(s.marks, isa.Mark{Off: length * len(s.words), PC: pc})
		s.words = append(s.words, w)
	}
}

// branch goes to an address.
func (s *sequence) branch(pc, to arch.Addr) {
	w, ok := a64.Branch(a64.B, s.here(), to)
	if !ok {
		s.why = outOfReach
	}
	s.emit(pc, w)
}

// put has a register hold an address.
func (s *sequence) put(pc arch.Addr, rd uint32, value arch.Addr) {
	if w, ok := a64.Page(rd, s.here(), value); ok {
		s.emit(pc, w)
		if value%pageSize != 0 {
			s.emit(pc, a64.AddLow(rd, value))
		}
		return
	}
	words := a64.Constant(rd, uint64(value))
	if len(words) > maxWords-1 {
		s.why = outOfReach
	}
	s.emit(pc, words...)
}

const outOfReach = "what it refers to is out of reach of its slot"

// moved is an instruction as it runs at an address, and the way back behind it.
func moved(w uint32, f *form, pc, at arch.Addr) *sequence {
	s := &sequence{at: at}
	if f.move == nil {
		s.emit(pc, w)
	} else {
		f.move(s, w, pc, f.target(w, pc))
	}
	s.body = length * len(s.words)
	if !leaves(f.flow) {
		s.branch(pc+length, pc+length)
	}
	return s
}

// leaves tells that control does not run on from an instruction to the code behind it in a slot. A
// call comes back to the original place.
func leaves(f isa.Flow) bool {
	switch f {
	case isa.Jump, isa.IndirectJump, isa.Call, isa.IndirectCall, isa.Return:
		return true
	}
	return false
}

func moveJump(s *sequence, _ uint32, pc, target arch.Addr) { s.branch(pc, target) }

func moveCall(s *sequence, _ uint32, pc, target arch.Addr) {
	s.put(pc, link, pc+length)
	s.branch(pc, target)
}

const link = 30

// moveCallReg has the jump in place of the call: bit 21 is all that they differ in.
func moveCallReg(s *sequence, w uint32, pc, _ arch.Addr) {
	const authenticated, modified = 1 << 11, 1 << 24
	if w>>5&31 == link || w&(authenticated|modified) == authenticated|modified && w&31 == link {
		s.why = "the call is of what the link register has"
	}
	s.put(pc, link, pc+length)
	s.emit(pc, w&^(1<<21))
}

// moveCond is a condition's opposite over a branch.
func moveCond(s *sequence, w uint32, pc, target arch.Addr) {
	if w&15 >= always {
		s.emit(pc, nop)
	} else {
		s.emit(pc, 0x54000000|2<<5|w&15^1)
	}
	s.branch(target, target)
}

// moveTest moves cbz, cbnz, tbz and tbnz. The tested register is not changed on the way.
func moveTest(s *sequence, w uint32, pc, target arch.Addr) {
	field := uint32(1<<19 - 1)
	if w>>25&1 == 1 {
		field = 1<<14 - 1
	}
	s.emit(pc, w&^(field<<5)^1<<24|2<<5)
	s.branch(target, target)
}

func moveAddress(s *sequence, w uint32, pc, target arch.Addr) {
	if w&31 == xzr {
		s.emit(pc, nop)
		return
	}
	s.put(pc, w&31, target)
}

// moveLoad loads by the register that it sets.
func moveLoad(s *sequence, w uint32, pc, target arch.Addr) {
	if field, ok := a64.Literal(s.here(), target); ok {
		s.emit(pc, w&^((1<<19-1)<<5)|field)
		return
	}
	rt := w & 31
	if rt == xzr {
		s.why = outOfReach
	}
	s.put(pc, rt, target)
	loads := [...]uint32{0xb9400000, 0xf9400000, 0xb9800000} // ldr w, ldr x, ldrsw
	s.emit(pc, loads[w>>30]|rt<<5|rt)
}

// moveVectorLoad has no register to load by.
func moveVectorLoad(s *sequence, w uint32, pc, target arch.Addr) {
	field, ok := a64.Literal(s.here(), target)
	if !ok {
		s.why = outOfReach
	}
	s.emit(pc, w&^((1<<19-1)<<5)|field)
}

func moveHint(s *sequence, _ uint32, pc, _ arch.Addr) { s.emit(pc, nop) }
