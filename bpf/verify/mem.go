package verify

import (
	"encoding/binary"
	"math"

	"kprobe/bpf"
)

// reach looks at an access of size bytes at reg+off, of an instruction or a helper,
// and says from where to where it may go. The stack's bytes are looked at by the caller.
func (v *verifier) reach(pc int, reg uint8, x *value, off, size int64, write bool) (lo, hi int64, err error) {
	refuse := func(format string, a ...any) (int64, int64, error) {
		return 0, 0, v.p.Refuse(pc, format, a...)
	}
	switch {
	case x.kind == isNothing:
		return refuse("r%d is read, but on this path nothing was put there", reg)
	case x.kind == isNumber && x.num.isConst() && x.num.t.Value == 0:
		return refuse("r%d is NULL on this path", reg)
	case x.kind == isNumber:
		return refuse("r%d is %s, not a pointer into memory of the program: read the target's memory with bpf_probe_read_user", reg, v.describe(x))
	case x.null:
		return refuse("r%d is %s: compare it with 0 before", reg, v.describe(x))
	case x.kind == isMap:
		return refuse("r%d is %s itself: look a value up with bpf_map_lookup_elem", reg, v.describe(x))
	}
	lo, hi = x.num.smin+off, x.num.smax+off+size
	beyond := func(what string, size int64) (int64, int64, error) {
		if x.num.isConst() {
			return refuse("r%d is beyond %s: bytes %d to %d of %d", reg, what, lo, hi-1, size)
		}
		return refuse("r%d may be beyond %s: bytes %d to %d of %d: test the index before", reg, what, lo, hi-1, size)
	}
	switch x.kind {
	case isCtx:
		n := int64(v.p.PtRegs().Size())
		switch {
		case write:
			return refuse("the context is read-only: a return value is set with bpf_override_return")
		case lo < 0 || hi > n:
			return beyond("the context (struct pt_regs)", n)
		}
		v.useContext(lo, hi)
	case isStack:
		if lo < -bpf.MaxStack || hi > 0 {
			if x.num.isConst() {
				return refuse("r%d is beyond the stack: bytes %d to %d from r10, of -%d to -1", reg, lo, hi-1, bpf.MaxStack)
			}
			return refuse("r%d may be beyond the stack: bytes %d to %d from r10, of -%d to -1: test the index before", reg, lo, hi-1, bpf.MaxStack)
		}
	case isValue:
		m := v.p.Maps[x.index]
		switch {
		case lo < 0 || hi > int64(m.ValueSize):
			return beyond("the value of map \""+m.Name+"\"", int64(m.ValueSize))
		case write && m.Flags&bpf.FlagReadOnly != 0:
			return refuse("map %q is read-only for programs", m.Name)
		case !write && m.Flags&bpf.FlagWriteOnly != 0:
			return refuse("map %q is write-only for programs", m.Name)
		}
	case isRecord:
		if lo < 0 || hi > x.size {
			return beyond("the ring record", x.size)
		}
	case isData:
		if lo < 0 || hi > x.size {
			return beyond("the call's private data", x.size)
		}
	}
	return lo, hi, nil
}

// access is reach for an instruction: it also holds that the stack and the context are used
// aligned, and notes the memory that is touched.
func (v *verifier) access(s *state, pc int, reg uint8, i bpf.Insn, write bool) (x *value, lo, hi int64, err error) {
	x = &s.top().regs[reg]
	lo, hi, err = v.reach(pc, reg, x, int64(i.Off), int64(i.Size()), write)
	if err != nil {
		return
	}
	mask := uint64(i.Size() - 1)
	aligned := (x.num.t.Value+uint64(int64(i.Off)))&mask == 0 && x.num.t.Mask&mask == 0
	strict := x.kind == isStack || x.kind == isCtx || i.Class() == bpf.ClassSTX && i.Mode() == bpf.ModeAtomic
	switch {
	case strict && !aligned:
		err = v.p.Refuse(pc, "%d bytes of %s at an offset that is no multiple of %d", i.Size(), v.describe(x), i.Size())
	case x.kind == isCtx && i.Size() > v.p.PtRegs().Word:
		err = v.p.Refuse(pc, "%d bytes of the context, whose words have %d", i.Size(), v.p.PtRegs().Word)
	}
	switch x.kind {
	case isStack:
		v.touch(s.frames[x.index], lo)
	case isValue:
		if one := &v.proof.Value[pc]; v.proof.Access[pc] == 0 {
			*one = x.index + 1
		} else if *one != x.index+1 {
			*one = 0
		}
	}
	v.proof.Access[pc] |= [...]bpf.Mem{isCtx: bpf.MemCtx, isStack: bpf.MemStack, isValue: bpf.MemMap, isRecord: bpf.MemRecord, isData: bpf.MemData}[x.kind]
	return
}

