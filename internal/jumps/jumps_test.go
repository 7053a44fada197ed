package jumps_test

import (
	"debug/elf"
	"os"
	"path/filepath"
	"testing"

	"kprobe/arch"
	"kprobe/internal/isa/amd64"
	"kprobe/internal/jumps"
	"kprobe/internal/testprog"
	"kprobe/symbol"
)

func open(t testing.TB, path string) (*symbol.File, *jumps.Code) {
	t.Helper()
	r, err := os.Open(path)
	testprog.Need(t, path, err == nil)
	t.Cleanup(func() { r.Close() })
	f, err := symbol.Open(r, &symbol.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	code, err := jumps.Open(amd64.ISA, f)
	if err != nil {
		t.Fatal(err)
	}
	return f, code
}

// Nearly every instruction of real programs can have a jump.
func TestShare(t *testing.T) {
	const entries, sites = 0.99, 0.95
	paths := []string{"/usr/sbin/nginx"}
	if !testing.Short() {
		paths = append(paths, "/usr/bin/redis-server", "/usr/bin/python3", "/lib/x86_64-linux-gnu/libc.so.6", "/usr/bin/git",
			testprog.Build(t, "goprog"), testprog.Build(t, "goprog", "-buildmode=pie"))
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			f, code := open(t, path)
			if f.Type() == elf.ET_DYN {
				code = code.At(0x5555_5555_4000)
			}
			segments := f.Segments()
			last := segments[len(segments)-1]
			module := arch.Range{Start: arch.Addr(segments[0].Vaddr) + code.Bias, End: arch.Addr(last.Vaddr+last.Memsz) + code.Bias}
			heap := arch.Range{Start: module.End, End: module.End + 1<<27}
			s := code.Survey(module, []arch.Range{heap}, 200)
			t.Logf("\n%v", s)
			if s.Entries.Sites < 100 || float64(s.Entries.Jumps()) < entries*float64(s.Entries.Sites) {
				t.Errorf("jumps at %d of %d function entries", s.Entries.Jumps(), s.Entries.Sites)
			}
			if float64(s.Sites.Jumps()) < sites*float64(s.Sites.Sites) {
				t.Errorf("jumps at %d of %d instructions", s.Sites.Jumps(), s.Sites.Sites)
			}
		})
	}
}

// A file's code moves as a whole.
func TestAt(t *testing.T) {
	f, code := open(t, testprog.Build(t, "threads", "-O2"))
	const bias = 0x7000_0000
	moved := code.At(bias).At(2 * bias)
	n := 0
	for _, fn := range code.Functions() {
		a, b := code.Body(fn), moved.Body(fn)
		if b.Addr != a.Addr+2*bias || len(a.Insns) != len(b.Insns) || len(a.Insns) == 0 {
			t.Fatalf("%s: %v with %d instructions, moved %v with %d", fn.Name, a.Addr, len(a.Insns), b.Addr, len(b.Insns))
		}
		for _, in := range a.Insns {
			x, y := a.PlanJump(a.Addr+arch.Addr(in.Off)), b.PlanJump(b.Addr+arch.Addr(in.Off))
			if x.Reason != y.Reason || len(x.Ways) != len(y.Ways) {
				t.Fatalf("%s+%d: %v %q, moved %v %q", fn.Name, in.Off, x.Ways, x.Reason, y.Ways, y.Reason)
			}
			n++
		}
	}
	if n < 200 || len(f.Funcs()) == 0 {
		t.Errorf("only %d instructions", n)
	}
}
