package jit

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"kprobe/arch"
	"kprobe/bpf"
	"kprobe/bpf/bpftest"
	"kprobe/bpf/layout"
	"kprobe/bpf/verify"
)

// Whole programs, verified, with maps of all kinds.

var update = flag.Bool("update", false, "write the golden files anew")

var testMaps = []*bpf.MapSpec{
	{Name: "wide", Type: bpf.Array, KeySize: 4, ValueSize: 24, MaxEntries: 10},
	{Name: "counts", Type: bpf.PerCPUArray, KeySize: 4, ValueSize: 8, MaxEntries: 16},
	{Name: "odd", Type: bpf.PerCPUArray, KeySize: 4, ValueSize: 40, MaxEntries: 3},
	{Name: "hash", Type: bpf.Hash, KeySize: 8, ValueSize: 16, MaxEntries: 8},
	{Name: "lru", Type: bpf.LRUHash, KeySize: 4, ValueSize: 8, MaxEntries: 8},
	{Name: "ring", Type: bpf.RingBuf, MaxEntries: 4096},
	{Name: "zero", Type: bpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1},
}

// programs are text; R1 is the context, in which rdi (+112) and rsi (+104) vary.
var programs = []struct{ name, text string }{
	{"constant key", `
		*(u32 *)(r10 -4) = 3
		r2 = r10
		r2 += -4
		r1 = map counts
		call map_lookup_elem
		if r0 == 0 goto out
		r1 = *(u64 *)(r0 +0)
		r1 += 1
		*(u64 *)(r0 +0) = r1
	out:	r0 = 0
		exit`},
	{"constant key in a register, the other way round", `
		r6 = *(u64 *)(r1 +112)
		r3 = 0
		*(u32 *)(r10 -8) = r3
		r2 = r10
		r2 += -8
		r1 = map zero
		call map_lookup_elem
		if r0 != 0 goto found
		r0 = 1
		exit
	found:	lock add *(u64 *)(r0 +0), r6
		r0 = 2
		exit`},
	{"constant key that is not in the map", `
		*(u32 *)(r10 -4) = 16
		r2 = r10
		r2 += -4
		r1 = map counts
		call map_lookup_elem
		if r0 == 0 goto out
		r0 = 1
		exit
	out:	r0 = 7
		exit`},
	{"key from an argument", `
		r6 = *(u64 *)(r1 +112)
		*(u32 *)(r10 -4) = r6
		r2 = r10
		r2 += -4
		r1 = map wide
		call map_lookup_elem
		if r0 == 0 goto out
		*(u64 *)(r0 +8) = r6
		r1 = *(u32 *)(r0 +20)
		w1 += 5
		*(u32 *)(r0 +20) = r1
		r0 = r1
	out:	exit`},
	{"key in the register of the map", `
		r1 = *(u64 *)(r1 +112)
		r1 &= 15
		*(u32 *)(r10 -4) = r1
		r2 = r10
		r2 += -4
		r1 = map counts
		call map_lookup_elem
		if r0 == 0 goto out
		r1 = *(u64 *)(r0 +0)
		r1 += 1
		*(u64 *)(r0 +0) = r1
	out:	r0 = 0
		exit`},
	{"key in the register of the map, which is wanted twice", `
		r1 = *(u64 *)(r1 +112)
		r1 &= 15
		*(u32 *)(r10 -4) = r1
		r1 = map counts
		r2 = r10
		r2 += -4
		r6 = r1
		call map_lookup_elem
		if r0 == 0 goto out
		*(u64 *)(r10 -16) = 5
		r1 = r6
		r2 = r10
		r2 += -4
		r3 = r10
		r3 += -16
		r4 = 0
		call map_update_elem
	out:	exit`},
	{"key in the register of a map before", `
		r1 = *(u64 *)(r1 +112)
		r1 &= 15
		*(u32 *)(r10 -4) = r1
		r1 = map wide
		r2 = r10
		r2 += -4
		r1 = map counts
		call map_lookup_elem
		if r0 == 0 goto out
		r0 = *(u64 *)(r0 +0)
	out:	exit`},
	{"key written twice, once by half", `
		*(u32 *)(r10 -4) = 1
		*(u16 *)(r10 -4) = 2
		r2 = r10
		r2 += -4
		r1 = map wide
		call map_lookup_elem
		r6 = r0
		*(u32 *)(r10 -4) = 5
		*(u32 *)(r10 -8) = 6
		r2 = r10
		r2 += -4
		r1 = map odd
		call map_lookup_elem
		if r0 == 0 goto out
		if r6 == 0 goto out
		r1 = 9
		*(u64 *)(r0 +0) = r1
		*(u64 *)(r6 +0) = r1
	out:	r0 = *(u32 *)(r10 -8)
		exit`},
	{"key through another pointer", `
		r6 = r1
		*(u32 *)(r10 -4) = 1
		r3 = r10
		r3 += -4
		r4 = *(u64 *)(r6 +104)
		r4 &= 3
		*(u32 *)(r3 +0) = r4
		r2 = r10
		r2 += -4
		r1 = map counts
		call map_lookup_elem
		if r0 == 0 goto out
		r1 = 1
		lock fetch_add *(u64 *)(r0 +0), r1
		r0 = r1
		exit
	out:	r0 = 1
		exit`},
	{"a branch between key and lookup", `
		*(u32 *)(r10 -4) = 1
		r3 = *(u64 *)(r1 +112)
		if r3 > 5 goto two
		*(u32 *)(r10 -4) = 2
	two:	r2 = r10
		r2 += -4
		r1 = map counts
		call map_lookup_elem
		if r0 == 0 goto out
		r1 = *(u64 *)(r0 +0)
		r1 += 1
		*(u64 *)(r0 +0) = r1
	out:	r0 = 0
		exit`},
	{"a helper writes the key", `
		*(u32 *)(r10 -4) = 1
		r1 = r10
		r1 += -4
		r2 = 4
		call get_current_comm
		r2 = r10
		r2 += -4
		r1 = map counts
		call map_lookup_elem
		if r0 == 0 goto out
		r0 = 1
	out:	exit`},
	{"rounds of a loop that only their number ends", `
		r6 = 0
	next:	may_goto out
		r6 += 1
		goto next
	out:	may_goto none
		r6 += 1
	none:	r0 = r6
		exit`},
	{"a loop that ends by itself", `
		r6 = *(u64 *)(r1 +112)
		r6 &= 1023
		r7 = 0
		*(u64 *)(r10 -8) = r7
	next:	may_goto out
		if r6 == 0 goto out
		r6 -= 1
		r7 = *(u64 *)(r10 -8)
		r7 += r6
		*(u64 *)(r10 -8) = r7
		goto next
	out:	r0 = *(u64 *)(r10 -8)
		exit`},
	{"context by address", `
		r6 = r1
		r3 = r1
		r3 += 112
		r1 = r10
		r1 += -8
		r2 = 8
		call probe_read_kernel
		r0 = *(u64 *)(r10 -8)
		r1 = *(u64 *)(r6 +112)
		r0 ^= r1
		exit`},
	{"context by an address that may be beside it", `
		r6 = r1
		r7 = *(u64 *)(r1 +112)
		r7 &= 255
		r8 = 0
		r9 = -8
	next:	r3 = r6
		r3 += r9
		r3 += r7
		r1 = r10
		r1 += -8
		r2 = 8
		call probe_read_user
		r8 += r0
		r0 = *(u64 *)(r10 -8)
		r8 ^= r0
		r3 = r6
		r3 += r9
		r3 -= r7
		r1 = r10
		r1 += -8
		r2 = 5
		call probe_read_str
		r8 += r0
		r9 += 24
		if r9 s< 200 goto next
		r0 = r8
		exit`},
	{"two lookups, one function", `
		r6 = *(u64 *)(r1 +112)
		r7 = *(u64 *)(r1 +104)
		r1 = r6
		call bump
		r8 = r0
		r1 = r7
		call bump
		r0 += r8
		exit
	bump:	r6 = 1
		*(u32 *)(r10 -4) = r1
		r2 = r10
		r2 += -4
		r1 = map odd
		call map_lookup_elem
		if r0 == 0 goto none
		r1 = *(u64 *)(r0 +32)
		r1 += r6
		*(u64 *)(r0 +32) = r1
		r0 = 1
	none:	exit`},
	{"hash", `
		r6 = r1
		r1 = *(u64 *)(r6 +112)
		r1 &= 7
		*(u64 *)(r10 -8) = r1
		r2 = r10
		r2 += -8
		r1 = map hash
		call map_lookup_elem
		if r0 == 0 goto new
		r1 = 1
		lock add *(u64 *)(r0 +8), r1
		r0 = 1
		exit
	new:	*(u64 *)(r10 -24) = 1
		*(u64 *)(r10 -16) = 2
		r1 = map hash
		r2 = r10
		r2 += -8
		r3 = r10
		r3 += -24
		r4 = 0
		call map_update_elem
		r7 = r0
		r1 = map hash
		r2 = r10
		r2 += -8
		call map_delete_elem
		r0 += r7
		exit`},
	{"records, submitted and not", `
		r6 = r1
		r9 = 150
	next:	r1 = map ring
		r2 = 21
		r3 = 0
		call ringbuf_reserve
		if r0 == 0 goto full
		r7 = r0
		call ktime_get_ns
		*(u64 *)(r7 +0) = r0
		call get_current_pid_tgid
		*(u64 *)(r7 +8) = r0
		r1 = *(u64 *)(r6 +112)
		r1 += r9
		*(u32 *)(r7 +16) = r1
		*(u8 *)(r7 +20) = 1
		r1 &= 3
		if r1 == 1 goto drop
		r1 = r7
		r2 = 0
		call ringbuf_submit
		goto done
	drop:	r1 = r7
		r2 = 0
		call ringbuf_discard
	done:	r9 += -1
		if r9 != 0 goto next
		r0 = 0
		exit
	full:	r0 = r9
		exit`},
	{"a record that is not there", `
		r1 = map ring
		r2 = 5000
		r3 = 0
		call ringbuf_reserve
		if r0 != 0 goto there
		r0 = 3
		exit
	there:	r1 = r0
		r2 = 0
		call ringbuf_submit
		r0 = 4
		exit`},
	{"a record of an exact fit, kept on the stack", `
		r1 = map ring
		r2 = 4088
		r3 = 1
		call ringbuf_reserve
		*(u64 *)(r10 -8) = r0
		r1 = map ring
		r2 = 8
		r3 = 0
		call ringbuf_reserve
		if r0 != 0 goto there
		r1 = *(u64 *)(r10 -8)
		if r1 == 0 goto out
		r2 = 0
		call ringbuf_submit
		r0 = 5
		exit
	there:	r1 = r0
		r2 = 0
		call ringbuf_discard
		r1 = *(u64 *)(r10 -8)
		if r1 == 0 goto out
		r2 = 0
		call ringbuf_submit
	out:	r0 = 6
		exit`},
	{"memory of the target", `
		r6 = r1
		r3 = *(u64 *)(r6 +112)
		r1 = r10
		r1 += -32
		r2 = 32
		call probe_read_user
		r7 = r0
		r1 = r10
		r1 += -64
		r2 = 16
		r3 = *(u64 *)(r6 +104)
		*(u64 *)(r10 -64) = 1
		*(u64 *)(r10 -56) = 1
		call probe_read_user_str
		r0 += r7
		r1 = *(u64 *)(r10 -32)
		r0 += r1
		r1 = *(u64 *)(r10 -56)
		r0 ^= r1
		exit`},
	{"histogram of powers of two", `
		r1 = *(u64 *)(r1 +112)
		r1 /= 1000
		r2 = 0
		if r1 < 0x10000 goto a
		r2 = 16
		r1 >>= 16
	a:	if r1 < 0x100 goto b
		r2 += 8
		r1 >>= 8
	b:	if r1 < 0x10 goto c
		r2 += 4
	c:	if r2 > 15 goto out
		*(u32 *)(r10 -4) = r2
		r2 = r10
		r2 += -4
		r1 = map counts
		call map_lookup_elem
		if r0 == 0 goto out
		r1 = *(u64 *)(r0 +0)
		r1 += 1
		*(u64 *)(r0 +0) = r1
	out:	r0 = 0
		exit`},
	{"printing one value", `
		r3 = *(u64 *)(r1 +112)
		*(u64 *)(r10 -8) = 0x0a6425
		r1 = r10
		r1 += -8
		r2 = 8
		call trace_printk
		exit`},
	{"one of two maps", `
		r6 = *(u64 *)(r1 +112)
		*(u32 *)(r10 -4) = 2
		r1 = map wide
		if r6 > 1000 goto a
		r1 = map counts
	a:	r2 = r10
		r2 += -4
		call map_lookup_elem
		if r0 == 0 goto out
		r0 = *(u64 *)(r0 +0)
	out:	exit`},
	{"jumps between what would be one instruction", `
		r6 = *(u64 *)(r1 +112)
		r7 = *(u64 *)(r1 +104)
		r0 = 1
		r8 = 9
		if r6 > 1000 goto a
		r0 = r7
	a:	r0 += 7
		if r7 > 1000 goto b
		r0 <<= 32
	b:	r0 >>= 32
		r9 = r0
		*(u64 *)(r10 -8) = 5
		if r6 & 1 goto c
		r9 = *(u64 *)(r10 -8)
	c:	r9 += 3
		if r6 & 2 goto d
		r8 = r7
	d:	*(u64 *)(r10 -8) = r9
		r0 += r8
		if r6 & 4 goto e
		r0 -= r7
	e:	if r0 == 0 goto f
		r1 = *(u64 *)(r10 -8)
		r0 ^= r1
	f:	exit`},
	{"a jump to the check of a lookup", `
		r6 = *(u64 *)(r1 +112)
		r0 = 0
		if r6 > 1000 goto check
		*(u32 *)(r10 -4) = r6
		r2 = r10
		r2 += -4
		r1 = map counts
		call map_lookup_elem
	check:	if r0 == 0 goto out
		r0 = *(u64 *)(r0 +0)
		exit
	out:	r0 = 77
		exit`},
	{"older compilers' 32 bits", `
		r2 = *(u64 *)(r1 +112)
		r3 = r2
		r3 <<= 32
		r3 >>= 32
		r4 = r2
		r4 <<= 32
		r4 s>>= 32
		r5 = *(u64 *)(r1 +104)
		r5 <<= 32
		r5 >>= 32
		r0 = r3
		r0 *= 3
		r0 += r4
		r0 ^= r5
		exit`},
}

