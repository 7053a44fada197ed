package ppc64le

import (
	"encoding/binary"
	"fmt"

	"kprobe/arch"
	"kprobe/internal/asm/ppc64"
	"kprobe/internal/isa"
)

// An instruction of ppc64le somewhere else. Nothing leads farther than 32 MiB without a register,
// and all registers are the program's. So where b does not reach, a slot ends in a trap, and the
// server of that trap sends the thread on (isa.Exit).
//
// A call would have to leave another address in LR than the one behind it, which takes a register,
// too. So its slot has the branch only: LR is set by the sender before a thread is sent there
// (lifeline, testdata/ppc64le_trap.S). All other servers carry calls out on the registers.

// power is 64-bit Power, whose instructions are moved. How they are told apart is the classes'
// matter.
type power struct{ isa.ISA }

const word = 4

// sequence is code that is being made.
type sequence struct {
	at    arch.Addr
	code  []byte
	marks []isa.Mark
	exits []isa.Exit
	body  int // bytes of the work
}

func (s *sequence) emit(pc arch.Addr, ws ...uint32) {
	for _, w := range ws {
		s.marks = append(s.marks, isa.Mark{Off: len(s.code), PC: pc})
		s.code = binary.LittleEndian.AppendUint32(s.code, w)
	}
}

// leave goes to an address, by a branch, or a trap of the same length. The program stands at pc
// before.
func (s *sequence) leave(pc, to arch.Addr) {
	w, ok := ppc64.Branch(s.at+arch.Addr(len(s.code)), to)
	if !ok {
		s.exits = append(s.exits, isa.Exit{Off: len(s.code), To: to})
		w = ppc64.Trap
	}
	s.emit(pc, w)
}

// Decode knows what instructions with a prefix refer to, besides, and where functions end. Errors:
// isa.ErrUnknown.
func (p power) Decode(code []byte, pc arch.Addr) (isa.Insn, error) {
	in, err := p.ISA.Decode(code, pc)
	in.Ends = in.Flow == isa.Undefined
	if err == nil && in.Len == 2*word && isRelative(binary.LittleEndian.Uint32(code)) {
		in.PCRel, in.PCRelSize = true, in.Len
		in.Target = pc + arch.Addr(offset(code))
	}
	return in, err
}

// isRelative tells of a prefix whether its instruction counts from its own address: R, of the types
// 0 and 2.
func isRelative(w uint32) bool { return w>>20&1 == 1 && w>>24&1 == 0 }

// offset are the 34 bits of an instruction with a prefix: 18 in the one word, 16 in the other.
func offset(code []byte) int64 {
	high, low := binary.LittleEndian.Uint32(code), binary.LittleEndian.Uint32(code[word:])
	return int64(uint64(high)<<46|uint64(low&0xffff)<<30) >> 30
}

func setOffset(high, low uint32, d int64) (uint32, uint32) {
	const field = 1<<18 - 1
	return high&^field | uint32(d>>16)&field, low&^0xffff | uint32(d)&0xffff
}

// Place decides how an instruction is carried out: branches on the registers, all others in a slot.
// Errors: isa.ErrUnknown.
func (p power) Place(code []byte, pc, slot arch.Addr) (isa.Verdict, error) {
	v, err := p.ISA.Place(code, pc, slot)
	if err != nil || v.Kind == isa.Refuse {
		return v, err
	}
	in, err := p.ISA.Decode(code, pc)
	if err != nil {
		return isa.Verdict{}, err
	}
	s := &sequence{at: slot}
	if why := s.move(code, in, pc); why != "" {
		return isa.Verdict{Kind: isa.Refuse, Reason: why}, nil
	}
	if v.Kind == isa.InPlace {
		v.Kind = isa.Copy
	}
	v.Code, v.Body, v.Marks, v.Exits = s.code, s.body, s.marks, s.exits
	return v, nil
}

const (
	notBoth   = "it calls by the register that it sets, and has no other to be carried out with elsewhere"
	own       = "a trap of the program's own"
	noPlace   = "it leads to where only the processor knows"
	outOfSlot = "what it refers to is out of its slot's reach"
)

// move fills a slot, or says why it cannot.
func (s *sequence) move(code []byte, in isa.Insn, pc arch.Addr) (why string) {
	w, next := binary.LittleEndian.Uint32(code), pc+arch.Addr(in.Len)
	op, xo := w>>26, w&extended
	switch {
	case in.Flow == isa.Trap:
		return own
	case op == 18:
		s.leave(pc, in.Target)
	case op == 16 && in.Flow == isa.Jump:
		s.leave(pc, in.Target)
	case op == 16:
		const field = 0xffff
		s.emit(pc, w&^field|2*word) // over the way to the next instruction
		s.leave(next, next)
		s.leave(in.Target, in.Target)
	case op == 19 && xo == 560<<1 && w&link != 0: // bctarl
		return noPlace
	case op == 19 && xo == 16<<1 && w&link != 0: // bclrl
		return notBoth
	case op == 19 && xo == 146<<1: // rfebb
		return noPlace
	case op == 19 && (in.Flow == isa.IndirectJump || in.Flow == isa.IndirectCall):
		s.emit(pc, w&^link)
		if w&always != always {
			s.leave(next, next)
		}
	case in.Flow == isa.Return:
		s.emit(pc, w)
	case op == 19 && in.PCRel: // addpcis
		s.emit(pc, ppc64.Load(w>>21&31, uint64(in.Target))...)
	case in.Len == 2*word:
		high, low := w, binary.LittleEndian.Uint32(code[word:])
		if isRelative(w) {
			d := offset(code) + int64(pc-s.at)
			if d < -1<<33 || d >= 1<<33 {
				return outOfSlot
			}
			high, low = setOffset(high, low, d)
		}
		s.emit(pc, high, low)
		s.marks = s.marks[:1] // it is one instruction
	default:
		s.emit(pc, w)
	}
	s.body = len(s.code)
	switch in.Flow {
	case isa.Next:
		s.leave(next, next)
	case isa.Syscall:
		s.leave(next, next)
		if w&2 == 0 { // scv has LR lead here
			m := &s.marks[len(s.marks)-1]
			m.HasLink, m.Link = true, regLR
		}
	}
	return ""
}

// SlotSize is the most bytes that Code of any verdict takes: those of an address, and the way back.
func (power) SlotSize() int { return 6 * word }

// Displace refuses: no jumps are written over instructions here.
func (p power) Displace(code []byte, pc, at arch.Addr) (isa.Verdict, error) {
	for len(code) > 0 {
		in, err := p.ISA.Decode(code, pc)
		if err != nil {
			return isa.Verdict{}, err
		}
		code = code[in.Len:]
	}
	return isa.Verdict{Kind: isa.Refuse, Reason: "several instructions of ppc64le are not moved together"}, nil
}

// Reach is the reach of slots. An instruction with a prefix leads more than twice as far, and
// programs are smaller than that.
func (power) Reach() arch.Addr { return 1<<31 - 1<<20 }

// Jump assembles b. Errors: isa.ErrRange beyond 32 MiB.
func (power) Jump(from, to arch.Addr) ([]byte, error) {
	w, ok := ppc64.Branch(from, to)
	if !ok {
		return nil, fmt.Errorf("jump from %v to %v: %w", from, to, isa.ErrRange)
	}
	return binary.LittleEndian.AppendUint32(nil, w), nil
}
