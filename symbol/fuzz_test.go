package symbol

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"kprobe/arch"
)

// fuzzSources are compiled to small files that have between them everything
// this package reads: versions, IFUNCs, unwind entries with landing pads, debug
// links, MiniDebugInfo, a Go function table.
var fuzzSources = []struct {
	compiler, name, text string
	flags                []string
}{
	{"gcc", "v.c", `
int data = 5; extern int imported(int);
__asm__(".symver f_old,f@V1\n.symver f_new,f@@V2");
int f_old(int x) { return imported(x); } int f_new(int x) { return x + data; }
static int impl(int x) { return x; } static void *choose(void) { return (void *)impl; }
int chosen(int) __attribute__((ifunc("choose"))); int g(int x) { return chosen(x) + f_new(x); }
__asm__(".pushsection __rseq_cs,\"aw\"\n.zero 32\n.popsection");
`, []string{"-Wl,--version-script=VERSIONS", "-Wl,-soname,libv.so.2"}},
	{"gcc", "v32.c", `int imported(int); int f(int x) { return imported(x) + 1; }`, []string{"-m32"}},
	{"g++", "e.cc", `
struct D { ~D(); }; void may_throw(int);
int guarded(int x) { D d; try { may_throw(x); } catch (int e) { return e; } return 0; }
`, nil},
	{"gcc", "go.c", `
int first(int x) { return x; } int second(int x) { return x + 1; }
__asm__(".section .gopclntab,\"a\"\n.balign 32\n"
	"tab: .long 0xfffffff1\n.byte 0,0,1,8\n.quad 2,1,0\n.quad names-tab,cu-tab,files-tab,pc-tab,fn-tab\n"
	"names: .asciz \"main.first\"\n.asciz \"main.second\"\ncu: .long 0\nfiles: .byte 0\npc: .byte 0\n.balign 4\n"
	"fn: .long 0,f1-fn,4,f2-fn,8\nf1: .long 0,0,0,0,0,0,0,0,0,0,0\nf2: .long 4,11,0,0,0,0,0,0,0,0,0\n.text");
`, nil},
}

func fuzzSeeds(f testing.TB) [][]byte {
	dir := f.TempDir()
	versions := filepath.Join(dir, "versions")
	if err := os.WriteFile(versions, []byte("V1 { global: f; local: *; };\nV2 { global: f; g; } V1;\n"), 0o644); err != nil {
		f.Fatal(err)
	}
	var seeds [][]byte
	for _, src := range fuzzSources {
		flags := []string{"-shared", "-fPIC", "-nostdlib", "-O1", "-Wl,-z,noseparate-code", "-Wl,-z,max-page-size=4096"}
		for _, flag := range src.flags {
			if flag == "-Wl,--version-script=VERSIONS" {
				flag = "-Wl,--version-script=" + versions
			}
			flags = append(flags, flag)
		}
		path := build(f, src.compiler, src.name, src.text, flags...)
		seeds = append(seeds, must(os.ReadFile(path)))
		if src.name == "v.c" {
			seeds = append(seeds, withoutSections(f, path))
			if _, err := exec.LookPath("xz"); err == nil {
				mini := filepath.Join(dir, "mini")
				copyFile(f, mini, path)
				run(f, "xz", "-kf", mini)
				run(f, "objcopy", "--strip-all", "--add-gnu-debuglink="+path, "--add-section=.gnu_debugdata="+mini+".xz", path)
				seeds = append(seeds, must(os.ReadFile(path)))
			}
		}
	}
	return seeds
}

// FuzzOpen opens damaged files and asks them everything. Nothing may panic or run away, and the
// answers must hold together.
func FuzzOpen(f *testing.F) {
	for _, seed := range fuzzSeeds(f) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 1<<18 {
			return
		}
		file, err := Open(bytes.NewReader(b), &Options{
			Path:  "x",
			Debug: func([]byte, string, uint32) (io.ReaderAt, error) { return bytes.NewReader(b), nil },
		})
		if err != nil {
			return
		}
		checkTable(t, file)
		for i, d := range file.Data() {
			if i > 0 && d.Addr < file.Data()[i-1].Addr {
				t.Fatal("data is not sorted")
			}
			file.DataAt(d.Addr)
		}
		file.Interp()
		file.Needed()
		file.Soname()
		file.BuildID()
		file.GoVersion()
		file.Unwinds()
		file.RseqAreas()
		for i, r := range file.Constants() {
			if r.Start >= r.End || i > 0 && file.Constants()[i-1].End > r.Start {
				t.Fatalf("constants: %v", file.Constants())
			}
		}
		for _, a := range file.CodePoints() {
			if _, ok := file.textAt(a); !ok {
				t.Fatalf("code point %#x is not in code", a)
			}
		}
		file.ImportSlots("imported")
		file.IRelatives()
		file.Lookup("D::f(int)")
		file.LookupBase("f")
		file.Match("*f*")
		file.Match("*::*")
		file.Nearest("imprted", 3)
		for _, s := range file.Segments() {
			if v, ok := file.VaddrOf(s.Off); ok {
				file.OffOf(v)
			}
			m := Mapping{Start: arch.Addr(0x10000 + s.Vaddr&^0xfff), End: arch.Addr(0x20000 + s.Vaddr), Off: s.Off &^ 0xfff, Exec: true, Inode: 1}
			if m.End > m.Start {
				space := NewSpace(func(Mapping) (*File, error) { return file, nil })
				space.Update([]Mapping{m})
				for _, l := range space.Match("", "*") {
					space.At(l.Addr)
				}
			}
		}
	})
}

// The seeds must be of the intended kind, or the fuzzing looks elsewhere.
func TestFuzzSeeds(t *testing.T) {
	var versions, names, lsda, goFuncs, mini, ifuncs int
	for _, seed := range fuzzSeeds(t) {
		file, err := Open(bytes.NewReader(seed), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range file.Funcs() {
			if s.Version != "" {
				versions++
			}
			if isMangled(s.Name) {
				names++
			}
			if file.HasLSDA(s.Addr) {
				lsda++
			}
			if s.Kind == IFunc {
				ifuncs++
			}
			switch s.Source {
			case Pclntab:
				goFuncs++
			case MiniDebug:
				mini++
			}
		}
		goFuncs += len(file.pclntab())
	}
	if versions == 0 || names == 0 || lsda == 0 || goFuncs == 0 || mini == 0 || ifuncs == 0 {
		t.Errorf("versions %d, C++ names %d, landing pads %d, Go functions %d, MiniDebugInfo %d, IFUNCs %d", versions, names, lsda, goFuncs, mini, ifuncs)
	}
}

func FuzzGlob(f *testing.F) {
	f.Add("a*[!b-c]?\\*", "abcd*")
	f.Add("[", "[")
	f.Fuzz(func(t *testing.T, glob, s string) {
		if Glob(glob, s) && !Glob("*"+glob, s) {
			t.Fatalf("%q matches %q, and not with a star before", glob, s)
		}
		if !bytes.ContainsAny([]byte(s), `*?[\`) && !Glob(s, s) {
			t.Fatalf("%q does not match itself", s)
		}
	})
}
