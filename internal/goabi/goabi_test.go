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
	"kprobe/internal/testprog"
)

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
	rt, err := Read(file, arch.AMD64, &Machine{G: arch.R14, Apart: true})
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
	rt, err := Read(f, arch.AMD64, &Machine{G: arch.R14, Apart: true})
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
