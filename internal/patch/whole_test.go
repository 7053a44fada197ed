package patch_test

import (
	"encoding/binary"
	"slices"
	"testing"

	"kprobe/arch"
	"kprobe/internal/isa/arm64"
	"kprobe/internal/isa/s390x"
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
	armNop = 0xd503201f
	armRet = 0xd65f03c0

	armPacIASP = 0xd503233f
	armPacIBSP = 0xd503237f
	armXpacLRI = 0xd50320ff

	armBtiC = 0xd503245f
	ldaxr   = 0x885ffc41 // w1, [x2]
	stlxr   = 0x8800fc41 // w0, w1, [x2]
	addW1   = 0x11000421
	retry   = 0x35ffffa0 // cbnz w0, -12
)

// A jump that is one instruction covers one, whatever leads to those behind it; a load exclusive
// keeps its place.
func TestWholeJump(t *testing.T) {
	const at = 0x400000
	code := words(armNop, 0x54000060, addW1, 0x14000001, ldaxr, 0x94000000, 0xd63f03c0, armRet) // nop, b.eq +12, add, b +4, ldaxr, bl, blr x30, ret
	fn := patch.Part{Addr: at, Code: code}
	flow := patch.NewFlow(arm64.ISA, &patch.Image{Text: []patch.Part{fn}, Funcs: []arch.Addr{at}})
	body := patch.NewBody(arm64.ISA, fn, nil, flow)
	module := arch.Range{Start: at, End: at + 0x1000}
	places := patch.NewDetours(arm64.ISA, []arch.Range{module}, 0x10000, 1<<47, 4096)
	for i, want := range []bool{true, true, true, true, false, true, false, true} {
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

// A landing pad keeps its place, and the instruction behind it has the jump, where nothing else
// leads there. The pad's effect is taken back first, and done again in the detour.
func TestJumpBehindPad(t *testing.T) {
	const at, detour = 0x400000, 0x500000
	for _, c := range []struct {
		name string
		code []byte
		want string // the reason that there is no jump
		undo bool
	}{
		{"a leaf", words(armBtiC, addW1, armRet), "", false},
		{"a signed address", words(armPacIASP, addW1, armRet), "", true},
		{"by the other key", words(armPacIBSP, addW1, armRet), "", true},
		{"nothing but a return", words(armBtiC, armRet), "", false},
		{"a call", words(armBtiC, 0x94000100), "", false},
		{"a loop to behind the pad", words(armBtiC, addW1, 0x17ffffff, armRet), "something leads, or refers, to +4, behind the landing pad", false},
		{"two pads", words(armBtiC, armPacIASP, armRet), "indirect branches may lead to what is behind it, too", false},
		{"the end", words(armBtiC), "the function ends", false},
		{"a load exclusive", words(armBtiC, ldaxr, armRet), "it belongs to a load and store exclusive, which a stop would make fail for ever", false},
	} {
		fn := patch.Part{Addr: at, Code: c.code}
		flow := patch.NewFlow(arm64.ISA, &patch.Image{Text: []patch.Part{fn}, Funcs: []arch.Addr{at}})
		j := patch.NewBody(arm64.ISA, fn, nil, flow).PlanJump(at)
		if j.Reason != c.want || (len(j.Ways) == 1) != (c.want == "") {
			t.Errorf("%s: %v", c.name, j)
		}
		if len(j.Ways) == 0 {
			continue
		}
		w := &j.Ways[0]
		jump, err := arm64.ISA.Jump(at+4, detour)
		if got := j.Write(w, detour); err != nil || got.Addr != at || string(got.New) != string(c.code[:4])+string(jump) || string(got.Old) != string(c.code[:8]) {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
		if s := j.Span(w); s.Start != at || s.End != at+8 || w.JumpAt() != 4 {
			t.Errorf("%s: it depends on %v, and the jump is at +%d", c.name, s, w.JumpAt())
		}
		tail, err := j.Emit(w, detour)
		if to, ok := tail.Copy(at + 4); err != nil || string(tail.Code[:4]) != string(c.code[:4]) && c.undo || !ok || to != detour+4 {
			t.Errorf("%s: displaced are % x, %v", c.name, tail.Code, err)
		}
		undo := j.Undoing(w, detour)
		if (undo != nil) != c.undo || undo != nil && (string(undo.Code) != string(words(armXpacLRI)) || undo.Marks[0].PC != at+4) {
			t.Errorf("%s: taken back by %+v", c.name, undo)
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

// An instruction that another one carries out from elsewhere (s390x: exrl, ex) has no probe.
func TestExecuted(t *testing.T) {
	const start = 0x400000
	for name, c := range map[string]struct {
		code []byte
		want []arch.Addr
	}{
		"exrl": {[]byte{
			0xc6, 0x10, 0, 0, 0, 7, // exrl %r1, the last
			0xc0, 0x10, 0, 0, 0, 0, // larl
			0x07, 0xfe,
			0xd2, 0, 0x10, 0, 0x20, 0, // mvc
		}, []arch.Addr{start + 14}},
		"ex by larl": {[]byte{
			0xc0, 0x10, 0, 0, 0, 6, // larl %r1, the last
			0x44, 0x20, 0x10, 0, // ex %r2, 0(%r1)
			0x07, 0xfe,
			0xd2, 0, 0x10, 0, 0x20, 0,
		}, []arch.Addr{start + 12}},
		"ex by bras": {[]byte{
			0xa7, 0x15, 0, 5, // bras %r1, over the next
			0xd2, 0, 0x10, 0, 0x20, 0,
			0x44, 0x20, 0x10, 0,
			0x07, 0xfe,
		}, []arch.Addr{start + 4}},
		"neither": {[]byte{
			0xc0, 0x10, 0, 0, 0, 4,
			0x07, 0xfe,
			0xd2, 0, 0x10, 0, 0x20, 0,
		}, nil},
	} {
		b := patch.FindBounds(s390x.ISA, start, c.code, arch.S390X.Break, nil)
		var got []arch.Addr
		for at := arch.Addr(start); at < start+arch.Addr(len(c.code)); at++ {
			if b.Executed(at) {
				got = append(got, at)
			}
		}
		if !slices.Equal(got, c.want) || b.Failed != 0 {
			t.Errorf("%s: executed are %v, want %v", name, got, c.want)
		}
	}
}