// verified assembles and verifies.
func verified(t testing.TB, name, text string) *bpf.Proof {
	t.Helper()
	insns, err := bpftest.Assemble(text, testMaps...)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	p, err := verify.Program(&bpf.Program{Name: name, Insns: insns, Maps: testMaps})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// memoryOfTarget is readable below 2^32 but for every second page, and tells where it is read.
func memoryOfTarget(addr uint64, p []byte) error {
	for i := range p {
		a := addr + uint64(i)
		if a >= 1<<32 || a>>12&1 == 1 {
			return errors.New("not there")
		}
		p[i] = byte(a*7) & 0x7f
	}
	return nil
}

// randomWorld fills the context, the values of the maps that are arrays, hashes with
// keys of small words, and rings.
func randomWorld(t testing.TB, rng *rand.Rand, template *world) *world {
	w := *template
	w.segment = bytes.Clone(template.segment)
	w.slot, w.pidTgid, w.funcIP, w.cookie = rng.IntN(2), rng.Uint64(), rng.Uint64(), rng.Uint64()
	w.memory = memoryOfTarget
	for i := range ContextWords {
		v := rng.Uint64() >> (rng.IntN(16) * 4)
		for k := range 8 {
			w.context[8*i+k] = byte(v >> (8 * k))
		}
	}
	seg, err := w.layout.Bind(w.segment, segmentAt)
	if err != nil {
		t.Fatal(err)
	}
	for m, spec := range w.layout.Maps {
		if w.layout.Buckets(m) > 0 {
			for range rng.IntN(10) {
				key, value := make([]byte, spec.KeySize), make([]byte, spec.ValueSize)
				for i := 0; i < len(key); i += 4 {
					key[i] = byte(rng.IntN(6) >> (i / 2)) // the first word varies most
				}
				value[0] = byte(rng.Uint32())
				if err := seg.Map(m).Update(key, value, bpf.UpdateAny); err != nil && !errors.Is(err, bpf.ErrFull) {
					t.Fatal(err)
				}
			}
		}
		if spec.Type == bpf.RingBuf {
			// Somewhere in its ring, partly read: the next record may go round its end.
			ring := w.segment[w.layout.Values(m)+uint64(w.slot)*w.layout.SlotStride(m):]
			tail := 8 * (rng.Uint64() >> (4 + rng.IntN(60)))
			binary.LittleEndian.PutUint64(ring[layout.RingTail:], tail)
			binary.LittleEndian.PutUint64(ring[layout.RingHead:], tail+8*rng.Uint64N(uint64(spec.MaxEntries)/8+1))
		}
		if spec.Type == bpf.Array || spec.Type == bpf.PerCPUArray {
			for s := range uint64(2) {
				values := w.segment[w.layout.Values(m)+s*w.layout.SlotStride(m):][:uint64(spec.MaxEntries)*uint64(w.layout.ValueStride(m))]
				for i := range values {
					values[i] = byte(rng.Uint32())
				}
			}
		}
	}
	return &w
}

func TestPrograms(t *testing.T) {
	m := harness(t)
	rng := rand.New(rand.NewPCG(13, 14))
	template := mapWorld(t, testMaps...)
	times := 40
	if under.run != nil || testing.Short() {
		times = 2 // an emulator takes its time with the loops, and so does the race detector
	}
	for _, p := range programs {
		proof := verified(t, p.name, p.text)
		var runs []*run
		for range times {
			r, err := newRun(m, proof, randomWorld(t, rng, template))
			if err != nil {
				t.Fatal(err)
			}
			runs = append(runs, r)
		}
		compare(t, m, runs)
	}
}

// The machine code of the programs above, for a person to read; only the bytes are
// compared, so that another objdump's spelling does not matter.
func TestGolden(t *testing.T) {
	const file = "testdata/code.golden"
	var got strings.Builder
	template := mapWorld(t, testMaps...)
	for _, p := range programs {
		proof := verified(t, p.name, p.text)
		code, err := compileHere(proof, &Env{Segment: arch.Addr(segmentAt), Layout: template.layout, Clock: &Clock{Base: 5, Mult: 1 << 31, Shift: 32}})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&got, "# %s\n%s\n", p.name, listing(t, proof, code))
	}
	if *update {
		if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	old, now := strings.Split(string(want), "\n"), strings.Split(got.String(), "\n")
	for i := range max(len(old), len(now)) {
		if i >= len(old) || i >= len(now) || codeOf(old[i]) != codeOf(now[i]) {
			t.Fatalf("%s: line %d differs (-update writes it anew)\nwant %q\n got %q", file, i+1, old[min(i, len(old)-1)], now[min(i, len(now)-1)])
		}
	}
}

// codeOf is a line of a listing without what objdump made of the bytes.
func codeOf(line string) string {
	code, _, _ := strings.Cut(line, " | ")
	return code
}

// Two keys with one tag in one bucket: one is not taken for the other.
func TestKeysOfOneTag(t *testing.T) {
	m := harness(t)
	spec := &bpf.MapSpec{Name: "hash", Type: bpf.Hash, KeySize: 4, ValueSize: 8, MaxEntries: 8}
	template := mapWorld(t, spec)
	seen := map[[2]uint32]uint32{}
	var a, b uint32
	for a == 0 {
		b++
		h := uint64(b) * layout.HashMul
		h ^= h >> 32
		place := [2]uint32{uint32(h) | layout.TagKey, uint32(h >> 32 * uint64(template.layout.Buckets(0)) >> 32)}
		a, seen[place] = seen[place], b
	}
	proof, err := verify.Program(&bpf.Program{Name: "find", Maps: []*bpf.MapSpec{spec}, Insns: bpftest.MustAssemble(`
		r1 = *(u64 *)(r1 +112)
		*(u32 *)(r10 -4) = r1
		r2 = r10
		r2 += -4
		r1 = map hash
		call map_lookup_elem
		if r0 == 0 goto out
		r0 = *(u64 *)(r0 +0)
	out:	exit`, spec)})
	if err != nil {
		t.Fatal(err)
	}
	var runs []*run
	for _, keys := range [][]uint32{{a}, {b}, {a, b}, {b, a}} {
		for _, key := range []uint32{a, b} {
			w := *template
			w.segment = bytes.Clone(template.segment)
			seg, err := w.layout.Bind(w.segment, segmentAt)
			if err != nil {
				t.Fatal(err)
			}
			for i, k := range keys {
				if err := seg.Map(0).Update(binary.LittleEndian.AppendUint32(nil, k), []byte{byte(i + 1), 0, 0, 0, 0, 0, 0, 0}, bpf.UpdateAny); err != nil {
					t.Fatal(err)
				}
			}
			binary.LittleEndian.PutUint32(w.context[112:], key)
			r, err := newRun(m, proof, &w)
			if err != nil {
				t.Fatal(err)
			}
			runs = append(runs, r)
		}
	}
	compare(t, m, runs)
}
