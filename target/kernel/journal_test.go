package kernel

import (
	"bytes"
	"testing"

	"kprobe/arch"
)

// The kernel's own byte beside a byte of ours may change while ours is there: it is not taken for
// ours then.
func TestJournalKnowsItsBytes(t *testing.T) {
	j := journal{b: make([]byte, journalSize)}
	j.begin(boot{}, 0, 0, 0)
	const at = arch.Addr(0xffff_ffff_8100_0010)
	text := bytes.Repeat([]byte{0x90}, granule)
	write := func(i int, b byte) {
		t.Helper()
		want := bytes.Clone(text)
		want[i] = b
		if err := j.intend(at, 0, text, want); err != nil {
			t.Fatal(err)
		}
		text = want
		j.settle(at)
	}
	text[9] = 0xcc // a trap of the guest's
	write(5, 0xe9)
	text[9], text[12] = 0x90, 0xcc // it goes, and another one comes
	write(7, 0xe9)
	old, was, is := pieces(j.b[j.records[at]:])
	for i := range granule {
		if ours := i == 5 || i == 7; (old[i] != is[i]) != ours || was[i] != is[i] || ours && (old[i] != 0x90 || is[i] != 0xe9) {
			t.Errorf("byte %d was %x, and is %x or %x", i, old[i], was[i], is[i])
		}
	}
	write(7, 0x90)
	if _, ok := j.records[at]; !ok {
		t.Error("it is forgotten while a byte is ours")
	}
	write(5, 0x90)
	if _, ok := j.records[at]; ok || text[12] != 0xcc {
		t.Error("nothing is ours, and it is not forgotten")
	}
}
