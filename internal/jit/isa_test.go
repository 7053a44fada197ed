package jit

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"kprobe/bpf"
	"kprobe/internal/isa/amd64"
)

func lengthAt(t testing.TB, code []byte) int {
	in, err := amd64.Decode(code, 64)
	if err != nil {
		t.Fatalf("% x: %v", code[:min(15, len(code))], err)
	}
	return int(in.Len)
}

// trust makes the proof of a program that is right by construction: all is
// reached, functions begin where they are called.
func trust(insns []bpf.Insn) *bpf.Proof {
	p := &bpf.Proof{
		Program: &bpf.Program{Name: "test", Insns: insns},
		Access:  make([]bpf.Mem, len(insns)), Value: make([]int, len(insns)), Reached: make([]bool, len(insns)), Calls: make([]*bpf.HelperCall, len(insns)),
	}
	starts := map[int]bool{0: true}
	for i, in := range insns {
		p.Reached[i] = true
		if to, ok := in.Target(i); ok && in.IsCall(bpf.CallLocal) {
			starts[to] = true
		}
		if in.Mode() == bpf.ModeAtomic && in.Class() == bpf.ClassSTX && i%2 == 0 {
			p.Access[i] = bpf.MemMap // as if shared with others, so that it must lock
		}
		if in.IsCall(bpf.CallHelper) {
			h := bpf.Helpers[in.Imm]
			p.Calls[i] = &bpf.HelperCall{Helper: h, Map: -1, Set: len(h.Args)}
		}
	}
	for i := range insns {
		if starts[i] {
			p.Funcs = append(p.Funcs, bpf.Func{Start: i, Stack: 256})
		}
		p.Funcs[len(p.Funcs)-1].End = i + 1
	}
	p.Stack = 0
	for i := range p.Funcs {
		f := &p.Funcs[i]
		if f.Stack = min(256, bpf.MaxStack/len(p.Funcs)&^15); len(p.Funcs) == 1 {
			f.Stack = 256
		}
		p.Stack += f.Stack
	}
	return p
}

func imm64(dst uint8, v uint64) []bpf.Insn {
	return []bpf.Insn{{Op: bpf.OpLoadImm64, Dst: dst, Imm: int32(uint32(v))}, {Imm: int32(uint32(v >> 32))}}
}

var edges = []uint64{0, 1, 2, 3, 7, 31, 32, 33, 63, 64, 0x7f, 0x80, 0xff, 0x7fff, 0x8000, 0xffff, 1<<31 - 1, 1 << 31, 1<<32 - 1, 1 << 32, 1<<32 + 5,
	1<<63 - 1, 1 << 63, 1<<64 - 1, 1<<64 - 2, 1<<64 - 1<<31, 0x123456789abcdef0}

var edgeImms = []int32{0, 1, 2, 3, 8, 31, 32, 63, 100, 127, 128, 255, 256, 1000, 65535, 65536, 1<<31 - 1, -1, -2, -128, -129, -1 << 31}

// operations are all forms of arithmetic and of atomic operations, with src and
// an immediate to fill in.
func operations() (ops []bpf.Insn) {
	for _, class := range []uint8{bpf.ClassALU, bpf.ClassALU64} {
		for _, op := range []uint8{bpf.Add, bpf.Sub, bpf.Mul, bpf.Div, bpf.Or, bpf.And, bpf.Lsh, bpf.Rsh, bpf.Mod, bpf.Xor, bpf.Mov, bpf.Arsh} {
			ops = append(ops, bpf.Insn{Op: class | op}, bpf.Insn{Op: class | op | bpf.SrcX})
			if op == bpf.Div || op == bpf.Mod {
				ops = append(ops, bpf.Insn{Op: class | op, Off: 1}, bpf.Insn{Op: class | op | bpf.SrcX, Off: 1})
			}
		}
		ops = append(ops, bpf.Insn{Op: class | bpf.Neg})
		for _, bits := range []int16{8, 16, 32} {
			if bits < 32 || class == bpf.ClassALU64 {
				ops = append(ops, bpf.Insn{Op: class | bpf.Mov | bpf.SrcX, Off: bits})
			}
		}
	}
	for _, bits := range []int32{16, 32, 64} {
		for _, op := range []uint8{bpf.ClassALU | bpf.End, bpf.ClassALU | bpf.End | bpf.SrcX, bpf.ClassALU64 | bpf.End} {
			ops = append(ops, bpf.Insn{Op: op, Imm: bits})
		}
	}
	return ops
}

