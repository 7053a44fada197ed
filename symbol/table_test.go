package symbol

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// systemFiles are programs and libraries as distributions ship them.
var systemFiles = []string{libcPath, "/lib64/ld-linux-x86-64.so.2", "/usr/bin/python3", "/usr/bin/gdb", "/usr/bin/perl"}

func eachSystemFile(t *testing.T, test func(t *testing.T, path string)) {
	for _, path := range systemFiles {
		t.Run(filepath.Base(path), func(t *testing.T) {
			if _, err := os.Stat(path); err != nil {
				t.Skip(err)
			}
			test(t, path)
		})
	}
}

// checkTable checks what holds for the symbols of every file.
func checkTable(t testing.TB, f *File) {
	t.Helper()
	funcs := f.Funcs()
	for i, s := range funcs {
		text, ok := f.textAt(s.Addr)
		switch {
		case i > 0 && s.Addr < funcs[i-1].Addr:
			t.Fatalf("%v at %#x comes after %#x", s.Label(), s.Addr, funcs[i-1].Addr)
		case !ok || s.end() > text.End:
			t.Fatalf("%v at %#x, %#x bytes, is not in code", s.Label(), s.Addr, s.Size)
		case s.Size == 0:
			t.Fatalf("%v at %#x has no size", s.Label(), s.Addr)
		case (s.Name == "") != (s.Source == EhFrame):
			t.Fatalf("name %q of source %s", s.Name, s.Source)
		case s.Kind == Data:
			t.Fatalf("%v is data", s.Label())
		}
		if i%7 != 0 {
			continue // the rest costs time and is the same for all
		}
		for _, at := range []uint64{s.Addr, s.end() - 1} {
			if got, ok := f.FuncAt(at); !ok || at < got.Addr || at >= got.end() {
				t.Fatalf("FuncAt(%#x) = %v %#x, %v; %v is there", at, got.Label(), got.Addr, ok, s.Label())
			}
		}
		if !slices.ContainsFunc(f.Lookup(s.Label()), func(o Symbol) bool { return o.Addr == s.Addr }) {
			t.Fatalf("Lookup(%q) does not find %#x", s.Label(), s.Addr)
		}
	}
	all := slices.Concat(funcs, f.Data())
	for i := 0; i < len(all); i += 1 + len(all)/64 {
		f.searched.Store(0)
		if s := all[i]; !f.mentions(s.Label()) {
			t.Fatalf("no string table has %q", s.Label())
		}
	}
}

var readelfSym = regexp.MustCompile(`^ *\d+: ([0-9a-f]+) +(\w+) (\w+) +(\w+) +\w+ +(\w+) (\S+)`)

func TestDynamicSymbolsAsReadelf(t *testing.T) {
	eachSystemFile(t, func(t *testing.T, path string) {
		f := open(t, path, false)
		checkTable(t, f)
		count := 0
		for _, line := range lines(run(t, "readelf", "-W", "--dyn-syms", path)) {
			m := readelfSym.FindStringSubmatch(line)
			if m == nil || m[5] == "UND" || m[5] == "ABS" {
				continue
			}
			var kind Kind
			switch m[3] {
			case "FUNC":
				kind = Func
			case "IFUNC":
				kind = IFunc
			case "OBJECT":
				kind = Data
			default:
				continue
			}
			name, version, def := splitVersion(m[6])
			addr := hexa(t, m[1])
			size, err := strconv.ParseUint(m[2], 0, 64)
			if err != nil {
				t.Fatal(err)
			}
			count++
			if !slices.ContainsFunc(f.Lookup(m[6]), func(s Symbol) bool {
				return s.Name == name && s.Version == version && s.Default == def && s.Addr == addr && s.Kind == kind &&
					(s.Size == size || size == 0) && s.Global && s.Source == Dynsym
			}) {
				t.Errorf("readelf has %q; Lookup(%q) = %+v", line, m[6], f.Lookup(m[6]))
			}
		}
		if count == 0 {
			t.Fatal("readelf lists no symbols: nothing was compared")
		}
		t.Logf("%d symbols agree", count)

		// The loader does not need section headers, so neither do we.
		bare := openBytes(t, withoutSections(t, path))
		if got, want := len(bare.dynsyms().names), len(f.dynsyms().names); got != want {
			t.Errorf("the hash table counts %d dynamic symbols, the section %d", got, want)
		}
		if got, want := len(bare.dynsyms().defined), len(f.dynsyms().defined); got != want {
			t.Errorf("%d dynamic symbols without section headers, %d with", got, want)
		}
	})
}

