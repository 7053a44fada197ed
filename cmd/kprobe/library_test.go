package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"kprobe/internal/testprog"
)

// libraries are programs whose functions print strings, slices, vectors and the types in interfaces as kprobe does, and definitions that read
// the same.
var libraries = []struct {
	cc   []string
	defs []string
}{
	{cc: []string{"go", "build"}, defs: []string{"p:see main.see s v b", "p:take main.take o->name o->sizes", "p:hold main.hold e a r"}},
	{cc: []string{"go", "build", "-buildmode=pie", "-gcflags=-N -l"}, defs: []string{"p:see main.see s v b", "p:take main.take o->name o->sizes", "p:hold main.hold e a r"}},
	{cc: []string{"g++", "-std=c++17", "-O0", "-g"}, defs: []string{"p:see see s v w by", "p:take take o->name o->sizes"}},
	{cc: []string{"g++", "-std=c++17", "-O2", "-gdwarf-4"}, defs: []string{"p:see see s v w by", "p:take take o->name o->sizes"}},
	{cc: []string{"clang++", "-std=c++17", "-O1", "-g"}, defs: []string{"p:see see s v w by", "p:take take o->name o->sizes"}},
	{cc: []string{"rustc", "-g"}, defs: []string{"p:see library::see s o=*o v=*v w", "p:take library::take o->name o->sizes"}},
	{cc: []string{"rustc", "-g", "-O"}, defs: []string{"p:see library::see s o=*o v=*v w", "p:take library::take o->name o->sizes"}},
}

var sources = map[string]string{"go": "library.go", "g++": "library.cc", "clang++": "library.cc", "rustc": "library.rs"}

// TestLibraryTypes holds that strings, slices and vectors are printed as their programs print them themselves, long
// ones cut, by handlers and by programs in the target.
func TestLibraryTypes(t *testing.T) {
	for i, l := range libraries {
		if testing.Short() && i%2 == 1 {
			continue // one of each language and compiler
		}
		t.Run(strings.Join(l.cc, " "), func(t *testing.T) {
			testprog.Need(t, l.cc[0], have(l.cc[0]))
			path := compiledSource(t, append(slices.Clone(l.cc), sources[l.cc[0]])...)
			for _, how := range engines(i / 2) {
				// Apart: a line of the program's that is longer than a pipe takes at once may have one of ours in it.
				file := filepath.Join(t.TempDir(), "events")
				r := run(t, append(append([]string{"trace", "--no-summary", "-o", file}, how...), append(slices.Clone(l.defs), "--", path)...)...)
				events, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err, r)
				}
				for _, event := range []string{"see", "take", "hold"} {
					var want []string
					for _, line := range r.Lines {
						if v, ok := strings.CutPrefix(line, event+" "); ok {
							want = append(want, v)
						}
					}
					got := values(strings.Split(string(events), "\n"), event)
					if l.cc[0] == "go" { // whose functions may begin twice: docs/LIMITS.md
						got = slices.Compact(got)
					}
					if len(want) == 0 && event != "hold" || !slices.Equal(got, want) {
						t.Errorf("%v: %q\nthe program has %q\n%v\n%s", how, got, want, r, events)
					}
				}
			}
		})
	}
}

// TestLibraryAsked holds that a definition's own type and conditions are taken of such values, and that a struct which
// has only the name of one is a struct.
func TestLibraryAsked(t *testing.T) {
	path := compiledSource(t, "go", "build", "library.go")
	for _, how := range [][]string{{"--stops"}, nil} {
		def := `p:ev main.see v:s32[2] b:string x=b:x8[3] l=s.len if s == "hello" || s == "a" || s ~ "long *"`
		r := run(t, append(append([]string{"trace", "--no-summary"}, how...), def, "--", path)...)
		want := []string{`v={1,2,...} b="\x07\xff" x={0x7,0xff} l=5`, `v={0,0,...} b="" x={} l=10000`}
		if got := values(r.Lines, "ev"); !slices.Equal(got, want) {
			t.Errorf("%v: %q, want %q\n%v", how, got, want, r)
		}
	}
	r := run(t, "trace", "--no-summary", "p:ev main.hold a if e != 0", "--", path)
	if got, want := values(r.Lines, "ev"), []string{"a=int{5}", "a=[]string"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q\n%v", got, want, r)
	}
	r = run(t, "trace", "--no-summary", "--json", "p:ev main.see v:s32[2] if s.len > 9999", "--", path)
	if text := strings.Join(r.Lines, "\n"); !strings.Contains(text, `"args":{"v":{"first":[0,0],"of":1000}}`) {
		t.Errorf("%v", r)
	}
	path = compiledSource(t, "g++", "-std=c++17", "-g", "library.cc")
	r = run(t, "trace", "--no-summary", "p:ev take *mine", "--", path)
	if got := values(r.Lines, "ev"); len(got) != 1 || !strings.HasPrefix(got[0], "mine={") {
		t.Errorf("%q\n%v", got, r)
	}
}

