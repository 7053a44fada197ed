package btftext_test

import (
	"testing"

	"github.com/cilium/ebpf/btf"

	"kprobe/internal/btftext"
)

// Values by type, and by their looks where there is none.
func TestFormat(t *testing.T) {
	char := &btf.Int{Name: "char", Size: 1, Encoding: btf.Signed}
	i16 := &btf.Int{Name: "short", Size: 2, Encoding: btf.Signed}
	u32 := &btf.Int{Name: "unsigned int", Size: 4}
	wide := &btf.Int{Name: "unsigned __int128", Size: 16}
	node := &btf.Struct{Name: "node", Size: 8}
	node.Members = []btf.Member{{Name: "next", Type: &btf.Pointer{Target: node}}}
	deep := btf.Type(u32)
	for range 10 {
		deep = &btf.Struct{Size: 4, Members: []btf.Member{{Name: "m", Type: deep}}}
	}
	long := make([]byte, 4*70)
	u8 := &btf.Int{Name: "unsigned char", Size: 1}
	padded := &btf.Struct{Name: "counter", Size: 4, Members: []btf.Member{{Name: "n", Type: u32}}}
	sent := &btf.Struct{Name: "sent", Size: 24, Members: []btf.Member{{Name: "n", Type: u32},
		{Name: "line", Type: &btf.Array{Type: char, Index: u32, Nelems: 8}, Offset: 32}, {Name: "end", Type: u32, Offset: 96}}}
	for _, tt := range []struct {
		b    []byte
		t    btf.Type
		want string
	}{
		{[]byte{0xfe, 0xff}, i16, "-2"},
		{[]byte{0xfe, 0xff}, &btf.Const{Type: &btf.Typedef{Name: "s", Type: i16}}, "-2"},
		{[]byte{0xfe}, i16, "fe"}, // too few
		{[]byte{1}, &btf.Int{Name: "_Bool", Size: 1, Encoding: btf.Bool}, "true"},
		{append(make([]byte, 15), 0x80), wide, "170141183460469231731687303715884105728"},
		{[]byte("ab\x00d"), &btf.Array{Type: char, Index: u32, Nelems: 4}, `"ab"`},
		{[]byte("line\x00\x07\x08\x09"), &btf.Array{Type: u8, Index: u32, Nelems: 8}, `"line"`},
		{[]byte("li\x01e\x00\x00\x00\x00"), &btf.Array{Type: u8, Index: u32, Nelems: 8}, "[108, 105, 1, 101, 0, 0, 0, 0]"},
		{append(make([]byte, 8), append([]byte{5, 0, 0, 0}, make([]byte, 28)...)...), &btf.Array{Type: padded, Index: u32, Nelems: 10}, "[2: {n=5}]"},
		{[]byte{1, 0, 0, 0, 2, 0, 0, 0}, &btf.Array{Type: u32, Index: u32, Nelems: 2}, "[1, 2]"},
		{[]byte{0, 0x10, 0, 0, 0, 0, 0, 0}, node, "{next=0x1000}"},
		{[]byte{2, 0, 0, 0}, &btf.Enum{Size: 4, Values: []btf.EnumValue{{Name: "TWO", Value: 2}}}, "TWO"},
		{[]byte{3, 0, 0, 0}, &btf.Enum{Size: 4, Values: []btf.EnumValue{{Name: "TWO", Value: 2}}}, "3"},
		{[]byte{0xff, 0xff, 0xff, 0xff}, &btf.Enum{Size: 4, Signed: true, Values: []btf.EnumValue{{Name: "NONE", Value: 1<<64 - 1}}}, "NONE"},
		{[]byte{5, 0, 0, 0}, &btf.Union{Size: 4, Members: []btf.Member{{Name: "a", Type: u32}, {Name: "b", Type: i16}}}, "{a=5, b=5}"},
		{[]byte{5, 0, 0, 0}, deep, "5"}, // deeper than is printed
		{[]byte{5, 0, 0, 0, 'a', 'b', 'c'}, sent, `{n=5, line="abc", ...}`},
		{[]byte{5, 0, 0, 0, 'a', 0, 'c', 'd', 'e', 'f', 'g', 'h'}, sent, `{n=5, line="a", ...}`},
		{[]byte{5, 0, 0, 0}, sent, "{n=5, ...}"},
		{[]byte{5, 0, 0}, sent, "05 00 00"},
		{[]byte{5, 0, 0, 0, 'a', 0, 'c', 'd', 'e', 'f', 'g', 'h', 1, 0, 0, 0}, sent, `{n=5, line="a", end=1}`},
		{long, nil, "00 00"},
		{[]byte("text\x00\x00\x00"), nil, `"text"`},
		{[]byte{1, 0, 0, 0, 0, 0, 0, 0}, nil, "1"},
	} {
		if got := btftext.Format(tt.b, tt.t); got != tt.want && (len(tt.b) < 100 || got[:5] != tt.want) {
			t.Errorf("% x as %v: %s, want %s", tt.b, tt.t, got, tt.want)
		}
	}
	if got := btftext.Format(long, &btf.Array{Type: u32, Index: u32, Nelems: 70}); got[len(got)-6:] != ", ...]" {
		t.Error(got)
	}
}