var readelfFDE = regexp.MustCompile(`FDE cie=[0-9a-f]+ pc=([0-9a-f]+)\.\.([0-9a-f]+)`)

func TestFramesAsReadelf(t *testing.T) {
	eachSystemFile(t, func(t *testing.T, path string) {
		var want []Range
		for _, m := range readelfFDE.FindAllSubmatch(run(t, "readelf", "-W", "--debug-dump=frames,no-follow-links", path), -1) {
			want = append(want, Range{hexa(t, string(m[1])), hexa(t, string(m[2]))})
		}
		byStart := func(a, b Range) int { return compareRange(a, b) }
		slices.SortFunc(want, byStart)
		with, without := open(t, path, false), openBytes(t, withoutSections(t, path))
		for _, f := range []*File{with, without} {
			var got []Range
			for _, e := range f.frames().fdes {
				got = append(got, Range{e.start, e.end})
			}
			slices.SortFunc(got, byStart)
			if !slices.Equal(got, want) {
				t.Errorf("%d unwind entries, readelf has %d (sections: %v)", len(got), len(want), f == with)
			}
		}
		t.Logf("%d entries agree", len(want))
	})
}

// Tables that were joined may have their ends left in the middle.
func TestFramesWithGap(t *testing.T) {
	for _, sections := range []bool{true, false} {
		b := must(os.ReadFile(libcPath))
		if !sections {
			b = withoutSections(t, libcPath)
		}
		whole := openBytes(t, b).frames().fdes
		s := open(t, libcPath, false).section(".eh_frame")
		// The second entry of the table; the first is a CIE.
		at := s.Offset
		for range 5 {
			at += 4 + uint64(binary.LittleEndian.Uint32(b[at:]))
		}
		clear(b[at : at+4+uint64(binary.LittleEndian.Uint32(b[at:]))])
		got := len(openBytes(t, b).frames().fdes)
		if sections && got != len(whole)-1 {
			t.Errorf("%d entries of %d, one is cleared", got, len(whole))
		}
		if !sections && got > 5 {
			t.Errorf("%d entries, the table ends after 5", got)
		}
	}
}

func TestAliasOrder(t *testing.T) {
	// From best to worst.
	order := []Symbol{
		{Name: "read", Global: true},
		{Name: "read2", Global: true},
		{Name: "pread", Global: true, weak: true},
		{Name: "old", Global: true, Version: "V1"},
		{Name: "_ZN1aEv1", Version: "V2", Default: true, Global: true, weak: true},
		{Name: "__read", Global: true},
		{Name: "local"},
		{Name: "__local"},
		{Name: "label", Global: true, notype: true},
		{Name: "a@plt", Source: Plt, Global: true},
		{Source: EhFrame},
	}
	order[3], order[4] = order[4], order[3] // a version that is not the default comes after weak
	for i := range order {
		for j := range order {
			want := 0
			if i < j {
				want = -1
			} else if i > j {
				want = 1
			}
			if got := compareAlias(&order[i], &order[j]); (got < 0) != (want < 0) || (got > 0) != (want > 0) {
				t.Errorf("%s against %s: %d", order[i].Label(), order[j].Label(), got)
			}
		}
	}
}

// Sizes that the file does not say come from unwind entries, if there are any.
func TestUnsized(t *testing.T) {
	src := `__asm__(".text\n.globl framed\nframed: .cfi_startproc\nnop\nnop\n.globl mid\nmid: nop\nret\n.cfi_endproc\n.skip 64\n.globl bare\nbare: ret\n.skip 32\n");
int main(void) { return 0; }`
	f := open(t, build(t, "gcc", "u.c", src, "-O1"), false)
	for name, want := range map[string]uint64{"framed": 2, "mid": 2} {
		if s := f.Lookup(name); len(s) != 1 || s[0].Size != want {
			t.Errorf("%s: %+v, want %d bytes", name, s, want)
		}
	}
	framed, bare := f.Lookup("framed")[0], f.Lookup("bare")[0]
	if s, ok := f.FuncAt(framed.Addr + 20); ok {
		t.Errorf("%s is in the padding", s.Label())
	}
	// Only the next function tells where bare ends.
	next := f.Lookup("main")[0].Addr
	if next > bare.Addr && bare.Addr+bare.Size != next {
		t.Errorf("bare has %d bytes, main is %d behind it", bare.Size, next-bare.Addr)
	}
	src = `__asm__(".text\n.globl alone\nalone: .cfi_startproc\nnop\nret\n.cfi_endproc\n.skip 64\n"); int main(void) { return 0; }`
	if s := open(t, build(t, "gcc", "u.c", src, "-O1"), false).Lookup("alone"); len(s) != 1 || s[0].Size != 2 {
		t.Errorf("alone: %+v, its unwind entry has 2 bytes", s)
	}
}

