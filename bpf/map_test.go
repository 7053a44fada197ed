package bpf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"kprobe/bpf/layout"
)

// segment has one map, for three threads.
func segment(t testing.TB, spec *MapSpec) *Map {
	t.Helper()
	l, err := Arrange([]*MapSpec{spec}, 3)
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Bind(make([]byte, l.Size), 1<<32)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Init(); err != nil {
		t.Fatal(err)
	}
	return s.Map(0)
}

func word4(v uint32) []byte { return binary.LittleEndian.AppendUint32(nil, v) }
func word8(v uint64) []byte { return binary.LittleEndian.AppendUint64(nil, v) }

// A hash does what Go's map does, for keys of awkward lengths too.
func TestHashAgainstMap(t *testing.T) {
	for _, size := range []uint32{1, 4, 7, 8, 12, 33} {
		m := segment(t, &MapSpec{Name: "m", Type: Hash, KeySize: size, ValueSize: 12, MaxEntries: 50})
		want := map[string]string{}
		r := rand.New(rand.NewPCG(1, uint64(size)))
		for step := range 20000 {
			key := make([]byte, size)
			key[r.IntN(int(size))] = byte(r.IntN(12))
			value := bytes.Repeat([]byte{byte(r.Uint32())}, 12)
			old, there := want[string(key)]
			var err, wantErr error
			switch op := r.IntN(5); op {
			case 0, 1, 2:
				err = m.Update(key, value, uint64(op))
				if there && op == UpdateNoExist {
					wantErr = ErrExist
				} else if !there && op == UpdateExist {
					wantErr = ErrNotExist
				} else if !there && len(want) >= 50 && errors.Is(err, ErrFull) {
					continue // beyond max_entries there may be room
				} else {
					want[string(key)] = string(value)
				}
			case 3:
				if err = m.Delete(key); !there {
					wantErr = ErrNotExist
				}
				delete(want, string(key))
			case 4:
				var got []byte
				if got, err = m.Lookup(key); !there {
					wantErr = ErrNotExist
				} else if string(got) != old {
					t.Fatalf("size %d, step %d: %x is %x, want %x", size, step, key, got, old)
				}
			}
			if !errors.Is(err, wantErr) {
				t.Fatalf("size %d, step %d: %v, want %v", size, step, err, wantErr)
			}
		}
		n := 0
		for key, values := range m.All() {
			if n++; want[string(key)] != string(values[0]) {
				t.Errorf("size %d: %x is %x, want %x", size, key, values[0], want[string(key)])
			}
		}
		if n != len(want) {
			t.Errorf("size %d: %d elements, want %d", size, n, len(want))
		}
	}
}

func TestHashFull(t *testing.T) {
	m := segment(t, &MapSpec{Name: "m", Type: Hash, KeySize: 4, ValueSize: 4, MaxEntries: 100})
	n := 0
	var err error
	for ; err == nil; n++ {
		err = m.Update(word4(uint32(n)), word4(1), UpdateAny)
	}
	if !errors.Is(err, ErrFull) || n <= 100 || !strings.Contains(err.Error(), `map "m": update: map is full`) {
		t.Errorf("after %d: %v", n, err)
	}
	if err := m.Delete(word4(3)); err != nil {
		t.Fatal(err)
	}
	if err := m.Update(word4(3), word4(2), UpdateNoExist); err != nil {
		t.Errorf("no room where one was deleted: %v", err)
	}
}

// An element that was looked up stays, another goes.
func TestLRU(t *testing.T) {
	m := segment(t, &MapSpec{Name: "m", Type: LRUHash, KeySize: 8, ValueSize: 8, MaxEntries: 64})
	for i := range uint64(1000) {
		if err := m.Update(word8(i), word8(i), UpdateAny); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Lookup(word8(7)); i >= 7 && err != nil {
			t.Fatalf("the key in use was evicted by %d", i)
		}
	}
	n := 0
	for key, v := range m.All() {
		if n++; !bytes.Equal(key, v[0]) {
			t.Errorf("%x is %x", key, v[0])
		}
	}
	if n < 48 || n > 64 {
		t.Errorf("%d elements of 64", n)
	}
}

