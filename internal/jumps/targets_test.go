package jumps_test

import (
	"debug/elf"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"kprobe/arch"
	"kprobe/internal/isa"
	"kprobe/internal/testprog"
)

var (
	distance = regexp.MustCompile(`^\t\.(?:long|value|byte)\t(\.L\w+)-\.L\w+$`)
	address  = regexp.MustCompile(`^\t\.quad\t(\.L\w+)$`)
	pad      = regexp.MustCompile(`^\t\.uleb128 (\.L\w+)-\.LF[BS]\w+$`)
)

// labels are the places in code that the data of a compiler's assembly refers to.
func labels(text string) (tables, pads []string) {
	field := -1 // of a call site's four, in an exception table
	for _, line := range strings.Split(text, "\n") {
		switch {
		case strings.HasPrefix(line, ".LLSDACSB"):
			field = 0
			continue
		case strings.HasPrefix(line, ".LLSDACSE"):
			field = -1
		}
		if field >= 0 {
			if m := pad.FindStringSubmatch(line); m != nil && field%4 == 2 {
				pads = append(pads, m[1])
			}
			field++
			continue
		}
		for _, re := range []*regexp.Regexp{distance, address} {
			if m := re.FindStringSubmatch(line); m != nil {
				tables = append(tables, m[1])
			}
		}
	}
	return tables, pads
}

// The index knows each place that the compiler's assembly refers to.
func TestFlowAgainstCompiler(t *testing.T) {
	for _, flags := range []string{
		"-O2 -fPIC", "-Os -fPIC", "-O1 -fPIC", "-O3 -fPIC -fcf-protection", "-O2 -fPIC -fno-jump-tables",
		"-O2 -fno-pie -no-pie", "-O2 -fPIC -Wl,-z,pack-relative-relocs",
		"-O2 -fPIC -g0", // and as other linkers than GNU's leave it
	} {
		t.Run(flags, func(t *testing.T) {
			dir := t.TempDir()
			run := func(args ...string) {
				t.Helper()
				if out, err := exec.Command("g++", args...).CombinedOutput(); err != nil {
					t.Fatalf("g++ %s: %v\n%s", args, err, out)
				}
			}
			source, asm, lib := "testdata/targets.cc", filepath.Join(dir, "x.s"), filepath.Join(dir, "x.so")
			compile := strings.Fields(flags)
			run(append(compile, "-S", "-o", asm, source)...)
			link := []string{"-Wa,-L", "-Wl,--unresolved-symbols=ignore-all", "-nostartfiles", "-o", lib, asm}
			if !strings.Contains(flags, "-no-pie") {
				link = append(link, "-shared")
			}
			run(append(compile, link...)...)
			text, err := os.ReadFile(asm)
			if err != nil {
				t.Fatal(err)
			}

			if strings.Contains(flags, "-g0") {
				zeroRelocated(t, lib)
			}
			at := localLabels(t, lib)
			_, code := open(t, lib)
			known := func(a arch.Addr) bool {
				_, ok := code.Flow.Known(a, a+1)
				return ok
			}
			tables, pads := labels(string(text))
			n := 0
			for _, l := range append(tables, pads...) {
				a, ok := at[l]
				if !ok || !code.Flow.IsInsn(a) {
					continue // a label in data
				}
				n++
				if !known(a) {
					t.Errorf("%s at %v is not known", l, a)
				}
			}
			least := 6 + 14 // the computed goto, and the switches
			if strings.Contains(flags, "-fno-jump-tables") {
				least = 6
			}
			if len(tables) < least || len(pads) < 2 || n < len(tables)+len(pads) {
				t.Errorf("only %d places: %d of tables, %d landing pads", n, len(tables), len(pads))
			}
			// Not everything is known to be led to.
			all, led := 0, 0
			for _, fn := range code.Functions() {
				for _, in := range code.Body(fn).Insns {
					all++
					if known(arch.Addr(fn.Addr) + arch.Addr(in.Off)) {
						led++
					}
				}
			}
			if led > all/2 {
				t.Errorf("%d of %d instructions are led to", led, all)
			}
		})
	}
}

// localLabels are the assembler's own labels, by name.
func localLabels(t *testing.T, path string) map[string]arch.Addr {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	syms, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	at := make(map[string]arch.Addr)
	for _, s := range syms {
		at[s.Name] = arch.Addr(s.Value)
	}
	return at
}

// zeroRelocated clears the words that relocations will fill: only these have the
// addresses then.
func zeroRelocated(t *testing.T, path string) {
	t.Helper()
	f, _ := open(t, path)
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	words := relocated(t, path)
	for word := range words {
		off, ok := f.OffOf(word)
		if _, err := file.WriteAt(make([]byte, 8), int64(off)); err != nil || !ok {
			t.Fatal(err)
		}
	}
	if len(words) == 0 {
		t.Fatal("there are no relocations")
	}
}

// Go's compiler makes tables of addresses: a lea of the table, a jump through it.
func TestFlowOfGo(t *testing.T) {
	for _, flags := range [][]string{nil, {"-buildmode=pie"}} {
		f, code := open(t, testprog.Build(t, "goprog", flags...))
		rel := relocated(t, f.Path())
		switches, cases := 0, 0
		for _, fn := range code.Functions() {
			insns := code.Body(fn).Insns
			for i := 1; i < len(insns); i++ {
				table := uint64(insns[i-1].Target)
				if insns[i].Flow != isa.IndirectJump || insns[i].PCRel || !insns[i-1].PCRel || insns[i-1].Flow != isa.Next {
					continue
				}
				switches++
				for word := table; ; word += 8 {
					var b [8]byte
					if f.ReadAt(word, b[:]) != nil {
						break // not a table, but a variable that is called through
					}
					to := binary.LittleEndian.Uint64(b[:])
					if a, ok := rel[word]; ok {
						to = a
					}
					if to < fn.Addr || to >= fn.Addr+fn.Size {
						break
					}
					cases++
					if _, ok := code.Flow.Known(arch.Addr(to), arch.Addr(to)+1); !ok {
						t.Fatalf("%s: %#x, in the table at %#x, is not known", fn.Name, to, table)
					}
				}
			}
		}
		t.Logf("%d switches with %d cases", switches, cases)
		if switches < 10 || cases < 50 {
			t.Errorf("%d switches with %d cases", switches, cases)
		}
	}
}

// relocated are the words of a file that the loader writes its own addresses to.
func relocated(t *testing.T, path string) map[uint64]uint64 {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	words := make(map[uint64]uint64)
	for _, s := range f.Sections {
		if s.Type != elf.SHT_RELA {
			continue
		}
		b, err := s.Data()
		if err != nil {
			t.Fatal(err)
		}
		for ; len(b) >= 24; b = b[24:] {
			if elf.R_X86_64(binary.LittleEndian.Uint32(b[8:])) == elf.R_X86_64_RELATIVE {
				words[binary.LittleEndian.Uint64(b)] = binary.LittleEndian.Uint64(b[16:])
			}
		}
	}
	return words
}
