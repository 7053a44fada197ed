package bpf

// Some calls are not for the engines: they become instructions that those have. Loops with a
// callback (bpf_loop, bpf_for_each_map_elem) and the kernel's number iterators become loops with
// MayGoto.

// Numbers of helpers that are lowered.
const (
	fnForEachMapElem = 164
	fnLoop           = 181
)

// edit is a program under change.
type edit struct {
	p       *Program
	kfuncs  map[int]string // the kernel's functions that it calls, by slot
	instead map[int][]Insn // of the call at a slot: jumps in it count its own slots
}

// lower replaces what the engines do not have.
func (p *Program) lower(kfuncs map[int]string) error {
	e := &edit{p, kfuncs, map[int][]Insn{}}
	for pc, i := range p.Insns {
		var err error
		switch {
		case i.IsCall(CallHelper) && i.Imm == fnLoop:
			err = e.loop(pc)
		case i.IsCall(CallHelper) && i.Imm == fnForEachMapElem:
			err = e.forEach(pc)
		case i.IsCall(callKernel):
			err = e.iterate(pc)
		}
		if err != nil {
			return err
		}
	}
	return e.apply()
}

// apply puts the new code in, and moves all jumps with it.
func (e *edit) apply() error {
	if len(e.instead) == 0 {
		return nil
	}
	p := e.p
	to := make([]int, len(p.Insns)+1) // where a slot goes
	n := 0
	for pc := range p.Insns {
		to[pc] = n
		if code, ok := e.instead[pc]; ok {
			n += len(code)
		} else {
			n++
		}
	}
	to[len(p.Insns)] = n
	out := make([]Insn, 0, n)
	wide := false
	for pc, i := range p.Insns {
		if code, ok := e.instead[pc]; ok {
			for k, c := range code {
				if c.IsCall(CallLocal) {
					c.Imm = int32(to[c.Imm] - (to[pc] + k) - 1) // it names the old slot
				}
				out = append(out, c)
			}
			continue
		}
		if target, ok := i.Target(pc); ok && !wide && target >= 0 && target <= len(p.Insns) {
			by := to[target] - to[pc] - 1
			switch {
			case i.IsCall(CallLocal) || i.Op == ClassJMP32|Ja:
				i.Imm = int32(by)
			case by != int(int16(by)):
				return p.refuse(pc, "a jump of %d instructions, once loops are put in: too far", by)
			default:
				i.Off = int16(by)
			}
		}
		wide = i.Wide() && !wide
		if wide && i.Src == loadFunc {
			i.Src, i.Imm = LoadImm, 0 // a callback's address; its calls know it
		}
		out = append(out, i)
	}
	for k := range p.Lines {
		p.Lines[k].Insn = to[p.Lines[k].Insn]
	}
	p.Insns = out
	return nil
}

// function is where the function with a slot begins and ends. Callbacks begin functions, too.
func (e *edit) function(slot int) (start, end int) {
	end = len(e.p.Insns)
	for pc, i := range e.p.Insns {
		to, ok := i.Target(pc)
		if ok = ok && i.IsCall(CallLocal); i.Wide() && i.Src == loadFunc {
			to, ok = pc+1+int(i.Imm), true
		}
		if ok && to <= slot {
			start = max(start, to)
		} else if ok {
			end = min(end, to)
		}
	}
	return start, end
}

// frame is how deep the function with a slot uses its stack: what it says by constants.
func (e *edit) frame(slot int) (low int16) {
	start, end := e.function(slot)
	var pointers [11]bool // that are a distance from R10
	pointers[R10] = true
	for pc := start; pc < end; pc++ {
		switch i := e.p.Insns[pc]; i.Class() {
		case ClassLDX:
			if i.Src == R10 {
				low = min(low, i.Off)
			}
			pointers[i.Dst] = false
		case ClassST, ClassSTX:
			if i.Dst == R10 {
				low = min(low, i.Off)
			}
		case ClassALU64:
			if i.Alu() == Mov && i.X() {
				pointers[i.Dst] = pointers[i.Src]
			} else if i.Alu() == Add && !i.X() && pointers[i.Dst] {
				low = min(low, int16(max(i.Imm, -MaxStack-8)))
			}
		}
	}
	return low &^ 7
}