func TestVaddrOfSharedPage(t *testing.T) {
	f := &File{segments: []Segment{
		{Off: 0, Vaddr: 0x1000, Filesz: 0x100, Memsz: 0x100, Flags: elf.PF_R},
		{Off: 0, Vaddr: 0x5000, Filesz: 0x100, Memsz: 0x100, Flags: elf.PF_R | elf.PF_X},
	}}
	if v, ok := f.VaddrOf(0x10); !ok || v != 0x5010 {
		t.Errorf("offset 0x10 is %#x", v)
	}
	if _, ok := f.VaddrOf(0x100); ok {
		t.Error("an offset behind the segments has an address")
	}
}

func compareRange(a, b Range) int {
	if a.Start != b.Start {
		if a.Start < b.Start {
			return -1
		}
		return 1
	}
	return int(int64(a.End - b.End))
}

// cProgram has the things that a symbol table can trip over: static functions, aliases, variables,
// an IFUNC, a label in assembly, a function without a size.
const cProgram = `
#include <stdio.h>
#include <string.h>
#include <stdlib.h>
static int counter = 3;
int shared_data[4] = {1, 2, 3, 4};
__attribute__((noinline)) static int helper(int x) { return x * counter; }
__attribute__((noinline)) int work(int x) { return helper(x) + shared_data[x & 3]; }
int work_alias(int x) __attribute__((alias("work")));
static int impl(int x) { return x + 1; }
static void *choose(void) { return (void *)impl; }
int chosen(int) __attribute__((ifunc("choose")));
__asm__(".text\n.globl unsized\nunsized: nop\nnop\nret\n.globl typed\n.type typed,@function\ntyped: nop\ninner: nop\nret\n.size typed,.-typed\n");
int main(int argc, char **argv) {
	char *p = malloc(32);
	memcpy(p, argv[0], 8);
	printf("%d %d %.8s\n", work(argc), chosen(argc), p);
	return 0;
}
`

// variants are the ways to link a C program that change the files for this package.
var variants = map[string][]string{
	"pie":       {"-O1", "-fcf-protection=none"},
	"no-pie":    {"-O1", "-no-pie"},
	"static":    {"-O1", "-static"},
	"staticpie": {"-O1", "-static-pie"},
	"ibt":       {"-O1", "-fcf-protection=full", "-Wl,-z,ibtplt"},
	"now":       {"-O1", "-Wl,-z,now", "-fno-plt"},
	"nosep":     {"-O1", "-Wl,-z,noseparate-code"},
	"gold":      {"-O1", "-fuse-ld=gold"},
}

func TestCProgramAsNm(t *testing.T) {
	for name, flags := range variants {
		t.Run(name, func(t *testing.T) {
			path := build(t, "gcc", "prog.c", cProgram, flags...)
			f := open(t, path, false)
			checkTable(t, f)
			for p := range nm(t, path) {
				if p.name == "inner" || !inSomeText(f, p.addr) {
					continue // dropped by design; marks of the linker behind a section's end
				}
				base, _, _ := splitVersion(p.name)
				if !slices.ContainsFunc(f.Lookup(base), func(s Symbol) bool { return s.Addr == p.addr }) {
					t.Errorf("nm has %s at %#x; we have %v", p.name, p.addr, f.Lookup(base))
				}
			}
			if s := f.Lookup("helper"); len(s) != 1 || s[0].Global || s[0].Source != Symtab {
				t.Errorf("static function: %+v", s)
			}
			if s := f.Lookup("chosen"); len(s) != 1 || s[0].Kind != IFunc {
				t.Errorf("IFUNC: %+v", s)
			}
			if s := f.Lookup("shared_data"); len(s) != 1 || s[0].Kind != Data || s[0].Size != 16 {
				t.Errorf("variable: %+v", s)
			}
			if s := f.Lookup("inner"); s != nil {
				t.Errorf("label inside a function: %+v", s)
			}
			if s := f.Lookup("unsized"); len(s) != 1 || s[0].Size != 3 {
				t.Errorf("function without a size: %+v", s)
			}
			work := f.Lookup("work")
			if got, ok := f.FuncAt(work[0].Addr + 1); !ok || got.Name != "work" {
				t.Errorf("of two aliases FuncAt names %q", got.Name)
			}
			comparePLT(t, f, path)
			if name == "static" { // whose stubs objdump does not name
				want := bytes.Count(run(t, "readelf", "-rW", path), []byte("R_X86_64_IRELATIV"))
				if got := f.Match("*@plt"); len(got) != want || want < 2 {
					t.Errorf("%d stubs for %d relocations of IFUNCs", len(got), want)
				}
			}
			if sec := f.section(".plt.sec"); name == "ibt" && sec == nil {
				t.Error("the linker made no .plt.sec: the layout is not tested")
			}
		})
	}
}

