package returns_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"kprobe/internal/returns"
)

// model is what Calls must be like, without thought of speed.
type model struct {
	at    returns.Place
	probe string
	value int
}

// Random calls, returns, jumps over frames and stacks that end, on stacks that
// keep an order and on those that do not.
func TestCallsAgreeWithModel(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 7))
		var c returns.Calls[string, int]
		var m []model // in order of entry
		drop := func(gone func(model) bool) []int {
			var vs []int
			m = slices.DeleteFunc(m, func(x model) bool {
				if gone(x) {
					vs = append(vs, x.value)
					return true
				}
				return false
			})
			slices.Sort(vs)
			return vs
		}
		same := func(step string, got, want []int) {
			t.Helper()
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Fatalf("seed %d: %s gave %v, want %v", seed, step, got, want)
			}
		}
		for i := range 2000 {
			p := returns.Place{Stack: r.Uint64N(4), At: -8 * r.Int64N(30)}
			probe := string(rune('a' + r.IntN(3)))
			switch r.IntN(10) {
			case 0:
				same("Below", c.Below(p), drop(func(x model) bool { return p.Stack != 0 && x.at.Stack == p.Stack && x.at.At < p.At }))
			case 1:
				same("DropStack", c.DropStack(p.Stack), drop(func(x model) bool { return x.at.Stack == p.Stack }))
			case 2:
				got := c.Drop(func(_ returns.Place, of string, v int) bool { return of == probe && v%2 == 0 })
				same("Drop", got, drop(func(x model) bool { return x.probe == probe && x.value%2 == 0 }))
			case 3, 4, 5:
				newest := -1
				for j, x := range m {
					if x.at == p && x.probe == probe {
						newest = j
					}
				}
				v, ok := c.Take(p, probe)
				if ok != (newest >= 0) || ok && v != m[newest].value {
					t.Fatalf("seed %d: Take gave %d, %v", seed, v, ok)
				}
				if ok {
					m = slices.Delete(m, newest, newest+1)
				}
			default:
				c.Put(p, probe, i)
				m = append(m, model{p, probe, i})
			}
			if c.Len() != len(m) {
				t.Fatalf("seed %d: %d calls, want %d", seed, c.Len(), len(m))
			}
			for _, x := range m {
				if _, ok := c.Get(x.at, x.probe); !ok {
					t.Fatalf("seed %d: %+v is lost", seed, x)
				}
				if out, ok := c.Outermost(x.at.Stack); !ok || !slices.ContainsFunc(m, func(y model) bool {
					return y.value == out && y.at.Stack == x.at.Stack && y.at.At >= x.at.At
				}) {
					t.Fatalf("seed %d: %d is not the outermost on stack %d", seed, out, x.at.Stack)
				}
			}
		}
	}
}

func TestChoose(t *testing.T) {
	names := map[returns.Engine]string{returns.None: "none", returns.Swap: "swap", returns.Exits: "exits"}
	none := func() string { return "" }
	thrower := func() string { return "libfoo.so: imports __cxa_throw" }
	for _, tt := range []struct {
		f    returns.Facts
		want string
	}{
		{returns.Facts{Name: "getenv"}, "swap: nothing unwinds"},
		{returns.Facts{Name: "setjmp"}, "none: it returns more"},
		{returns.Facts{Name: "__sigsetjmp@@GLIBC_2.2.5"}, "none: it returns more"},
		{returns.Facts{Name: "vfork", GoProgram: "x"}, "none: it returns more"},
		{returns.Facts{Name: "_Unwind_Resume"}, "none: it unwinds"},
		{returns.Facts{Name: "backtrace"}, "exits: it unwinds"},
		{returns.Facts{Name: "dlsym"}, "exits: it looks"},
		{returns.Facts{Name: "f", ShadowStack: true}, "exits: the program has a shadow stack"},
		{returns.Facts{Name: "f", NoFile: true}, "exits: nothing is known"},
		{returns.Facts{Name: "f", Scanner: "OCaml"}, "exits: OCaml's runtime reads the return addresses"},
		{returns.Facts{Name: "f", Jumped: true}, "none: it is not called, and returns to nobody: Haskell's functions"},
		{returns.Facts{Name: "f", Unwinds: "needs libstdc++.so.6"}, "exits: exceptions may unwind through it (needs libstdc++.so.6)"},
		{returns.Facts{Name: "malloc", GoProgram: "server"}, "exits: server is a Go program"},
		{returns.Facts{Name: "qsort", Throwers: none}, "swap: "},
		{returns.Facts{Name: "qsort", Throwers: thrower}, "exits: it calls back into code that may throw through it (libfoo.so"},
		{returns.Facts{Name: "main.main", Go: true}, "exits: Go code"},
		{returns.Facts{Name: "main.gogo", Go: true}, "exits: Go code"},
		{returns.Facts{Name: "runtime.gogo", Go: true}, "none: it continues another goroutine"},
		{returns.Facts{Name: "runtime.systemstack.abi0", Go: true}, "none: it runs its argument"},
		{returns.Facts{Name: "runtime.mallocgc", Go: true}, "exits: Go code"},
		{returns.Facts{Name: "_rt0_amd64_linux", Go: true}, "none: it is the program's start"},
		{returns.Facts{Name: "runtime.settls.abi0", Go: true}, "none: it gives the thread the storage"},
		{returns.Facts{Name: "_start", Start: true}, "none: it is the program's start"},
		{returns.Facts{Name: "f", Uncalled: true}, "none: it is not called, and returns to nobody: by its unwind table"},
		{returns.Facts{Name: "_dl_start_user"}, "none: it is not called"},
		{returns.Facts{Name: "__start_context"}, "none: it is not called"},
		{returns.Facts{Name: "_dl_runtime_resolve_xsavec"}, "exits: it looks"},
		{returns.Facts{Name: "_dl_runtime_profile_avx512"}, "exits: it looks"},
	} {
		engine, why := returns.Choose(tt.f)
		if got := fmt.Sprintf("%s: %s", names[engine], why); !strings.HasPrefix(got, tt.want) {
			t.Errorf("%+v: %s; want %s", tt.f, got, tt.want)
		}
	}
}

func TestIsPart(t *testing.T) {
	for name, want := range map[string]bool{
		"": true, "f.cold": true, "_ZN1a1bEv.cold": true, "f.cold.1": true, "f.part.0.cold": true,
		"f": false, "f.part.0": false, "f.constprop.0": false, "f.colder": false, "cold": false,
	} {
		if returns.IsPart(name) != want {
			t.Errorf("%q: %v", name, !want)
		}
	}
}