func TestPerThread(t *testing.T) {
	for _, typ := range []MapType{PerCPUArray, PerCPUHash} {
		m := segment(t, &MapSpec{Name: "m", Type: typ, KeySize: 4, ValueSize: 8, MaxEntries: 4})
		for slot := range 3 {
			if e := m.update(word4(2), word8(uint64(slot+1)), UpdateAny, slot, false); e != 0 {
				t.Fatal(e)
			}
		}
		threads, err := m.Threads(word4(2))
		if got := fmt.Sprint(threads); err != nil || got != "[[1 0 0 0 0 0 0 0] [2 0 0 0 0 0 0 0] [3 0 0 0 0 0 0 0]]" {
			t.Errorf("%v: %v %v", typ, got, err)
		}
		if v, _ := m.Lookup(word4(2)); binary.LittleEndian.Uint64(v) != 6 {
			t.Errorf("%v: sum %v", typ, v)
		}
		if err := m.Update(word4(2), word8(10), UpdateAny); err != nil {
			t.Fatal(err)
		}
		if v, _ := m.Lookup(word4(2)); binary.LittleEndian.Uint64(v) != 10 {
			t.Errorf("%v: set to %v", typ, v)
		}
		// A key that comes new has no value of its predecessor's, in any slot.
		if typ == PerCPUHash {
			if err := m.Delete(word4(2)); err != nil {
				t.Fatal(err)
			}
			if e := m.update(word4(2), word8(1), UpdateNoExist, 2, false); e != 0 {
				t.Fatal(e)
			}
			if v, _ := m.Lookup(word4(2)); binary.LittleEndian.Uint64(v) != 1 {
				t.Errorf("sum of a new key: %v", v)
			}
		}
	}
}

func TestArrayErrors(t *testing.T) {
	m := segment(t, &MapSpec{Name: "m", Type: Array, KeySize: 4, ValueSize: 8, MaxEntries: 4})
	for _, tt := range []struct {
		name      string
		err, want error
	}{
		{"beyond", m.Update(word4(4), word8(1), UpdateAny), ErrFull},
		{"lookup beyond", func() error { _, err := m.Lookup(word4(4)); return err }(), ErrNotExist},
		{"new", m.Update(word4(1), word8(1), UpdateNoExist), ErrExist},
		{"flags", m.Update(word4(1), word8(1), 3), ErrInvalid},
		{"key's length", m.Update(word8(1), word8(1), 0), ErrInvalid},
		{"value's length", m.Update(word4(1), word4(1), 0), ErrInvalid},
		{"delete", m.Delete(word4(1)), ErrInvalid},
		{"right", m.Update(word4(1), word8(1), UpdateExist), nil},
	} {
		if !errors.Is(tt.err, tt.want) || tt.want == nil && tt.err != nil {
			t.Errorf("%s: %v, want %v", tt.name, tt.err, tt.want)
		}
	}
}

// Threads that insert, count and delete the same keys at the same time lose nothing.
func TestHashConcurrent(t *testing.T) {
	m := segment(t, &MapSpec{Name: "m", Type: Hash, KeySize: 8, ValueSize: 8, MaxEntries: 64})
	rounds := 20000
	if testing.Short() {
		rounds = 3000
	}
	const keys = 16
	var wg sync.WaitGroup
	var added [keys]atomic.Uint64
	for g := range 4 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 9))
			for range rounds {
				k := r.IntN(keys)
				key := word8(uint64(k) * 0x1000)
				elem, ok := m.find(key)
				for !ok {
					if e := m.update(key, word8(0), UpdateNoExist, 0, false); e != 0 && e != EEXIST && e != EBUSY {
						t.Errorf("insert: %v", e)
						return
					}
					elem, ok = m.find(key)
				}
				atomic.AddUint64(m.mem.u64(m.valueOff(elem, 0)), 1)
				added[k].Add(1)
				// A key of its own comes and goes.
				own := word8(uint64(1000 + g))
				if e := m.update(own, word8(1), UpdateAny, 0, false); e != 0 && e != EBUSY {
					t.Errorf("own: %v", e)
				}
				if e := m.remove(own); e != 0 && e != EBUSY && e != ENOENT {
					t.Errorf("delete: %v", e)
				}
			}
		})
	}
	wg.Wait()
	n := 0
	for key, v := range m.All() {
		k := binary.LittleEndian.Uint64(key)
		if k >= 1000 && k < 1004 {
			continue // deleting it met a lock
		}
		n++
		if got, want := binary.LittleEndian.Uint64(v[0]), added[k/0x1000].Load(); got != want {
			t.Errorf("key %#x: %d, want %d", k, got, want)
		}
	}
	if n != keys {
		t.Errorf("%d keys, want %d: one is there twice, or lost", n, keys)
	}
}