// TestLibraryWild holds that a length that is none, and memory that is none, are an event's matter and not the
// target's.
func TestLibraryWild(t *testing.T) {
	path := compiledSource(t, "go", "build", "wild.go")
	for _, how := range [][]string{{"--stops"}, nil} {
		r := run(t, append(append([]string{"trace", "--no-summary"}, how...), "p:ev main.wild s v", "--", path)...)
		got := values(r.Lines, "ev")
		if len(got) != 2 || got[0] != "s=(fault) v={}" || !strings.HasPrefix(got[1], `s="`+strings.Repeat("x", 4095)+`"... v={`) || !strings.HasSuffix(got[1], ",...}") {
			t.Errorf("%v: %q\n%v", how, got, r)
		}
		if !strings.Contains(r.Stderr, "lived") {
			t.Errorf("%v: %v", how, r)
		}
	}
}

// TestLibraryElements holds that an element by its index is what the program has there, and where there are not so
// many, cannot be read.
func TestLibraryElements(t *testing.T) {
	list := regexp.MustCompile(` v=\{([^}]*)\}`)
	for i, l := range libraries {
		if len(l.cc) > 3 { // each language once
			continue
		}
		t.Run(strings.Join(l.cc, " "), func(t *testing.T) {
			testprog.Need(t, l.cc[0], have(l.cc[0]))
			path := compiledSource(t, append(slices.Clone(l.cc), sources[l.cc[0]])...)
			def := map[string]string{
				"go":    `p:ev main.see third=v[2]`,
				"rustc": `p:ev library::see third=(*v)[2]`,
			}[l.cc[0]]
			for _, how := range engines(i) {
				r := run(t, append(append([]string{"trace", "--no-summary"}, how...), def, "--", path)...)
				var want []string
				for _, line := range r.Lines {
					m := list.FindStringSubmatch(line)
					if m == nil || !strings.HasPrefix(line, "see ") {
						continue
					}
					third := "(fault)"
					if all := strings.Split(m[1], ","); len(all) > 2 {
						third = all[2]
					}
					want = append(want, "third="+third)
				}
				if got := values(r.Lines, "ev"); !slices.Contains(want, "third=(fault)") || !slices.Contains(want, "third=-3") || !slices.Equal(got, want) {
					t.Errorf("%v: %q\nthe program has %q\n%v", how, got, want, r)
				}
			}
		})
	}
	path := compiledSource(t, "g++", "-std=c++17", "-g", "library.cc")
	for _, how := range engines(2) {
		r := run(t, append(append([]string{"trace", "--no-summary"}, how...), "p:ev see third=v[2] if v[0] == 1 || v[2] == 5", "--", path)...)
		if got, want := values(r.Lines, "ev"), []string{"third=-3", "third=5"}; !slices.Equal(got, want) {
			t.Errorf("%v: %q, want %q\n%v", how, got, want, r)
		}
	}
	for _, c := range []struct{ def, says string }{
		{"p:ev see v[70000]", "elements 0 to 16383 can be named"},
		{"p:ev see &v[1]", "has no address"},
	} {
		if r := run(t, "trace", c.def, "--", path); r.OK() || !strings.Contains(r.Stderr, c.says) {
			t.Errorf("%s: %v", c.def, r)
		}
	}
}
