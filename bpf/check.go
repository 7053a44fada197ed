package bpf

import (
	"fmt"
	"slices"
)

// VerifyError says why a program is refused.
type VerifyError struct {
	Program string // its name
	Slot    int    // of the instruction; -1: the program as a whole
	Insn    string // disassembled
	Line    string // of the source, where it is known
	What    string // what is wrong, and what to do about it
}

func (e *VerifyError) Error() string {
	s := fmt.Sprintf("bpf: program %q: ", e.Program)
	if e.Slot >= 0 {
		s += fmt.Sprintf("instruction %d (%s): ", e.Slot, e.Insn)
	}
	s += e.What
	if e.Line != "" {
		s += fmt.Sprintf(" [%s]", e.Line)
	}
	return s
}

func (p *Program) refuse(slot int, format string, a ...any) error {
	e := &VerifyError{Program: p.Name, Slot: slot, What: fmt.Sprintf(format, a...)}
	if slot >= 0 && slot < len(p.Insns) {
		e.Insn = p.Insns[slot].String()
	}
	for _, l := range p.Lines {
		if l.Insn <= slot {
			e.Line = l.Text
		}
	}
	return e
}

// check looks at every instruction alone, finds the functions, and sees that
// control stays inside them.
func (p *Program) check() ([]Func, error) {
	n := len(p.Insns)
	switch {
	case n == 0:
		return nil, p.refuse(-1, "it has no instructions")
	case n > MaxInsns:
		return nil, p.refuse(-1, "it has %d instructions, more than %d", n, MaxInsns)
	}
	second := make([]bool, n) // the upper half of an ld_imm64
	starts := []int{0}
	for pc, i := range p.Insns {
		if second[pc] {
			if i != (Insn{Imm: i.Imm}) {
				return nil, p.refuse(pc, "the second half of an ld_imm64 holds more than a number")
			}
			continue
		}
		if err := p.checkInsn(pc, i); err != nil {
			return nil, err
		}
		if i.Wide() {
			second[pc+1] = true
		}
		if to, ok := i.Target(pc); ok && i.IsCall(CallLocal) {
			if to < 0 || to >= n {
				return nil, p.refuse(pc, "it calls instruction %d, which is outside of the program", to)
			}
			if !slices.Contains(starts, to) {
				starts = append(starts, to)
			}
		}
	}
	slices.Sort(starts)
	var funcs []Func
	for k, start := range starts {
		end := n
		if k+1 < len(starts) {
			end = starts[k+1]
		}
		funcs = append(funcs, Func{Start: start, End: end})
	}
	for _, f := range funcs {
		last := f.Start
		for pc := f.Start; pc < f.End; pc++ {
			if second[pc] {
				continue
			}
			last = pc
			to, ok := p.Insns[pc].Target(pc)
			switch {
			case ok && (to < 0 || to >= n):
				return nil, p.refuse(pc, "it goes to instruction %d, which is outside of the program", to)
			case ok && second[to]:
				return nil, p.refuse(pc, "it goes into the middle of the ld_imm64 at %d", to-1)
			case ok && !p.Insns[pc].IsCall(CallLocal) && (to < f.Start || to >= f.End):
				return nil, p.refuse(pc, "it jumps to instruction %d, which is in another function", to)
			}
		}
		if i := p.Insns[last]; !i.IsExit() && i.Op != ClassJMP|Ja && i.Op != ClassJMP32|Ja {
			return nil, p.refuse(last, "the function runs over its end: the last instruction must be exit or a jump")
		}
	}
	return funcs, nil
}