// A thread that was stopped inside makes others fail, not wait.
func TestHashLockedForEver(t *testing.T) {
	m := segment(t, &MapSpec{Name: "m", Type: Hash, KeySize: 8, ValueSize: 8, MaxEntries: 1})
	if err := m.Update(word8(1), word8(1), 0); err != nil {
		t.Fatal(err)
	}
	home, _, _ := m.places(word8(1))
	m.lock(home)
	if err := m.Update(word8(1), word8(2), 0); !errors.Is(err, ErrBusy) {
		t.Errorf("update: %v", err)
	}
	if err := m.Delete(word8(1)); !errors.Is(err, ErrBusy) {
		t.Errorf("delete: %v", err)
	}
	if v, err := m.Lookup(word8(1)); err != nil || v[0] != 1 {
		t.Errorf("lookup takes no lock: %v %v", v, err)
	}
}

// Records of all sizes go round the ring many times, in order and whole.
func TestRing(t *testing.T) {
	m := segment(t, &MapSpec{Name: "m", Type: RingBuf, MaxEntries: 4096})
	r, err := NewReader(m)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	var want [3][]string
	lost := uint64(0)
	for range 20000 {
		slot := rng.IntN(3)
		if rng.IntN(2) == 0 {
			rec, ok, err := r.Read()
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				if len(want[0])+len(want[1])+len(want[2]) > 0 {
					t.Fatal("a record is not found")
				}
				continue
			}
			if len(want[rec.Slot]) == 0 || string(rec.Data) != want[rec.Slot][0] {
				t.Fatalf("slot %d: %q, want %q", rec.Slot, rec.Data, want[rec.Slot])
			}
			want[rec.Slot] = want[rec.Slot][1:]
			continue
		}
		data := strings.Repeat(string(rune('a'+rng.IntN(26))), rng.IntN(600))
		off, ok := m.reserve(slot, uint64(len(data)))
		switch {
		case !ok:
			lost++
		case rng.IntN(8) == 0:
			m.finish(off, true)
		default:
			m.mem.write(off, []byte(data))
			m.finish(off, false)
			want[slot] = append(want[slot], data)
		}
	}
	if lost == 0 || r.Lost() != lost {
		t.Errorf("lost %d, want %d, not 0", r.Lost(), lost)
	}
}

// A record that is reserved holds back those behind it, in its own thread only.
func TestRingBusy(t *testing.T) {
	m := segment(t, &MapSpec{Name: "m", Type: RingBuf, MaxEntries: 4096})
	r, _ := NewReader(m)
	off, _ := m.reserve(0, 5)
	m.output(0, []byte("second"))
	m.output(2, []byte("other"))
	read := func(want string) {
		t.Helper()
		rec, ok, err := r.Read()
		if err != nil || ok != (want != "") || string(rec.Data) != want {
			t.Errorf("%q %v %v, want %q", rec.Data, ok, err, want)
		}
	}
	read("other")
	read("")
	m.mem.write(off, []byte("first"))
	m.finish(off, false)
	read("first")
	read("second")
	read("")
	if _, ok := m.reserve(0, 4096/2-8); !ok {
		t.Error("half of the ring does not fit")
	}
	if _, ok := m.reserve(1, 4096-7); ok {
		t.Error("a record larger than the ring fits")
	}
}

