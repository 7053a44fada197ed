package bpf

import (
	"bytes"
	"testing"

	"kprobe/bpf/layout"
)

// Thread slots that were not given out are not looked at, so that no memory is made of them. The
// first and the last slot, which the controller writes to, always are.
func TestOnlyGivenSlotsAreRead(t *testing.T) {
	const slots = 6
	given := 2
	open := func(spec *MapSpec) *Map {
		l, err := Arrange([]*MapSpec{spec}, slots)
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
		s.Given = func() int { return given }
		return s.Map(0)
	}

	ring := open(&MapSpec{Name: "ring", Type: RingBuf, MaxEntries: 4096})
	r, err := NewReader(ring)
	if err != nil {
		t.Fatal(err)
	}
	for slot := range slots {
		ring.output(slot, word8(uint64(slot)))
		*ring.mem.u64(ring.ringOff(slot) + layout.RingLost) = 1
	}
	records := func() (seen []int) {
		for {
			rec, ok, err := r.Read()
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				return seen
			}
			seen = append(seen, rec.Slot)
		}
	}
	expect := func(what string, have, want []int) {
		t.Helper()
		if len(have) != len(want) {
			t.Errorf("%s: %v, want %v", what, have, want)
			return
		}
		for i := range have {
			if have[i] != want[i] {
				t.Errorf("%s: %v, want %v", what, have, want)
			}
		}
	}
	expect("records of slots", records(), []int{0, 1, 5})
	if lost := r.Lost(); lost != 3 {
		t.Errorf("%d lost in the rings of 3 slots", lost)
	}
	given = 4
	expect("then of slots", records(), []int{2, 3})

	given = 0
	counts := open(&MapSpec{Name: "counts", Type: PerCPUArray, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	for slot := range slots {
		counts.mem.write(counts.valueOff(0, slot), word8(1<<slot))
	}
	for given, want := range map[int]uint64{0: 1<<0 | 1<<5, 3: 1<<0 | 1<<1 | 1<<2 | 1<<5, 1000: 1<<slots - 1} {
		counts.given = func() int { return given }
		if sum, err := counts.Lookup(word4(0)); err != nil || !bytes.Equal(sum, word8(want)) {
			t.Errorf("%d given: sum %x, want %x, %v", given, sum, want, err)
		}
		all, err := counts.Threads(word4(0))
		if err != nil || len(all) != slots {
			t.Fatalf("%d given: values of %d slots, %v", given, len(all), err)
		}
		if !bytes.Equal(Sum(all), word8(want)) {
			t.Errorf("%d given: values %x", given, all)
		}
	}
	counts.given = func() int { return 2 }
	if err := counts.Update(word4(0), word8(7), UpdateAny); err != nil {
		t.Fatal(err)
	}
	if v := counts.value(0, 3); !bytes.Equal(v, word8(1<<3)) {
		t.Errorf("an update has touched a slot that was not given out: %x", v)
	}
	if sum, err := counts.Lookup(word4(0)); err != nil || !bytes.Equal(sum, word8(7)) {
		t.Errorf("after the update the sum is %x, %v", sum, err)
	}
}
