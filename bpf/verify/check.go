package verify

import (
	"slices"

	"kprobe/bpf"
)

// check looks at every instruction alone, finds the functions, and sees that
// control stays inside them.
func check(p *bpf.Program) ([]bpf.Func, error) {
	n := len(p.Insns)
	switch {
	case n == 0:
		return nil, p.Refuse(-1, "it has no instructions")
	case n > bpf.MaxInsns:
		return nil, p.Refuse(-1, "it has %d instructions, more than %d", n, bpf.MaxInsns)
	}
	second := make([]bool, n) // the upper half of an ld_imm64
	starts := []int{0}
	for pc, i := range p.Insns {
		if second[pc] {
			if i != (bpf.Insn{Imm: i.Imm}) {
				return nil, p.Refuse(pc, "the second half of an ld_imm64 holds more than a number")
			}
			continue
		}
		if err := checkInsn(p, pc, i); err != nil {
			return nil, err
		}
		if i.Wide() {
			second[pc+1] = true
		}
		if to, ok := i.Target(pc); ok && i.IsCall(bpf.CallLocal) {
			if to < 0 || to >= n {
				return nil, p.Refuse(pc, "it calls instruction %d, which is outside of the program", to)
			}
			if !slices.Contains(starts, to) {
				starts = append(starts, to)
			}
		}
	}
	slices.Sort(starts)
	var funcs []bpf.Func
	for k, start := range starts {
		end := n
		if k+1 < len(starts) {
			end = starts[k+1]
		}
		funcs = append(funcs, bpf.Func{Start: start, End: end})
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
				return nil, p.Refuse(pc, "it goes to instruction %d, which is outside of the program", to)
			case ok && second[to]:
				return nil, p.Refuse(pc, "it goes into the middle of the ld_imm64 at %d", to-1)
			case ok && !p.Insns[pc].IsCall(bpf.CallLocal) && (to < f.Start || to >= f.End):
				return nil, p.Refuse(pc, "it jumps to instruction %d, which is in another function", to)
			}
		}
		if i := p.Insns[last]; !i.IsExit() && i.Op != bpf.ClassJMP|bpf.Ja && i.Op != bpf.ClassJMP32|bpf.Ja {
			return nil, p.Refuse(last, "the function runs over its end: the last instruction must be exit or a jump")
		}
	}
	return funcs, nil
}