// touch notes how deep a function's stack is used.
func (v *verifier) touch(f *callFrame, lo int64) {
	fn := &v.proof.Funcs[f.fn]
	fn.Stack = max(fn.Stack, int(-lo))
}

// at is the stack word and byte of an offset from R10.
func at(f *callFrame, off int64) (*stack8, int) {
	n := off + bpf.MaxStack
	return &f.stack[bpf.MaxStack/8-1-n/8], int(n % 8)
}

// load follows a load and returns the value.
func (v *verifier) load(s *state, pc int, i bpf.Insn) (got value, err error) {
	x, lo, hi, err := v.access(s, pc, i.Src, i, false)
	if err != nil {
		return got, err
	}
	n := 8 * i.Size()
	got = number(unsigned(0, math.MaxUint64>>(64-n)))
	switch x.kind {
	case isStack:
		f := s.frames[x.index]
		if w := stackWord(i.Src, i); w >= 0 && f.stack[w].spill != nil && f.stack[w].bytes == [8]uint8{byteSpill, byteSpill, byteSpill, byteSpill, byteSpill, byteSpill, byteSpill, byteSpill} {
			return *f.stack[w].spill, nil
		}
		if err := v.readable(f, pc, i.Src, lo, hi, false); err != nil {
			return got, err
		}
	case isValue:
		// The content of read-only memory is known.
		m := v.p.Maps[x.index]
		if m.Flags&bpf.FlagReadOnly != 0 && m.Type == bpf.Array && m.MaxEntries == 1 && hi-lo == int64(i.Size()) &&
			len(m.Contents) == 1 && hi <= int64(len(m.Contents[0].Value)) {
			var b [8]byte
			copy(b[:], m.Contents[0].Value[lo:hi])
			got = number(constant(binary.LittleEndian.Uint64(b[:])))
		}
	}
	if i.Mode() == bpf.ModeMemSX {
		got.num = got.num.sign(n)
	}
	return got, nil
}

// readable holds that stack bytes were written, and with numbers, or with words of any kind.
func (v *verifier) readable(f *callFrame, pc int, reg uint8, lo, hi int64, words bool) error {
	for off := lo; off < hi; off++ {
		w, k := at(f, off)
		switch b := w.bytes[k]; {
		case b == byteNothing:
			return v.p.Refuse(pc, "r%d: the stack at r10%+d was never written on this path (it is read from r10%+d to r10%+d): set the whole variable, its padding too", reg, off, lo, hi-1)
		case words:
		case b == bytePointer || b == byteSpill && w.spill.pointer():
			return v.p.Refuse(pc, "r%d: the stack at r10%+d holds a pointer: it can only be loaded back as a whole, by r10", reg, off)
		}
	}
	return nil
}

