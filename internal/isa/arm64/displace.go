package arm64

import (
	"encoding/binary"
	"fmt"

	"kprobe/arch"
	"kprobe/internal/asm/a64"
	"kprobe/internal/isa"
)

// Place decides how an instruction is carried out: where that can be, on the registers
// and in a slot. Errors: isa.ErrUnknown.
func (machine) Place(code []byte, pc, slot arch.Addr) (isa.Verdict, error) {
	w, err := word(code)
	if err != nil {
		return isa.Verdict{}, err
	}
	f := formOf(w)
	if why := refusal(w, f); why != "" {
		return isa.Verdict{Kind: isa.Refuse, Reason: why}, nil
	}
	v := isa.Verdict{Kind: isa.Copy, Reason: f.done}
	if f.emulate != nil {
		v.Kind = isa.Emulate
		v.Emulate = func(r *arch.Regs, m arch.Memory) error { return f.emulate(w, pc, r, m) }
	}
	switch s := moved(w, f, pc, slot); {
	case s.why == "":
		v.Code, v.Body, v.Marks = s.bytes(), s.body, s.marks
	case v.Kind == isa.Copy:
		return isa.Verdict{Kind: isa.Refuse, Reason: s.why}, nil
	}
	return v, nil
}

// refusal says why an instruction cannot be probed; "" where it can.
func refusal(w uint32, f *form) string {
	if is, _ := exclusive(w); is {
		return "it belongs to a load and store exclusive, which a stop would make fail for ever"
	}
	if n := literalSize(w, f); n > 0 && imm19(w) > -int64(n) && imm19(w) < length {
		return "it reads its own bytes, where a probe's would be"
	}
	return f.refuse
}

// literalSize is the number of bytes that a load takes from beside the code; 0 for other
// instructions.
func literalSize(w uint32, f *form) int {
	const vector = 1 << 26
	switch {
	case f.done != loads:
		return 0
	case w&vector != 0:
		return 4 << (w >> 30)
	case w>>30 == 1:
		return 8
	}
	return 4
}

func (s *sequence) bytes() []byte {
	code := make([]byte, 0, length*len(s.words))
	for _, w := range s.words {
		code = binary.LittleEndian.AppendUint32(code, w)
	}
	return code
}

// SlotSize is the most bytes that Code of any verdict takes.
func (machine) SlotSize() int { return (maxWords + 1) * length }

// Displace is Place for all instructions that code holds, which stand at pc and
// are to run at the address at. Errors: isa.ErrUnknown.
func (m machine) Displace(code []byte, pc, at arch.Addr) (isa.Verdict, error) {
	all := isa.Verdict{Kind: isa.Copy}
	for off := 0; off < len(code); off += length {
		w, err := word(code[off:])
		if err != nil {
			return isa.Verdict{}, err
		}
		f, here, last := formOf(w), pc+arch.Addr(off), off+length == len(code)
		s := moved(w, f, here, at+arch.Addr(len(all.Code)))
		switch why := refusal(w, f); {
		case why != "":
			return isa.Verdict{Kind: isa.Refuse, Reason: why}, nil
		case s.why != "":
			return isa.Verdict{Kind: isa.Refuse, Reason: s.why}, nil
		case !last && leaves(f.flow):
			return isa.Verdict{Kind: isa.Refuse, Reason: fmt.Sprintf("the instruction at %v leaves, and others follow", here)}, nil
		}
		add, marks := s.bytes(), s.marks
		if !last {
			add, marks = add[:s.body], marks[:s.body/length]
		}
		for _, mark := range marks {
			mark.Off += len(all.Code)
			all.Marks = append(all.Marks, mark)
		}
		all.Body = len(all.Code) + s.body
		all.Code = append(all.Code, add...)
	}
	return all, nil
}

// jumpForm is b: one instruction, which covers one.
var jumpForm = &isa.JumpForm{Whole: length, KeepsLandings: true, Undo: undo}

// undo takes the signature off the link register that paciasp and pacibsp have put there: by
// xpaclri, which does not check it, and does nothing on a CPU without signatures.
func undo(pad []byte) []byte {
	switch binary.LittleEndian.Uint32(pad) {
	case paciasp, pacibsp:
		return binary.LittleEndian.AppendUint32(nil, xpaclri)
	}
	return nil
}

// JumpForm is the form of b.
func (machine) JumpForm() *isa.JumpForm { return jumpForm }

// Reach leaves a MiB of b's reach for the size of the memory that is reached.
func (machine) Reach() arch.Addr { return a64.BranchReach - 1<<20 }
