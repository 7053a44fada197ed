package source

import (
	"bytes"
	"debug/elf"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kprobe/internal/testprog"
)

func TestNotFound(t *testing.T) {
	f := open(t, build(t, []string{"gcc", "-O2", "-g"}, "list.c"))
	for _, c := range []struct {
		ask  func() error
		want string
	}{
		{func() error { _, err := f.Line("list.c", 8); return err }, "the next one that has is 9"},
		{func() error { _, err := f.Line("list.c", 4000); return err }, "no line after it has"},
		{func() error { _, err := f.Line("none.c", 8); return err }, `no file "none.c"`},
		{func() error { _, err := f.Line("list.c", 0); return err }, "count from 1"},
		{func() error { _, err := f.Function("nobody", ""); return err }, `no function "nobody"`},
		{func() error { _, err := f.Function("work", "other.c"); return err }, "list.c"},
		{func() error { _, err := f.Variable(At(entry(t, f, "work")), "nothing"); return err }, "there are [n depth c"},
	} {
		err := c.ask()
		var nf *NotFoundError
		if !errors.As(err, &nf) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v; want %q", err, c.want)
		}
	}
}

func entry(t *testing.T, f *File, name string) uint64 {
	t.Helper()
	fns, err := f.Function(name, "")
	if err != nil {
		t.Fatal(err)
	}
	return fns[0].Copies[0].Entry
}

// TestFunctionLine counts lines from the function's beginning, in the file that has it.
func TestFunctionLine(t *testing.T) {
	for _, b := range builds {
		f := open(t, build(t, b.cc, "list.c"))
		whole, err := f.Line("list.c", 12)
		if err != nil {
			t.Fatal(b.name, err)
		}
		sites, err := f.FunctionLine("work", "", 2)
		if err != nil || len(sites) != len(whole) || sites[0] != whole[0] {
			t.Errorf("%s: %+v, %v; line 12 is %+v", b.name, sites, err, whole)
		}
	}
}

// TestVariables finds all that the source has, in each build, with a type; and what is not there says so.
func TestVariables(t *testing.T) {
	for _, b := range builds {
		f := open(t, build(t, b.cc, "list.c"))
		fns, err := f.Function("work", "")
		if err != nil {
			t.Fatal(err)
		}
		types := map[string]string{"n": "*struct node", "depth": "int", "c": "enum colour {RED=0; GREEN=5; BLUE=6}", "sum": "int"}
		params := 0
		for _, v := range f.Variables(fns[0].Copies[0].Point()) {
			if v.Param {
				params++
			}
			if want := types[v.Name]; want != "" && (v.Type == nil || v.Type.String() != want) {
				t.Errorf("%s: %s is a %v", b.name, v.Name, v.Type)
			}
			delete(types, v.Name)
			if _, err := v.Where(); v.Param && err != nil {
				t.Errorf("%s: %v", b.name, err)
			}
		}
		if len(types) > 0 || params != 3 {
			t.Errorf("%s: missing %v; %d parameters", b.name, types, params)
		}
		g, err := f.Variable(fns[0].Copies[0].Point(), "counter")
		if err != nil {
			t.Fatal(b.name, err)
		}
		if l, err := g.Where(); err != nil || l.Memory == nil || l.Memory.Op != OpAddr {
			t.Errorf("%s: counter: %+v, %v", b.name, l, err)
		}
		tls, err := f.Variable(fns[0].Copies[0].Point(), "tls")
		if err != nil {
			t.Fatal(b.name, err)
		}
		if l, err := tls.Where(); err != nil || l.Memory == nil || l.Memory.Op != OpThread {
			t.Errorf("%s: tls: %+v, %v", b.name, l, err)
		}
	}
}

// TestDamaged holds that damaged data is an error, or less of an answer, and no more.
func TestDamaged(t *testing.T) {
	path := build(t, []string{"gcc", "-O2", "-g"}, "list.c")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	e, err := elf.NewFile(bytes.NewReader(whole))
	if err != nil {
		t.Fatal(err)
	}
	var places []uint64
	for _, s := range e.Sections {
		if strings.HasPrefix(s.Name, ".debug_") || s.Name == ".eh_frame" {
			for n := uint64(0); n < s.Size; n++ {
				places = append(places, s.Offset+n)
			}
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	answered := 0
	for range 400 {
		b := bytes.Clone(whole)
		for range 1 + r.IntN(4) {
			b[places[r.IntN(len(places))]] = byte(r.IntN(256))
		}
		f, err := Open(bytes.NewReader(b), Options{})
		if err != nil {
			continue
		}
		answered++
		for _, name := range f.Functions() {
			fns, _ := f.Function(name, "")
			for _, fn := range fns {
				f.Lines(fn)
				for _, c := range fn.Copies {
					for _, v := range f.Variables(c.Point()) {
						v.Where()
					}
				}
			}
		}
		f.Line("list.c", 12)
	}
	if answered < 100 {
		t.Errorf("%d of 400 could be opened", answered)
	}
}

// TestLinesAreTheFunctions holds that the lines of a function begin with that on which it does, at which its entry is, and
// that none is of another function.
func TestLinesAreTheFunctions(t *testing.T) {
	for _, b := range builds {
		t.Run(b.name, func(t *testing.T) {
			f := open(t, build(t, b.cc, "halves.c"))
			for _, name := range []string{"split", "joined", "deep", "main"} {
				fns, err := f.Function(name, "")
				if err != nil {
					t.Fatal(err)
				}
				if lines := f.Lines(fns[0]); len(lines) < 3 || lines[0] != fns[0].Line {
					t.Errorf("%s is declared on line %d: %d", name, fns[0].Line, lines)
				}
			}
		})
	}
}

// TestParametersAsPassed holds that a parameter is at the function's first instruction what was passed, though what its
// first statements make of it takes no code.
func TestParametersAsPassed(t *testing.T) {
	f := open(t, build(t, []string{"gcc", "-O2", "-g"}, "halves.c"))
	fns, err := f.Function("last", "")
	if err != nil {
		t.Fatal(err)
	}
	v, err := f.Variable(fns[0].Copies[0].EntryPoint(), "end")
	if err != nil {
		t.Fatal(err)
	}
	if l, err := v.Where(); err != nil || l.Value == nil || l.Value.Op != OpReg {
		t.Errorf("%+v, %v", l, err)
	}
}

// TestParametersOfCopies holds that a function has its parameters in their order in each of its copies.
func TestParametersOfCopies(t *testing.T) {
	const text = `volatile int seen;
static inline int three(int first, int second, int third) { seen = first; int r = second * 3; seen = r; seen = third; return r; }
__attribute__((noinline)) int twice(int a, int b) { return three(a, b, a + b) + three(b, a, 7); }
int main(int argc, char **argv) { return twice(argc, 2); }
`
	for _, cc := range [][]string{{"gcc", "-O2", "-g"}, {"clang", "-O2", "-g"}} {
		out := filepath.Join(t.TempDir(), "three")
		testprog.CompileText(t, out, cc, "three.c", text)
		f := open(t, out)
		fns, err := f.Function("three", "")
		if err != nil || len(fns[0].Copies) != 2 {
			t.Fatalf("%v: %+v, %v", cc, fns, err)
		}
		for _, c := range fns[0].Copies {
			var names []string
			for _, v := range f.Variables(c.Point()) {
				names = append(names, v.Name)
			}
			if got := strings.Join(names, " "); got != "first second third r" {
				t.Errorf("%v, %#x: %s", cc, c.Entry, got)
			}
		}
	}
}
