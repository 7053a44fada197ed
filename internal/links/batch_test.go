package links

import (
	"slices"
	"testing"

	"kprobe/arch"
	"kprobe/internal/ground"
	"kprobe/internal/parts"
	"kprobe/internal/probed"
	"kprobe/internal/text"
)

// The question for the probes at an address looks at no other probe of the batch: else a batch
// takes a time that grows with the square of its probes. The others have no point here, so a look
// at one of them panics.
func TestOthersLooksAtNoOther(t *testing.T) {
	on := &ground.Ground[*int]{Points: new(probed.Table[*int])}
	b := (&Links[*int]{kit: &parts.Kit[*int]{On: on}}).Batch()
	var ps []*int
	for i := range 4 {
		p := new(int)
		ps = append(ps, p)
		b.Add(p, &probed.Point[*int]{Place: text.Place{Addr: arch.Addr(0x1000 + 16*(i/2))}})
	}
	b.at = nil
	for i, want := range [][]*int{ps[:2], ps[2:], nil} {
		if got := b.Others(arch.Addr(0x1000 + 16*i)); !slices.Equal(got, want) {
			t.Errorf("at place %d are %v, want %v", i, got, want)
		}
	}
}
