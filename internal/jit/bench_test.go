package jit

import (
	"encoding/binary"
	"math"
	"testing"

	"kprobe/arch"
	"kprobe/bpf"
	"kprobe/bpf/bpftest"
	"kprobe/bpf/verify"
	"kprobe/internal/asm/x86"
)

// Nanoseconds of one run of a program, called in a loop as a detour calls it, beside
// a function that gcc made of C that does the same with the same knowledge, and
// beside a call that does nothing.

// times runs something b.N times in the harness, in several rounds, and reports the
// best: the others were disturbed.
func times(b *testing.B, r *run) {
	m := harness(b)
	const rounds = 10
	r.repeat = uint64(b.N/rounds + 1)
	best := uint64(math.MaxUint64)
	for range rounds {
		m.execute(b, []*run{r})
		if r.job.Status != jobDone {
			b.Fatal(r.check())
		}
		best = min(best, r.job.Ns)
	}
	b.ReportMetric(float64(best)/float64(r.repeat), "ns/op")
}

// mapWorld is a world with maps, on thread slot 1 of 2.
func mapWorld(t testing.TB, maps ...*bpf.MapSpec) *world {
	t.Helper()
	l, err := bpf.Arrange(maps, 3) // the last is no thread's
	if err != nil {
		t.Fatal(err)
	}
	w := &world{layout: l, segment: make([]byte, l.Size), slot: 1, pidTgid: 1<<32 + 2}
	seg, err := l.Bind(w.segment, segmentAt)
	if err != nil {
		t.Fatal(err)
	}
	if err := seg.Init(); err != nil {
		t.Fatal(err)
	}
	return w
}

// The functions of testdata/run.c, in the order of machine.functions.
const (
	nativeEmpty = iota
	nativeCount
	nativeRecord
	nativeHash
)

// measure times a program that uses one map, and the C function beside it. R0 is 0 in
// the end where all went well.
func measure(b *testing.B, text string, w *world, native int) {
	m := harness(b)
	spec := w.layout.Maps[0]
	p, err := verify.Program(&bpf.Program{Name: b.Name(), Insns: bpftest.MustAssemble(text, spec), Maps: w.layout.Maps})
	if err != nil {
		b.Fatal(err)
	}
	code, err := compileHere(p, &Env{Segment: arch.Addr(segmentAt), Layout: w.layout, Clock: &Clock{Mult: 1 << 32, Shift: 32}})
	if err != nil {
		b.Fatal(err)
	}
	linked, err := code.Link(codeAt, m.routine)
	if err != nil {
		b.Fatal(err)
	}
	r := run{proof: p, code: code, text: linked, world: w}
	if spec.Type == bpf.RingBuf {
		r.emptied = segmentAt + w.layout.Values(0) + uint64(w.slot)*w.layout.SlotStride(0)
	}
	b.Run("compiled", func(b *testing.B) {
		times(b, &r)
		if r.job.Regs[x86.RAX] != 0 {
			b.Fatalf("R0 is %#x", r.job.Regs[x86.RAX])
		}
	})
	for _, f := range []struct {
		name string
		at   int
	}{{"gcc", native}, {"nothing", nativeEmpty}} {
		b.Run(f.name, func(b *testing.B) {
			r := r
			r.entry = m.functions[f.at]
			times(b, &r)
		})
	}
}

// A count in a per-thread array at a constant index, as clang compiles it.
func BenchmarkCount(b *testing.B) {
	w := mapWorld(b, &bpf.MapSpec{Name: "counts", Type: bpf.PerCPUArray, KeySize: 4, ValueSize: 8, MaxEntries: 4})
	measure(b, `
		*(u32 *)(r10 -4) = 3
		r2 = r10
		r2 += -4
		r1 = map counts
		call map_lookup_elem
		if r0 == 0 goto bad
		r1 = *(u64 *)(r0 +0)
		r1 += 1
		*(u64 *)(r0 +0) = r1
		r0 = 0
		exit
	bad:	r0 = 1
		exit`, w, nativeCount)
}

// A record of 32 bytes: time, ids, two arguments.
func BenchmarkRecord(b *testing.B) {
	w := mapWorld(b, &bpf.MapSpec{Name: "ring", Type: bpf.RingBuf, MaxEntries: 65536})
	measure(b, `
		r6 = r1
		r1 = map ring
		r2 = 32
		r3 = 0
		call ringbuf_reserve
		if r0 == 0 goto bad
		r7 = r0
		call ktime_get_ns
		*(u64 *)(r7 +0) = r0
		call get_current_pid_tgid
		*(u64 *)(r7 +8) = r0
		r1 = *(u64 *)(r6 +112)
		*(u64 *)(r7 +16) = r1
		r1 = *(u64 *)(r6 +104)
		*(u64 *)(r7 +24) = r1
		r1 = r7
		r2 = 0
		call ringbuf_submit
		r0 = 0
		exit
	bad:	r0 = 1
		exit`, w, nativeRecord)
}

// A count in a hash by the first argument, whose key is there.
func BenchmarkHash(b *testing.B) {
	w := mapWorld(b, &bpf.MapSpec{Name: "hash", Type: bpf.Hash, KeySize: 8, ValueSize: 8, MaxEntries: 1024})
	if w.layout.Keys(0) != 16512 || w.layout.Values(0) != 32896 {
		b.Fatal("native_hash of testdata/run.c looks elsewhere")
	}
	seg, err := w.layout.Bind(w.segment, segmentAt)
	if err != nil {
		b.Fatal(err)
	}
	for i := range uint64(500) {
		if err := seg.Map(0).Update(binary.LittleEndian.AppendUint64(nil, i*4096), make([]byte, 8), bpf.UpdateAny); err != nil {
			b.Fatal(err)
		}
	}
	binary.LittleEndian.PutUint64(w.context[112:], 4096)
	measure(b, `
		r6 = *(u64 *)(r1 +112)
		*(u64 *)(r10 -8) = r6
		r2 = r10
		r2 += -8
		r1 = map hash
		call map_lookup_elem
		if r0 == 0 goto bad
		r1 = *(u64 *)(r0 +0)
		r1 += 1
		*(u64 *)(r0 +0) = r1
		r0 = 0
		exit
	bad:	r0 = 1
		exit`, w, nativeHash)
}
