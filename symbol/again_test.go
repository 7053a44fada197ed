package symbol

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"kprobe/arch"
)

// A place that was found is found again in each process that has the same file mapped, wherever;
// and in no other file of that name.
func TestAgain(t *testing.T) {
	file, other := new(File), new(File)
	none := func() []byte { return nil }
	file.buildID, other.buildID = none, none
	module := func(f *File, bias uint64) *Module {
		return &Module{Path: "/bin/prog", Name: "prog", Bias: bias, Start: arch.Addr(bias), End: arch.Addr(bias + 0x1000), File: f, Mappings: []Mapping{{Start: arch.Addr(bias), End: arch.Addr(bias + 0x1000)}}}
	}
	here := &Space{modules: []*Module{module(file, 0x1000)}}
	loc := Loc{Addr: 0x1234, Module: here.modules[0], Off: 0x34}
	if got, err := here.Again(loc); err != nil || got != loc {
		t.Errorf("where it was found: %+v, %v", got, err)
	}
	moved := &Space{modules: []*Module{module(file, 0x7000)}}
	if got, err := moved.Again(loc); err != nil || got.Addr != 0x7234 || got.Module != moved.modules[0] || got.Off != 0x34 {
		t.Errorf("in another process: %+v, %v", got, err)
	}
	var absent *NoModuleError
	for name, s := range map[string]*Space{
		"another file of that name": {modules: []*Module{module(other, 0x1000)}},
		"nothing mapped":            {},
		"a file that is not read":   {modules: []*Module{module(nil, 0x1000)}},
	} {
		if got, err := s.Again(loc); !errors.As(err, &absent) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	id := func() []byte { return []byte{1, 2, 3} }
	file.buildID, other.buildID = id, id
	again := &Space{modules: []*Module{module(other, 0x9000)}}
	if got, err := again.Again(loc); err != nil || got.Addr != 0x9234 {
		t.Errorf("the same build, read again: %+v, %v", got, err)
	}
}

// A look that sees the same as the last one changes nothing, and makes nothing.
func TestUpdateOfTheSame(t *testing.T) {
	text, err := os.Open("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	defer text.Close()
	all, err := ParseMaps(text)
	if err != nil {
		t.Fatal(err)
	}
	maps := slices.DeleteFunc(all, func(m Mapping) bool { return !strings.HasPrefix(m.Path, "/") })
	readable := true
	s := NewSpace(func(m Mapping) (*File, error) {
		f, err := os.Open(m.Path)
		if err != nil || !readable {
			return nil, os.ErrPermission
		}
		return Open(f, &Options{Path: m.Path})
	})
	if added, _ := s.Update(maps); len(added) == 0 || added[0].File == nil {
		t.Fatalf("modules: %v", added)
	}
	same := slices.Clone(maps)
	if n := testing.AllocsPerRun(10, func() { s.Update(same) }); n != 0 {
		t.Errorf("a look at the same makes %v things", n)
	}
	if _, removed := s.Update(nil); len(removed) == 0 || len(s.Modules()) != 0 {
		t.Error("what is unmapped is there still")
	}
	readable = false
	s.Update(same)
	readable = true
	if s.Update(same); len(s.Modules()) == 0 || s.Modules()[0].File == nil {
		t.Error("what could not be read is not tried again")
	}
}

// A place whose copy of a file was unmapped comes back in a copy that came later, by its name too.
// A copy that was there before has places of its own.
func TestAgainOfCopies(t *testing.T) {
	file := new(File)
	file.buildID = func() []byte { return nil }
	module := func(bias, came uint64) *Module {
		return &Module{Path: "/lib/libx.so", Name: "libx.so", Bias: bias, Start: arch.Addr(bias), End: arch.Addr(bias + 0x1000), File: file, came: came, Mappings: []Mapping{{Start: arch.Addr(bias), End: arch.Addr(bias + 0x1000)}}}
	}
	before, after := module(0x1000, 2), module(0x7000, 5)
	gone := module(0x4000, 1)
	s := &Space{modules: []*Module{before}}
	gone.in, gone.gone = s, 5
	loc := Loc{Addr: 0x4234, Module: gone, Off: 0x34}
	var absent *NoModuleError
	if got, err := s.Again(loc); !errors.As(err, &absent) {
		t.Errorf("in the other copy: %+v, %v", got, err)
	}
	if got, err := s.Resolve(Query{Module: "libx.so", Symbol: "f", Was: gone}); !errors.As(err, &absent) {
		t.Errorf("by name in the other copy: %+v, %v", got, err)
	}
	s.modules = append(s.modules, after)
	if got, err := s.Again(loc); err != nil || got.Module != after || got.Addr != 0x7234 {
		t.Errorf("in the one that came: %+v, %v", got, err)
	}
	elsewhere := &Space{modules: []*Module{before}}
	if got, err := elsewhere.Again(loc); err != nil || got.Module != before {
		t.Errorf("in another process: %+v, %v", got, err)
	}
}
