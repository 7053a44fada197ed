package symbol

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestDebugFiles(t *testing.T) {
	prog := build(t, "gcc", "prog.c", cProgram, "-g", "-O1")
	want := nm(t, prog)
	dir := filepath.Dir(prog)
	debug := filepath.Join(dir, "prog.debug")
	run(t, "objcopy", "--only-keep-debug", prog, debug)

	full := func(t *testing.T, f *File, source Source) {
		t.Helper()
		checkTable(t, f)
		for p := range want {
			if p.name == "inner" || !inSomeText(f, p.addr) {
				continue
			}
			if got := f.Lookup(p.name); !slices.ContainsFunc(got, func(s Symbol) bool { return s.Addr == p.addr && s.Source == source }) {
				t.Errorf("%s at %#x: %+v", p.name, p.addr, got)
			}
		}
		if s := f.Lookup("helper"); len(s) != 1 || s[0].Global {
			t.Errorf("static function: %+v", s)
		}
	}
	// stripped makes a stripped copy in a directory of its own.
	stripped := func(t *testing.T, flags ...string) string {
		path := filepath.Join(t.TempDir(), "prog")
		run(t, "objcopy", append(append([]string{"--strip-all"}, flags...), prog, path)...)
		return path
	}
	t.Run("link next to the file", func(t *testing.T) {
		path := stripped(t, "--add-gnu-debuglink="+debug)
		if s := open(t, path, true).Lookup("helper"); s != nil {
			t.Fatalf("found before the debug file is there: %+v", s)
		}
		copyFile(t, filepath.Join(filepath.Dir(path), "prog.debug"), debug)
		full(t, open(t, path, true), DebugFile)
	})
	t.Run("link in .debug", func(t *testing.T) {
		path := stripped(t, "--add-gnu-debuglink="+debug)
		sub := filepath.Join(filepath.Dir(path), ".debug")
		if err := os.Mkdir(sub, 0o755); err != nil {
			t.Fatal(err)
		}
		copyFile(t, filepath.Join(sub, "prog.debug"), debug)
		full(t, open(t, path, true), DebugFile)
	})
	t.Run("places that are named", func(t *testing.T) {
		path, dir := stripped(t), t.TempDir()
		s := open(t, prog, true)
		id := hex.EncodeToString(s.BuildID())
		byID := filepath.Join(dir, ".build-id", id[:2], id[2:]+".debug")
		if err := os.MkdirAll(filepath.Dir(byID), 0o755); err != nil {
			t.Fatal(err)
		}
		copyFile(t, byID, debug)
		defer func() { MoreDebug = nil }()
		for _, place := range []string{dir, debug} {
			MoreDebug = []string{t.TempDir(), place}
			full(t, open(t, path, true), DebugFile)
		}
		MoreDebug = []string{build(t, "gcc", "other.c", "int other(void) { return 0; } int main(void) { return other(); }")} // of another program
		if s := open(t, path, true).Lookup("helper"); s != nil {
			t.Errorf("found in another program's: %+v", s)
		}
	})
	t.Run("link without build ID is checked by CRC", func(t *testing.T) {
		path := stripped(t, "--add-gnu-debuglink="+debug, "--remove-section=.note.gnu.build-id")
		beside := filepath.Join(filepath.Dir(path), "prog.debug")
		copyFile(t, beside, debug)
		full(t, open(t, path, true), DebugFile)
		other := build(t, "gcc", "other.c", "int other(void) { return 0; } int main(void) { return other(); }")
		copyFile(t, beside, other)
		if s := open(t, path, true).Lookup("other"); s != nil {
			t.Errorf("symbols of a file with the wrong CRC: %+v", s)
		}
	})
	t.Run("build ID below a root", func(t *testing.T) {
		path := stripped(t)
		id := open(t, path, false).BuildID()
		if id == nil {
			t.Fatal("no build ID")
		}
		root := t.TempDir()
		hexID := strings.TrimSpace(string(run(t, "sh", "-c", "readelf -n "+path+" | sed -n 's/.*Build ID: //p'")))
		dst := filepath.Join(root, "usr/lib/debug/.build-id", hexID[:2], hexID[2:]+".debug")
		if err := os.MkdirAll(filepath.Dir(dst), 0o755); err != nil {
			t.Fatal(err)
		}
		copyFile(t, dst, debug)
		r, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		f, err := Open(r, &Options{Path: path, Debug: DebugFinder(root)})
		if err != nil {
			t.Fatal(err)
		}
		full(t, f, DebugFile)
		// A file of another build under this ID is not believed.
		copyFile(t, dst, build(t, "gcc", "other.c", "int main(void) { return 0; }"))
		if _, err := DebugFinder(root)(id, "", 0); err == nil {
			t.Error("a debug file with another build ID is accepted")
		}
	})
	t.Run("MiniDebugInfo", func(t *testing.T) {
		need(t, "xz")
		mini := filepath.Join(dir, "mini")
		run(t, "objcopy", "--strip-debug", debug, mini)
		run(t, "xz", "-k", "-f", mini)
		path := stripped(t, "--add-section=.gnu_debugdata="+mini+".xz")
		full(t, open(t, path, false), MiniDebug)
	})
	t.Run("a debug link that leads nowhere good", func(t *testing.T) {
		path := stripped(t, "--add-gnu-debuglink="+debug)
		copyFile(t, filepath.Join(filepath.Dir(path), "prog.debug"), path) // itself, stripped
		if f := open(t, path, true); f.Lookup("helper") != nil {
			t.Error("symbols out of nothing")
		}
		sub := filepath.Join(filepath.Dir(path), ".debug")
		if err := os.Mkdir(sub, 0o755); err != nil {
			t.Fatal(err)
		}
		copyFile(t, filepath.Join(sub, "prog.debug"), debug)
		full(t, open(t, path, true), DebugFile)
	})
}

