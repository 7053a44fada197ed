package bpf

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"kprobe/bpf/layout"
)

// The layout is a contract with machine code: a change of it must be seen.
func TestArrangeGolden(t *testing.T) {
	l, err := Arrange([]*MapSpec{
		{Name: "counts", Type: Array, KeySize: 4, ValueSize: 12, MaxEntries: 10},
		{Name: "hist", Type: PerCPUArray, KeySize: 4, ValueSize: 8, MaxEntries: 65},
		{Name: "start", Type: Hash, KeySize: 12, ValueSize: 4, MaxEntries: 100},
		{Name: "top", Type: LRUPerCPUHash, KeySize: 8, ValueSize: 16, MaxEntries: 9},
		{Name: "events", Type: RingBuf, MaxEntries: 4096},
		{Name: "perf", Type: PerfEventArray, KeySize: 4, ValueSize: 4},
		{Name: "stacks", Type: StackTrace, KeySize: 4, ValueSize: 80, MaxEntries: 6},
	}, 3)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for i, m := range l.Maps {
		g := l.geo[i]
		fmt.Fprintf(&b, "%-7s at %-6d elems %d slots %d buckets %d ring %d index %d keys %d+%d values %d+%d+%d size %d\n", m.Name, l.Offs[i],
			g.elems, g.slots, g.buckets, g.ringSize, g.index, g.keys, g.keyStride, g.values, g.valueStride, g.slotStride, g.size)
	}
	fmt.Fprintf(&b, "segment %d\n", l.Size)
	const want = `counts  at 0      elems 10 slots 1 buckets 0 ring 0 index 128 keys 128+0 values 128+16+0 size 320
hist    at 320    elems 65 slots 3 buckets 0 ring 0 index 128 keys 128+0 values 78720+8+70720 size 128
start   at 448    elems 200 slots 1 buckets 25 ring 0 index 128 keys 1728+16 values 4928+8+0 size 6528
top     at 6976   elems 16 slots 3 buckets 2 ring 0 index 128 keys 256+8 values 72640+16+70720 size 384
events  at 7360   elems 0 slots 3 buckets 0 ring 4096 index 128 keys 128+0 values 72512+0+70720 size 128
perf    at 7488   elems 0 slots 3 buckets 0 ring 65536 index 128 keys 128+0 values 76608+0+70720 size 128
stacks  at 7616   elems 6 slots 1 buckets 0 ring 0 index 128 keys 192+0 values 192+80+0 size 704
segment 220480
`
	if b.String() != want {
		t.Errorf("layout changed:\n%s\nwant:\n%s", &b, want)
	}
}

// Machine code computes the same hash: its values are a contract too.
func TestHashGolden(t *testing.T) {
	for _, tt := range []struct {
		key  string
		want uint64
	}{
		{"\x00", 0},
		{"\x01", 0x9e3779b9e17d05ac},
		{"\x01\x00\x00\x00\x00\x00\x00\x00", 0x9e3779b9e17d05ac},
		{"12345678", 0x5d4f22c1b8e3f8c4},
	} {
		if got := layout.Key([]byte(tt.key)); got != tt.want {
			t.Errorf("hash of %q: %#x, want %#x", tt.key, got, tt.want)
		}
	}
	if h, want := layout.Trace([]uint64{1}), uint32(0x9e3779b9^0xe17d05ac); h != want {
		t.Errorf("hash of a trace: %#x, want %#x", h, want)
	}
}

// Two buckets of eight at half load hold every key of a full map, for the kinds of
// keys that programs have: counters, addresses, random numbers.
func TestHashSpreads(t *testing.T) {
	kinds := map[string]func(i uint64) uint64{
		"counter":  func(i uint64) uint64 { return i },
		"address":  func(i uint64) uint64 { return 0x7f0000000000 + 16*i },
		"page":     func(i uint64) uint64 { return 0x7f0000000000 + 4096*i },
		"high":     func(i uint64) uint64 { return i << 32 },
		"repeated": func(i uint64) uint64 { return i * 0x0101010101010101 },
		"mixed":    func(i uint64) uint64 { return i * i * 0xd1342543de82ef95 },
	}
	for name, key := range kinds {
		for _, n := range []uint64{1, 10, 1000, 10240, 100000} {
			count := make([]int, roundUp(2*n, layout.BucketSlots)/layout.BucketSlots)
			for i := range n {
				var k [8]byte
				binary.LittleEndian.PutUint64(k[:], key(i))
				home, other := layout.Buckets(layout.Key(k[:]), uint32(len(count)))
				if count[other] < count[home] {
					home = other
				}
				if count[home]++; count[home] > layout.BucketSlots {
					t.Fatalf("%s: key %d of %d finds both buckets full", name, i, n)
				}
			}
		}
	}
}
