package s390x

import (
	"encoding/binary"

	"kprobe/arch"
	"kprobe/internal/isa"
)

// An instruction somewhere else. brcl and larl lead 4 GiB far, to each side, without a register: so
// what branches, or refers to its own place, is carried out by itself with another offset, or by
// two of those.

// sequence is code that is being made.
type sequence struct {
	at    arch.Addr
	code  []byte
	marks []isa.Mark
	body  int    // bytes of the work
	why   string // it cannot be done, for this reason
}

const outOfReach = "what it refers to is out of its slot's reach"

// Relative instructions of six bytes.
const (
	opLARL  = 0xc000
	opJump  = 0xc0f4 // brcl for all conditions
	lenLong = 6
)

func (s *sequence) here() arch.Addr { return s.at + arch.Addr(len(s.code)) }

// emit adds an instruction, before which the program stands at pc.
func (s *sequence) emit(pc arch.Addr, code ...byte) {
	s.marks = append(s.marks, isa.Mark{Off: len(s.code), PC: pc})
	s.code = append(s.code, code...)
}

// refer adds an instruction that refers to an address, by its first two bytes.
func (s *sequence) refer(pc arch.Addr, op uint16, to arch.Addr) {
	offset, ok := halfwords(s.here(), to)
	if !ok {
		s.why = outOfReach
	}
	code := binary.BigEndian.AppendUint16(nil, op)
	s.emit(pc, binary.BigEndian.AppendUint32(code, offset)...)
}

// halfwords is the offset of a relative instruction of six bytes; false where it does not lead
// there.
func halfwords(from, to arch.Addr) (uint32, bool) {
	d := int64(to - from)
	return uint32(d / 2), d%2 == 0 && d >= -1<<32 && d < 1<<32
}

// leave goes to an address. The program stands at pc before.
func (s *sequence) leave(pc, to arch.Addr) { s.refer(pc, opJump, to) }

// moved is an instruction as it runs at an address, and the way back behind it.
func moved(i insn, f *form, pc, at arch.Addr) *sequence {
	s := &sequence{at: at}
	in, next := f.decoded(i), pc+arch.Addr(i.size)
	switch {
	case f.move != nil:
		f.move(s, i, pc, f.target(i, pc))
	case f.rel != 0 && in.Flow != isa.Next:
		f.moveBranch(s, i, pc)
	default:
		s.emit(pc, i.bytes()...)
	}
	s.body = len(s.code)
	switch {
	case in.Flow == isa.Next, in.Flow == isa.Syscall:
		s.leave(next, next)
	case in.Flow == isa.IndirectJump: // or not, by its condition
		s.leave(next, next)
		s.body = len(s.code)
	}
	return s
}

// moveOperand has the offset of another place.
func moveOperand(s *sequence, i insn, pc, target arch.Addr) {
	s.refer(pc, uint16(i.field(0, 16)), target)
}

func moveCall(s *sequence, i insn, pc, target arch.Addr) {
	s.refer(pc, opLARL|uint16(i.field(8, 4))<<4, pc+arch.Addr(i.size))
	s.leave(pc, target)
}

// moveCallReg has the branch in place of the call.
func moveCallReg(s *sequence, i insn, pc, _ arch.Addr) {
	link, to := byte(i.field(8, 4)), byte(i.field(12, 4))
	if link == to && to != 0 {
		s.why = "it calls by the register that it sets, and has no other to be carried out with elsewhere"
	}
	s.refer(pc, opLARL|uint16(link)<<4, pc+arch.Addr(i.size))
	if to != 0 {
		s.emit(pc, 0x07, 0xf0|to) // br
	}
}

// moveBranch is the condition over the way to the next instruction.
func (f *form) moveBranch(s *sequence, i insn, pc arch.Addr) {
	next, target := pc+arch.Addr(i.size), f.target(i, pc)
	if f.decoded(i).Flow == isa.Jump {
		s.leave(pc, target)
		return
	}
	code, over := i.bytes(), uint32(i.size+lenLong)/2
	if f.rel == 2 {
		binary.BigEndian.PutUint16(code[2:], uint16(over))
	} else {
		binary.BigEndian.PutUint32(code[2:], over)
	}
	s.emit(pc, code...)
	s.leave(next, next)
	s.leave(target, target)
}

// Place decides how an instruction is carried out: where that can be, on the registers and in a
// slot; where it is not known how, in its place only. Errors: isa.ErrUnknown.
func (machine) Place(code []byte, pc, slot arch.Addr) (isa.Verdict, error) {
	i, f, err := read(code)
	if err != nil {
		return isa.Verdict{}, err
	}
	switch {
	case f.refuse != "":
		return isa.Verdict{Kind: isa.Refuse, Reason: f.refuse}, nil
	case f.inPlace:
		return isa.Verdict{Kind: isa.InPlace}, nil
	}
	s := moved(i, &f, pc, slot)
	if s.why != "" {
		return isa.Verdict{Kind: isa.Refuse, Reason: s.why}, nil
	}
	v := isa.Verdict{Kind: isa.Copy, Reason: f.done, Code: s.code, Body: s.body, Marks: s.marks}
	emulate := f.emulate
	if f.when != nil {
		emulate = f.branch
	}
	if emulate != nil {
		v.Kind = isa.Emulate
		v.Emulate = func(r *arch.Regs, _ arch.Memory) error {
			emulate(i, pc, f.target(i, pc), r)
			return nil
		}
	}
	return v, nil
}
