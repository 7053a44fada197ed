package bpf

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"unsafe"
)

// VM interprets proved programs and so defines what compiled ones do. Registers hold addresses of
// the target, as they do there, and are translated at each use. So a number that a program computes
// from an address is the same in both.
type VM struct {
	Proof   *Proof
	Segment *Segment // of Proof.Program.Maps; nil where there are none
	Env     Env

	// StackTop is R10 of the entry function: the target's address above MaxStack
	// bytes of stack; a multiple of 16. Ctx is the target's address of the context.
	StackTop, Ctx uint64

	// Step, where it is not nil, is told before each instruction: its slot, and the
	// registers R0 to R10. For tracing, and for tests that replay what helpers did.
	Step func(slot int, r *[11]uint64)

	// MaxSteps bounds a run where it is not 0. Proved programs end without it.
	MaxSteps int

	stack [MaxStack / 8]uint64 // words, so that its alignment is the target's
	frame [64]uint64           // a copy of the context, for the same reason
	ctx   []byte
	regs  [11]uint64
	res   Result

	records []openRecord
	rounds  int // of MayGoto that are left
}

// openRecord is a ring record that is reserved.
type openRecord struct {
	m         *Map
	off, size uint64
}

// Env gives a program access to the thread that hit the probe. Functions may be
// nil where nothing calls them.
type Env struct {
	PidTgid, UidGid uint64
	Task            uint64 // of a kernel: the address of the task
	Comm            string
	CPU             uint32
	Slot            int // the thread's slot
	FuncIP, Cookie  uint64

	// CallData is the memory of call_data, and CallDataAddr its address in the target.
	CallData     []byte
	CallDataAddr uint64

	// Stack finds the stack for get_stackid where frame pointers do not lead through it: at most so
	// many addresses. Nil: by frame pointers.
	Stack func(limit int) []uint64

	Read   func(addr uint64, p []byte) error // the target's memory, whole or an error
	Write  func(addr uint64, p []byte) error // the same, for programs that may write
	Now    func(helper int32) uint64         // FnKtimeGetNs, FnKtimeGetBootNs or FnKtimeGetCoarseNs
	Random func() uint32
	Vector func(half uint64) uint64 // what vector gives of a half, from 0 on; nil: 0
	Trace  func(Printk)
}

// Result is a run's outcome.
type Result struct {
	R0       uint64
	Override bool   // override_return was called
	Return   uint64 // with this value
}

// Fault is an access that no proved program makes: the verifier is wrong, or the
// proof is another program's.
type Fault struct {
	Slot int // of the instruction
	What string
}

func (f *Fault) Error() string { return fmt.Sprintf("bpf: instruction %d: %s", f.Slot, f.What) }

// frame holds what a call's return restores.
type frame struct {
	ret   int
	fn    *Func
	saved [5]uint64 // R6 to R10
}