// Without any symbols, the unwind entries give the functions.
func TestStrippedBounds(t *testing.T) {
	for _, flags := range [][]string{{"-O1"}, {"-O1", "-static"}} {
		prog := build(t, "gcc", "prog.c", cProgram, flags...)
		full := open(t, prog, false)
		path := filepath.Join(t.TempDir(), "prog")
		run(t, "strip", "-s", "-o", path, prog)
		f := open(t, path, false)
		checkTable(t, f)
		for _, name := range []string{"main", "work", "helper"} {
			want := full.Lookup(name)[0]
			got, ok := f.FuncAt(want.Addr + 2)
			if !ok || got.Addr != want.Addr || got.Size != want.Size || got.Source != EhFrame || got.Name != "" {
				t.Errorf("%v: %s is %+v, want %+v", flags, name, got, want)
			}
			if again := f.Lookup(got.Label()); len(again) != 1 || again[0] != got {
				t.Errorf("%s leads to %+v", got.Label(), again)
			}
		}
	}
}

// goProgram calls through an interface, a closure and a generic function, and
// through C in its second form.
const goProgram = `package main

import "fmt"

type T struct{ n int }

//go:noinline
func (t *T) Method(x int) int { return t.n + x }

//go:noinline
func Plain(x int) int { return x * 2 }

//go:noinline
func Generic[V int | float64](x V) V { return x + 1 }

func main() { t := &T{1}; fmt.Println(t.Method(2), Plain(3), Generic(4), Generic(1.5)) }
`

func TestGo(t *testing.T) {
	cgo := strings.Replace(goProgram, "import \"fmt\"", "// static int twice(int x) { return 2 * x; }\nimport \"C\"\nimport \"fmt\"", 1)
	cgo = strings.Replace(cgo, "Plain(3)", "Plain(int(C.twice(3)))", 1)
	for name, c := range map[string]struct {
		src   string
		cgo   string
		flags []string
	}{
		"exe":    {goProgram, "0", nil},
		"pie":    {goProgram, "0", []string{"-buildmode=pie"}},
		"cgo":    {cgo, "1", nil},
		"cgopie": {cgo, "1", []string{"-buildmode=pie"}},
	} {
		if testing.Short() && name != "cgopie" {
			continue // it is all of them
		}
		t.Run(name, func(t *testing.T) {
			t.Setenv("CGO_ENABLED", c.cgo)
			t.Setenv("GOFLAGS", "")
			src := write(t, "main.go", c.src)
			symbols, bare := src+".full", src+".bare"
			run(t, "go", append(append([]string{"build", "-o", symbols}, c.flags...), src)...)
			run(t, "go", append(append([]string{"build", "-ldflags=-s -w", "-o", bare}, c.flags...), src)...)
			full, f := open(t, symbols, false), open(t, bare, false)
			checkTable(t, full)
			checkTable(t, f)
			if !f.IsGo() || f.GoVersion() == "" || f.GoVersion() != full.GoVersion() {
				t.Errorf("Go: %v, version %q", f.IsGo(), f.GoVersion())
			}
			if may, why := f.Unwinds(); !may || !strings.Contains(why, "Go") {
				t.Errorf("unwinds: %v, %s", may, why)
			}
			// Each function of the table must start where the symbol of that
			// name does; it spells type arguments "[...]".
			compared := 0
			for _, s := range f.Funcs() {
				if s.Source != Pclntab || strings.Contains(s.Name, "[") {
					continue
				}
				// ABI wrappers have their function's name in the table.
				want := append(full.Lookup(s.Name), full.Lookup(s.Name+".abi0")...)
				if len(want) == 0 {
					continue // renamed by the linker
				}
				compared++
				if !slices.ContainsFunc(want, func(w Symbol) bool { return w.Addr == s.Addr }) {
					t.Fatalf("%s is at %#x, its symbol at %#x", s.Name, s.Addr, want[0].Addr)
				}
			}
			if compared < 1000 {
				t.Errorf("only %d functions compared", compared)
			}
			for _, name := range []string{"main.main", "main.Plain", "main.(*T).Method", "runtime.mallocgc"} {
				if s := f.Lookup(name); len(s) != 1 || s[0].Source != Pclntab {
					t.Errorf("%s: %+v", name, s)
				}
			}
			t.Logf("%d functions agree", compared)
			if name == "cgopie" {
				// As LLD links: words that are relocated are zero in the file.
				b := must(os.ReadFile(bare))
				for slot := range f.relocs().relative {
					if off, ok := f.OffOf(slot); ok {
						clear(b[off : off+8])
					}
				}
				lld := openBytes(t, b)
				if s := lld.Lookup("main.Plain"); len(s) != 1 || s[0].Addr != f.Lookup("main.Plain")[0].Addr {
					t.Errorf("with zero words: %+v", s)
				}
			}
			if name == "exe" {
				bare := openBytes(t, withoutSections(t, bare))
				if s := bare.Lookup("main.Plain"); len(s) != 1 || s[0].Addr != f.Lookup("main.Plain")[0].Addr {
					t.Errorf("without section headers: %+v", s)
				}
			}
		})
	}
}

