package goabi

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"kprobe/arch"
	"kprobe/internal/cabi"
	"kprobe/internal/testprog"
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
	for a, want := range map[*arch.Arch]string{
		arch.AMD64:   "f0 +0 f1 i0 +128",
		arch.ARM64:   "f0 i0,i1@8,i2@16,i3@24,i4@32,i5@40,i6@48,i7@56,i8@64,i9@72,i10@80,i11@88,i12@96,i13@104,i14@112,i15@120 f1 +0 +8",
		arch.RISCV64: "f10 i0,i1@8,i2@16,i3@24,i4@32,i5@40,i6@48,i7@56,i8@64,i9@72,i10@80,i11@88,i12@96,i13@104,i14@112,i15@120 f11 +0 +8",
	} {
		m, err := On(a)
		if err != nil {
			t.Fatal(err)
		}
		if vs, _, err := m.Arguments(Internal, types, never); err != nil || show(vs) != want {
			t.Errorf("%s: %s, %v; want %s", a.Name, show(vs), err, want)
		}
	}
	if _, err := On(arch.I386); err == nil {
		t.Error("386 has Go's registers")
	}
}

func TestArguments(t *testing.T) {
	amd64 := machines[arch.AMD64]
	type empty struct{}
	type mixed struct {
		A int32
		F float32
		S string
	}
	tests := []struct {
		fn   any
		abi  ABI
		want string
		size int
	}{
		{func(int, string, float64, arch.Addr, []int) {}, Internal, "i0 i1,i2@8 f0 i3 i4,i5@8,i6@16", 0},
		// The example of abi-internal.md: the array of two has no registers.
		{func(uint8, [2]uint64, uint8) {}, Internal, "i0 +0 i1", 16},
		{func(int8, [1]int16, [0]int, empty) {}, Internal, "i0 i1 +0 +0", 0},
		{func(mixed, bool) {}, Internal, "i0,f0@4,i1@8,i2@16 i3", 0},
		{func(complex64, complex128) {}, Internal, "f0,f1@4 f2,f3@8", 0},
		// A value that does not fit in the remaining registers goes to the stack whole, a smaller
		// one behind it still has registers.
		{func(a, b, c, d string, e []byte, f int8, g string) {}, Internal, "i0,i1@8 i2,i3@8 i4,i5@8 i6,i7@8 +0 i8 +24", 40},
		{func(a, b, c, d, e, f, g, h, i, j float64, k, l, m, n, o, p float32) {}, Internal,
			"f0 f1 f2 f3 f4 f5 f6 f7 f8 f9 f10 f11 f12 f13 f14 +0", 4},
		{func(int8, int64, int16, string) {}, ABI0, "+0 +8 +16 +24", 40},
		{func(mixed, bool) {}, ABI0, "+0 +24", 25},
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
	rs, err := amd64.Results(ABI0, []reflect.Type{reflect.TypeFor[int32](), reflect.TypeFor[string]()}, 25, never)
	if err != nil || show(rs) != "+32 +40" {
		t.Errorf("results behind 25 bytes: %s, %v", show(rs), err)
	}
	for _, bad := range []any{new(int), map[int]int{}, func() {}, []string{}, struct{ P *int }{}, [1]chan int{}} {
		if _, _, err := amd64.Arguments(Internal, []reflect.Type{reflect.TypeOf(bad)}, never); err == nil {
			t.Errorf("a %T is accepted", bad)
		}
	}
}

// memory has the texts that pointers point to.
type memory map[arch.Addr]string

func (m memory) ReadAt(a arch.Addr, p []byte) error {
	s, ok := m[a]
	if !ok || len(s) < len(p) {
		return errors.New("no memory")
	}
	copy(p, s)
	return nil
}

func TestFill(t *testing.T) {
	m := memory{0x10: "hello", 0x20: "\x01\x00\xff\xff"}
	var v struct {
		S string
		B [1]bool
		N []int16
		C complex64
	}
	raw := make([]byte, reflect.TypeOf(v).Size())
	a := arch.AMD64
	for off, w := range map[uintptr]uint64{0: 0x10, 8: 5, 16: 1, 24: 0x20, 32: 2, 40: 2, 48: 0x3f800000_40000000} {
		a.Order.PutUint64(raw[off:], w)
	}
	if err := Fill(a, reflect.ValueOf(&v).Elem(), raw, m); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(v); got != "{hello [true] [1 -1] (2+1i)}" {
		t.Error(got)
	}
	a.Order.PutUint64(raw, 0x11)
	if Fill(a, reflect.ValueOf(&v).Elem(), raw, m) == nil {
		t.Error("a string that cannot be read is no error")
	}
	var s string
	huge := make([]byte, 16)
	a.Order.PutUint64(huge, 0x30)
	a.Order.PutUint64(huge[8:], ^uint64(0))
	m[0x30] = strings.Repeat("x", MaxText)
	if err := Fill(a, reflect.ValueOf(&s).Elem(), huge, m); err != nil || len(s) != MaxText {
		t.Errorf("of a string without end %d bytes, %v", len(s), err)
	}
}

// The table's offset for this release equals that of its debugging information.
func TestGoidTable(t *testing.T) {
	path := testprog.Build(t, "gostorm")
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	rt, err := Read(file, arch.AMD64)
	if err != nil {
		t.Fatal(err)
	}
	if off := goidInDWARF(f); off == 0 || off != rt.goid {
		t.Errorf("%s: goid at %d by DWARF, %d by the table", rt.Version, off, rt.goid)
	}
	if rt.tls != ^uint64(7) {
		t.Errorf("the current goroutine is at %#x", rt.tls)
	}
}

// A program linked with C has its thread-local variables laid out by the C linker.
func TestTLSWithC(t *testing.T) {
	dir := t.TempDir()
	src := "package main\n\n// _Thread_local int other[9]; int f(int n) { return other[n]++; }\nimport \"C\"\n\nfunc main() { println(C.f(1)) }\n"
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(src), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "build", "-o", "out", "main.go")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=1", "GO111MODULE=off")
	if msg, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, msg)
	}
	f, err := os.Open(filepath.Join(dir, "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rt, err := Read(f, arch.AMD64)
	if err != nil {
		t.Fatal(err)
	}
	// The program's own code says where: mov %fs:OFFSET, %r14 in runtime's cgo entries.
	tool, err := exec.LookPath("objdump")
	testprog.Need(t, "objdump", err == nil)
	text, err := exec.Command(tool, "-d", "--no-show-raw-insn", "--disassemble=runtime.cgocallback.abi0", f.Name()).Output()
	want := fmt.Sprintf("%%fs:%#x", rt.tls)
	if err != nil || !bytes.Contains(text, []byte(want)) {
		t.Errorf("%v: %s is not in\n%s", err, want, text)
	}
}

func TestMinorOf(t *testing.T) {
	for version, want := range map[string]int{"go1.26.8": 26, "go1.9": 9, "go1.27rc1": 27, "devel go1.27-0123": 0, "": 0, "go2.1": 0} {
		if got := minorOf(version); got != want {
			t.Errorf("%q: %d, want %d", version, got, want)
		}
	}
}

// Random programs' memory: no goroutine is made up of it, and nothing panics.
func FuzzAt(f *testing.F) {
	f.Add(bytes.Repeat([]byte{2}, 200), uint64(0x10))
	f.Fuzz(func(t *testing.T, mem []byte, sp uint64) {
		rt := &Runtime{a: arch.AMD64, g: arch.R14, goid: 152, tls: ^uint64(7)}
		r := arch.Regs{}
		r[arch.SP], r[rt.g] = sp, 0x1000
		g, ok := rt.Current(&r, memory{0x1000: string(mem)})
		if ok && (!g.On(arch.Addr(sp)) || g.ID != 0 && len(mem) < 160) {
			t.Errorf("%+v at %#x of % x", g, sp, mem)
		}
	})
}
