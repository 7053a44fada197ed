package bpf

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
)

// Some calls are not for the engines: they become instructions that those have. Loops with a
// callback (bpf_loop, bpf_for_each_map_elem) and the kernel's number iterators become loops with
// MayGoto; a tail call becomes a choice of calls; other helpers become calls of functions that are
// made for the program (see made.go) and stand at its end.

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

	// Functions behind the last instruction, and where each that was made is.
	behind []Insn
	made   map[string]int
}

// origin is a program as it came, which may be lowered again.
type origin struct {
	insns   []Insn
	lines   []Line
	kfuncs  map[int]string
	session bool
}

// lower replaces instructions that the engines do not have. others finds the programs that tail
// calls lead to.
func (p *Program) lower(others func(name string) *Program) error {
	kfuncs := maps.Clone(p.origin.kfuncs)
	p.Insns, p.Lines, p.Made, p.frames = slices.Clone(p.origin.insns), slices.Clone(p.origin.lines), 0, false
	starts, err := p.link(others, kfuncs)
	if err != nil {
		return err
	}
	e := &edit{p: p, kfuncs: kfuncs, instead: map[int][]Insn{}, made: map[string]int{}}
	for pc, i := range p.Insns {
		var err error
		switch {
		case i.IsCall(CallHelper):
			err = e.helper(pc, i.Imm, starts)
		case i.IsCall(CallKernel):
			err = e.kernel(pc)
		}
		if err != nil {
			return err
		}
	}
	return e.apply()
}

// helper looks at a call of a helper.
func (e *edit) helper(pc int, id int32, starts map[string]int) error {
	switch id {
	case fnLoop:
		return e.loop(pc)
	case fnForEachMapElem:
		return e.forEach(pc)
	case fnTailCall:
		return e.tailCall(pc, starts)
	case FnProbeRead, FnProbeReadKernel:
		e.copyOfStack(pc)
	case fnCopyFromUser:
		e.instead[pc] = []Insn{helping(FnProbeReadUser)}
	case fnGetCurrentTask, fnGetCurrentTaskBtf: // no structure of a kernel: a number that is not 0
		e.instead[pc] = []Insn{helping(FnGetCurrentPidTgid)}
	case fnGetNsPidTgid:
		return e.call(pc, "ns", func() []Insn { return nsPidTgid() }, movReg(R1, R3), movReg(R2, R4))
	case fnGetStack:
		c := e.p.PtRegs()
		if c.Word != 8 {
			return e.p.Refuse(pc, "get_stack: of 64-bit programs only")
		}
		e.p.frames = true
		return e.call(pc, "stack", func() []Insn { return getStack(c, e.p.Kind) })
	case FnGetStackid:
		if e.p.Kind == Kprobe {
			return e.call(pc, "stackid", func() []Insn { return getStackid(e.p.PtRegs()) })
		}
	case fnStrncmp:
		text, _, err := e.text(pc, R3, "bpf_strncmp: the text that it compares with")
		if err != nil {
			return err
		}
		return e.call(pc, "strncmp "+text, func() []Insn { return strncmp(text) })
	case fnStrtol, fnStrtoul:
		return e.call(pc, HelperName(id), func() []Insn { return strtol(id == fnStrtol) })
	case fnSendSignal, fnSendSignalThread:
		return e.sendSignal(pc, id)
	case fnJiffies:
		e.instead[pc] = []Insn{helping(FnKtimeGetNs), aluTo(Div, R0, jiffy)}
	case fnSnprintf:
		return e.snprintf(pc)
	case FnMapLookupElem, FnMapUpdateElem, FnMapDeleteElem, fnMapPushElem, fnMapPopElem, fnMapPeekElem, fnTaskStorageGet, fnTaskStorageDelete:
		return e.onMap(pc, id)
	}
	return nil
}

// copyOfStack puts loads and stores in place of a call that reads the function's own stack, as if
// that were memory of the target, where they can do the same: the stack has no address that a
// number could be.
func (e *edit) copyOfStack(pc int) {
	from, ok := e.frameAt(pc, R3)
	size, known := e.constant(pc, R2)
	if !ok || !known || size <= 0 || size > MaxStack || int(from)+int(size) > 0 {
		return
	}
	to, ok := e.frameAt(pc, R1)
	one := int32(1)
	for ok && one < 8 && (int32(from)|int32(to)|size)&(2*one-1) == 0 {
		one *= 2
	}
	width := map[int32]uint8{1: SizeB, 2: SizeH, 4: SizeW, 8: SizeDW}[one]
	var code []Insn
	for at := int32(0); at < size; at += one {
		code = append(code, loadOf(width, R0, R10, from+int16(at)), Insn{Op: ClassSTX | ModeMem | width, Dst: R1, Src: R0, Off: int16(at)})
	}
	e.instead[pc] = append(code, movTo(R0, 0))
}

