package patch_test

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"kprobe/arch"
	"kprobe/internal/isa"
	"kprobe/internal/isa/amd64"
	"kprobe/internal/patch"
)

const pageSize = 4096

// isa386 is the ISA of a machine with 4-byte pointers.
var isa386 = func() isa.ISA {
	a := *arch.AMD64
	a.PtrSize = 4
	return amd64.New(&a)
}()

// site is a jump that was planned and placed, and the code as it is then.
type site struct {
	*patch.Jump
	patch.Place
	text []byte // from the site on, with the jump in it
}

// place plans and places jumps at random instructions of a function that is all
// of b, which lies in module.
func place(t *testing.T, d *patch.Detours, b *patch.Body, module arch.Range, n int, rng *rand.Rand) (sites []site, without int) {
	t.Helper()
	for range n {
		in := b.Insns[rng.IntN(len(b.Insns)-20)]
		j := b.PlanJump(b.Addr + arch.Addr(in.Off))
		p, ok := d.Put(j, module, 64+rng.IntN(200))
		if !ok {
			without++
			continue
		}
		w := j.Write(p.Way, p.To())
		text := bytes.Clone(b.Code[in.Off : in.Off+32])
		if !bytes.Equal(text[:len(w.Old)], w.Old) {
			t.Fatalf("%v: old bytes % x, text % x", j.Addr, w.Old, text)
		}
		copy(text, w.New)
		sites = append(sites, site{j, p, text})
	}
	return sites, without
}

// realCode is the text of libc as one function.
func realCode(t *testing.T, m isa.ISA, at arch.Addr) *patch.Body {
	p := open(t, "/lib/x86_64-linux-gnu/libc.so.6")
	for start, text := range p.text {
		if f, ok := p.FuncAt(start + uint64(len(text))/2); ok && f.Size > 0 && len(text) > 1<<20 {
			text = text[f.Addr-start:]
			part := patch.Part{Addr: at, Code: text}
			return patch.NewBody(m, part, nil, patch.NewFlow(m, &patch.Image{Text: []patch.Part{part}}))
		}
	}
	t.Fatal("libc has no text")
	return nil
}

