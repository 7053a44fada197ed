package symbol

import (
	"bufio"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"kprobe/arch"
)

// process is a running program that speaks lines on its standard output.
type process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// start runs a program up to its first line of output, which it returns later.
func start(t testing.TB, path string, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(path, args...)}
	p.cmd.Stderr = os.Stderr
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.in.Close()
		p.cmd.Process.Kill()
		p.cmd.Wait()
	})
	if _, err := p.out.Peek(1); err != nil {
		t.Fatalf("%s says nothing: %v", path, err)
	}
	return p
}

// ask lets the program go on to its next answer: "NAME ADDRESS" lines up to ".".
func (p *process) answer(t testing.TB) map[string]uint64 {
	t.Helper()
	got := map[string]uint64{}
	for {
		line, err := p.out.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if line == ".\n" {
			return got
		}
		var name string
		var addr uint64
		if _, err := fmt.Sscanf(line, "%s %v", &name, &addr); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		got[name] = addr
	}
}

func (p *process) proc(file string) string {
	return fmt.Sprintf("/proc/%d/%s", p.cmd.Process.Pid, file)
}

func (p *process) maps(t testing.TB) []Mapping {
	t.Helper()
	b, err := os.ReadFile(p.proc("maps"))
	if err != nil {
		t.Fatal(err)
	}
	maps, err := ParseMaps(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	return maps
}

func (p *process) word(t testing.TB, addr uint64) uint64 {
	t.Helper()
	mem, err := os.Open(p.proc("mem"))
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	var b [8]byte
	if _, err := mem.ReadAt(b[:], int64(addr)); err != nil {
		t.Fatal(err)
	}
	return binary.LittleEndian.Uint64(b[:])
}

// open opens mapped files as the product does: by the path, the vdso from memory.
func (p *process) open(m Mapping) (*File, error) {
	if m.Path == "[vdso]" {
		mem, err := os.Open(p.proc("mem"))
		if err != nil {
			return nil, err
		}
		defer mem.Close()
		b := make([]byte, m.End-m.Start)
		if _, err := mem.ReadAt(b, int64(m.Start)); err != nil {
			return nil, err
		}
		return Open(bytes.NewReader(b), &Options{Path: m.Path})
	}
	r, err := os.Open(m.Path)
	if err != nil {
		return nil, err
	}
	return Open(r, &Options{Path: m.Path})
}

const liveLib = `
int plugin_data = 7;
static int hidden(int x) { return x + plugin_data; }
int plugin(int x) { return hidden(x) * 2; }
int same_name(int x) { return x + 5; }
`

const liveProgram = `
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/auxv.h>
static int file_local(int x) { return x + 1; }
int same_name(int x) { return x + 6; }
int global_data[16] = {1};
char zeroed[100000];
void *volatile use;
static void say(const char *n, void *p) { printf("%s %#lx\n", n, (unsigned long)p); }
static void done(void) { puts("."); fflush(stdout); getchar(); }
int main(int argc, char **argv) {
	use = memcpy(malloc(64), argv[0], 4);
	say("main", main); say("file_local", file_local); say("global_data", global_data); say("zeroed", zeroed + 99999);
	say("malloc", dlsym(RTLD_DEFAULT, "malloc")); say("qsort", dlsym(RTLD_DEFAULT, "qsort"));
	say("memcpy", dlsym(RTLD_DEFAULT, "memcpy"));
	say("environ", dlsym(RTLD_DEFAULT, "environ")); say("stdin", &stdin);
	say("vdso", (void *)getauxval(AT_SYSINFO_EHDR));
	done();
	void *a = dlopen(argv[1], RTLD_NOW);
	say("plugin", dlsym(a, "plugin")); say("plugin_data", dlsym(a, "plugin_data"));
	done();
	void *b = dlmopen(LM_ID_NEWLM, argv[1], RTLD_NOW);
	say("plugin", dlsym(a, "plugin")); say("plugin2", dlsym(b, "plugin"));
	done();
	dlclose(b); dlclose(a);
	done();
	return 0;
}
`

func TestLiveProcess(t *testing.T) {
	lib := build(t, "gcc", "plugin.c", liveLib, "-shared", "-fPIC")
	plugin := filepath.Join(filepath.Dir(lib), "libplugin.so.1.2.3")
	if err := os.Rename(lib, plugin); err != nil {
		t.Fatal(err)
	}
	for name, flags := range map[string][]string{
		"pie": nil, "no-pie": {"-no-pie"}, "nosep": {"-Wl,-z,noseparate-code"}, "norelro": {"-Wl,-z,norelro"}, "now": {"-Wl,-z,now"},
	} {
		t.Run(name, func(t *testing.T) {
			prog := build(t, "gcc", "live.c", liveProgram, append(flags, "-fno-builtin", "-ldl")...)
			p := start(t, prog, plugin)
			opens := 0
			s := NewSpace(func(m Mapping) (*File, error) { opens++; return p.open(m) })
			truth := p.answer(t)
			added, removed := s.Update(p.maps(t))
			if len(added) != len(s.Modules()) || removed != nil {
				t.Errorf("%d added, %d removed", len(added), len(removed))
			}
			resolve := func(q Query, want uint64) {
				t.Helper()
				locs, err := s.Resolve(q)
				if err != nil || len(locs) != 1 || locs[0].Addr != arch.Addr(want) {
					t.Errorf("%+v: %v, %v; it is at %#x", q, locs, err, want)
				}
			}
			for _, name := range []string{"main", "file_local", "qsort"} {
				resolve(Query{Symbol: name}, truth[name])
			}
			resolve(Query{Module: "libc", Symbol: "malloc"}, truth["malloc"])
			resolve(Query{Module: "libc.so.6", Symbol: "malloc", Offset: 4}, truth["malloc"]+4)
			resolve(Query{Module: prog, Symbol: "global_data", Kind: Data}, truth["global_data"])
			resolve(Query{Symbol: "stdin", Kind: Data}, truth["stdin"])
			resolve(Query{Symbol: "environ", Kind: Data}, truth["environ"])

			checkIFunc(t, p, s, truth["memcpy"])
			checkVDSO(t, s, truth["vdso"])
			if l, ok := s.At(arch.Addr(truth["zeroed"])); !ok || l.String() != "zeroed+0x1869f/0x186a0" {
				t.Errorf("the last byte of zeroed is %v", l)
			}
			if l, ok := s.At(arch.Addr(truth["main"] + 5)); !ok || l.Func.Name != "main" || l.Off != 5 || l.Start() != arch.Addr(truth["main"]) {
				t.Errorf("main+5 is %v", l)
			}
			if _, ok := s.At(0x10); ok {
				t.Error("something is at 0x10")
			}
			checkRoundTrip(t, s)
			checkPlugin(t, p, s)
			if again := opens; again > len(added)+2 {
				t.Errorf("%d files opened for %d modules", again, len(added))
			}
		})
	}
}

// checkIFunc finds the memcpy that the loader chose, through the program's slot.
func checkIFunc(t *testing.T, p *process, s *Space, want uint64) {
	t.Helper()
	locs, err := s.Resolve(Query{Module: "libc", Symbol: "memcpy"})
	if err != nil || locs[0].Func.Kind != IFunc {
		t.Fatalf("memcpy: %+v, %v", locs, err)
	}
	program := s.ModulesNamed("prog")[0]
	slots := program.File.ImportSlots("memcpy")
	if len(slots) != 1 {
		t.Fatalf("slots of memcpy: %#x", slots)
	}
	if got := p.word(t, slots[0]+program.Bias); got != want {
		t.Errorf("memcpy's slot holds %#x, dlsym gives %#x", got, want)
	}
}

func checkVDSO(t *testing.T, s *Space, want uint64) {
	t.Helper()
	found := s.ModulesNamed("[vdso]")
	if len(found) != 1 || !found[0].Special || found[0].Start != arch.Addr(want) || found[0].Err != nil {
		t.Fatalf("vdso: %+v", found)
	}
	locs, err := s.Resolve(Query{Module: "[vdso]", Symbol: "__vdso_clock_gettime"})
	if err != nil || s.ModuleAt(locs[0].Addr) != found[0] {
		t.Errorf("%v, %v", locs, err)
	}
}

// checkRoundTrip resolves what At names, for every function of every module.
func checkRoundTrip(t *testing.T, s *Space) {
	t.Helper()
	for _, m := range s.Modules() {
		if m.File == nil {
			t.Fatalf("%s: %v", m.Path, m.Err)
		}
		for i, f := range m.File.Funcs() {
			if f.Source == Plt || i%3 != 0 {
				continue
			}
			l, ok := s.At(arch.Addr(f.Addr + m.Bias))
			if !ok || l.Addr != arch.Addr(f.Addr+m.Bias) || l.Module != m || l.Off != 0 {
				t.Fatalf("At(%s) = %v, %v", f.Label(), l, ok)
			}
			module, name, _ := strings.Cut(l.Place(), ":")
			back, err := s.Resolve(Query{Module: module, Symbol: name})
			var ambiguous *AmbiguousError
			if errors.As(err, &ambiguous) {
				back = ambiguous.Candidates
			}
			if !slices.ContainsFunc(back, func(b Loc) bool { return b.Addr == l.Addr }) {
				t.Fatalf("%s leads to %v, %v; want %#x", l.Place(), back, err, l.Addr)
			}
		}
	}
}

// checkPlugin follows a library through dlopen, a second copy and dlclose.
func checkPlugin(t *testing.T, p *process, s *Space) {
	t.Helper()
	var missing *NoModuleError
	if _, err := s.Resolve(Query{Module: "libplugin", Symbol: "plugin"}); !errors.As(err, &missing) || !errors.Is(err, syscall.ENOENT) {
		t.Errorf("before dlopen: %v", err)
	}
	next := func() (map[string]uint64, []*Module, []*Module) {
		fmt.Fprintln(p.in)
		truth := p.answer(t)
		added, removed := s.Update(p.maps(t))
		return truth, added, removed
	}
	before := s.Modules()
	truth, added, removed := next()
	if len(added) != 1 || added[0].Name != "libplugin.so.1.2.3" || removed != nil {
		t.Fatalf("dlopen: %v added, %v removed", added, removed)
	}
	for _, m := range before {
		if !slices.Contains(s.Modules(), m) {
			t.Errorf("%s is another module now", m.Path)
		}
	}
	for _, name := range []string{"libplugin", "libplugin.so", "libplugin.so.1.2.3", added[0].Path} {
		locs, err := s.Resolve(Query{Module: name, Symbol: "plugin"})
		if err != nil || locs[0].Addr != arch.Addr(truth["plugin"]) {
			t.Errorf("%s: %v, %v; it is at %#x", name, locs, err, truth["plugin"])
		}
	}
	// An offset that leads into another function is there.
	hidden, plugin := s.Match("libplugin", "hidden")[0], s.Match("libplugin", "plugin")[0]
	locs, err := s.Resolve(Query{Module: "libplugin", Symbol: "hidden", Offset: uint64(plugin.Addr - hidden.Addr + 1)})
	if err != nil || locs[0].Func.Name != "plugin" || locs[0].Off != 1 || locs[0].Addr != plugin.Addr+1 {
		t.Errorf("hidden and more: %v, %v", locs, err)
	}
	if locs, err := s.Resolve(Query{Symbol: "plugin_data", Kind: Data}); err != nil || locs[0].Addr != arch.Addr(truth["plugin_data"]) {
		t.Errorf("plugin_data: %v, %v", locs, err)
	}
	var ambiguous *AmbiguousError
	_, err = s.Resolve(Query{Symbol: "same_name"})
	if !errors.As(err, &ambiguous) || !errors.Is(err, syscall.EADDRNOTAVAIL) || len(ambiguous.Candidates) != 2 ||
		!strings.Contains(err.Error(), "libplugin.so.1.2.3:same_name") || !strings.Contains(err.Error(), "prog:same_name") {
		t.Errorf("same_name: %v", err)
	}
	var unknown *NotFoundError
	if _, err := s.Resolve(Query{Symbol: "plugin_data"}); !errors.Is(err, syscall.ENOENT) || !errors.As(err, &unknown) || !unknown.IsData {
		t.Errorf("a variable as a function: %v", err)
	}
	if _, err := s.Resolve(Query{Module: "[vdso]", Symbol: "clock", Kind: Data}); !errors.As(err, &unknown) || !unknown.NoData {
		t.Errorf("a variable where only functions have names: %v", err)
	}
	if _, err := s.Resolve(Query{Module: "libplugin", Symbol: "plugin_dat", Kind: Data}); !errors.As(err, &unknown) || unknown.NoData {
		t.Errorf("plugin_dat: %v", err)
	}
	if _, err := s.Resolve(Query{Module: "libplugin", Symbol: "plugn"}); !errors.As(err, &unknown) || !slices.Equal(unknown.Nearest()[:1], []string{"plugin"}) {
		t.Errorf("plugn: %v", err)
	}
	if locs := s.Match("libplugin", "*"); len(locs) < 3 || !slices.ContainsFunc(locs, func(l Loc) bool { return l.Func.Name == "hidden" }) {
		t.Errorf("all of the plugin: %v", locs)
	}

	// dlmopen also loads a second libc; the plugin's two copies are two modules.
	truth, added, removed = next()
	if removed != nil || len(s.ModulesNamed("libplugin")) != 2 {
		t.Errorf("dlmopen: %d added, %d removed, %d plugins", len(added), len(removed), len(s.ModulesNamed("libplugin")))
	}
	_, err = s.Resolve(Query{Module: "libplugin", Symbol: "plugin"})
	if !errors.As(err, &ambiguous) || len(ambiguous.Candidates) != 2 {
		t.Fatalf("two copies: %v", err)
	}
	for _, name := range []string{"plugin", "plugin2"} {
		if !slices.ContainsFunc(ambiguous.Candidates, func(l Loc) bool { return l.Addr == arch.Addr(truth[name]) }) {
			t.Errorf("%s at %#x is not among %v", name, truth[name], ambiguous.Candidates)
		}
	}
	_, added, removed = next()
	if len(added) != 0 || len(removed) < 2 || s.ModulesNamed("libplugin") != nil {
		t.Errorf("dlclose: %d added, %d removed", len(added), len(removed))
	}
}

// A module whose file cannot be read is there, with the reason, and is opened
// when it can be.
func TestUnreadableModule(t *testing.T) {
	maps, err := ParseMaps(strings.NewReader(`10000-11000 r--p 00000000 00:1 7 /lib/x.so
11000-12000 r-xp 00001000 00:1 7 /lib/x.so
12000-13000 rw-p 00002000 00:1 7 /lib/x.so
20000-21000 r--s 00000000 00:1 8 /data
`))
	if err != nil {
		t.Fatal(err)
	}
	opens, fail := 0, true
	s := NewSpace(func(Mapping) (*File, error) {
		opens++
		if fail {
			return nil, os.ErrPermission
		}
		return openBytes(t, must(os.ReadFile(libcPath))), nil
	})
	added, _ := s.Update(maps)
	if len(added) != 1 || opens != 1 || added[0].End != 0x13000 || len(added[0].Mappings) != 3 || !errors.Is(added[0].Err, os.ErrPermission) {
		t.Fatalf("%d opened, modules %+v", opens, added)
	}
	if _, err := s.Resolve(Query{Module: "x.so", Symbol: "f"}); !errors.Is(err, os.ErrPermission) {
		t.Errorf("error %v", err)
	}
	if l, ok := s.At(0x11010); ok || l.Module != added[0] || l.String() != "0x11010" {
		t.Errorf("At: %v %v", l, ok)
	}
	if a, r := s.Update(maps); a != nil || r != nil {
		t.Errorf("nothing changed, but %v came and %v went", a, r)
	}
	fail = false
	if a, r := s.Update(maps); len(a) != 1 || len(r) != 1 || a[0].File == nil {
		t.Errorf("readable now: %v came and %v went", a, r)
	}
	if _, r := s.Update(nil); len(r) != 1 || s.ModuleAt(0x11010) != nil {
		t.Errorf("all is gone, but %v went", r)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestRealpath(t *testing.T) {
	p := start(t, build(t, "gcc", "live.c", liveProgram, "-ldl"), "/none")
	s := NewSpace(p.open)
	s.Update(p.maps(t))
	if s.ModulesNamed(libcPath) != nil && s.ModulesNamed("/usr"+libcPath) != nil {
		t.Skip("both paths are the mapped one")
	}
	s.Realpath = func(path string) string {
		real, err := filepath.EvalSymlinks(path)
		if err != nil {
			return ""
		}
		return real
	}
	for _, path := range []string{libcPath, "/usr" + libcPath} {
		if len(s.ModulesNamed(path)) != 1 {
			t.Errorf("%s is not found", path)
		}
	}
	if s.ModulesNamed("/no/such/file") != nil {
		t.Error("a file that is not there is mapped")
	}
}

// A program may be run by a link to it, and then has the name that people know it by
// nowhere in its maps.
func TestProgramByItsLink(t *testing.T) {
	maps, err := ParseMaps(strings.NewReader(`10000-11000 r-xp 00000000 00:1 7 /usr/lib/jvm/bin/java
20000-21000 r-xp 00000000 00:1 8 /usr/bin/python3.11
`))
	if err != nil {
		t.Fatal(err)
	}
	s := NewSpace(func(Mapping) (*File, error) { return nil, os.ErrNotExist })
	s.Update(maps)
	s.Realpath = func(path string) string {
		return map[string]string{"/usr/bin/python3": "/usr/bin/python3.11", "/usr/local/bin/python": "/usr/bin/python3.11", "/usr/bin/other": "/usr/bin/other"}[path]
	}
	for name, want := range map[string]int{"python3": 1, "python": 1, "python3.11": 1, "other": 0, "nothing": 0, "bin/python3": 0} {
		if got := s.ModulesNamed(name); len(got) != want {
			t.Errorf("%q finds %d modules, want %d", name, len(got), want)
		}
	}
}

// Names without version that fit several files fit none.
func TestModuleNames(t *testing.T) {
	maps, err := ParseMaps(strings.NewReader(`10000-11000 r-xp 00000000 00:1 7 /a/libz.so.1
20000-21000 r-xp 00000000 00:1 8 /a/libz.so.2
30000-31000 r-xp 00000000 00:1 9 /b/libz.so.2
40000-41000 r-xp 00000000 00:1 10 /b/libq.so
50000-51000 r-xp 00000000 00:1 11 /bin/tool
`))
	if err != nil {
		t.Fatal(err)
	}
	s := NewSpace(func(Mapping) (*File, error) { return nil, os.ErrNotExist })
	s.Update(maps)
	for name, want := range map[string]int{
		"libz": 0, "libz.so": 0, "libz.so.1": 1, "libz.so.2": 2, "/b/libz.so.2": 1, "libq": 1, "libq.so": 1, "lib": 0, "tool": 1,
		"": 0, ".so": 0, "too": 0, "/libq.so": 0,
	} {
		if got := s.ModulesNamed(name); len(got) != want {
			t.Errorf("%q finds %d modules, want %d", name, len(got), want)
		}
	}
	var missing *NoModuleError
	if _, err := s.Resolve(Query{Module: "libz", Symbol: "f"}); !errors.As(err, &missing) || len(missing.Nearest) != 2 {
		t.Errorf("libz: %v", err)
	}
}

// A mapping says where its file is loaded by its offset, whichever part of the
// file it is.
func TestBias(t *testing.T) {
	// As LLD links: segments share pages of the file, none starts on one.
	f := &File{segments: []Segment{
		{Off: 0, Vaddr: 0, Filesz: 0x5f0, Memsz: 0x5f0, Flags: elf.PF_R},
		{Off: 0x5f0, Vaddr: 0x15f0, Filesz: 0x1200, Memsz: 0x1200, Flags: elf.PF_R | elf.PF_X},
		{Off: 0x17f0, Vaddr: 0x37f0, Filesz: 0x200, Memsz: 0x4000, Flags: elf.PF_R | elf.PF_W},
	}}
	const bias = 0x7f0000000000
	maps := []Mapping{
		{Start: bias, End: bias + 0x1000, Off: 0, Read: true},
		{Start: bias + 0x1000, End: bias + 0x2000, Off: 0, Read: true, Exec: true},
		{Start: bias + 0x2000, End: bias + 0x3000, Off: 0x1000, Read: true, Exec: true}, // split by mprotect
		{Start: bias + 0x3000, End: bias + 0x4000, Off: 0x1000, Read: true, Write: true},
	}
	for _, m := range maps[1:] {
		if m.Write {
			continue // its offset is in the code's segment as well: not for the first mapping
		}
		if got, ok := f.biasOf(m); !ok || got != bias {
			t.Errorf("%+v: bias %#x", m, got)
		}
	}
	for _, m := range maps {
		if !f.fits(m, bias) || f.fits(m, bias+0x10000) {
			t.Errorf("%+v does not fit", m)
		}
	}
	// Between the parts, memory without access keeps its place; its offset
	// fits nowhere.
	gap := Mapping{Start: bias + 0x4000, End: bias + 0x6000, Off: 0x1000}
	for i := range maps {
		maps[i].Inode = 1
	}
	gap.Inode = 1
	s := NewSpace(func(Mapping) (*File, error) { return f, nil })
	added, _ := s.Update(append(maps, gap))
	if len(added) != 1 || added[0].Bias != bias || len(added[0].Mappings) != 5 || added[0].End != bias+0x37f0+0x4000 {
		t.Fatalf("%+v", added)
	}
	// The same file once more, above: another module.
	again := Mapping{Start: bias + 0x10000, End: bias + 0x11000, Read: true, Inode: 1}
	code := Mapping{Start: bias + 0x11000, End: bias + 0x12000, Read: true, Exec: true, Inode: 1}
	added, removed := s.Update(append(maps, gap, again, code))
	if len(added) != 1 || removed != nil || added[0].Bias != bias+0x10000 {
		t.Errorf("second copy: %+v, %+v", added, removed)
	}
	// Mapped for reading only, it is no module.
	added, _ = s.Update(append(maps, gap, again))
	if len(added) != 0 || len(s.Modules()) != 1 {
		t.Errorf("mapped as data: %+v", added)
	}
}

// Many goroutines may ask one file everything at once.
func TestConcurrentUse(t *testing.T) {
	p := start(t, build(t, "gcc", "live.c", liveProgram, "-ldl"), "/none")
	s := NewSpace(p.open)
	maps := p.maps(t)
	s.Update(maps)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for _, m := range s.Modules() {
				m.File.Unwinds()
				m.File.ImportSlots("malloc")
				m.File.HasLSDA(m.File.Entry())
			}
			s.Update(maps)
			if _, err := s.Resolve(Query{Module: "libc", Symbol: "qsort"}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}
