package patch_test

import (
	"encoding/binary"
	"testing"

	"kprobe/arch"
	"kprobe/internal/isa/arm64"
	"kprobe/internal/patch"
)

// words is code of a machine with instructions of four bytes.
func words(ws ...uint32) (code []byte) {
	for _, w := range ws {
		code = binary.LittleEndian.AppendUint32(code, w)
	}
	return code
}

const (
	armNop  = 0xd503201f
	armRet  = 0xd65f03c0
	armBtiC = 0xd503245f
	ldaxr   = 0x885ffc41 // w1, [x2]
	stlxr   = 0x8800fc41 // w0, w1, [x2]
	addW1   = 0x11000421
	retry   = 0x35ffffa0 // cbnz w0, -12
)

// A jump that is one instruction covers one, whatever leads to those behind it; a landing pad and
// a load exclusive keep their places.
func TestWholeJump(t *testing.T) {
	const at = 0x400000
	code := words(armBtiC, 0x54000060, addW1, 0x14000001, ldaxr, 0x94000000, 0xd63f03c0, armRet) // bti c, b.eq +12, add, b +4, ldaxr, bl, blr x30, ret
	fn := patch.Part{Addr: at, Code: code}
	flow := patch.NewFlow(arm64.ISA, &patch.Image{Text: []patch.Part{fn}, Funcs: []arch.Addr{at}})
	body := patch.NewBody(arm64.ISA, fn, nil, flow)
	module := arch.Range{Start: at, End: at + 0x1000}
	places := patch.NewDetours(arm64.ISA, []arch.Range{module}, 0x10000, 1<<47, 4096)
	for i, want := range []bool{false, true, true, true, false, true, false, true} {
		site := arch.Addr(at + 4*i)
		j := body.PlanJump(site)
		p, ok := places.Put(j, module, 64)
		if ok != want || ok == (j.Reason != "") {
			t.Errorf("+%d: %v, %q", 4*i, ok, j.Reason)
		}
		if !ok {
			continue
		}
		w := j.Write(p.Way, p.To())
		jump, err := arm64.ISA.Jump(site, p.Detour)
		if err != nil || string(w.New) != string(jump) || string(w.Old) != string(code[4*i:4*i+4]) || w.Addr != site {
			t.Errorf("+%d: %+v, want % x, %v", 4*i, w, jump, err)
		}
		if s, err := j.Emit(p.Way, p.Detour); err != nil || len(s.Code) == 0 {
			t.Errorf("+%d: %v, %v", 4*i, s, err)
		}
	}
}

// Where nothing within a branch's reach is free, there is no jump; where something is only there,
// it is taken.
func TestWholeJumpsReach(t *testing.T) {
	const at, reach = 1 << 32, 1<<27 - 1<<20
	module := arch.Range{Start: at, End: at + 0x1000}
	j := patch.PlanAlone(arm64.ISA, words(addW1), at)
	for _, c := range []struct {
		free arch.Range
		ok   bool
	}{
		{arch.Range{Start: at - reach + 1<<16, End: at - reach + 1<<17}, true},
		{arch.Range{Start: at + reach - 1<<17, End: at + reach - 1<<16}, true},
		{arch.Range{Start: at - reach - 1<<20, End: at - reach - 1<<12}, false},
		{arch.Range{Start: at + reach + 1<<12, End: at + reach + 1<<20}, false},
	} {
		taken := []arch.Range{{Start: 0x10000, End: c.free.Start - 4096}, {Start: c.free.End + 4096, End: 1 << 47}}
		p, ok := patch.NewDetours(arm64.ISA, taken, 0x10000, 1<<47, 4096).Put(j, module, 256)
		if ok != c.ok {
			t.Errorf("with %v-%v free: %v", c.free.Start, c.free.End, ok)
		}
		if ok {
			j.Write(p.Way, p.To())
		}
	}
	if bti := patch.PlanAlone(arm64.ISA, words(armBtiC), at); len(bti.Ways) != 0 || bti.Reason == "" {
		t.Errorf("a jump in the place of a landing pad: %v", bti)
	}
	a := patch.NewArena(at+reach, 4096)
	if a.Near(module, arm64.ISA.Reach()) || !a.Near(module, 1<<31) {
		t.Error("an arena out of reach is near")
	}
	if gap, ok := patch.FindGap(module, reach, 4096, []arch.Range{{Start: 0x10000, End: at + 1<<28}}, 0x10000, 1<<47, 4096); ok {
		t.Errorf("a gap at %v is in reach", gap)
	}
}

// Between a load and a store exclusive there is no probe; where no store is in sight, it is not
// looked for for ever.
func TestTries(t *testing.T) {
	loop := words(addW1, ldaxr, addW1, stlxr, retry, addW1, armRet)
	for _, c := range []struct {
		name string
		code []byte
		want string
	}{
		{"a loop", loop, "..x...."},
		{"a waiting loop", words(ldaxr, addW1, armRet, addW1), ".x.."},
		{"given up", words(ldaxr, addW1, 0xd503305f, addW1, armRet), ".x..."},
	} {
		b := patch.FindBounds(arm64.ISA, 0x400000, c.code, arch.ARM64.Break, nil)
		got := ""
		for i := range len(c.code) / 4 {
			mark := "."
			if b.Tries(0x400000 + arch.Addr(4*i)) {
				mark = "x"
			}
			got += mark
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	long := words(ldaxr)
	for range 100 {
		long = append(long, words(addW1)...)
	}
	b := patch.FindBounds(arm64.ISA, 0x400000, long, arch.ARM64.Break, nil)
	if !b.Tries(0x400000+4*32) || b.Tries(0x400000+4*33) {
		t.Error("a load exclusive without a store concerns another number of instructions than 32")
	}
}
