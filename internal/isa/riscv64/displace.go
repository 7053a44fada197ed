package riscv64

import (
	"encoding/binary"

	"kprobe/arch"
	"kprobe/internal/asm/rv64"
	"kprobe/internal/isa"
)

// An instruction somewhere else. No instruction leads farther than 1 MiB without a register to go
// by, and all registers are the program's. So where jal does not reach, a slot ends in a trap, and
// the server of that trap sends the thread on (isa.Exit).
//
// An instruction that refers to its own place is replaced by a few that do the same. They use no
// register but the one that the instruction sets anyway. A thread that is interrupted in between is
// said to stand before the instruction, and then begins it anew.

// sequence is code that is being made.
type sequence struct {
	at      arch.Addr
	code    []byte
	marks   []isa.Mark
	exits   []isa.Exit
	literal *uint64 // at literalAt
	body    int     // bytes of the work
	why     string  // it cannot be done, for this reason
}

// literalAt is the offset in a slot of an address that is out of auipc's reach: behind three
// instructions, aligned.
const literalAt = 16

func (s *sequence) here() arch.Addr { return s.at + arch.Addr(len(s.code)) }

// emit adds an instruction, before which the program stands at pc.
func (s *sequence) emit(pc arch.Addr, i insn) {
	s.marks = append(s.marks, isa.Mark{Off: len(s.code), PC: pc})
	s.code = append(s.code, i.bytes()...)
}

func (s *sequence) word(pc arch.Addr, w uint32) { s.emit(pc, insn{w, 4}) }

// leave goes to an address, by a jump, or a trap of the same length. The program stands at pc
// before.
func (s *sequence) leave(pc, to arch.Addr) {
	w, ok := rv64.Jump(s.here(), to)
	if !ok {
		s.exits = append(s.exits, isa.Exit{Off: len(s.code), To: to})
		w = rv64.Break<<16 | rv64.Break
	}
	s.word(pc, w)
}

// put has a register hold an address.
func (s *sequence) put(pc arch.Addr, rd uint32, value arch.Addr) {
	d := int64(value - s.here())
	if high := d + 0x800; high >= -1<<31 && high < 1<<31 {
		s.word(pc, uint32(high)&^0xfff|rd<<7|0x17)
		s.word(pc, uint32(d)<<20|rd<<15|rd<<7|0x13) // addi
		return
	}
	v := uint64(value)
	s.literal = &v
	s.word(pc, rd<<7|0x17)
	s.word(pc, uint32(literalAt-len(s.code)+4)<<20|rd<<15|3<<12|rd<<7|0x03) // ld
}

// bytes are the code, with its literal.
func (s *sequence) bytes() []byte {
	if s.literal == nil {
		return s.code
	}
	code := append(s.code, make([]byte, literalAt-len(s.code))...)
	return binary.LittleEndian.AppendUint64(code, *s.literal)
}

// moved is an instruction as it runs at an address, and the way back behind it.
func moved(i insn, f *form, pc, at arch.Addr) *sequence {
	s := &sequence{at: at}
	switch {
	case f.move != nil:
		target := pc
		if f.offset != nil {
			target = f.target(i, pc)
		}
		f.move(s, i, pc, target)
	default:
		s.emit(pc, i)
	}
	s.body = len(s.code)
	switch f.flow {
	case isa.Jump, isa.IndirectJump, isa.Call, isa.IndirectCall, isa.CondJump, isa.Return:
	default:
		s.leave(pc+arch.Addr(i.size), pc+arch.Addr(i.size))
	}
	return s
}

func moveJump(s *sequence, i insn, pc, target arch.Addr) {
	if rd := i.rd(); i.size == 4 && rd != 0 {
		s.put(pc, rd, pc+arch.Addr(i.size))
	}
	s.leave(pc, target)
}

// moveCallReg has the jump in place of the call.
func moveCallReg(s *sequence, i insn, pc, _ arch.Addr) {
	rd, rs1, by := i.rd(), i.rs1(), insn{i.w &^ (31 << 7), 4}
	if i.size == 2 {
		rd, rs1, by = link, i.rd(), insn{i.w &^ (1 << 12), 2}
	}
	if rd == rs1 {
		s.why = "it calls by the register that it sets, and has no other to be carried out with elsewhere"
	}
	s.put(pc, rd, pc+arch.Addr(i.size))
	s.emit(pc, by)
}

// moveBranch is the condition over the way to the next instruction.
func moveBranch(s *sequence, i insn, pc, target arch.Addr) {
	if i.size == 4 {
		const field = 0x7f<<25 | 31<<7
		s.word(pc, i.w&^field|8<<7)
	} else {
		const field = 7<<10 | 31<<2
		s.emit(pc, insn{i.w&^field | 3<<3, 2}) // 6 bytes
	}
	s.leave(pc+arch.Addr(i.size), pc+arch.Addr(i.size))
	s.leave(target, target)
}

func moveAddress(s *sequence, i insn, pc, target arch.Addr) { s.put(pc, i.rd(), target) }

// Place decides how an instruction is carried out: where that can be, on the registers and in a
// slot. Errors: isa.ErrUnknown.
func (machine) Place(code []byte, pc, slot arch.Addr) (isa.Verdict, error) {
	i, f, err := read(code)
	if err != nil {
		return isa.Verdict{}, err
	}
	s := moved(i, f, pc, slot)
	for _, why := range []string{f.refuse, s.why} {
		if why != "" {
			return isa.Verdict{Kind: isa.Refuse, Reason: why}, nil
		}
	}
	v := isa.Verdict{Kind: isa.Copy, Reason: f.done, Code: s.bytes(), Body: s.body, Marks: s.marks, Exits: s.exits}
	if f.emulate != nil {
		v.Kind = isa.Emulate
		v.Emulate = func(r *arch.Regs, _ arch.Memory) error {
			r[0] = 0 // whatever a handler has set it to
			f.emulate(i, pc, r)
			return nil
		}
	}
	return v, nil
}