// onMap looks at a call that works on a map: of the kinds that are stored as another, functions are
// made.
func (e *edit) onMap(pc int, id int32) error {
	plain := id == FnMapLookupElem || id == FnMapUpdateElem || id == FnMapDeleteElem
	load, ok := e.source(pc, R1)
	if ok = ok && e.p.Insns[load].Src == LoadMap; !ok {
		if plain && (!slices.ContainsFunc(e.p.Maps, func(m *MapSpec) bool { return m.is(LPMTrie) }) || e.inner(pc)) {
			return nil
		}
		return e.p.Refuse(pc, "%s: which map it works on is not to be seen right before: name it in the call", HelperName(id))
	}
	m := int(e.p.Insns[load].Imm)
	spec := e.p.Maps[m]
	d := spec.Declared
	name := HelperName(id) + " " + spec.Name
	second, third := movReg(R1, R2), movReg(R2, R3) // the part behind the map comes first
	switch {
	case id == FnMapLookupElem && spec.OfMaps():
		for _, inner := range d.Inner {
			if e.mapNamed(inner) < 0 {
				return e.p.Refuse(pc, "map %q has a map %q, which the object does not define", spec.Name, inner)
			}
		}
		return e.call(pc, name, func() []Insn { return innerMap(m, d, e.mapNamed) }, second)
	case plain && !spec.is(LPMTrie):
		return nil
	case id == FnMapUpdateElem:
		return e.call(pc, name, func() []Insn { return trieElem(m, d, id) }, second, third, movReg(R3, R4))
	case plain:
		return e.call(pc, name, func() []Insn { return trieElem(m, d, id) }, second)
	case id == fnMapPushElem && spec.is(Queue, Stack):
		return e.call(pc, name, func() []Insn { return pushElem(m, d) }, second, third)
	case id == fnMapPushElem && spec.is(BloomFilter):
		return e.call(pc, name, func() []Insn { return bloomElem(m, d, true) }, second, third)
	case id == fnMapPeekElem && spec.is(BloomFilter):
		return e.call(pc, name, func() []Insn { return bloomElem(m, d, false) }, second)
	case (id == fnMapPopElem || id == fnMapPeekElem) && spec.is(Queue, Stack):
		return e.call(pc, name, func() []Insn { return popElem(m, d, id == fnMapPopElem) }, second)
	case id == fnTaskStorageGet && spec.is(taskStorage):
		return e.call(pc, name, func() []Insn { return taskStorageGet(m, d) }, movReg(R1, R3), movReg(R2, R4))
	case id == fnTaskStorageDelete && spec.is(taskStorage):
		return e.call(pc, name, func() []Insn { return taskStorageDelete(m) })
	}
	return e.p.Refuse(pc, "%s %s", HelperName(id), spec.Unfit())
}

// FollowsFrames tells whether the program itself reads stacks as chains of frame pointers: it calls
// get_stack. Code that keeps no frame pointers, such as most kernels, is read wrong.
func (p *Program) FollowsFrames() bool { return p.frames }

// mapNamed is the index of a map, -1 where there is none of that name.
func (e *edit) mapNamed(name string) int {
	return slices.IndexFunc(e.p.Maps, func(m *MapSpec) bool { return m.Name == name })
}

// call puts a call of a function that is made in place of the helper's, behind what moves the
// arguments.
func (e *edit) call(pc int, name string, code func() []Insn, moves ...Insn) error {
	e.instead[pc] = append(slices.Clone(moves), calling(e.make(name, code)))
	return nil
}

// make puts a function behind the program, once, and answers its slot, by which calls name it. It
// may call others that were made before it.
func (e *edit) make(name string, code func() []Insn) (at int) {
	if at, ok := e.made[name]; ok {
		return at
	}
	insns := code()
	at = len(e.p.Insns) + len(e.behind)
	for k := range insns {
		if i := &insns[k]; i.IsCall(CallLocal) {
			i.Imm -= int32(at + k + 1)
		}
	}
	e.made[name] = at
	e.behind = append(e.behind, insns...)
	return at
}