func inSomeText(f *File, addr uint64) bool {
	_, ok := f.textAt(addr)
	return ok
}

var objdumpPLT = regexp.MustCompile(`(?m)^([0-9a-f]+) <(\S+@plt)>:`)

// comparePLT compares the stubs with objdump's. It misses objdump's own errors:
// with .plt.sec, objdump names the lazy half the same.
func comparePLT(t *testing.T, f *File, path string) {
	t.Helper()
	want := map[place]bool{}
	args := []string{"-d"}
	for _, s := range f.elf.Sections {
		if strings.HasPrefix(s.Name, ".plt") && !(s.Name == ".plt" && f.section(".plt.sec") != nil) {
			args = append(args, "-j", s.Name)
		}
	}
	if len(args) > 1 {
		for _, m := range objdumpPLT.FindAllSubmatch(run(t, "objdump", append(args, path)...), -1) {
			want[place{string(m[2]), hexa(t, string(m[1]))}] = true
		}
	}
	got := map[place]bool{}
	for _, s := range f.Funcs() {
		if s.Source == Plt {
			got[place{s.Name, s.Addr}] = true
		}
	}
	for p := range want {
		if !got[p] {
			t.Errorf("objdump has %s at %#x, we have not", p.name, p.addr)
		}
	}
	for p := range got {
		if !want[p] && len(want) > 0 {
			t.Errorf("we have %s at %#x, objdump has not", p.name, p.addr)
		}
	}
	t.Logf("%d stubs, objdump has %d", len(got), len(want))
}

func TestSystemPLTAsObjdump(t *testing.T) {
	eachSystemFile(t, func(t *testing.T, path string) {
		comparePLT(t, open(t, path, false), path)
	})
}

func TestHeaders(t *testing.T) {
	f := open(t, build(t, "gcc", "prog.c", cProgram), false)
	if f.Type() != elf.ET_DYN || f.Machine() != elf.EM_X86_64 || f.Class() != elf.ELFCLASS64 {
		t.Errorf("%v %v %v", f.Type(), f.Machine(), f.Class())
	}
	if f.Interp() != "/lib64/ld-linux-x86-64.so.2" {
		t.Errorf("interpreter %q", f.Interp())
	}
	if got := f.Needed(); !slices.Equal(got, []string{"libc.so.6"}) {
		t.Errorf("needs %q", got)
	}
	if got := open(t, libcPath, false).Soname(); got != "libc.so.6" {
		t.Errorf("SONAME %q", got)
	}
	want := regexp.MustCompile(`Build ID: (\w+)`).FindSubmatch(run(t, "readelf", "-n", libcPath))[1]
	if got := fmt.Sprintf("%x", open(t, libcPath, false).BuildID()); got != string(want) {
		t.Errorf("build ID %s, readelf has %s", got, want)
	}
	exe := open(t, build(t, "gcc", "prog.c", cProgram, "-no-pie", "-static"), false)
	if exe.Type() != elf.ET_EXEC || exe.Interp() != "" || exe.Needed() != nil {
		t.Errorf("static: %v %q %q", exe.Type(), exe.Interp(), exe.Needed())
	}
	// Every offset that a segment maps leads to an address and back.
	for _, s := range f.Segments() {
		for _, off := range []uint64{s.Off, s.Off + s.Filesz - 1} {
			vaddr, ok := f.VaddrOf(off)
			if back, ok2 := f.OffOf(vaddr); !ok || !ok2 || back != off {
				t.Errorf("offset %#x is address %#x is offset %#x", off, vaddr, back)
			}
		}
		if s.Memsz > s.Filesz {
			if _, ok := f.OffOf(s.Vaddr + s.Memsz - 1); ok {
				t.Error(".bss has an offset")
			}
		}
	}
	entry, ok := f.FuncAt(f.Entry())
	if !ok || entry.Name != "_start" {
		t.Errorf("the entry point is in %q", entry.Name)
	}
}

