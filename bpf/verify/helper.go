package verify

import (
	"math"

	"kprobe/bpf"
)

// takes are the map types that a helper works on.
var takes = map[int32][]bpf.MapType{
	bpf.FnMapNext:         {bpf.Hash, bpf.PerCPUHash, bpf.LRUHash, bpf.LRUPerCPUHash},
	bpf.FnMapLookupElem:   {bpf.Array, bpf.PerCPUArray, bpf.Hash, bpf.PerCPUHash, bpf.LRUHash, bpf.LRUPerCPUHash},
	bpf.FnMapUpdateElem:   {bpf.Array, bpf.PerCPUArray, bpf.Hash, bpf.PerCPUHash, bpf.LRUHash, bpf.LRUPerCPUHash},
	bpf.FnMapDeleteElem:   {bpf.Array, bpf.PerCPUArray, bpf.Hash, bpf.PerCPUHash, bpf.LRUHash, bpf.LRUPerCPUHash},
	bpf.FnMapWalk:         {bpf.Array, bpf.PerCPUArray, bpf.Hash, bpf.PerCPUHash, bpf.LRUHash, bpf.LRUPerCPUHash},
	bpf.FnPerfEventOutput: {bpf.PerfEventArray},
	bpf.FnRingbufOutput:   {bpf.RingBuf},
	bpf.FnRingbufReserve:  {bpf.RingBuf},
	bpf.FnGetStackid:      {bpf.StackTrace},
}

// A helperCall is a call of a helper that the verifier follows: its arguments one by one, then its result.
type helperCall struct {
	*bpf.HelperCall
	v  *verifier
	s  *state
	f  *callFrame
	pc int

	inContext bool   // it reads at an address in the context
	freed     uint32 // the record that it ends
	size      int64  // of the memory that it is given
}

// helper follows a call of a helper.
func (v *verifier) helper(s *state, pc int, id int32) error {
	h := bpf.Helpers[id]
	if h == nil || id == bpf.FnProbeWriteUser && !v.p.Writes { // on no path is as good as not there: objects ask for filters that are off
		return v.p.RefuseHelper(pc, id)
	}
	c := &helperCall{HelperCall: &bpf.HelperCall{Helper: h, Map: -1}, v: v, s: s, f: s.top(), pc: pc}
	for k, a := range h.Args {
		x := &c.f.regs[register(k)]
		if x.kind == isNothing {
			if a == bpf.ArgMaybe {
				break // so are all that follow
			}
			return c.bad(k, "set")
		}
		c.Set++
		if a.Decides() && x.kind == isNumber && x.num.isConst() {
			c.Const[k], c.Known[k] = x.num.t.Value, true
		}
		if argument := arguments[a]; argument != nil {
			if err := argument(c, k, x); err != nil {
				return err
			}
		}
	}
	if err := c.belongs(); err != nil {
		return err
	}
	if err := v.note(pc, c.HelperCall, c.inContext); err != nil {
		return err
	}
	if c.freed != 0 {
		s.release(c.freed)
	}
	c.result()
	return nil
}

// register has an argument: 0 is the first.
func register(k int) uint8 { return bpf.R1 + uint8(k) }

// bad refuses an argument: 0 is the first.
func (c *helperCall) bad(k int, want string) error {
	r := register(k)
	return c.v.p.Refuse(c.pc, "argument %d of %s (r%d) is %s: it must be %s", k+1, c.Helper.Name, r, c.v.describe(&c.f.regs[r]), want)
}

// memory is an argument that points to size bytes; see verifier.memory.
func (c *helperCall) memory(k int, size int64, certain, fills, words bool) error {
	return c.v.memory(c.s, c.pc, register(k), size, certain, fills, words)
}

// spec is the map that an argument before was.
func (c *helperCall) spec() *bpf.MapSpec { return c.v.p.Maps[c.Map] }