// text is the constant text that a register has the address of, and the ld_imm64 that puts it
// there.
func (e *edit) text(pc int, reg uint8, what string) (text string, load int, err error) {
	if load, ok := e.source(pc, reg); ok && e.p.Insns[load].Src == LoadMapValue {
		m := e.p.Maps[e.p.Insns[load].Imm]
		if m.Flags&FlagReadOnly != 0 && len(m.Contents) == 1 {
			value, off := m.Contents[0].Value, int(e.p.Insns[load+1].Imm)
			if off >= 0 && off < len(value) {
				if end := bytes.IndexByte(value[off:], 0); end >= 0 && end < 256 {
					return string(value[off : off+end]), load, nil
				}
			}
		}
	}
	return "", 0, e.p.Refuse(pc, "%s is not to be seen right before: a constant of up to 255 bytes", what)
}

// apply puts the new code in, and moves all jumps with it.
func (e *edit) apply() error {
	if len(e.instead) == 0 {
		return nil
	}
	p := e.p
	to := make([]int, len(p.Insns)+len(e.behind)+1) // where a slot goes
	n := 0
	for pc := range p.Insns {
		to[pc] = n
		if code, ok := e.instead[pc]; ok {
			n += len(code)
		} else {
			n++
		}
	}
	for k := range len(e.behind) + 1 {
		to[len(p.Insns)+k] = n + k
	}
	out := make([]Insn, 0, n+len(e.behind))
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
				return p.Refuse(pc, "a jump of %d instructions, once loops are put in: too far", by)
			default:
				i.Off = int16(by)
			}
		}
		wide = i.Wide() && !wide
		if wide && i.Src == LoadFunc {
			i.Src, i.Imm = LoadImm, 0 // a callback's address; its calls know it
		}
		out = append(out, i)
	}
	for k := range p.Lines {
		p.Lines[k].Insn = to[p.Lines[k].Insn]
	}
	p.Insns, p.Made = append(out, e.behind...), len(out)
	return nil
}

