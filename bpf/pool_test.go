package bpf

import (
	"bytes"
	"testing"

	"kprobe/bpf/layout"
)

// Two targets have the pool's maps in common, wherever each has them, and their own apart; a
// process that was killed under a bucket's lock, and no other, gives it up.
func TestPooledMaps(t *testing.T) {
	maps := []*MapSpec{
		{Name: "hash", Type: Hash, KeySize: 8, ValueSize: 8, MaxEntries: 8},
		{Name: "own", Type: PerCPUArray, KeySize: 4, ValueSize: 8, MaxEntries: 1},
		{Name: "array", Type: Array, KeySize: 4, ValueSize: 8, MaxEntries: 2},
		{Name: "apart", Type: Array, KeySize: 4, ValueSize: 8, MaxEntries: 1, Apart: true, Contents: []KeyValue{{make([]byte, 4), word8(5)}}},
	}
	l, err := ArrangePooled(maps, 3)
	if err != nil {
		t.Fatal(err)
	}
	pool := Words(l.Pool)
	var all [2]*Segment
	for i, at := range []struct{ own, pool uint64 }{{1 << 32, 1 << 20}, {1 << 33, 1 << 40}} { // before, and behind
		if all[i], err = l.BindPool(Words(l.Size), at.own, pool, at.pool); err != nil {
			t.Fatal(err)
		}
		if err := all[i].Init(); err != nil {
			t.Fatal(err)
		}
		for m, want := range []uint64{at.pool, at.own, at.pool, at.own} {
			if addr := all[i].Map(m).Addr; addr < want || addr >= want+1<<20 {
				t.Errorf("target %d has %s at %#x", i, maps[m].Name, addr)
			}
		}
	}
	if err := all[0].InitPool(); err != nil {
		t.Fatal(err)
	}
	key4, key8 := make([]byte, 4), word8(7)
	for m, key := range [][]byte{key8, key4, key4, key4} {
		if err := all[0].Map(m).Update(key, word8(9), UpdateAny); err != nil {
			t.Fatal(err)
		}
		want := [][]byte{word8(9), word8(0), word8(9), word8(5)}[m]
		if got, err := all[1].Map(m).Lookup(key); err != nil || !bytes.Equal(got, want) {
			t.Errorf("the other target has %x in %s, want %x, %v", got, maps[m].Name, want, err)
		}
	}
	hash := all[0].Map(0)
	for b := range hash.buckets {
		*hash.mem.u32(hash.bucketOff(b) + layout.BucketLock) = 1234<<layout.LockSlotBits | 5
	}
	hash.Unlock(77)
	if err := all[1].Map(0).Update(key8, word8(1), UpdateAny); err == nil {
		t.Error("another process's lock was given up")
	}
	hash.Unlock(1234)
	if err := all[1].Map(0).Update(key8, word8(1), UpdateAny); err != nil {
		t.Error(err)
	}
	if _, err := ArrangePooled([]*MapSpec{{Name: "of", Type: Array, KeySize: 4, ValueSize: 4, MaxEntries: 1, Declared: &Declared{Type: arrayOfMaps, MaxEntries: 1}}}, 1); err == nil {
		t.Error("a map of maps was arranged")
	}
}