// checkInsn holds that an instruction exists and that the fields it does not use are 0.
func checkInsn(p *bpf.Program, pc int, i bpf.Insn) error {
	bad := func(format string, a ...any) error { return p.Refuse(pc, format, a...) }
	if i.Dst > bpf.R10 || i.Src > bpf.R10 {
		return bad("there is no register above r10")
	}
	unused := func(wrong bool) error {
		if wrong {
			return bad("a field that the instruction does not use is not 0 (dst %d, src %d, offset %d, imm %d)", i.Dst, i.Src, i.Off, i.Imm)
		}
		return nil
	}
	writes := i.Dst == bpf.R10
	switch i.Class() {
	case bpf.ClassALU, bpf.ClassALU64:
		width := int32(64)
		if i.Class() == bpf.ClassALU {
			width = 32
		}
		switch op := i.Alu(); {
		case op == bpf.End:
			if i.Imm != 16 && i.Imm != 32 && i.Imm != 64 {
				return bad("byte order of %d bits: 16, 32 and 64 can be swapped", i.Imm)
			}
			if i.Class() == bpf.ClassALU64 && i.X() {
				return bad("unknown instruction")
			}
			if err := unused(i.Src != 0 || i.Off != 0); err != nil {
				return err
			}
		case op == bpf.Neg:
			if i.X() {
				return bad("unknown instruction")
			}
			if err := unused(i.Src != 0 || i.Off != 0 || i.Imm != 0); err != nil {
				return err
			}
		case op > bpf.End:
			return bad("unknown instruction")
		default:
			if err := unused(i.X() && i.Imm != 0 || !i.X() && i.Src != 0); err != nil {
				return err
			}
			ok := i.Off == 0
			if op == bpf.Div || op == bpf.Mod {
				ok = ok || i.Off == 1
			} else if op == bpf.Mov && i.X() {
				ok = ok || i.Off == 8 || i.Off == 16 || i.Off == 32 && width == 64
			}
			switch {
			case !ok:
				return bad("unknown variant %d of the instruction", i.Off)
			case !i.X() && i.Imm == 0 && (op == bpf.Div || op == bpf.Mod):
				return bad("division by zero")
			case !i.X() && (op == bpf.Lsh || op == bpf.Rsh || op == bpf.Arsh) && (i.Imm < 0 || i.Imm >= width):
				return bad("shift by %d of %d bits", i.Imm, width)
			}
		}
	case bpf.ClassLD:
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
		case i.Src == bpf.LoadImm:
		case i.Src == bpf.LoadFunc:
			return bad("it takes the address of a function: bpf_loop and bpf_for_each_map_elem call one back, nothing else")
		case i.Src != bpf.LoadMap && i.Src != bpf.LoadMapValue:
			return bad("ld_imm64 of kind %d: numbers, maps and values of maps can be loaded", i.Src)
		case i.Imm < 0 || int(i.Imm) >= len(p.Maps):
			return bad("map %d of %d", i.Imm, len(p.Maps))
		case i.Src == bpf.LoadMap && hi != 0:
			return unused(true)
		case i.Src == bpf.LoadMapValue && p.Maps[i.Imm].Type != bpf.Array:
			return bad("address in the value of map %q, which is a %v: only an array's is known", p.Maps[i.Imm].Name, p.Maps[i.Imm].Type)
		case i.Src == bpf.LoadMapValue && uint32(hi) >= p.Maps[i.Imm].ValueSize:
			return bad("offset %d in the value of map %q, which has %d bytes", uint32(hi), p.Maps[i.Imm].Name, p.Maps[i.Imm].ValueSize)
		}
	case bpf.ClassLDX:
		if i.Mode() != bpf.ModeMem && (i.Mode() != bpf.ModeMemSX || i.Size() == 8) {
			return bad("unknown instruction")
		}
		if err := unused(i.Imm != 0); err != nil {
			return err
		}
	case bpf.ClassST:
		if i.Mode() != bpf.ModeMem {
			return bad("unknown instruction")
		}
		writes = false
		if err := unused(i.Src != 0); err != nil {
			return err
		}
	case bpf.ClassSTX:
		writes = false
		switch {
		case i.Mode() == bpf.ModeMem:
			if err := unused(i.Imm != 0); err != nil {
				return err
			}
		case i.Mode() != bpf.ModeAtomic:
			return bad("unknown instruction")
		case i.Size() < 4:
			return bad("an atomic operation is on 4 or 8 bytes, not %d", i.Size())
		default:
			if !i.Atomic() {
				return bad("unknown atomic operation %#x", i.Imm)
			}
			writes = i.Imm&bpf.AtomicFetch != 0 && i.Imm != bpf.AtomicCmpxchg && i.Src == bpf.R10
		}
	default:
		writes = false
		switch op := i.Op; {
		case i.Conditional():
			if err := unused(i.X() && i.Imm != 0 || !i.X() && i.Src != 0); err != nil {
				return err
			}
		case op == bpf.ClassJMP|bpf.Ja, op == bpf.ClassJMP32|bpf.Ja:
			long := op == bpf.ClassJMP32|bpf.Ja
			if err := unused(i.Dst != 0 || i.Src != 0 || long && i.Off != 0 || !long && i.Imm != 0); err != nil {
				return err
			}
		case op == bpf.ClassJMP|bpf.MayGoto:
			return unused(i.Dst != 0 || i.Src != 0 || i.Imm != 0)
		case op == bpf.ClassJMP|bpf.Exit:
			return unused(i.Dst != 0 || i.Src != 0 || i.Off != 0 || i.Imm != 0)
		case op == bpf.ClassJMP|bpf.Call:
			if err := unused(i.Dst != 0 || i.Off != 0); err != nil {
				return err
			}
			switch {
			case i.Src == bpf.CallKernel:
				return bad("call of a kernel function: there is no kernel here, use helpers")
			case i.Src > bpf.CallLocal:
				return bad("unknown kind of call %d", i.Src)
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
