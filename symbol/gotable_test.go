package symbol

import (
	"testing"

	"kprobe/internal/testprog"
)

// TestGoCode tells a program's Go functions from those of C that it is linked with, by either linker, and how each is
// given its arguments.
func TestGoCode(t *testing.T) {
	for _, flags := range [][]string{nil, {"-ldflags=-linkmode=internal"}, {"-ldflags=-s -w"}} {
		f := open(t, testprog.Build(t, "cgo", append([]string{"CGO_ENABLED=1"}, flags...)...), false)
		symbols := len(flags) == 0 || flags[0] != "-ldflags=-s -w"
		for _, c := range []struct {
			name  string
			stays bool // in a file without symbols
			want  Passing
		}{
			{"main.main", true, ByGo},
			{"main.leaf", true, ByGo},
			{"cgo_leaf", false, ByC},
			{"x_cgo_init", false, ByC},
			{"runtime.memmove", true, ByGo}, // written in assembler, for ABIInternal
			{"runtime.asmcgocall.abi0", false, OnGoStack},
		} {
			all := f.Lookup(c.name)
			if len(all) == 0 && !symbols && !c.stays {
				continue
			}
			if len(all) == 0 {
				t.Errorf("%v: no %s", flags, c.name)
				continue
			}
			want := c.want
			if c.name == "runtime.memmove" && !symbols {
				want = UnknownOfGo
			}
			if got := f.Passing(all[0]); got != want || f.GoCode(all[0].Addr) != (want != ByC) {
				t.Errorf("%v: %s: passing %d, Go's code: %v; want %d", flags, c.name, got, f.GoCode(all[0].Addr), want)
			}
		}
	}
	if f := open(t, testprog.Build(t, "rets", "-O2"), false); f.GoCode(f.Entry()) {
		t.Error("a program of C has Go's code")
	}
}
