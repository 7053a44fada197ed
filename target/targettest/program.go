package targettest

import (
	"debug/elf"
	"testing"

	"kprobe/arch"
)

// Program finds a function and a variable of a program that is linked to fixed
// addresses.
func Program(t testing.TB, path, code, data string) (fn, variable arch.Addr) {
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
	for _, s := range syms {
		switch s.Name {
		case code:
			fn = arch.Addr(s.Value)
		case data:
			variable = arch.Addr(s.Value)
		}
	}
	if f.Type != elf.ET_EXEC || fn == 0 || variable == 0 {
		t.Fatalf("%s: %s is at %v and %s at %v, in a file of type %v", path, code, fn, data, variable, f.Type)
	}
	return fn, variable
}
