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
		if err := (&insnCheck{p, pc, i}).run(); err != nil {
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
