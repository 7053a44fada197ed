package samples

import (
	"encoding/binary"
	"testing"
)

// A record's registers and stack are found, and one without them is passed over.
func TestParse(t *testing.T) {
	b := binary.LittleEndian.AppendUint32(nil, 7)
	b = binary.LittleEndian.AppendUint32(b, 8)
	b = binary.LittleEndian.AppendUint64(b, 1000)
	b = binary.LittleEndian.AppendUint64(b, 3)
	b = binary.LittleEndian.AppendUint64(b, 2)
	for i := range 20 {
		b = binary.LittleEndian.AppendUint64(b, 0x100+uint64(i))
	}
	b = binary.LittleEndian.AppendUint64(b, 16)
	b = append(b, "0123456789abcdef"...)
	b = binary.LittleEndian.AppendUint64(b, 12)
	s := Sample{of: machines["amd64"]}
	if !parse(b, &s) || s.PID != 7 || s.TID != 8 || s.Time != 1000 || s.CPU != 3 || s.Reg("rsp") != 0x107 || s.Reg("r15") != 0x113 || s.Reg("orig_rax") != 0 {
		t.Errorf("%+v", s)
	}
	var part [4]byte
	if !s.Stack(0x107+8, part[:]) || string(part[:]) != "89ab" || s.Stack(0x107+9, part[:]) || s.Stack(0x106, part[:]) {
		t.Errorf("stack %q of %+v", part, s)
	}
	for n := range len(b) - 1 {
		parse(b[:n], &s) // nothing is read that is not there
	}
	b[24] = 1
	if parse(b, &s) {
		t.Error("registers of a 32-bit program")
	}
}