// Run runs the program on a context: the bytes of struct pt_regs, which are only read.
// The stack begins as zeros. An error is a *Fault: no proved program makes one.
func (vm *VM) Run(ctx []byte) (Result, error) {
	vm.res, vm.records, vm.rounds = Result{}, nil, MaxRounds
	clear(vm.stack[:])
	vm.ctx = bytesOf(vm.frame[:])
	vm.ctx = vm.ctx[:copy(vm.ctx, ctx)]
	vm.regs = [11]uint64{R1: vm.Ctx, R10: vm.StackTop}
	r := &vm.regs
	insns := vm.Proof.Program.Insns
	fn := &vm.Proof.Funcs[0]
	var frames []frame
	pc := fn.Start
	for steps := 0; ; steps++ {
		if pc < 0 || pc >= len(insns) || vm.MaxSteps > 0 && steps >= vm.MaxSteps {
			return vm.res, &Fault{pc, "the program does not end"}
		}
		if vm.Step != nil {
			vm.Step(pc, r)
		}
		i := insns[pc]
		if i.Dst > R10 || i.Src > R10 {
			return vm.res, &Fault{pc, "no such register"}
		}
		src := uint64(int64(i.Imm))
		if i.X() {
			src = r[i.Src]
		}
		next := pc + 1
		var bad string
		switch i.Class() {
		case ClassALU, ClassALU64:
			r[i.Dst] = i.Result(r[i.Dst], src)
		case ClassLD:
			if !i.Wide() || next >= len(insns) {
				return vm.res, &Fault{pc, "unknown instruction"}
			}
			r[i.Dst] = vm.imm64(i, insns[next])
			next++
		case ClassLDX:
			var v uint64
			v, bad = vm.load(r[i.Src]+uint64(int64(i.Off)), i.Size())
			if i.Mode() == ModeMemSX {
				v = extend(v, int16(8*i.Size()))
			}
			r[i.Dst] = v
		case ClassST:
			bad = vm.store(r[i.Dst]+uint64(int64(i.Off)), uint64(int64(i.Imm)), i.Size())
		case ClassSTX:
			if i.Mode() == ModeAtomic {
				bad = vm.atomic(i)
			} else {
				bad = vm.store(r[i.Dst]+uint64(int64(i.Off)), r[i.Src], i.Size())
			}
		case ClassJMP, ClassJMP32:
			switch to, ok := i.Target(pc); {
			case i.IsExit():
				if len(frames) == 0 {
					vm.res.R0 = r[R0]
					return vm.res, nil
				}
				f := frames[len(frames)-1]
				frames = frames[:len(frames)-1]
				copy(r[R6:], f.saved[:])
				fn, next = f.fn, f.ret
			case i.IsCall(CallHelper):
				bad = vm.call(pc)
			case i.IsCall(CallLocal):
				frames = append(frames, frame{next, fn, [5]uint64(r[R6:])})
				r[R10] -= uint64(fn.Stack)
				fn, next = vm.Proof.FuncAt(to), to
				if fn == nil || len(frames) >= MaxCalls {
					bad = "call of nothing, or too deep"
				}
			case i.Op == ClassJMP|MayGoto:
				if vm.rounds--; vm.rounds < 0 {
					vm.rounds, next = 0, to
				}
			case ok && (i.Jump() == Ja || i.Taken(r[i.Dst], src)):
				next = to
			}
		}
		if bad != "" {
			return vm.res, &Fault{pc, bad}
		}
		pc = next
	}
}

// imm64 is the number that an OpLoadImm64 loads.
func (vm *VM) imm64(lo, hi Insn) uint64 {
	switch lo.Src {
	case LoadMap:
		return vm.Segment.Base + vm.Segment.Offs[lo.Imm]
	case LoadMapValue:
		return vm.Segment.Base + vm.Segment.Values(int(lo.Imm)) + uint64(uint32(hi.Imm))
	}
	return Imm64(lo, hi)
}

// part is n bytes at an address, of memory that begins at base; nil where they are not all in it.
func part(addr, n, base uint64, mem []byte) []byte {
	if off := addr - base; off <= uint64(len(mem)) && n <= uint64(len(mem))-off {
		return mem[off : off+n]
	}
	return nil
}

// Memory is n bytes at an address of the target that the interpreter stands for, the
// stack, the context and the segment whole; nil where it is none.
func (vm *VM) Memory(addr, n uint64) []byte {
	if b := part(addr, n, vm.StackTop-MaxStack, bytesOf(vm.stack[:])); b != nil {
		return b
	}
	if b := part(addr, n, vm.Ctx, vm.ctx); b != nil || vm.Segment == nil {
		return b
	}
	if b := part(addr, n, vm.Segment.Base, vm.Segment.mem); b != nil {
		return b
	}
	return part(addr, n, vm.Segment.poolBase, vm.Segment.pool)
}

