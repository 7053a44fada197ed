package source

import (
	"bytes"
	"debug/dwarf"
	"debug/elf"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// What an index keeps is all that can be asked for: functions and variables that have code or a value are found by the same
// names as where all is kept, and one that is only declared is known.
func TestIndexKeepsEnough(t *testing.T) {
	for _, cc := range [][]string{{"g++", "-g", "-O2"}, {"g++", "-g", "-O0"}, {"clang++", "-std=c++17", "-g", "-O2"}, {"g++", "-g", "-O2", "-flto"}} {
		t.Run(fmt.Sprint(cc), func(t *testing.T) {
			path := build(t, cc, "library.cc")
			f, whole := open(t, path), open(t, path)
			all := whole.readChunks(keepNames)
			whole.scan = func() *index { return all }
			kept, declared := 0, ""
			for range f.scan().names() {
				kept++
			}
			var of, unit []string
			for n := range all.names() {
				of = append(of, whole.name(n.name))
				if name := whole.name(n.name); n.fn && !n.code && name != "" && declared == "" && len(f.find(name, true)) == 0 {
					declared = name
				}
			}
			if across := whole.readChunks(keepCode).across; kept == 0 || (kept == len(of)) != across {
				t.Errorf("%d names of %d are kept", kept, len(of))
			}
			slices.Sort(of)
			unit = slices.Compact(of)
			compared := 0
			for i, name := range unit {
				if i%7 != 0 && len(unit) > 500 || name == "" {
					continue
				}
				for _, fn := range []bool{true, false} {
					if got, want := withCode(f, name, fn), withCode(whole, name, fn); !slices.Equal(got, want) {
						t.Errorf("%s: %v, want %v", name, got, want)
					} else if len(want) > 0 {
						compared++
					}
				}
			}
			if compared < 5 {
				t.Errorf("only %d names have code", compared)
			}
			if declared == "" {
				return
			}
			_, err := f.Function(declared, "")
			if e := (*NotFoundError)(nil); !errors.As(err, &e) || !e.Known {
				t.Errorf("%s is only declared: %v", declared, err)
			}
		})
	}
}

// withCode are the entries of a name that have code.
func withCode(f *File, name string, fn bool) []dwarf.Offset {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(f.find(name, fn))), func(off dwarf.Offset) bool { return !f.scan().at(off).code })
}

// Large sections are mapped, packed ones from where they were unpacked to, and hold the same before and after their pages are given back.
func TestLargeSections(t *testing.T) {
	defer func(was uint64) { mappedFrom = was }(mappedFrom)
	mappedFrom = 64 << 10
	for _, flag := range []string{"-compressdwarf=false", "-compressdwarf=true"} {
		out := filepath.Join(t.TempDir(), "large")
		run(t, "go", "build", "-ldflags="+flag, "-o", out, "testdata/whole.go")
		r, err := os.Open(out)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		e, err := elf.NewFile(r)
		if err != nil {
			t.Fatal(err)
		}
		large := 0
		for _, name := range []string{"info", "line", "loc", "loclists", "str", "abbrev"} {
			s := e.Section(".debug_" + name)
			if s == nil {
				s = e.Section(".zdebug_" + name)
			}
			if s == nil || s.Type == elf.SHT_NOBITS {
				continue
			}
			want, err := s.Data()
			if err != nil {
				t.Fatal(err)
			}
			got := sectionOf(e, r, name)
			if !bytes.Equal(got, want) {
				t.Errorf("%s, .debug_%s: another content", flag, name)
			}
			forget(got)
			if len(got) > 32<<10 {
				forget(got[12345:])
			}
			if !bytes.Equal(got, want) {
				t.Errorf("%s, .debug_%s: another content when it has been given back", flag, name)
			}
			if isMapped(got) {
				large++
			} else if uint64(len(want)) >= mappedFrom {
				t.Errorf("%s, .debug_%s: %d bytes are not mapped", flag, name, len(want))
			}
		}
		if large == 0 {
			t.Errorf("%s: nothing is mapped", flag)
		}
		if again, err := Open(r, Options{}); err != nil || len(again.Functions()) < 500 {
			t.Errorf("%s: %v", flag, err)
		}
	}
}

// Types of characters are read of mapped sections, too, and once more when their pages have been given back.
func TestUnicodeOfMappedSections(t *testing.T) {
	defer func(was uint64) { mappedFrom = was }(mappedFrom)
	mappedFrom = 1
	path := build(t, []string{"g++", "-g"}, "unicode.cc")
	for range 2 {
		f := open(t, path)
		if !isMapped(f.sec.info) {
			t.Fatal("its entries are not mapped")
		}
		c, ok := f.TypeNamed("", "char32_t").(*dwarf.UintType)
		if !ok || c.Size() != 4 {
			t.Errorf("char32_t is %v", c)
		}
		f.forget()
	}
}

func isMapped(b []byte) bool {
	pieces.Lock()
	defer pieces.Unlock()
	for _, m := range pieces.of {
		if len(b) > 0 && &m.b[0] == &b[0] {
			return true
		}
	}
	return false
}
