package goabi_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"kprobe/arch"
	"kprobe/internal/cabi"
	"kprobe/internal/goabi"
	"kprobe/internal/machine"
)

func never(reflect.Type) bool { return false }

// show prints where values are: i0 f1 +8 for registers and stack, @ for the offset
// in the value where it has several pieces.
func show(vs []cabi.Value) string {
	var out []string
	for _, v := range vs {
		var ps []string
		for _, p := range v.Pieces {
			s := fmt.Sprintf("%c%d", "if+"[p.Class], p.N)
			if p.Off > 0 {
				s += fmt.Sprintf("@%d", p.Off)
			}
			ps = append(ps, s)
		}
		out = append(out, strings.Join(ps, ","))
	}
	return strings.Join(out, " ")
}

// Each machine has registers of its own, more or fewer, and all count on with the rest of the
// arguments.
func TestArgumentsOfMachines(t *testing.T) {
	type nine [9]string
	types := []reflect.Type{reflect.TypeFor[float32](), reflect.TypeFor[struct {
		A, B, C, D, E, F, G, H string
	}](), reflect.TypeFor[float64](), reflect.TypeFor[int8](), reflect.TypeFor[nine]()}
	for _, tt := range []struct {
		a    *arch.Arch
		want string
	}{
		{arch.AMD64, "f0 +0 f1 i0 +128"},
		{arch.ARM64, "f0 i0,i1@8,i2@16,i3@24,i4@32,i5@40,i6@48,i7@56,i8@64,i9@72,i10@80,i11@88,i12@96,i13@104,i14@112,i15@120 f1 +0 +8"},
		{arch.RISCV64, "f10 i0,i1@8,i2@16,i3@24,i4@32,i5@40,i6@48,i7@56,i8@64,i9@72,i10@80,i11@88,i12@96,i13@104,i14@112,i15@120 f11 +0 +8"},
	} {
		m, err := machine.Of(tt.a)
		if err != nil {
			t.Fatal(err)
		}
		if vs, _, err := m.Go.Arguments(goabi.Internal, types, never); err != nil || show(vs) != tt.want {
			t.Errorf("%s: %s, %v; want %s", tt.a.Name, show(vs), err, tt.want)
		}
	}
	if m, err := machine.Of(arch.I386); err != nil || m.Go != nil {
		t.Errorf("386 has Go's registers: %v", err)
	}
}

func TestArguments(t *testing.T) {
	m, err := machine.Of(arch.AMD64)
	if err != nil {
		t.Fatal(err)
	}
	amd64 := m.Go
	type empty struct{}
	type mixed struct {
		A int32
		F float32
		S string
	}
	tests := []struct {
		fn   any
		abi  goabi.ABI
		want string
		size int
	}{
		{func(int, string, float64, arch.Addr, []int) {}, goabi.Internal, "i0 i1,i2@8 f0 i3 i4,i5@8,i6@16", 0},
		// The example of abi-internal.md: the array of two has no registers.
		{func(uint8, [2]uint64, uint8) {}, goabi.Internal, "i0 +0 i1", 16},
		{func(int8, [1]int16, [0]int, empty) {}, goabi.Internal, "i0 i1 +0 +0", 0},
		{func(mixed, bool) {}, goabi.Internal, "i0,f0@4,i1@8,i2@16 i3", 0},
		{func(complex64, complex128) {}, goabi.Internal, "f0,f1@4 f2,f3@8", 0},
		// A value that does not fit in the remaining registers goes to the stack whole, a smaller
		// one behind it still has registers.
		{func(a, b, c, d string, e []byte, f int8, g string) {}, goabi.Internal, "i0,i1@8 i2,i3@8 i4,i5@8 i6,i7@8 +0 i8 +24", 40},
		{func(a, b, c, d, e, f, g, h, i, j float64, k, l, m, n, o, p float32) {}, goabi.Internal,
			"f0 f1 f2 f3 f4 f5 f6 f7 f8 f9 f10 f11 f12 f13 f14 +0", 4},
		{func(int8, int64, int16, string) {}, goabi.ABI0, "+0 +8 +16 +24", 40},
		{func(mixed, bool) {}, goabi.ABI0, "+0 +24", 25},
	}
	for _, tt := range tests {
		var types []reflect.Type
		for i := range reflect.TypeOf(tt.fn).NumIn() {
			types = append(types, reflect.TypeOf(tt.fn).In(i))
		}
		vs, size, err := amd64.Arguments(tt.abi, types, never)
		if err != nil || show(vs) != tt.want || size != tt.size {
			t.Errorf("%T: %s, %d on the stack, %v; want %s, %d", tt.fn, show(vs), size, err, tt.want, tt.size)
		}
	}
	rs, err := amd64.Results(goabi.ABI0, []reflect.Type{reflect.TypeFor[int32](), reflect.TypeFor[string]()}, 25, never)
	if err != nil || show(rs) != "+32 +40" {
		t.Errorf("results behind 25 bytes: %s, %v", show(rs), err)
	}
	for _, bad := range []any{new(int), map[int]int{}, func() {}, []string{}, struct{ P *int }{}, [1]chan int{}} {
		if _, _, err := amd64.Arguments(goabi.Internal, []reflect.Type{reflect.TypeOf(bad)}, never); err == nil {
			t.Errorf("a %T is accepted", bad)
		}
	}
}
