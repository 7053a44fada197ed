package symbol

import "testing"

// A kernel's table is read in both of its forms, which only its content tells apart.
func TestORC(t *testing.T) {
	const sp, fp, atSP = 5, 4, 9
	row := func(off int16, fpOff int16, base, fpBase, kind byte) []byte {
		return []byte{byte(off), byte(off >> 8), byte(fpOff), byte(fpOff >> 8), base | fpBase<<4, kind}
	}
	for _, c := range []struct {
		name                        string
		call, regs, interrupt, last byte
	}{
		{"before 6.4", 0, 1, 2, 0 | 1<<2},
		{"6.3", 0, 1, 2, 0 | 1<<3},
		{"since 6.4", 2, 3 | 1<<3, 4 | 1<<3, 1},
	} {
		var all []byte
		for range 8 {
			all = append(all, row(8, 0, sp, 0, c.call)...)
		}
		k := orcKindsOf(append(all, row(0, 0, 0, 0, c.last)...))
		for _, w := range []struct {
			row  []byte
			want FrameRule
		}{
			{row(24, -16, sp, 1, c.call), FrameRule{CFA: FromSP, Off: 24, FP: InFrame, FPOff: -16}},
			{row(16, -16, fp, 1, c.call), FrameRule{CFA: FromFP, Off: 16, FP: InFrame, FPOff: -16}},
			{row(8, 0, atSP, 0, c.call), FrameRule{CFA: FromSPPointer, Off: 8}},
			{row(-8, 0, 8, 0, c.call), FrameRule{CFA: FromPointer, Off: -8}},
			{row(8, 0, sp, 0, c.regs), FrameRule{CFA: OfRegs, Off: 8}},
			{row(16, 0, sp, 0, c.interrupt), FrameRule{CFA: OfInterrupt, Off: 16}},
			{row(0, 0, 0, 0, c.last), FrameRule{CFA: Outermost}},
			{row(8, 0, 6, 0, c.call), FrameRule{CFA: OtherRule}}, // by r10
		} {
			if got := k.rule(w.row); got != w.want {
				t.Errorf("%s: % x is %+v, want %+v", c.name, w.row, got, w.want)
			}
		}
	}
}