func TestUnwinds(t *testing.T) {
	if may, why := open(t, libcPath, true).Unwinds(); may || why == "" {
		t.Errorf("libc: %v, %s", may, why)
	}
	cleanup := `#include <stdlib.h>
#include <stdio.h>
static void done(int *p) { printf("%d\n", *p); }
int call(int (*f)(int)) { int x __attribute__((cleanup(done))) = 1; return f(x); }
int main(void) { return call(abs); }`
	strip := func(path string) string {
		run(t, "strip", "-s", path)
		return path
	}
	for name, c := range map[string]struct {
		path string
		may  bool
	}{
		"C":                    {build(t, "gcc", "p.c", cProgram), false},
		"C static":             {build(t, "gcc", "p.c", cProgram, "-static"), false},
		"C static, stripped":   {strip(build(t, "gcc", "p.c", cProgram, "-static")), false},
		"C with cleanup":       {build(t, "gcc", "p.c", cleanup, "-fexceptions", "-O1"), true}, // imports _Unwind_Resume
		"C++":                  {build(t, "g++", "p.cc", cxxProgram), true},
		"C++ static":           {build(t, "g++", "p.cc", cxxProgram, "-static"), true},
		"C++ static, stripped": {strip(build(t, "g++", "p.cc", cxxProgram, "-static")), true},
		"C++ pie, stripped":    {strip(build(t, "g++", "p.cc", cxxProgram, "-static-pie")), true},
	} {
		may, why := open(t, c.path, false).Unwinds()
		if may != c.may {
			t.Errorf("%s: %v, because it %s", name, may, why)
		}
		t.Logf("%s: %v: %s", name, may, why)
	}
	f := open(t, build(t, "g++", "p.cc", cxxProgram, "-O1"), false)
	if !f.HasLSDA(f.Lookup("main")[0].Addr) {
		t.Error("main has a catch and no landing pads")
	}
	if f.HasLSDA(f.Lookup("lonely")[0].Addr) {
		t.Error("lonely has landing pads")
	}
	if f.HasLSDA(0) {
		t.Error("address 0 has landing pads")
	}
}

func TestPersonalityNames(t *testing.T) {
	c := `static void done(int *p) { *p = 0; }
int call(int (*f)(int)) { int x __attribute__((cleanup(done))) = 1; return f(x); }
int main(void) { return 0; }`
	for _, p := range []struct{ compiler, name, text, want string }{
		{"gcc", "p.c", c, "__gcc_personality_v0"},
		{"g++", "p.cc", cxxProgram, "__gxx_personality_v0"},
	} {
		for _, flags := range [][]string{{"-fexceptions"}, {"-fexceptions", "-no-pie"}, {"-fexceptions", "-static"}, {"-fexceptions", "-static-pie"}} {
			f := open(t, build(t, p.compiler, p.name, p.text, flags...), false)
			var got []string
			for _, c := range f.frames().cies {
				if name, addr := f.personalityName(c); addr != 0 {
					got = append(got, name)
				}
			}
			if !slices.Contains(got, p.want) {
				t.Errorf("%s %v: personalities %q, want %s", p.compiler, flags, got, p.want)
			}
		}
	}
}

func TestMusl(t *testing.T) {
	for _, flags := range [][]string{{"-O1"}, {"-O1", "-static"}} {
		src := strings.Replace(cProgram, `int chosen(int) __attribute__((ifunc("choose")));`, `int chosen(int x) { return ((int (*)(int))choose())(x); }`, 1)
		path := build(t, "musl-gcc", "prog.c", src, flags...)
		f := open(t, path, false)
		checkTable(t, f)
		for p := range nm(t, path) {
			if p.name != "inner" && inSomeText(f, p.addr) && !slices.ContainsFunc(f.Lookup(p.name), func(s Symbol) bool { return s.Addr == p.addr }) {
				t.Errorf("%v: nm has %s at %#x", flags, p.name, p.addr)
			}
		}
		comparePLT(t, f, path)
	}
}
