package arm64

import (
	"encoding/binary"
	"testing"

	"kprobe/arch"
	"kprobe/internal/testprog/qemurun"
)

// On a page that is guarded, a trap may stand in the place of a landing pad, and a branch may not.
// An instruction that the ISA calls a landing pad is one. A call that was replaced by a jump, from
// a slot that is not guarded, leads to pads of both kinds.
func TestLandings(t *testing.T) {
	m := qemurun.ARM64(t)
	const guarded, callAt = 0x60000000, textAt
	m.MapGuarded(guarded, area)
	m.Map(textAt, area)
	m.Map(slotAt, area)
	const (
		call, trap      = 0xd63f0020, 0xd4200000 // blr x1
		btiC, btiJ      = 0xd503245f, 0xd503249f
		paciasp, branch = 0xd503233f, 0x14000002 // b +8
		add             = 0x91000400
	)
	run := func(at uint64, pstate uint64, pad uint32, code ...byte) (qemurun.Stop, uint64) {
		words := []byte{}
		for _, w := range []uint32{pad, trap, trap} {
			words = binary.LittleEndian.AppendUint32(words, w)
		}
		m.Write(guarded, words)
		m.Write(at, code)
		s := qemurun.State{PC: at, SP: slotAt + area/2, PState: pstate}
		s.X[1] = guarded
		stop := m.Run(&s)
		return stop, s.PC
	}
	blr := binary.LittleEndian.AppendUint32(nil, call)
	v, err := ISA.Place(blr, callAt, slotAt)
	if err != nil || len(v.Code) == 0 {
		t.Fatalf("%v, %v", v, err)
	}
	for _, c := range []struct {
		name    string
		pad     uint32
		inPlace bool // blr leads there
		slot    bool // and the jump of a slot does
	}{
		{"a trap", trap, true, true}, {"bti c", btiC, true, true}, {"bti j", btiJ, false, true}, {"paciasp", paciasp, true, true},
		{"a branch", branch, false, false}, {"an addition", add, false, false},
	} {
		for _, way := range []struct {
			name string
			at   uint64
			code []byte
			ok   bool
		}{{"a call", callAt, blr, c.inPlace}, {"a slot", slotAt, v.Code, c.slot}} {
			stop, pc := run(way.at, 0, c.pad, way.code...)
			if want := uint64(qemurun.SIGTRAP); way.ok != (stop.Signal == want) || !way.ok && (stop.Signal != qemurun.SIGILL || pc != guarded) {
				t.Errorf("%s to %s: %+v at %#x", way.name, c.name, stop, pc)
			}
		}
		in, err := ISA.Decode(binary.LittleEndian.AppendUint32(nil, c.pad), 0)
		if pad := c.name == "bti c" || c.name == "bti j" || c.name == "paciasp"; err != nil || in.Landing != pad {
			t.Errorf("%s: a landing pad: %v, %v", c.name, in.Landing, err)
		}
	}
	// A state that emulation leaves must not be taken for an indirect branch.
	if stop, pc := run(guarded, 2<<10, add); stop.Signal != qemurun.SIGILL || pc != guarded {
		t.Errorf("with the branch still in the state: %+v at %#x", stop, pc)
	}
	var r arch.Regs
	r[arch.ARM64.Flags] = 2 << 10
	pad, err := ISA.Place(binary.LittleEndian.AppendUint32(nil, btiC), guarded-4, slotAt)
	if err != nil || pad.Emulate == nil || pad.Emulate(&r, nil) != nil || r[arch.ARM64.PC] != guarded {
		t.Fatalf("%v, %v", pad, err)
	}
	if stop, pc := run(guarded, r[arch.ARM64.Flags], add); stop.Signal != qemurun.SIGTRAP || pc != guarded+4 {
		t.Errorf("behind an emulated landing pad: %+v at %#x", stop, pc)
	}
}