// Each jump that is written leads to its detour and nowhere else. No two pieces of memory overlap.
// A thread that comes to an instruction under the jump traps at once.
func TestDetoursKeepTheirWord(t *testing.T) {
	n := 6000
	if testing.Short() {
		n = 1000
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for _, tt := range []struct {
		name     string
		isa      isa.ISA
		limit    arch.Addr
		module   arch.Range
		occupied []arch.Range
		most     float64 // sites without a place
	}{
		{"program", amd64.ISA, 0x7fff_ffff_f000, arch.Range{Start: 0x5555_5555_4000, End: 0x5555_5590_0000}, []arch.Range{{Start: 0x5555_5590_0000, End: 0x5555_5d90_0000}}, 0.01},
		{"low", amd64.ISA, 0x7fff_ffff_f000, arch.Range{Start: 0x40_0000, End: 0x90_0000}, []arch.Range{{Start: 0x90_0000, End: 0x2000_0000}}, 0.05},
		{"crowded", amd64.ISA, 0x7fff_ffff_f000, arch.Range{Start: 0x7f00_1000_0000, End: 0x7f00_1090_0000}, []arch.Range{
			{Start: 0x7eff_8000_0000, End: 0x7f00_0ff0_0000}, {Start: 0x7f00_10b0_0000, End: 0x7f00_4000_0000}, {Start: 0x7f00_6000_0000, End: 0x7f00_a000_0000}}, 0.5},
		{"32-bit", isa386, 0xffff_e000, arch.Range{Start: 0x804_8000, End: 0x900_0000}, []arch.Range{{Start: 0x900_0000, End: 0xa00_0000}}, 0.05},
	} {
		t.Run(tt.name, func(t *testing.T) {
			taken := append(slices.Clone(tt.occupied), tt.module)
			d := patch.NewDetours(tt.isa, taken, 0x10000, tt.limit, pageSize)
			b := realCode(t, tt.isa, tt.module.Start+0x1000)
			sites, without := place(t, d, b, tt.module, n, rng)
			t.Logf("%d sites, %d without a place, %d pages of stubs", n, without, d.StubPages())
			if float64(without) > tt.most*float64(n) {
				t.Errorf("%d of %d sites have no place", without, n)
			}
			for _, s := range sites {
				checkSite(t, tt.isa, s, tt.module)
			}
			checkApart(t, d, sites, taken)

			// Given back, and given out again.
			for _, s := range sites {
				d.Release(s.Place)
			}
			before := d.Areas()
			again, _ := place(t, d, b, tt.module, n/2, rng)
			checkApart(t, d, again, taken)
			if size(d.Areas()) > size(before)*3/2 {
				t.Errorf("areas grew from %d to %d bytes for half as many", size(before), size(d.Areas()))
			}
		})
	}
}

func size(rs []arch.Range) (n arch.Addr) {
	for _, r := range rs {
		n += r.End - r.Start
	}
	return n
}

func checkSite(t *testing.T, m isa.ISA, s site, module arch.Range) {
	t.Helper()
	in, err := m.Decode(s.text, s.Addr)
	if err != nil || in.Flow != isa.Jump || in.Target != s.To() {
		t.Fatalf("%v: % x leads to %v, not %v (%v)", s.Addr, s.text[:8], in.Target, s.To(), err)
	}
	for _, off := range s.Way.Inner {
		if off < in.Len && !slices.ContainsFunc(m.JumpForm().Guards, func(g isa.Guard) bool { return g.Byte == s.text[off] }) {
			t.Fatalf("%v: % x: at +%d was an instruction, and nothing traps", s.Addr, s.text[:8], off)
		}
	}
	slot, err := s.Emit(s.Way, s.Detour)
	if err != nil {
		t.Fatalf("%v: %v", s.Addr, err)
	}
	for _, off := range append([]int{0}, s.Way.Inner...) {
		at, ok := slot.Copy(s.Addr + arch.Addr(off))
		if _, err := m.Decode(slot.Code[at-slot.Addr:], at); !ok || err != nil {
			t.Fatalf("%v+%d is nowhere in %v", s.Addr, off, slot)
		}
	}
	if span := s.Span(s.Way); span.End < s.Addr+arch.Addr(in.Len) || span.End < s.Addr+arch.Addr(s.Way.Displaced) {
		t.Fatalf("%v: a jump of %d bytes, span %v", s.Addr, in.Len, span)
	}
	const most = 1<<31 - 1
	far := s.Detour > module.Start && s.Detour-module.Start > most || s.Detour < module.End && module.End-s.Detour > most
	if far && m.Arch().PtrSize == 8 {
		t.Fatalf("%v: detour at %v is out of the module's reach", s.Addr, s.Detour)
	}
	if s.Stub != 0 {
		if _, err := m.Jump(s.Stub, s.Detour); err != nil {
			t.Fatal(err)
		}
	}
}

// checkApart checks that nothing lies on anything, and all in areas.
func checkApart(t *testing.T, d *patch.Detours, sites []site, taken []arch.Range) {
	t.Helper()
	var used []arch.Range
	for _, s := range sites {
		used = append(used, arch.Range{Start: s.Detour, End: s.Detour + arch.Addr(s.Size)})
		if s.Stub != 0 {
			used = append(used, arch.Range{Start: s.Stub, End: s.Stub + 5})
		}
	}
	byStart := func(a, b arch.Range) int {
		if a.Start < b.Start {
			return -1
		}
		return 1
	}
	slices.SortFunc(used, byStart)
	areas := d.Areas()
	for i, u := range used {
		if i > 0 && used[i-1].End > u.Start {
			t.Fatalf("%v and %v overlap", used[i-1], u)
		}
		if !slices.ContainsFunc(areas, func(a arch.Range) bool { return u.Start >= a.Start && u.End <= a.End }) {
			t.Fatalf("%v is in no area", u)
		}
	}
	all := append(slices.Clone(taken), areas...)
	slices.SortFunc(all, byStart)
	for i := 1; i < len(all); i++ {
		if all[i-1].End > all[i].Start {
			t.Fatalf("%v and %v overlap", all[i-1], all[i])
		}
	}
}

// Memory that the target has mapped meanwhile is not given out again.
func TestDetoursLose(t *testing.T) {
	module := arch.Range{Start: 0x5555_5555_4000, End: 0x5555_5590_0000}
	rng := rand.New(rand.NewPCG(2, 2))
	d := patch.NewDetours(amd64.ISA, []arch.Range{module}, 0x10000, 0x7fff_ffff_f000, pageSize)
	b := realCode(t, amd64.ISA, module.Start+0x1000)
	sites, _ := place(t, d, b, module, 500, rng)
	taken := []arch.Range{module}
	for i, a := range d.Areas() {
		if i%2 == 0 {
			taken = append(taken, arch.Range{Start: a.Start, End: a.Start + pageSize})
		}
	}
	for _, s := range sites {
		d.Release(s.Place)
	}
	for _, r := range taken[1:] {
		d.Lose(r)
	}
	sites, without := place(t, d, b, module, 500, rng)
	if without > 10 {
		t.Errorf("%d of 500 have no place", without)
	}
	checkApart(t, d, sites, taken)
}

// Ten thousand sites at once, as when all functions of a program are probed.
func BenchmarkDetours(b *testing.B) {
	module := arch.Range{Start: 0x5555_5555_4000, End: 0x5555_5590_0000}
	rng := rand.New(rand.NewPCG(3, 3))
	var jumps []*patch.Jump
	for i := range 10000 {
		j := &patch.Jump{Addr: module.Start + arch.Addr(i)*300, Ways: make([]patch.Way, 1)}
		j.Ways[0].From = j.Addr + 5
		for k := range j.Ways[0].Bytes {
			j.Ways[0].Bytes[k] = patch.Any + patch.Choice(rng.IntN(4)/3)
		}
		jumps = append(jumps, j)
	}
	for b.Loop() {
		d := patch.NewDetours(amd64.ISA, []arch.Range{module}, 0x10000, 0x7fff_ffff_f000, pageSize)
		for _, j := range jumps {
			if _, ok := d.Put(j, module, 200); !ok {
				b.Fatal("no place")
			}
		}
		b.ReportMetric(float64(size(d.Areas()))/float64(len(jumps)), "B/probe")
	}
}
