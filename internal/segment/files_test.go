package segment

import (
	"testing"

	"kprobe/arch"
)

// The files' code is a list that only grows: where it is full, neighbours become one with what is between them.
func TestFiles(t *testing.T) {
	l := Layout{Threads: 8}
	s, err := New(wide, l, 0x1000_0000, make([]byte, l.Size()), 1)
	if err != nil {
		t.Fatal(err)
	}
	within := func(a uint64) bool {
		for at := headFiles; s.Get(at) != 0; at += 16 {
			if a >= s.Get(at) && a < s.Get(at+8) {
				return true
			}
		}
		return false
	}
	at := func(i int) arch.Range {
		start := arch.Addr(i+1) << 20
		return arch.Range{Start: start, End: start + 0x1000}
	}
	many := func(n int) (rs []arch.Range) {
		for i := range n {
			rs = append(rs, at(i))
		}
		return rs
	}
	for range 2 { // what is there already changes nothing
		s.SetFiles(many(maxFiles))
		if s.Get(headFiles+16*(maxFiles-1)) == 0 || s.Get(headFiles+16*maxFiles) != 0 {
			t.Fatal("not one entry for each")
		}
	}
	if within(uint64(at(7).End)) || !within(uint64(at(7).Start)) || !within(uint64(at(maxFiles-1).End)-1) {
		t.Error("an entry is not its file's")
	}
	s.SetFiles([]arch.Range{{Start: at(7).End, End: at(7).End + 0x1000}})
	if s.Get(headFiles+16*7+8) != uint64(at(7).End)+0x1000 {
		t.Error("what goes on there has not become one with it")
	}
	more := many(maxFiles + 10)
	s.SetFiles(more)
	if s.Get(headFiles+16*maxFiles) != 0 {
		t.Error("the list has no end")
	}
	for _, r := range more {
		if !within(uint64(r.Start)) || !within(uint64(r.End)-1) {
			t.Errorf("%v is in no entry", r)
		}
	}
	if within(uint64(at(0).End)) {
		t.Error("what is far from the newcomers has grown, too")
	}
}