// builder makes programs for tests.
type builder struct{ insns []bpf.Insn }

func (b *builder) add(insns ...bpf.Insn) { b.insns = append(b.insns, insns...) }

// fold mixes all registers into the word at R10-8, so that none can be wrong unseen.
func (b *builder) fold(rs ...uint8) {
	for _, r := range rs {
		b.add(bpf.Insn{Op: bpf.ClassSTX | bpf.ModeMem | bpf.SizeDW, Dst: bpf.R10, Src: r, Off: -16 - 8*int16(r)})
	}
	b.add(bpf.Insn{Op: bpf.ClassLDX | bpf.ModeMem | bpf.SizeDW, Dst: 0, Src: bpf.R10, Off: -8})
	for _, r := range rs {
		b.add(bpf.Insn{Op: bpf.ClassLDX | bpf.ModeMem | bpf.SizeDW, Dst: 1, Src: bpf.R10, Off: -16 - 8*int16(r)},
			bpf.Insn{Op: bpf.ClassALU64 | bpf.Mul, Dst: 0, Imm: 0x01000193},
			bpf.Insn{Op: bpf.ClassALU64 | bpf.Xor | bpf.SrcX, Dst: 0, Src: 1})
	}
	b.add(bpf.Insn{Op: bpf.ClassSTX | bpf.ModeMem | bpf.SizeDW, Dst: bpf.R10, Src: 0, Off: -8})
}

func (b *builder) begin() {
	b.add(bpf.Insn{Op: bpf.ClassST | bpf.ModeMem | bpf.SizeDW, Dst: bpf.R10, Off: -8})
}

// end answers the number that was folded.
func (b *builder) end() {
	b.add(bpf.Insn{Op: bpf.ClassLDX | bpf.ModeMem | bpf.SizeDW, Dst: 0, Src: bpf.R10, Off: -8}, bpf.Insn{Op: bpf.ClassJMP | bpf.Exit})
}

// start builds runs of programs that need no maps.
func start(t *testing.T, m *machine, programs ...[]bpf.Insn) (runs []*run) {
	t.Helper()
	for _, insns := range programs {
		r, err := newRun(m, trust(insns), &world{})
		if err != nil {
			t.Fatalf("%v\n%v", err, insns)
		}
		runs = append(runs, r)
	}
	return runs
}

