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
	on := &ground.Ground{Points: new(probed.Table)}
	b := (&Links{kit: &parts.Kit{On: on}}).Batch()
	var ps []*probed.Probe
	for i := range 4 {
		p := new(probed.Probe)
		ps = append(ps, p)
		b.Add(p, &probed.Point{Place: text.Place{Addr: arch.Addr(0x1000 + 16*(i/2))}})
	}
	b.at = nil
	for i, want := range [][]*probed.Probe{ps[:2], ps[2:], nil} {
		if got := b.Others(arch.Addr(0x1000 + 16*i)); !slices.Equal(got, want) {
			t.Errorf("at place %d are %v, want %v", i, got, want)
		}
	}
}