// own is memory that the program may touch, nil for all other: its stack, its context, one value of
// a map, an open record. It checks once more the facts that the verifier has proved; compiled code
// does not.
func (vm *VM) own(addr, n uint64) []byte {
	m := vm.mapOf(addr)
	if m == nil {
		if b := part(addr, n, vm.Env.CallDataAddr, vm.Env.CallData); b != nil {
			return b
		}
		return vm.Memory(addr, n)
	}
	off := addr - m.Addr
	if m.Spec.ring() {
		for _, r := range vm.records {
			if b := part(off, n, r.off, m.mem[r.off:r.off+r.size]); r.m.Addr == m.Addr && b != nil {
				return b
			}
		}
		return nil
	}
	if off < m.first() {
		return nil
	}
	in := off - m.first()
	if m.slotStride != 0 {
		in %= m.slotStride
	}
	if stride := uint64(m.valueStride); in/stride >= uint64(m.elems) || in%stride+n > uint64(m.Spec.ValueSize) {
		return nil
	}
	return part(off, n, 0, m.mem)
}

// mapOf is the map that holds an address, nil where none does.
func (vm *VM) mapOf(addr uint64) *Map {
	if vm.Segment == nil {
		return nil
	}
	for i, off := range vm.Segment.Offs {
		if vm.Segment.geo[i].holds(addr - vm.Segment.Base - off) {
			return vm.Segment.Map(i)
		}
	}
	return nil
}

func bytesOf(w []uint64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(w))), 8*len(w))
}

const badAccess = "access of %d bytes at %#x, which is no memory of the program"

func (vm *VM) load(addr uint64, n int) (uint64, string) {
	b := vm.own(addr, uint64(n))
	if b == nil {
		return 0, fmt.Sprintf(badAccess, n, addr)
	}
	// Words that other threads write too are read whole.
	m := memory(b)
	switch {
	case n == 8 && addr%8 == 0:
		return atomic.LoadUint64(m.u64(0)), ""
	case n == 8:
		return binary.LittleEndian.Uint64(b), ""
	case n == 4 && addr%4 == 0:
		return uint64(atomic.LoadUint32(m.u32(0))), ""
	case n == 4:
		return uint64(binary.LittleEndian.Uint32(b)), ""
	case n == 2:
		return uint64(binary.LittleEndian.Uint16(b)), ""
	}
	return uint64(b[0]), ""
}

func (vm *VM) store(addr, v uint64, n int) string {
	b := vm.own(addr, uint64(n))
	if b == nil {
		return fmt.Sprintf(badAccess, n, addr)
	}
	m := memory(b)
	switch {
	case n == 8 && addr%8 == 0:
		atomic.StoreUint64(m.u64(0), v)
	case n == 8:
		binary.LittleEndian.PutUint64(b, v)
	case n == 4 && addr%4 == 0:
		atomic.StoreUint32(m.u32(0), uint32(v))
	case n == 4:
		binary.LittleEndian.PutUint32(b, uint32(v))
	case n == 2:
		binary.LittleEndian.PutUint16(b, uint16(v))
	default:
		b[0] = byte(v)
	}
	return ""
}

func (vm *VM) atomic(i Insn) string {
	r := &vm.regs
	addr, n := r[i.Dst]+uint64(int64(i.Off)), i.Size()
	b := vm.own(addr, uint64(n))
	if b == nil || addr%uint64(n) != 0 {
		return fmt.Sprintf(badAccess, n, addr)
	}
	m := memory(b)
	cas := func(old, v uint64) bool {
		if n == 4 {
			return atomic.CompareAndSwapUint32(m.u32(0), uint32(old), uint32(v))
		}
		return atomic.CompareAndSwapUint64(m.u64(0), old, v)
	}
	for {
		old, _ := vm.load(addr, n)
		if i.Imm == AtomicCmpxchg {
			expect := r[R0]
			if n == 4 {
				expect = uint64(uint32(expect))
			}
			if old == expect && !cas(old, r[i.Src]) {
				continue
			}
			r[R0] = old
			return ""
		}
		if cas(old, atomicResult(i.Imm, old, r[i.Src])) {
			if i.Imm&AtomicFetch != 0 {
				r[i.Src] = old
			}
			return ""
		}
	}
}