// source finds the ld_imm64 whose value a register has at a slot, on every path: in the straight code
// before, or as the only thing that the function ever puts there.
func (e *edit) source(slot int, reg uint8) (load int, ok bool) {
	start, end := e.function(slot)
	joined := e.targets()
	for pc := slot; pc > start; {
		if joined[pc] {
			return e.only(start, end, reg)
		}
		pc--
		if pc > start && e.p.Insns[pc-1].Wide() && e.p.Insns[pc].Op == 0 {
			pc--
		}
		i := e.p.Insns[pc]
		switch {
		case i.Wide() && i.Dst == reg:
			return pc, true
		case i.Op == ClassALU64|Mov|SrcX && i.Off == 0 && i.Dst == reg:
			reg = i.Src
		case insnDefines(i)>>reg&1 != 0:
			return 0, false
		}
	}
	return 0, false
}

// only is the ld_imm64 of a register that nothing else in the function changes.
func (e *edit) only(start, end int, reg uint8) (load int, ok bool) {
	for pc := start; pc < end; pc++ {
		i := e.p.Insns[pc]
		if insnDefines(i)>>reg&1 != 0 {
			if ok || !i.Wide() {
				return 0, false
			}
			load, ok = pc, true
		}
		if i.Wide() {
			pc++
		}
	}
	return load, ok
}

// targets are the slots that jumps lead to.
func (e *edit) targets() map[int]bool {
	to := map[int]bool{}
	for pc, i := range e.p.Insns {
		if target, ok := i.Target(pc); ok && !i.IsCall(CallLocal) {
			to[target] = true
		}
	}
	return to
}

// insnDefines says which registers an instruction changes, a bit each.
func insnDefines(i Insn) uint16 {
	switch i.Class() {
	case ClassALU, ClassALU64, ClassLD, ClassLDX:
		return 1 << i.Dst
	case ClassJMP:
		if i.Jump() == Call {
			return 1<<6 - 1
		}
	case ClassSTX:
		if i.Mode() == ModeAtomic && i.Imm&AtomicFetch != 0 {
			return 1<<i.Src | 1
		}
	}
	return 0
}

// callback is the slot of the function that a register has the address of.
func (e *edit) callback(slot int, reg uint8, helper string) (int, error) {
	load, ok := e.source(slot, reg)
	if !ok || e.p.Insns[load].Src != loadFunc {
		return 0, e.p.refuse(slot, "%s: which function it calls is not to be seen right before: name it in the call", helper)
	}
	return load + 1 + int(e.p.Insns[load].Imm), nil
}

// room is n bytes of stack below what the function uses.
func (e *edit) room(slot int, n int16, helper string) (low int16, err error) {
	if low = e.frame(slot) - n; low < -MaxStack {
		return 0, e.p.refuse(slot, "%s: it needs %d bytes of stack for itself, and the function uses %d of %d: use smaller buffers, or a map", helper, n, -e.frame(slot), MaxStack)
	}
	return low, nil
}

// Instructions, short.
func movReg(dst, src uint8) Insn { return Insn{Op: ClassALU64 | Mov | SrcX, Dst: dst, Src: src} }
func movTo(dst uint8, v int32) Insn {
	return Insn{Op: ClassALU64 | Mov, Dst: dst, Imm: v}
}
func addTo(dst uint8, v int32) Insn { return Insn{Op: ClassALU64 | Add, Dst: dst, Imm: v} }
func saved(off int16, src uint8) Insn {
	return Insn{Op: ClassSTX | ModeMem | SizeDW, Dst: R10, Off: off, Src: src}
}
func loaded(dst uint8, off int16) Insn {
	return Insn{Op: ClassLDX | ModeMem | SizeDW, Dst: dst, Src: R10, Off: off}
}
func when(cond, reg uint8, imm int32, by int16) Insn {
	return Insn{Op: ClassJMP | cond, Dst: reg, Imm: imm, Off: by}
}
func calling(slot int) Insn { return Insn{Op: ClassJMP | Call, Src: CallLocal, Imm: int32(slot)} }
func helping(id int32) Insn { return Insn{Op: ClassJMP | Call, Imm: id} }
func rounds(by int16) Insn  { return Insn{Op: ClassJMP | MayGoto, Off: by} }

// loop is bpf_loop(n, callback, data, flags).
func (e *edit) loop(pc int) error {
	f, err := e.callback(pc, R2, "bpf_loop")
	if err != nil {
		return err
	}
	low, err := e.room(pc, 24, "bpf_loop")
	if err != nil {
		return err
	}
	n, data, i := low+16, low+8, low
	e.instead[pc] = []Insn{
		{Op: ClassALU | Mov | SrcX, Dst: R1, Src: R1},
		saved(n, R1),
		saved(data, R3),
		movTo(R1, 0),
		saved(i, R1),
		rounds(9),
		loaded(R1, i),
		loaded(R2, n),
		{Op: ClassJMP | Jge | SrcX, Dst: R1, Src: R2, Off: 6},
		loaded(R2, data),
		calling(f),
		loaded(R1, i),
		addTo(R1, 1),
		saved(i, R1),
		when(Jeq, R0, 0, -10),
		loaded(R0, i),
	}
	return nil
}

