package jumps_test

import (
	"os"
	"reflect"
	"testing"

	"kprobe/internal/isa/amd64"
	"kprobe/internal/jumps"
	"kprobe/internal/testprog"
	"kprobe/symbol"
)

// A program unmaps a library, which is made anew, and maps it at the same addresses. What is planned is planned by the new code.
func TestAnotherFileAtTheSameAddress(t *testing.T) {
	const at = 0x7fff_0000_1000
	finder := jumps.NewFinder(amd64.ISA)
	var plans []any
	for _, made := range []string{"-O2", "-O0", "-O2"} {
		r, err := os.Open(testprog.Build(t, "dlib", "-shared", "-fPIC", made))
		if err != nil {
			t.Fatal(err)
		}
		f, err := symbol.Open(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		fn := f.Lookup("dlib_call")[0]
		m := &symbol.Module{File: f, Name: "dlib.so", Bias: at - fn.Addr}
		loc := symbol.Loc{Addr: at, Module: m, Func: fn, Size: fn.Size}
		got, want := finder.Jump(loc, nil), jumps.NewFinder(amd64.ISA).Jump(loc, nil)
		if want == nil || len(want.Ways) == 0 || !reflect.DeepEqual(got, want) {
			t.Errorf("made with %s: %v, alone %v", made, got, want)
		}
		plans = append(plans, want)
	}
	if reflect.DeepEqual(plans[0], plans[1]) {
		t.Error("both have one plan: nothing is shown")
	}
}