// store follows a store of a value.
func (v *verifier) store(s *state, pc int, i bpf.Insn, what value) error {
	x, lo, hi, err := v.access(s, pc, i.Dst, i, true)
	if err != nil {
		return err
	}
	switch {
	case what.pointer() && x.kind != isStack:
		return v.p.Refuse(pc, "it stores %s in %s: pointers stay in registers and on the stack", v.describe(&what), v.describe(x))
	case what.pointer() && (i.Size() != 8 || !x.num.isConst()):
		return v.p.Refuse(pc, "it stores a part of a pointer, or a pointer at an unknown place")
	case x.kind != isStack:
		return nil
	}
	f := s.frames[x.index]
	if w := stackWord(i.Dst, i); w >= 0 && v.flow.fills[pc]>>w&1 != 0 {
		if what.kind == isNumber && !what.num.isConst() && what.id == 0 && i.Class() == bpf.ClassSTX {
			what.id = v.newID()
			s.top().regs[i.Src].id = what.id
		}
		f.stack[w] = stack8{spill: &what}
		for k := range f.stack[w].bytes {
			f.stack[w].bytes[k] = byteSpill
		}
		return nil
	}
	now := uint8(byteData)
	if what.pointer() {
		now = bytePointer
	}
	v.fill(f, lo, hi, now, x.num.isConst())
	return nil
}

// fill makes stack bytes data. Where it is not certain that these are the bytes, a byte that was
// never written stays so, and a pointer too.
func (v *verifier) fill(f *callFrame, lo, hi int64, now uint8, certain bool) {
	for off := lo; off < hi; off++ {
		w, k := at(f, off)
		w.soil()
		if certain {
			w.bytes[k] = now
		}
	}
}

// atomic follows an atomic operation.
func (v *verifier) atomic(s *state, pc int, i bpf.Insn, need func(...uint8) error) error {
	f := s.top()
	if i.Imm == bpf.AtomicCmpxchg {
		if err := need(bpf.R0); err != nil {
			return err
		}
	}
	src := &f.regs[i.Src]
	if src.pointer() || i.Imm == bpf.AtomicCmpxchg && f.regs[bpf.R0].pointer() {
		return v.p.Refuse(pc, "it stores %s: atomic operations are on numbers", v.describe(src))
	}
	x, lo, hi, err := v.access(s, pc, i.Dst, i, false)
	if err == nil {
		_, _, err = v.reach(pc, i.Dst, x, int64(i.Off), int64(i.Size()), true)
	}
	if err != nil {
		return err
	}
	if x.kind == isStack {
		g := s.frames[x.index]
		if err := v.readable(g, pc, i.Dst, lo, hi, false); err != nil {
			return err
		}
		v.fill(g, lo, hi, byteData, x.num.isConst())
	}
	old := number(unsigned(0, math.MaxUint64>>(64-8*i.Size())))
	if i.Imm == bpf.AtomicCmpxchg {
		f.regs[bpf.R0] = old
	} else if i.Imm&bpf.AtomicFetch != 0 {
		*src = old
	}
	return nil
}

// escape notes the words of the context that a helper may read by an address in it, n bytes:
// a word that is not noted is not stored, and would be another hit's. Where the address
// may lie outside, all words are, and the call has to be bounded.
func (v *verifier) escape(x, n *value) (bounded bool) {
	all := int64(v.p.PtRegs().Size())
	lo, hi := x.num.smin, x.num.smax+n.num.smax
	if lo < 0 || hi > all {
		lo, hi, bounded = 0, all, true
	}
	v.useContext(lo, hi)
	return bounded
}

// useContext notes that bytes of the context may be read.
func (v *verifier) useContext(lo, hi int64) {
	for w := int64(v.p.PtRegs().Word); lo < hi; lo = (lo/w + 1) * w {
		v.proof.Context |= 1 << (lo / w)
	}
}

// memory looks at memory that a helper reads, or fills, up to size bytes of it.
// words says that pointers may be in it.
func (v *verifier) memory(s *state, pc int, r uint8, size int64, certain, fills, words bool) error {
	x := &s.top().regs[r]
	lo, hi, err := v.reach(pc, r, x, 0, size, fills)
	if err != nil || x.kind != isStack {
		return err
	}
	f := s.frames[x.index]
	v.touch(f, lo)
	certain = certain && x.num.isConst()
	if !fills || !certain {
		if err := v.readable(f, pc, r, lo, hi, words); err != nil {
			return err
		}
	}
	if words {
		v.useContext(0, int64(v.p.PtRegs().Size())) // its address may be among them
	}
	if fills {
		v.fill(f, lo, hi, byteData, certain)
	}
	return nil
}