// arguments look at an argument of each kind: 0 is the first. A size is looked at with its memory.
var arguments = map[bpf.Arg]func(c *helperCall, k int, x *value) error{
	bpf.ArgAny:    (*helperCall).number,
	bpf.ArgMaybe:  (*helperCall).maybe,
	bpf.ArgAddr:   (*helperCall).address,
	bpf.ArgCtx:    (*helperCall).context,
	bpf.ArgMap:    (*helperCall).aMap,
	bpf.ArgRecord: (*helperCall).record,
	bpf.ArgConst:  (*helperCall).constant,
	bpf.ArgMem:    func(c *helperCall, k int, _ *value) error { return c.sized(k, false, false) },
	bpf.ArgMemOut: func(c *helperCall, k int, _ *value) error { return c.sized(k, true, false) },
	bpf.ArgWords:  func(c *helperCall, k int, _ *value) error { return c.sized(k, false, true) },
	bpf.ArgKey: func(c *helperCall, k int, _ *value) error {
		return c.memory(k, int64(c.spec().KeySize), true, false, false)
	},
	bpf.ArgKeyOut: func(c *helperCall, k int, _ *value) error {
		return c.memory(k, int64(c.spec().KeySize), true, true, false)
	},
	bpf.ArgValue: func(c *helperCall, k int, _ *value) error {
		return c.memory(k, int64(c.spec().ValueSize), true, false, false)
	},
	bpf.ArgPosition: func(c *helperCall, k int, _ *value) error {
		if err := c.memory(k, 8, true, false, false); err != nil {
			return err
		}
		return c.memory(k, 8, true, true, false)
	},
}

func (c *helperCall) number(k int, x *value) error {
	if x.pointer() {
		return c.bad(k, "a number")
	}
	return nil
}

// maybe is a value to print. It may be the address of a text.
func (c *helperCall) maybe(k int, x *value) error {
	if x.kind == isCtx {
		c.v.useContext(0, int64(c.v.p.PtRegs().Size()))
	}
	if x.kind != isStack {
		return nil
	}
	r := register(k)
	lo, _, err := c.v.reach(c.pc, r, x, 0, 1, false)
	if err != nil {
		return err
	}
	return c.v.readable(c.s.frames[x.index], c.pc, r, lo, lo+1, false)
}

func (c *helperCall) address(k int, x *value) error {
	switch x.kind {
	case isStack:
		return c.bad(k, "an address outside of the program: its own stack it reads by loads, and a text that a format prints is to be in a global variable or a map, or what a helper puts on the stack in the same function, with a size that is a constant")
	case isCtx:
		c.inContext, c.Bounded = true, c.v.escape(x, &c.f.regs[register(k-1)])
	}
	return nil
}

func (c *helperCall) context(k int, x *value) error {
	if x.kind != isCtx || !x.num.isConst() || x.num.t.Value != 0 {
		return c.bad(k, "the context, as the program got it")
	}
	return nil
}

func (c *helperCall) aMap(k int, x *value) error {
	if x.kind != isMap {
		return c.bad(k, "a map")
	}
	c.Map = x.index
	return c.v.suits(c.pc, c.Helper, c.spec())
}

func (c *helperCall) record(k int, x *value) error {
	switch {
	case x.kind != isRecord || !x.num.isConst() || x.num.t.Value != 0:
		return c.bad(k, "what ringbuf_reserve gave")
	case x.null:
		return c.bad(k, "compared with 0 before")
	}
	c.freed = x.ref
	return nil
}

func (c *helperCall) constant(k int, _ *value) error {
	if !c.Known[k] || c.Const[k] == 0 || c.Const[k] > bpf.MaxRing {
		return c.bad(k, "a number that is known when the program is loaded, from 1")
	}
	c.size = int64(c.Const[k])
	return nil
}

// sized is memory whose size the next argument is.
func (c *helperCall) sized(k int, fills, words bool) error {
	r := register(k + 1)
	n := &c.f.regs[r]
	if n.kind != isNumber {
		return c.v.p.Refuse(c.pc, "argument %d of %s (r%d) is %s: it must be the number of bytes", k+2, c.Helper.Name, r, c.v.describe(n))
	}
	least := int64(0)
	if c.Helper.Args[k+1] == bpf.ArgSize {
		least = 1
	}
	if n.num.smin < least || n.num.smax > maxReach {
		return c.v.p.Refuse(c.pc, "argument %d of %s (r%d), the number of bytes, may be %s: it must be %d or more, and bounded (if (n > sizeof(buf)) n = sizeof(buf);)",
			k+2, c.Helper.Name, r, n.num.String(), least)
	}
	c.size = n.num.smax
	return c.memory(k, c.size, n.num.isConst(), fills, words)
}

// suits holds that a helper works on a map.
func (v *verifier) suits(pc int, h *bpf.Helper, m *bpf.MapSpec) error {
	made := v.p.Made > 0 && pc >= v.p.Made && m.OfMaps() && h.ID == bpf.FnMapLookupElem // bpf/inner.go
	if m.Inside() && !made {
		return v.p.Refuse(pc, "%s %s", h.Name, m.Unfit())
	}
	if m.Type == bpf.StackTrace && h.ID == bpf.FnMapLookupElem && m.Flags&bpf.FlagReadOnly != 0 {
		return nil // a trace is found again by its content, so it may not be written
	}
	for _, t := range takes[h.ID] {
		if t == m.Type {
			if m.Flags&bpf.FlagReadOnly != 0 && (h.ID == bpf.FnMapUpdateElem || h.ID == bpf.FnMapDeleteElem) {
				return v.p.Refuse(pc, "map %q is read-only for programs", m.Name)
			}
			return nil
		}
	}
	return v.p.Refuse(pc, "%s does not work on map %q, which is a %v", h.Name, m.Name, m.Type)
}