// link puts the programs that tail calls lead to behind a program, and answers where each begins.
func (p *Program) link(others func(name string) *Program, kfuncs map[int]string) (starts map[string]int, err error) {
	starts = map[string]int{p.Name: 0}
	var follow func(from *Program, path []string) error
	follow = func(from *Program, path []string) error {
		for pc, i := range from.origin.insns {
			if !i.IsCall(CallHelper) || i.Imm != fnTailCall {
				continue
			}
			e := &edit{p: &Program{Name: from.Name, Insns: from.origin.insns, Lines: from.origin.lines, Maps: from.Maps}}
			load, ok := e.source(pc, R2)
			if !ok || e.p.Insns[load].Src != LoadMap || !from.Maps[e.p.Insns[load].Imm].is(progArray) {
				return e.p.Refuse(pc, "bpf_tail_call: which program array it uses is not to be seen right before: name it in the call")
			}
			for _, index := range slices.Sorted(maps.Keys(from.Maps[e.p.Insns[load].Imm].Declared.Entries)) {
				name := from.Maps[e.p.Insns[load].Imm].Declared.Entries[index]
				var next *Program
				if others != nil {
					next = others(name)
				}
				switch {
				case next == nil:
					return e.p.Refuse(pc, "bpf_tail_call: there is no program %q (of a kind that there is)", name)
				case next.Kind != p.Kind:
					return e.p.Refuse(pc, "bpf_tail_call: %s is a %v, and this is a %v", name, next.Kind, p.Kind)
				case slices.Contains(path, name):
					return e.p.Refuse(pc, "bpf_tail_call: %s leads back to itself: make the round a loop (bpf_loop)", name)
				}
				next.Called = true
				if _, ok := starts[name]; !ok {
					at := len(p.Insns)
					starts[name] = at
					p.Insns = append(p.Insns, next.origin.insns...)
					for _, l := range next.origin.lines {
						p.Lines = append(p.Lines, Line{l.Insn + at, l.Text})
					}
					for slot, f := range next.origin.kfuncs {
						kfuncs[slot+at] = f
					}
				}
				if err := follow(next, append(path, name)); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return starts, follow(p, []string{p.Name})
}

// tailCall is bpf_tail_call(ctx, array, index): a call of the program that the array has there,
// which ends this one; and goes on where it has none.
func (e *edit) tailCall(pc int, starts map[string]int) error {
	load, _ := e.source(pc, R2) // link has seen it
	w := &coder{}
	w.put(Insn{Op: ClassALU | Mov | SrcX, Dst: R3, Src: R3})
	programs := e.p.Maps[e.p.Insns[load].Imm].Declared.Entries
	for _, index := range slices.Sorted(maps.Keys(programs)) {
		w.when(Jeq, R3, int32(index), programs[index])
	}
	w.put(movTo(R0, -ENOENT))
	w.goTo("on")
	for _, index := range slices.Sorted(maps.Keys(programs)) {
		w.label(programs[index])
		w.put(calling(starts[programs[index]]), Insn{Op: ClassJMP | Exit})
	}
	w.label("on")
	e.instead[pc] = w.code()
	return nil
}

// function is the range of slots of the function that a slot is in. Callbacks begin functions, too.
func (e *edit) function(slot int) (start, end int) {
	end = len(e.p.Insns)
	for pc, i := range e.p.Insns {
		to, ok := i.Target(pc)
		if ok = ok && i.IsCall(CallLocal); i.Wide() && i.Src == LoadFunc {
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

// frame is the depth to which the function with a slot uses its stack, as far as constants show it.
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

// source finds the ld_imm64 whose value a register has at a slot, on every path.
func (e *edit) source(slot int, reg uint8) (load int, ok bool) {
	load, ok = e.maker(slot, reg)
	return load, ok && e.p.Insns[load].Wide()
}

// maker finds the instruction that made a register's value at a slot, on every path: in the
// straight code before, or as the only instruction that ever sets it in the function.
func (e *edit) maker(slot int, reg uint8) (pc int, ok bool) {
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
		case i.Op == ClassALU64|Mov|SrcX && i.Off == 0 && i.Dst == reg && i.Src != R10:
			reg = i.Src
		case insnDefines(i)>>reg&1 != 0:
			return pc, true
		}
	}
	return 0, false
}

// only is the instruction that puts something into a register, if there is but one in the function.
func (e *edit) only(start, end int, reg uint8) (maker int, ok bool) {
	for pc := start; pc < end; pc++ {
		i := e.p.Insns[pc]
		if insnDefines(i)>>reg&1 != 0 {
			if ok {
				return 0, false
			}
			maker, ok = pc, true
		}
		if i.Wide() {
			pc++
		}
	}
	return maker, ok
}

// frameAt is the distance from R10 of the stack that a register has the address of, if it is made
// right before.
func (e *edit) frameAt(slot int, reg uint8) (off int16, ok bool) {
	at, ok := e.maker(slot, reg)
	if !ok || e.p.Insns[at].Op != ClassALU64|Add {
		return 0, false
	}
	base, ok := e.maker(at, e.p.Insns[at].Dst)
	i := e.p.Insns[base]
	return int16(e.p.Insns[at].Imm), ok && i.Op == ClassALU64|Mov|SrcX && i.Src == R10
}

// constant is the number that a register has at a slot, if it is put there right before.
func (e *edit) constant(slot int, reg uint8) (n int32, ok bool) {
	at, ok := e.maker(slot, reg)
	if !ok || e.p.Insns[at].Op&^(ClassALU^ClassALU64) != ClassALU|Mov {
		return 0, false
	}
	return e.p.Insns[at].Imm, true
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
	if !ok || e.p.Insns[load].Src != LoadFunc {
		return 0, e.p.Refuse(slot, "%s: which function it calls is not to be seen right before: name it in the call", helper)
	}
	return load + 1 + int(e.p.Insns[load].Imm), nil
}

// room is n bytes of stack below what the function uses.
func (e *edit) room(slot int, n int16, helper string) (low int16, err error) {
	if low = e.frame(slot) - n; low < -MaxStack {
		return 0, e.p.Refuse(slot, "%s: it needs %d bytes of stack for itself, and the function uses %d of %d: use smaller buffers, or a map", helper, n, -e.frame(slot), MaxStack)
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
		return e.p.Refuse(pc, "%s: which map it walks is not to be seen right before: name it in the call", name)
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

// iterate is a number iterator's function. The iterator has the number that it was at, and its end,
// 4 bytes each.
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
		return e.p.Refuse(pc, "call of a function of the kernel: there is no kernel here, use helpers")
	default: // a program may ask whether there is one, and never come to the call
		e.instead[pc] = []Insn{helping(e.p.known.Lack(fmt.Sprintf("call of the kernel's function %s: there is no kernel here; of those, bpf_iter_num_new, _next and _destroy are (bpf_for, bpf_repeat), and bpf_copy_from_user_str", name)))}
	}
	return nil
}
