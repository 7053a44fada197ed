package bpf

import "fmt"

// The kernel's way of writing instructions, as verifier logs and llvm-objdump show them.

var aluSign = map[uint8]string{
	Add: "+=", Sub: "-=", Mul: "*=", Div: "/=", Or: "|=", And: "&=", Lsh: "<<=",
	Rsh: ">>=", Mod: "%=", Xor: "^=", Mov: "=", Arsh: "s>>=",
}

var jumpSign = map[uint8]string{
	Jeq: "==", Jgt: ">", Jge: ">=", Jset: "&", Jne: "!=", Jsgt: "s>", Jsge: "s>=",
	Jlt: "<", Jle: "<=", Jslt: "s<", Jsle: "s<=",
}

var atomicName = map[int32]string{
	AtomicAdd: "add", AtomicOr: "or", AtomicAnd: "and", AtomicXor: "xor",
	AtomicXchg &^ AtomicFetch: "xchg", AtomicCmpxchg &^ AtomicFetch: "cmpxchg",
}

// String is the instruction alone; the second slot of an ld_imm64 shows nothing.
func (i Insn) String() string {
	if i == (Insn{Imm: i.Imm}) {
		return ""
	}
	name := "r"
	if c := i.Class(); c == ClassALU || c == ClassJMP32 {
		name = "w"
	}
	dst := fmt.Sprint(name, i.Dst)
	src := fmt.Sprint(i.Imm)
	if i.X() {
		src = fmt.Sprint(name, i.Src)
	}
	ref := func(reg uint8) string {
		t := fmt.Sprintf("u%d", 8*i.Size())
		if i.Mode() == ModeMemSX {
			t = "s" + t[1:]
		}
		return fmt.Sprintf("*(%s *)(r%d %+d)", t, reg, i.Off)
	}
	switch i.Class() {
	case ClassALU, ClassALU64:
		switch sign, ok := aluSign[i.Alu()]; {
		case i.Alu() == Neg:
			return fmt.Sprintf("%s = -%s", dst, dst)
		case i.Alu() == End:
			order := "le"
			if i.Class() == ClassALU64 {
				order = "bswap"
			} else if i.X() {
				order = "be"
			}
			return fmt.Sprintf("r%d = %s%d r%d", i.Dst, order, i.Imm, i.Dst)
		case i.Alu() == Mov && i.Off != 0:
			return fmt.Sprintf("%s = (s%d)%s", dst, i.Off, src)
		case ok && i.Off == 1:
			return fmt.Sprintf("%s s%s %s", dst, sign, src)
		case ok:
			return fmt.Sprintf("%s %s %s", dst, sign, src)
		}
	case ClassLD:
		if i.Wide() {
			return fmt.Sprintf("r%d = %s", i.Dst, [...]string{"", "map ", "value of map "}[i.Src%3]+fmt.Sprint(i.Imm)) + " ll"
		}
	case ClassLDX:
		return fmt.Sprintf("r%d = %s", i.Dst, ref(i.Src))
	case ClassST:
		return fmt.Sprintf("%s = %d", ref(i.Dst), i.Imm)
	case ClassSTX:
		if i.Mode() != ModeAtomic {
			return fmt.Sprintf("%s = r%d", ref(i.Dst), i.Src)
		}
		op := atomicName[i.Imm&^AtomicFetch]
		if i.Imm&AtomicFetch != 0 && i.Imm < 0xe0 {
			op = "fetch_" + op
		}
		return fmt.Sprintf("lock %s %s, r%d", op, ref(i.Dst), i.Src)
	case ClassJMP, ClassJMP32:
		switch sign, ok := jumpSign[i.Jump()]; {
		case ok:
			return fmt.Sprintf("if %s %s %s goto %+d", dst, sign, src, i.Off)
		case i.Op == ClassJMP|Ja:
			return fmt.Sprintf("goto %+d", i.Off)
		case i.Op == ClassJMP|MayGoto:
			return fmt.Sprintf("may_goto %+d", i.Off)
		case i.Op == ClassJMP32|Ja:
			return fmt.Sprintf("gotol %+d", i.Imm)
		case i.IsCall(CallLocal):
			return fmt.Sprintf("call %+d", i.Imm)
		case i.IsCall(CallHelper):
			if h := Helpers[i.Imm]; h != nil {
				return "call " + h.Name
			}
			return fmt.Sprintf("call helper %d", i.Imm)
		case i.IsExit():
			return "exit"
		}
	}
	return fmt.Sprintf("op %#x", i.Op)
}