// belongs holds that a helper may be called by this kind of program, and notes what it needs.
func (c *helperCall) belongs() error {
	p, proof := c.v.p, c.v.proof
	switch c.Helper.ID {
	case bpf.FnOverrideReturn:
		if p.Kind != bpf.Kprobe {
			return p.Refuse(c.pc, "override_return: the function has already returned where a kretprobe runs; use a kprobe")
		}
	case bpf.FnMapNext:
		if p.Kind != bpf.Controller {
			return p.Refuse(c.pc, "map_next: only programs that the controller runs can walk maps")
		}
	case bpf.FnCallWord:
		c.size = 8
	case bpf.FnGetStackid:
		regs := p.PtRegs()
		proof.Context |= 1<<regs.PC | 1<<regs.FP | 1<<regs.SP
		if regs.Link != 0 {
			proof.Context |= 1 << regs.Link
		}
	}
	if c.Helper.Ret != bpf.RetData {
		return nil
	}
	if c.size > bpf.MaxCallData {
		return p.Refuse(c.pc, "call_data: %d bytes, at most %d are possible", c.size, bpf.MaxCallData)
	}
	proof.CallData = max(proof.CallData, int(c.size))
	return nil
}

// result puts the call's result in R0. The arguments are gone.
func (c *helperCall) result() {
	regs, v := &c.f.regs, c.v
	clear(regs[bpf.R0:bpf.R6])
	switch c.Helper.Ret {
	case bpf.RetNothing:
	case bpf.RetValue:
		regs[bpf.R0] = value{kind: isValue, null: true, index: c.Map, num: constant(0), id: v.newID()}
	case bpf.RetRecord:
		ref := v.newID()
		c.s.records = append(c.s.records, record{ref, c.pc})
		regs[bpf.R0] = value{kind: isRecord, null: true, size: c.size, num: constant(0), id: v.newID(), ref: ref}
	case bpf.RetData:
		regs[bpf.R0] = value{kind: isData, size: c.size, num: constant(0), id: v.newID()}
	default:
		regs[bpf.R0] = number(answers(c.Helper.ID, c.size))
	}
}

// note adds a call to the proof. A fact that is not the same on every path counts as unknown.
func (v *verifier) note(pc int, c *bpf.HelperCall, inContext bool) error {
	old := v.proof.Calls[pc]
	if old == nil {
		v.proof.Calls[pc], v.inContext[pc] = c, inContext
		return nil
	}
	if v.inContext[pc] != inContext && (old.Bounded || c.Bounded) {
		return v.p.Refuse(pc, "%s reads the context at an offset that is not known on one path, and other memory on another: make two calls of it", c.Helper.Name)
	}
	if old.Map != c.Map {
		old.Map = -1
	}
	old.Set = min(old.Set, c.Set)
	old.Bounded = old.Bounded || c.Bounded
	for k := range old.Known {
		if !c.Known[k] || c.Const[k] != old.Const[k] {
			old.Known[k], old.Const[k] = false, 0
		}
	}
	return nil
}

// answers is the set of a helper's possible results; size is that of the memory it was given.
func answers(id int32, size int64) scalar {
	switch id {
	case bpf.FnKtimeGetNs, bpf.FnKtimeGetBootNs, bpf.FnKtimeGetCoarseNs, bpf.FnGetCurrentPidTgid, bpf.FnGetCurrentUidGid, bpf.FnGetCurrentTask, bpf.FnGetFuncIP, bpf.FnGetAttachCookie, bpf.FnVector:
		return anything
	case bpf.FnGetPrandomU32, bpf.FnGetSmpProcessorID:
		return unsigned(0, math.MaxUint32)
	case bpf.FnProbeReadStr, bpf.FnProbeReadUserStr, bpf.FnProbeReadKernelStr:
		return signed(-bpf.EFAULT, size)
	case bpf.FnGetStackid, bpf.FnTracePrintk, bpf.FnTraceVprintk:
		return signed(-bpf.ENOSYS, math.MaxInt32)
	}
	return signed(-bpf.ENOSYS, 0)
}