// forEach is bpf_for_each_map_elem(map, callback, data, flags).
func (e *edit) forEach(pc int) error {
	const name = "bpf_for_each_map_elem"
	f, err := e.callback(pc, R2, name)
	if err != nil {
		return err
	}
	load, ok := e.source(pc, R1)
	if !ok || e.p.Insns[load].Src != LoadMap {
		return e.p.refuse(pc, "%s: which map it walks is not to be seen right before: name it in the call", name)
	}
	m := e.p.Insns[load].Imm
	key := int16(roundUp(uint64(min(e.p.Maps[m].KeySize, MaxStack)), 8))
	low, err := e.room(pc, 24+key, name)
	if err != nil {
		return err
	}
	data, n, pos := low+key+16, low+key+8, low+key
	walked := []Insn{{Op: OpLoadImm64, Dst: R1, Src: LoadMap, Imm: m}, {}}
	code := []Insn{saved(data, R3), movTo(R1, 0), saved(n, R1), saved(pos, R1)}
	for at := low; at < pos; at += 8 {
		code = append(code, saved(at, R1))
	}
	head := len(code)
	code = append(code, rounds(0))
	code = append(code, walked...)
	code = append(code, movReg(R2, R10), addTo(R2, int32(pos)), movReg(R3, R10), addTo(R3, int32(low)), helping(FnMapWalk))
	none := len(code)
	code = append(code, when(Jeq, R0, 0, 0), movReg(R3, R0))
	code = append(code, walked...)
	code = append(code, movReg(R2, R10), addTo(R2, int32(low)), loaded(R4, data), calling(f), loaded(R1, n), addTo(R1, 1), saved(n, R1))
	code = append(code, when(Jeq, R0, 0, int16(head-len(code)-1)))
	code[head].Off, code[none].Off = int16(len(code)-head-1), int16(len(code)-none-1)
	e.instead[pc] = append(code, loaded(R0, n))
	return nil
}

// iterate is a number iterator's function. The iterator has the number that it was at, and its end, 4 bytes
// each.
func (e *edit) iterate(pc int) error {
	at := func(class uint8, reg uint8, off int16) Insn {
		i := Insn{Op: class | ModeMem | SizeW, Dst: reg, Src: R1, Off: off}
		if class == ClassSTX {
			i.Dst, i.Src = R1, reg
		}
		return i
	}
	clear := Insn{Op: ClassST | ModeMem | SizeDW, Dst: R1}
	wide := func(reg uint8) Insn { return Insn{Op: ClassALU64 | Mov | SrcX, Dst: reg, Src: reg, Off: 32} }
	switch name := e.kfuncs[pc]; name {
	case "bpf_iter_num_new":
		e.instead[pc] = []Insn{
			wide(R2), wide(R3),
			movTo(R0, -EINVAL),
			{Op: ClassJMP | Jsgt | SrcX, Dst: R2, Src: R3, Off: 8},
			movReg(R4, R3),
			{Op: ClassALU64 | Sub | SrcX, Dst: R4, Src: R2},
			movTo(R0, -E2BIG),
			when(Jgt, R4, MaxRounds, 4),
			movTo(R0, 0),
			addTo(R2, -1),
			at(ClassSTX, R2, 0),
			at(ClassSTX, R3, 4),
			when(Jeq, R0, 0, 1),
			clear,
		}
	case "bpf_iter_num_next":
		e.instead[pc] = []Insn{
			rounds(7),
			at(ClassLDX, R2, 0), wide(R2),
			addTo(R2, 1),
			at(ClassLDX, R3, 4), wide(R3),
			movReg(R0, R1),
			{Op: ClassJMP | Jslt | SrcX, Dst: R2, Src: R3, Off: 3},
			clear,
			movTo(R0, 0),
			{Op: ClassJMP | Ja, Off: 1},
			at(ClassSTX, R2, 0),
		}
	case "bpf_iter_num_destroy":
		e.instead[pc] = []Insn{clear}
	case "":
		return e.p.refuse(pc, "call of a function of the kernel: there is no kernel here, use helpers")
	default:
		return e.p.refuse(pc, "call of the kernel's function %s: there is no kernel here; of those, bpf_iter_num_new, _next and _destroy are (bpf_for, bpf_repeat)", name)
	}
	return nil
}