func TestImportSlotsAsReadelf(t *testing.T) {
	path := build(t, "gcc", "prog.c", cProgram, "-O1")
	f := open(t, path, false)
	want := map[string][]uint64{}
	re := regexp.MustCompile(`(?m)^([0-9a-f]+) +\w+ +R_X86_64_(?:GLOB_DAT|JUMP_SLO[T]?) +\w+ (\w+)`)
	for _, m := range re.FindAllSubmatch(run(t, "readelf", "-rW", path), -1) {
		name := string(m[2])
		want[name] = append(want[name], hexa(t, string(m[1])))
	}
	if want["printf"] == nil || want["malloc"] == nil {
		t.Fatalf("readelf has no slots for printf and malloc: %v", want)
	}
	for name, slots := range want {
		if got := f.ImportSlots(name); !slices.Equal(got, slots) {
			t.Errorf("slots of %s: %#x, readelf has %#x", name, got, slots)
		}
	}
	choose := f.Lookup("choose")[0].Addr
	if got := f.IRelatives(); len(got) != 1 || got[0].Resolver != choose {
		t.Errorf("IRELATIVE: %+v, the resolver is at %#x", got, choose)
	}
	static := open(t, build(t, "gcc", "prog.c", cProgram, "-static"), false)
	if len(static.IRelatives()) < 10 {
		t.Errorf("%d IRELATIVE in a static program, libc has some thirty IFUNCs", len(static.IRelatives()))
	}
	for _, r := range static.IRelatives() {
		if s, ok := static.FuncAt(r.Resolver); !ok || s.Addr != r.Resolver {
			t.Errorf("no resolver starts at %#x", r.Resolver)
		}
	}
}

func Test32Bit(t *testing.T) {
	src := `int data = 1; int imported(int); int f(int x) { return imported(x) + data; } static int __attribute__((noinline)) g(int x) { return f(x); } int h(int x) { return g(x) + 1; }`
	path := build(t, "gcc", "lib.c", src, "-m32", "-nostdlib", "-shared", "-fPIC", "-Wl,-soname,lib32.so.1")
	f := open(t, path, false)
	checkTable(t, f)
	if f.Class() != elf.ELFCLASS32 || f.Machine() != elf.EM_386 || f.Soname() != "lib32.so.1" {
		t.Errorf("%v %v %q", f.Class(), f.Machine(), f.Soname())
	}
	for p := range nm(t, path) {
		if !slices.ContainsFunc(f.Lookup(p.name), func(s Symbol) bool { return s.Addr == p.addr }) {
			t.Errorf("nm has %s at %#x", p.name, p.addr)
		}
	}
	if len(f.ImportSlots("imported")) != 1 {
		t.Errorf("slots: %#x", f.ImportSlots("imported"))
	}
	comparePLT(t, f, path)
	if len(f.frames().fdes) == 0 {
		t.Error("no unwind entries")
	}
}

func TestRseqAreas(t *testing.T) {
	src := `__asm__(".pushsection __rseq_cs,\"aw\"\n.balign 32\n.zero 64\n.popsection\n"); int main(void) { return 0; }`
	areas := open(t, build(t, "gcc", "r.c", src), false).RseqAreas()
	if len(areas) != 1 || areas[0].End-areas[0].Start != 64 {
		t.Errorf("%+v", areas)
	}
	if areas := open(t, libcPath, false).RseqAreas(); areas != nil {
		t.Errorf("libc: %+v", areas)
	}
}

// A File whose reader fails later is one without symbols.
func TestReaderFails(t *testing.T) {
	f := open(t, libcPath, false)
	f.r = failingReader{}
	if n := len(f.Funcs()); n != 0 {
		t.Errorf("%d functions from nowhere", n)
	}
	if _, err := Open(failingReader{}, &Options{Path: "/x"}); err == nil || !strings.HasPrefix(err.Error(), "/x: ") {
		t.Errorf("error %v", err)
	}
	if _, err := Open(bytes.NewReader([]byte("#!/bin/sh\n")), nil); err == nil {
		t.Error("a script is an ELF file")
	}
	obj := build(t, "gcc", "o.c", "int x;", "-c")
	r, err := os.Open(obj)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := Open(r, nil); err == nil {
		t.Error("an object file can be mapped")
	}
}
