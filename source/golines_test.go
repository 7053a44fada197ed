package source

import (
	"debug/elf"
	"debug/gosym"
	"testing"

	"kprobe/internal/testprog"
)

// TestLinesOfGo places each line of a Go program where the runtime's own table has it. Some packages of such
// a program have no function left, and so no line table.
func TestLinesOfGo(t *testing.T) {
	path := testprog.Build(t, "goprog")
	f, table := open(t, path), runtimeTable(t, path)
	known := make(map[int]bool)
	for _, fn := range table.Funcs {
		for pc := fn.Entry; pc < fn.End; pc++ {
			if file, line, _ := table.PCToLine(pc); fileIs(file, "goprog.go") {
				known[line] = true
			}
		}
	}
	if len(known) < 40 {
		t.Fatalf("the runtime knows %d lines only", len(known))
	}
	for line := range 200 {
		sites, err := f.Line("goprog.go", line)
		if has := known[line]; has != (err == nil) {
			t.Errorf("line %d: %d sites, %v; the runtime has code of it: %v", line, len(sites), err, has)
		}
		for _, s := range sites {
			if file, at, fn := table.PCToLine(s.Addr); at != line || !fileIs(file, "goprog.go") {
				t.Errorf("line %d is placed at %#x, which is line %d of %s, in %v", line, s.Addr, at, file, fn)
			}
		}
	}
}

// runtimeTable is the table by which the runtime of a static Go program knows its functions and lines.
func runtimeTable(t *testing.T, path string) *gosym.Table {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data, err := f.Section(".gopclntab").Data()
	if err != nil {
		t.Fatal(err)
	}
	table, err := gosym.NewTable(nil, gosym.NewLineTable(data, f.Section(".text").Addr))
	if err != nil {
		t.Fatal(err)
	}
	return table
}
