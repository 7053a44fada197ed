package amd64

import (
	"fmt"
	"slices"

	"kprobe/arch"
	"kprobe/internal/isa"
)

// Several instructions in a row away from their place: a jump that covers more than one needs that.

// Displace is Place for all instructions that code holds, which stand at pc and
// are to run at the address at. Errors: isa.ErrUnknown.
func (m *machine) Displace(code []byte, pc, at arch.Addr) (isa.Verdict, error) {
	var all isa.Verdict
	all.Kind = isa.Copy
	for off := 0; off < len(code); {
		in, err := Decode(code[off:], m.mode)
		if err != nil {
			return isa.Verdict{}, err
		}
		here, last := pc+arch.Addr(off), off+int(in.Len) == len(code)
		v, err := m.place(code[off:], here, at+arch.Addr(len(all.Code)), !last)
		switch {
		case err != nil:
			return isa.Verdict{}, err
		case v.Kind == isa.Refuse:
			return refuse(v.Reason), nil
		case len(v.Code) == 0:
			return refuse("only emulation does it: " + v.Reason), nil
		case !last && leaves(in.Flow):
			return refuse(fmt.Sprintf("the instruction at %v leaves, and others follow", here)), nil
		}
		for _, mark := range v.Marks {
			mark.Off += len(all.Code)
			all.Marks = append(all.Marks, mark)
		}
		all.Body = len(all.Code) + v.Body
		all.Code = append(all.Code, v.Code...)
		off += int(in.Len)
	}
	return all, nil
}

// leaves tells that control does not run on from an instruction's copy to the code behind the copy.
// A call comes back to the original place.
func leaves(f isa.Flow) bool {
	switch f {
	case isa.Jump, isa.IndirectJump, isa.Call, isa.IndirectCall, isa.Return:
		return true
	}
	return false
}

// prefixCS means nothing to a direct jump: there is no data that it could be of.
const prefixCS = 0x2e

// jumpForm64 is jmp rel32. Its guards are the one-byte opcodes that AMD64 took
// away, and hlt. Not among them, though they trap today:
//
//   - 62, c4, c5, d5: escapes to newer encodings (EVEX, VEX, REX2);
//   - 9a, ea, 82: they trap only after their operand has been fetched, on some
//     processors, and with another fault where that is in no memory;
//   - cli, sti, in, out: with an I/O privilege level they do not trap;
//   - f1: it traps as the single-step trap does.
var jumpForm64 = &isa.JumpForm{
	Opcode: 0xe9, Rel: 4, Prefix: prefixCS,
	Guards: slices.Concat(
		guards(isa.Breakpoint, 0xcc),
		guards(isa.Invalid,
			0x06, 0x07, 0x0e, 0x16, 0x17, 0x1e, 0x1f, // push and pop of segment registers
			0x27, 0x2f, 0x37, 0x3f, // daa, das, aaa, aas
			0x60, 0x61, // pusha, popa
			0xce, // into
			0xd6, // salc; Intel promises (UDB) that it stays undefined
		),
		guards(isa.Protected, 0xf4), // hlt
	),
}

// jumpForm32: in 32-bit mode those are instructions.
var jumpForm32 = &isa.JumpForm{
	Opcode: 0xe9, Rel: 4, Prefix: prefixCS,
	Guards: slices.Concat(guards(isa.Breakpoint, 0xcc), guards(isa.Protected, 0xf4)),
}

func guards(f isa.Fault, bytes ...byte) []isa.Guard {
	var gs []isa.Guard
	for _, b := range bytes {
		gs = append(gs, isa.Guard{Byte: b, Fault: f})
	}
	return gs
}

// JumpForm is the form of jmp rel32.
func (m *machine) JumpForm() *isa.JumpForm {
	if m.mode == 32 {
		return jumpForm32
	}
	return jumpForm64
}