// Drain gives what Read would: every thread's records in order, up to one that is not finished.
func TestRingDrain(t *testing.T) {
	m := segment(t, &MapSpec{Name: "m", Type: RingBuf, MaxEntries: 4096})
	r, _ := NewReader(m)
	rng := rand.New(rand.NewPCG(3, 1))
	var want, got [3][]string
	drain := func() {
		t.Helper()
		if err := r.Drain(func(slot int, block []byte) {
			for rec := range Records(block) {
				got[slot] = append(got[slot], string(rec))
			}
		}); err != nil {
			t.Fatal(err)
		}
		for slot := range want {
			if !slices.Equal(got[slot], want[slot]) {
				t.Fatalf("slot %d: %q, want %q", slot, got[slot], want[slot])
			}
		}
	}
	for range 5000 {
		slot := rng.IntN(3)
		data := strings.Repeat(string(rune('a'+rng.IntN(26))), rng.IntN(600))
		off, ok := m.reserve(slot, uint64(len(data)))
		if !ok {
			drain()
			got, want = [3][]string{}, [3][]string{}
			continue
		}
		m.mem.write(off, []byte(data))
		m.finish(off, rng.IntN(8) == 0)
		if atomic.LoadUint64(m.mem.u64(off-layout.RecordHeader))&layout.RecordDiscard == 0 {
			want[slot] = append(want[slot], data)
		}
	}
	drain()
	off, _ := m.reserve(0, 5)
	m.output(0, []byte("second"))
	drain()
	m.mem.write(off, []byte("first"))
	m.finish(off, false)
	want[0] = append(want[0], "first", "second")
	drain()
	for n := range 40 {
		for range Records(make([]byte, n)) { // and no panic
		}
	}
}

// A target may write anywhere: the reader says so and goes on.
func TestRingOverwritten(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	seen := 0
	for range 500 {
		m := segment(t, &MapSpec{Name: "m", Type: RingBuf, MaxEntries: 4096})
		r, _ := NewReader(m)
		for range 20 {
			m.output(1, []byte("some record"))
		}
		ring := m.mem[m.ringOff(1) : m.ringOff(1)+300]
		for range 1 + rng.IntN(8) {
			ring[rng.IntN(len(ring))] = byte(rng.Uint32())
		}
		if rng.IntN(2) == 0 { // the other way of reading
			err := r.Drain(func(slot int, block []byte) {
				for range Records(block) {
				}
			})
			if err != nil {
				seen++
			}
			if err := r.Drain(func(slot int, block []byte) {}); err != nil && !strings.Contains(err.Error(), "the ring of thread slot 1 was overwritten by the target") {
				t.Fatal(err)
			}
			continue
		}
		reads := 0
		for {
			_, ok, err := r.Read()
			if err != nil {
				seen++
				if !strings.Contains(err.Error(), "the ring of thread slot 1 was overwritten by the target") {
					t.Error(err)
				}
			}
			if reads++; reads > 1000 {
				t.Fatal("the reader does not come to an end")
			}
			if !ok && err == nil {
				break
			}
		}
	}
	if seen == 0 {
		t.Error("nothing was noticed")
	}
}

func TestStackTraces(t *testing.T) {
	m := segment(t, &MapSpec{Name: "m", Type: StackTrace, KeySize: 4, ValueSize: 80, MaxEntries: 16})
	a, e := m.trace([]uint64{1, 2, 3}, 0)
	if e != 0 {
		t.Fatal(e)
	}
	if again, e := m.trace([]uint64{1, 2, 3}, 0); e != 0 || again != a {
		t.Errorf("the same trace: %d %v, then %d", again, e, a)
	}
	if b, e := m.trace([]uint64{1, 2}, 0); e != 0 || b == a {
		t.Errorf("a shorter trace: %d %v", b, e)
	}
	full := errno(0)
	for i := range uint64(100) {
		if _, e := m.trace([]uint64{i, i}, 0); e != 0 {
			full = e
		}
	}
	if full != EEXIST {
		t.Errorf("a full map: %v", full)
	}
	if _, e := m.trace([]uint64{1000}, stackReuse); e != 0 {
		t.Errorf("reuse: %v", e)
	}
	n := 0
	for key := range m.All() {
		if n++; m.Delete(key) != nil {
			t.Error("delete")
		}
	}
	if n != 16 {
		t.Errorf("%d traces", n)
	}
}