// checkInsn holds that an instruction exists and that the fields it does not use are 0.
func (p *Program) checkInsn(pc int, i Insn) error {
	bad := func(format string, a ...any) error { return p.refuse(pc, format, a...) }
	if i.Dst > R10 || i.Src > R10 {
		return bad("there is no register above r10")
	}
	unused := func(wrong bool) error {
		if wrong {
			return bad("a field that the instruction does not use is not 0 (dst %d, src %d, offset %d, imm %d)", i.Dst, i.Src, i.Off, i.Imm)
		}
		return nil
	}
	writes := i.Dst == R10
	switch i.Class() {
	case ClassALU, ClassALU64:
		width := int32(64)
		if i.Class() == ClassALU {
			width = 32
		}
		switch op := i.Alu(); {
		case op == End:
			if i.Imm != 16 && i.Imm != 32 && i.Imm != 64 {
				return bad("byte order of %d bits: 16, 32 and 64 can be swapped", i.Imm)
			}
			if i.Class() == ClassALU64 && i.X() {
				return bad("unknown instruction")
			}
			if err := unused(i.Src != 0 || i.Off != 0); err != nil {
				return err
			}
		case op == Neg:
			if i.X() {
				return bad("unknown instruction")
			}
			if err := unused(i.Src != 0 || i.Off != 0 || i.Imm != 0); err != nil {
				return err
			}
		case op > End:
			return bad("unknown instruction")
		default:
			if err := unused(i.X() && i.Imm != 0 || !i.X() && i.Src != 0); err != nil {
				return err
			}
			ok := i.Off == 0
			if op == Div || op == Mod {
				ok = ok || i.Off == 1
			} else if op == Mov && i.X() {
				ok = ok || i.Off == 8 || i.Off == 16 || i.Off == 32 && width == 64
			}
			switch {
			case !ok:
				return bad("unknown variant %d of the instruction", i.Off)
			case !i.X() && i.Imm == 0 && (op == Div || op == Mod):
				return bad("division by zero")
			case !i.X() && (op == Lsh || op == Rsh || op == Arsh) && (i.Imm < 0 || i.Imm >= width):
				return bad("shift by %d of %d bits", i.Imm, width)
			}
		}
	case ClassLD:
		if !i.Wide() {
			return bad("unknown instruction (loads of packets do not exist here)")
		}
		if pc+1 >= len(p.Insns) {
			return bad("the second half of the ld_imm64 is missing")
		}
		hi := p.Insns[pc+1].Imm
		switch {
		case i.Off != 0:
			return unused(true)
		case i.Src == LoadImm:
		case i.Src == loadFunc:
			return bad("it takes the address of a function: bpf_loop and bpf_for_each_map_elem call one back, nothing else")
		case i.Src != LoadMap && i.Src != LoadMapValue:
			return bad("ld_imm64 of kind %d: numbers, maps and values of maps can be loaded", i.Src)
		case i.Imm < 0 || int(i.Imm) >= len(p.Maps):
			return bad("map %d of %d", i.Imm, len(p.Maps))
		case i.Src == LoadMap && hi != 0:
			return unused(true)
		case i.Src == LoadMapValue && p.Maps[i.Imm].Type != Array:
			return bad("address in the value of map %q, which is a %v: only an array's is known", p.Maps[i.Imm].Name, p.Maps[i.Imm].Type)
		case i.Src == LoadMapValue && uint32(hi) >= p.Maps[i.Imm].ValueSize:
			return bad("offset %d in the value of map %q, which has %d bytes", uint32(hi), p.Maps[i.Imm].Name, p.Maps[i.Imm].ValueSize)
		}
	case ClassLDX:
		if i.Mode() != ModeMem && (i.Mode() != ModeMemSX || i.Size() == 8) {
			return bad("unknown instruction")
		}
		if err := unused(i.Imm != 0); err != nil {
			return err
		}
	case ClassST:
		if i.Mode() != ModeMem {
			return bad("unknown instruction")
		}
		writes = false
		if err := unused(i.Src != 0); err != nil {
			return err
		}
	case ClassSTX:
		writes = false
		switch {
		case i.Mode() == ModeMem:
			if err := unused(i.Imm != 0); err != nil {
				return err
			}
		case i.Mode() != ModeAtomic:
			return bad("unknown instruction")
		case i.Size() < 4:
			return bad("an atomic operation is on 4 or 8 bytes, not %d", i.Size())
		default:
			op := i.Imm &^ AtomicFetch
			if name := atomicName[op]; name == "" || op >= 0xe0 && i.Imm&AtomicFetch == 0 {
				return bad("unknown atomic operation %#x", i.Imm)
			}
			writes = i.Imm&AtomicFetch != 0 && i.Imm != AtomicCmpxchg && i.Src == R10
		}
	default:
		writes = false
		_, conditional := jumpSign[i.Jump()]
		switch op := i.Op; {
		case conditional:
			if err := unused(i.X() && i.Imm != 0 || !i.X() && i.Src != 0); err != nil {
				return err
			}
		case op == ClassJMP|Ja, op == ClassJMP32|Ja:
			long := op == ClassJMP32|Ja
			if err := unused(i.Dst != 0 || i.Src != 0 || long && i.Off != 0 || !long && i.Imm != 0); err != nil {
				return err
			}
		case op == ClassJMP|MayGoto:
			return unused(i.Dst != 0 || i.Src != 0 || i.Imm != 0)
		case op == ClassJMP|Exit:
			return unused(i.Dst != 0 || i.Src != 0 || i.Off != 0 || i.Imm != 0)
		case op == ClassJMP|Call:
			if err := unused(i.Dst != 0 || i.Off != 0); err != nil {
				return err
			}
			switch {
			case i.Src == callKernel:
				return bad("call of a kernel function: there is no kernel here, use helpers")
			case i.Src > CallLocal:
				return bad("unknown kind of call %d", i.Src)
			case i.Src == CallHelper && Helpers[i.Imm] == nil:
				return bad("helper %d (%s) is not supported here", i.Imm, helperName(i.Imm))
			}
		default:
			return bad("unknown instruction")
		}
	}
	if writes {
		return bad("r10 is the frame pointer and cannot be written: copy it to another register first")
	}
	return nil
}