// Every operation with every pair of registers and with edge values. After each, all
// registers are looked at, or only the result, so that the others are dead.
func TestArithmetic(t *testing.T) {
	m := harness(t)
	rng := rand.New(rand.NewPCG(1, 2))
	rounds := 6
	if testing.Short() {
		rounds = 1
	}
	for _, op := range operations() {
		var programs [][]bpf.Insn
		for dst := range bpf.R10 {
			for src := range bpf.R10 {
				// Briefly each is source and destination all the same, of itself too.
				if k := (src + bpf.R10 - dst) % bpf.R10; testing.Short() && os.Getenv(machineVariable) != "" && k != 0 && k != 1 && k != 5 {
					continue
				}
				var b builder
				b.begin()
				for range rounds {
					for r := range bpf.R10 {
						b.add(imm64(r, edges[rng.IntN(len(edges))])...)
					}
					in := op
					in.Dst = dst
					if in.X() && in.Alu() != bpf.End {
						in.Src = src
					} else if in.Alu() != bpf.End && in.Alu() != bpf.Neg {
						in.Imm = edgeImms[rng.IntN(len(edgeImms))]
					}
					b.add(in)
					if rng.IntN(3) == 0 {
						b.fold(dst)
					} else {
						b.fold(0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
					}
				}
				b.end()
				programs = append(programs, b.insns)
			}
		}
		t.Run(fmt.Sprintf("%02x,%d,%d", op.Op, op.Off, op.Imm), func(t *testing.T) {
			compare(t, m, start(t, m, programs...))
		})
	}
}

// loadAll gives every register but R10 a value.
func (b *builder) loadAll(rng *rand.Rand) {
	for r := range bpf.R10 {
		b.add(imm64(r, edges[rng.IntN(len(edges))])...)
	}
}

var allRegs = []uint8{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}

// Every comparison with edge values, alone and behind an operation whose flags it
// may use; and both ways of each jump.
func TestBranches(t *testing.T) {
	m := harness(t)
	rng := rand.New(rand.NewPCG(3, 4))
	before := append(operations(), bpf.Insn{})
	for _, class := range []uint8{bpf.ClassJMP, bpf.ClassJMP32} {
		for _, op := range []uint8{bpf.Jeq, bpf.Jgt, bpf.Jge, bpf.Jset, bpf.Jne, bpf.Jsgt, bpf.Jsge, bpf.Jlt, bpf.Jle, bpf.Jslt, bpf.Jsle} {
			var programs [][]bpf.Insn
			for _, first := range before {
				for _, x := range []uint8{0, bpf.SrcX} {
					var b builder
					b.begin()
					for range 12 {
						b.loadAll(rng)
						dst, src := uint8(rng.IntN(10)), uint8(rng.IntN(10))
						if first.Op != 0 {
							in := first
							if in.Dst = dst; in.X() && in.Alu() != bpf.End {
								in.Src = src
							} else if in.Alu() != bpf.End && in.Alu() != bpf.Neg {
								in.Imm = edgeImms[rng.IntN(len(edgeImms))]
							}
							b.add(in)
						}
						j := bpf.Insn{Op: class | op | x, Dst: dst, Off: 2}
						if x != 0 {
							j.Src = uint8(rng.IntN(10))
						} else if rng.IntN(2) == 0 {
							j.Imm = edgeImms[rng.IntN(len(edgeImms))]
						}
						b.add(j,
							bpf.Insn{Op: bpf.ClassALU64 | bpf.Mov, Dst: 0, Imm: 77},
							bpf.Insn{Op: bpf.ClassJMP | bpf.Ja, Off: 1},
							bpf.Insn{Op: bpf.ClassALU64 | bpf.Xor, Dst: 0, Imm: 1})
						b.fold(0, dst)
					}
					b.end()
					programs = append(programs, b.insns)
				}
			}
			t.Run(fmt.Sprintf("%02x", class|op), func(t *testing.T) {
				compare(t, m, start(t, m, programs...))
			})
		}
	}
}

// Jumps of all lengths, forward and back, and loops to the program's first slot.
func TestFarJumps(t *testing.T) {
	m := harness(t)
	var programs [][]bpf.Insn
	for _, gap := range []int{0, 1, 15, 17, 19, 20, 21, 40, 1000, 40000} {
		var b builder
		// r0 = 1; loop: three times over the gap, forward and back.
		b.add(bpf.Insn{Op: bpf.ClassALU64 | bpf.Mov, Dst: 0, Imm: 1},
			bpf.Insn{Op: bpf.ClassALU64 | bpf.Mov, Dst: 6, Imm: 3})
		top := len(b.insns)
		b.add(bpf.Insn{Op: bpf.ClassALU64 | bpf.Mul, Dst: 0, Imm: 3},
			bpf.Insn{Op: bpf.ClassJMP | bpf.Jset, Dst: 0, Imm: 4, Off: 1},
			bpf.Insn{Op: bpf.ClassJMP32 | bpf.Ja, Imm: int32(gap)})
		for i := range gap {
			b.add(bpf.Insn{Op: bpf.ClassALU64 | bpf.Add, Dst: 0, Imm: int32(1000 + i)})
		}
		b.add(bpf.Insn{Op: bpf.ClassALU64 | bpf.Sub, Dst: 6, Imm: 1},
			bpf.Insn{Op: bpf.ClassJMP | bpf.Jeq, Dst: 6, Off: 1})
		b.add(bpf.Insn{Op: bpf.ClassJMP32 | bpf.Ja, Imm: int32(top - len(b.insns) - 1)},
			bpf.Insn{Op: bpf.ClassJMP | bpf.Exit})
		programs = append(programs, b.insns)
	}
	programs = append(programs, []bpf.Insn{ // the first slot is a loop's begin
		{Op: bpf.ClassALU64 | bpf.Add | bpf.SrcX, Dst: 1, Src: 10},
		{Op: bpf.ClassALU64 | bpf.Sub | bpf.SrcX, Dst: 1, Src: 10},
		{Op: bpf.ClassSTX | bpf.ModeMem | bpf.SizeDW, Dst: 10, Src: 1, Off: -200},
		{Op: bpf.ClassST | bpf.ModeMem | bpf.SizeDW, Dst: 10, Off: -200},
		{Op: bpf.ClassLDX | bpf.ModeMem | bpf.SizeDW, Dst: 1, Src: 10, Off: -200},
		{Op: bpf.ClassJMP | bpf.Jne, Dst: 1, Off: -6},
		{Op: bpf.ClassALU64 | bpf.Mov, Dst: 0, Imm: 5},
		{Op: bpf.ClassJMP | bpf.Exit},
	})
	compare(t, m, start(t, m, programs...))
}

// Loads and stores of all sizes through all registers, and operations on memory by one instruction.
func TestMemory(t *testing.T) {
	m := harness(t)
	rng := rand.New(rand.NewPCG(5, 6))
	var programs [][]bpf.Insn
	for _, size := range []uint8{bpf.SizeB, bpf.SizeH, bpf.SizeW, bpf.SizeDW} {
		for dst := range bpf.R10 {
			for base := range bpf.R10 + 1 {
				var b builder
				b.begin()
				b.loadAll(rng)
				if base < bpf.R10 {
					b.add(bpf.Insn{Op: bpf.ClassALU64 | bpf.Mov | bpf.SrcX, Dst: base, Src: bpf.R10})
				}
				off := -int16(rng.IntN(40)) - 150
				b.add(bpf.Insn{Op: bpf.ClassST | bpf.ModeMem | bpf.SizeDW, Dst: bpf.R10, Off: off, Imm: -77})
				if dst != base {
					b.add(bpf.Insn{Op: bpf.ClassSTX | bpf.ModeMem | size, Dst: base, Src: dst, Off: off})
					for range 3 {
						op := []uint8{bpf.Add, bpf.Sub, bpf.And, bpf.Or, bpf.Xor}[rng.IntN(5)]
						class := []uint8{bpf.ClassALU, bpf.ClassALU64}[rng.IntN(2)]
						b.add(bpf.Insn{Op: bpf.ClassLDX | bpf.ModeMem | size, Dst: dst, Src: base, Off: off})
						in := bpf.Insn{Op: class | op, Dst: dst, Imm: edgeImms[rng.IntN(len(edgeImms))]}
						if rng.IntN(2) == 0 {
							in.Op |= bpf.SrcX
							for in.Imm, in.Src = 0, uint8(rng.IntN(10)); in.Src == base; in.Src++ {
							}
							if in.Src >= bpf.R10 {
								in.Op, in.Src = in.Op&^bpf.SrcX, 0
							}
						}
						b.add(in, bpf.Insn{Op: bpf.ClassSTX | bpf.ModeMem | size, Dst: base, Src: dst, Off: off})
						if rng.IntN(2) == 0 { // the loaded value is dead
							b.add(imm64(dst, 7)...)
						}
					}
				} else {
					b.add(bpf.Insn{Op: bpf.ClassST | bpf.ModeMem | size, Dst: base, Off: off, Imm: edgeImms[rng.IntN(len(edgeImms))]})
				}
				b.add(bpf.Insn{Op: bpf.ClassLDX | bpf.ModeMem | bpf.SizeDW, Dst: dst, Src: base, Off: off})
				b.fold(dst)
				if size != bpf.SizeDW {
					if base < bpf.R10 {
						b.add(bpf.Insn{Op: bpf.ClassALU64 | bpf.Mov | bpf.SrcX, Dst: base, Src: bpf.R10})
					}
					b.add(bpf.Insn{Op: bpf.ClassLDX | bpf.ModeMemSX | size, Dst: dst, Src: base, Off: off})
					b.fold(dst)
				}
				b.end()
				programs = append(programs, b.insns)
			}
		}
	}
	compare(t, m, start(t, m, programs...))
}

// Atomic operations with all registers.
func TestAtomics(t *testing.T) {
	m := harness(t)
	rng := rand.New(rand.NewPCG(7, 8))
	var programs [][]bpf.Insn
	for _, size := range []uint8{bpf.SizeW, bpf.SizeDW} {
		for _, op := range []int32{bpf.AtomicAdd, bpf.AtomicOr, bpf.AtomicAnd, bpf.AtomicXor, bpf.AtomicAdd | bpf.AtomicFetch, bpf.AtomicOr | bpf.AtomicFetch,
			bpf.AtomicAnd | bpf.AtomicFetch, bpf.AtomicXor | bpf.AtomicFetch, bpf.AtomicXchg, bpf.AtomicCmpxchg} {
			for src := range bpf.R10 {
				for base := range bpf.R10 + 1 {
					if base == src || base == bpf.R0 && op == bpf.AtomicCmpxchg {
						continue // a pointer has another value in each stack
					}
					var b builder
					b.begin()
					for k := range 3 {
						b.loadAll(rng)
						// Memory is sometimes what cmpxchg hopes for.
						b.add(bpf.Insn{Op: bpf.ClassSTX | bpf.ModeMem | bpf.SizeDW, Dst: bpf.R10, Src: []uint8{0, 0, 3}[k], Off: -160})
						if base < bpf.R10 {
							b.add(bpf.Insn{Op: bpf.ClassALU64 | bpf.Mov | bpf.SrcX, Dst: base, Src: bpf.R10})
						}
						b.add(bpf.Insn{Op: bpf.ClassSTX | bpf.ModeAtomic | size, Dst: base, Src: src, Off: -160, Imm: op})
						if base < bpf.R10 {
							b.add(imm64(base, 1)...)
						}
						if k < 2 {
							b.fold(allRegs...)
						} else {
							b.fold(src)
						}
						b.add(bpf.Insn{Op: bpf.ClassLDX | bpf.ModeMem | bpf.SizeDW, Dst: 2, Src: bpf.R10, Off: -160})
						b.fold(2)
					}
					b.end()
					programs = append(programs, b.insns)
				}
			}
		}
	}
	compare(t, m, start(t, m, programs...))
}

// Functions that keep R6 to R9, each with a stack of its own, one calling the next.
func TestLocalCalls(t *testing.T) {
	m := harness(t)
	var programs [][]bpf.Insn
	for depth := 1; depth <= bpf.MaxCalls-1; depth++ {
		var b builder
		for f := range depth + 1 {
			if f == 0 {
				b.add(bpf.Insn{Op: bpf.ClassALU64 | bpf.Mov, Dst: 1, Imm: 3})
			}
			for r := uint8(bpf.R6); r <= bpf.R9; r++ {
				if (int(r)+f)%3 != 0 || f == 0 { // some functions use some
					b.add(bpf.Insn{Op: bpf.ClassALU64 | bpf.Mov, Dst: r, Imm: int32(r) * int32(f+100)})
				}
			}
			if f%2 == 0 {
				b.add(bpf.Insn{Op: bpf.ClassSTX | bpf.ModeMem | bpf.SizeDW, Dst: 10, Src: 1, Off: -16})
			}
			b.add(bpf.Insn{Op: bpf.ClassALU64 | bpf.Mul, Dst: 1, Imm: 5})
			b.add(bpf.Insn{Op: bpf.ClassALU64 | bpf.Mov | bpf.SrcX, Dst: 0, Src: 1})
			if f < depth {
				b.add(bpf.Insn{Op: bpf.ClassJMP | bpf.Call, Src: bpf.CallLocal})
			}
			if f%2 == 0 {
				b.add(bpf.Insn{Op: bpf.ClassLDX | bpf.ModeMem | bpf.SizeDW, Dst: 1, Src: 10, Off: -16},
					bpf.Insn{Op: bpf.ClassALU64 | bpf.Xor | bpf.SrcX, Dst: 0, Src: 1})
			}
			for r := uint8(bpf.R6); r <= bpf.R9; r++ {
				if (int(r)+f)%3 != 0 || f == 0 {
					b.add(bpf.Insn{Op: bpf.ClassALU64 | bpf.Mul, Dst: 0, Imm: 31}, bpf.Insn{Op: bpf.ClassALU64 | bpf.Add | bpf.SrcX, Dst: 0, Src: r})
				}
			}
			b.add(bpf.Insn{Op: bpf.ClassJMP | bpf.Exit})
		}
		programs = append(programs, linkCalls(b.insns))
	}
	compare(t, m, start(t, m, programs...))
}

// linkCalls aims each local call at the function behind the next exit.
func linkCalls(insns []bpf.Insn) []bpf.Insn {
	for i := range insns {
		if insns[i].IsCall(bpf.CallLocal) {
			to := i
			for !insns[to].IsExit() {
				to++
			}
			insns[i].Imm = int32(to - i)
		}
	}
	return insns
}

// A helper gets its arguments, spoils R1 to R5, and nothing else changes.
func TestHelperCalls(t *testing.T) {
	m := harness(t)
	var b builder
	b.begin()
	rng := rand.New(rand.NewPCG(9, 10))
	for _, id := range []int32{bpf.FnKtimeGetNs, bpf.FnGetPrandomU32, bpf.FnGetSmpProcessorID, bpf.FnGetCurrentPidTgid, bpf.FnGetCurrentUidGid,
		bpf.FnKtimeGetBootNs, bpf.FnGetFuncIP, bpf.FnGetAttachCookie, bpf.FnCallData, bpf.FnCallWord, bpf.FnOverrideReturn, bpf.FnGetCurrentComm} {
		b.loadAll(rng)
		if id == bpf.FnGetCurrentComm {
			b.add(bpf.Insn{Op: bpf.ClassALU64 | bpf.Mov | bpf.SrcX, Dst: 1, Src: bpf.R10},
				bpf.Insn{Op: bpf.ClassALU64 | bpf.Add, Dst: 1, Imm: -200},
				bpf.Insn{Op: bpf.ClassALU64 | bpf.Mov, Dst: 2, Imm: 16})
		}
		if id == bpf.FnCallData {
			b.add(bpf.Insn{Op: bpf.ClassALU64 | bpf.Mov, Dst: 2, Imm: 64})
		}
		b.add(bpf.Insn{Op: bpf.ClassJMP | bpf.Call, Imm: id})
		b.fold(0, 6, 7, 8, 9)
	}
	for _, off := range []int16{-200, -192} {
		b.add(bpf.Insn{Op: bpf.ClassLDX | bpf.ModeMem | bpf.SizeDW, Dst: 2, Src: bpf.R10, Off: off})
		b.fold(2)
	}
	b.end()
	for _, known := range []bool{false, true} { // the size of the room for the name
		p := trust(b.insns)
		for _, c := range p.Calls {
			if c != nil && c.Helper.ID == bpf.FnGetCurrentComm {
				c.Known[1], c.Const[1] = known, 16
			}
		}
		r, err := newRun(m, p, &world{pidTgid: 0x1234_0000_5678, funcIP: 0xdeadbeef00, cookie: 1<<64 - 3, data: 0x7f12_3456_7000})
		if err != nil {
			t.Fatal(err)
		}
		compare(t, m, []*run{r})
		if want := NeedsFuncIP | NeedsCookie | NeedsData; r.code.Needs != want {
			t.Errorf("needs %b, want %b", r.code.Needs, want)
		}
	}
}

// A kernel's program asks its CPU for the number that the kernel has there.
func TestCPUOfKernel(t *testing.T) {
	off := int32(-0x1234)
	code, err := AMD64.Compile(trust([]bpf.Insn{{Op: bpf.ClassJMP | bpf.Call, Imm: bpf.FnGetSmpProcessorID}, {Op: bpf.ClassJMP | bpf.Exit}}),
		&Env{CPU: &off})
	if err != nil {
		t.Fatal(err)
	}
	want := []byte{0x65, 0x8b, 0x04, 0x25, 0xcc, 0xed, 0xff, 0xff} // mov eax, gs:-0x1234
	if !bytes.HasPrefix(code.Bytes, want) || lengthAt(t, code.Bytes) != len(want) || len(code.Calls) != 0 {
		t.Errorf("% x, calls %v; want % x", code.Bytes, code.Calls, want)
	}
}