func TestPrintkRecord(t *testing.T) {
	rec := slices.Concat(word4(42), word4(9), word4(3), word4(1), word8(1), word8(2), word8(3), []byte("a %d %s\x00\x00 any..."[:9]), make([]byte, 7),
		[]byte("text"), make([]byte, PrintkText-4))
	p, err := ParsePrintk(rec)
	if err != nil || !reflect.DeepEqual(p, Printk{Thread: 42, Format: "a %d %s", Args: []uint64{1, 2, 3}, Texts: []string{"text"}}) {
		t.Errorf("%+v %v", p, err)
	}
	for _, bad := range [][]byte{nil, rec[:12], rec[:34], rec[:len(rec)-1]} {
		if _, err := ParsePrintk(bad); err == nil {
			t.Errorf("%x is a record", bad)
		}
	}
}

func TestArrangeRefuses(t *testing.T) {
	for _, tt := range []struct {
		m    MapSpec
		want string
	}{
		{MapSpec{Type: 3, KeySize: 4, ValueSize: 4, MaxEntries: 1}, "type 3 is not supported"},
		{MapSpec{Type: Hash, KeySize: 0, ValueSize: 4, MaxEntries: 1}, "key of 0 bytes"},
		{MapSpec{Type: Hash, KeySize: 16<<10 + 1, ValueSize: 4, MaxEntries: 1}, "key of 16385 bytes"},
		{MapSpec{Type: Hash, KeySize: 4, ValueSize: 0, MaxEntries: 1}, "value of 0 bytes"},
		{MapSpec{Type: StackTrace, KeySize: 4, ValueSize: 20, MaxEntries: 1}, "a multiple of 8"},
		{MapSpec{Type: Hash, KeySize: 4, ValueSize: 4, MaxEntries: 1 << 30}, "max_entries 1073741824"},
		{MapSpec{Type: Array, KeySize: 4, ValueSize: 4, MaxEntries: 1, Flags: 1 << 20}, "unknown flags 0x100000"},
		{MapSpec{Type: PerCPUArray, KeySize: 4, ValueSize: 1 << 20, MaxEntries: 1 << 26}, "bytes with 3 thread slots"},
		{MapSpec{Type: RingBuf, ValueSize: 4, MaxEntries: 4096}, "has no keys and values"},
	} {
		if _, err := Arrange([]*MapSpec{&tt.m}, 3); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v, want %s", err, tt.want)
		}
	}
}

// Words of an array are what Lookup gives of each, in one call.
func TestWords(t *testing.T) {
	m := segment(t, &MapSpec{Name: "m", Type: PerCPUArray, KeySize: 4, ValueSize: 8, MaxEntries: 9})
	for i := range uint32(9) {
		for slot := range 3 {
			m.update(word4(i), word8(uint64(i)<<(8*slot)), UpdateAny, slot, false)
		}
	}
	got := []uint64{1, 2, 3, 4} // what was there before is no part of it
	if err := m.Words(5, got); err != nil {
		t.Fatal(err)
	}
	for i, n := range got {
		if v, _ := m.Lookup(word4(uint32(5 + i))); binary.LittleEndian.Uint64(v) != n {
			t.Errorf("element %d: %#x, by itself %x", 5+i, n, v)
		}
	}
	if err := m.Words(6, got); !errors.Is(err, ErrNotExist) {
		t.Errorf("beyond the end: %v", err)
	}
	for _, other := range []*MapSpec{{Name: "m", Type: Array, KeySize: 4, ValueSize: 4, MaxEntries: 9}, {Name: "m", Type: Hash, KeySize: 4, ValueSize: 8, MaxEntries: 9}} {
		if err := segment(t, other).Words(0, got); !errors.Is(err, ErrInvalid) {
			t.Errorf("%v: %v", other.Type, err)
		}
	}
}
