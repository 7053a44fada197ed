package conform

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"kprobe"
	"kprobe/arch"
	"kprobe/internal/testprog"
	"kprobe/test/harness"
)

// What Go functions are given and give back, against what the program prints.
func TestGoArguments(t *testing.T) {
	type pair struct {
		Name  string
		Value int32
		Ok    bool
	}
	type iface struct{ Type, Data arch.Addr }
	for _, flags := range [][]string{nil, {"-ldflags=-s -w"}, {"-buildmode=pie"}} {
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			p := testprog.Start(t, testprog.Build(t, "gostorm", flags...))
			s := harness.Attach(t, p.Pid, nil)
			var grown []string
			ids := map[uint64]bool{}
			jps := []*kprobe.Jprobe{
				{Kp: kprobe.Kprobe{SymbolName: "main.stormGrow"}, Entry: func(r *kprobe.Regs, n int, str string, v []byte) {
					if string(v) != "some bytes to sum up" {
						t.Errorf("v is %q", v)
					}
					if str == "7" {
						grown = append(grown, fmt.Sprint(n))
					}
					ids[r.Task().Goroutine] = true
				}},
				{Kp: kprobe.Kprobe{SymbolName: "main.stormStruct"}, Entry: func(p pair, x [1]int16, e iface) {
					if p != (pair{"seven", 7, true}) || x[0] != -3 || e != (iface{}) {
						t.Errorf("a struct of %+v, an array of %d, an error of %v", p, x, e)
					}
				}},
				{Kp: kprobe.Kprobe{SymbolName: "main.stormFloat"}, Entry: func(a float64, b float32, c complex128) {
					if a != 1.5 || b != 2.25 || c != complex(3, 4) {
						t.Errorf("floats %v %v %v", a, b, c)
					}
				}},
			}
			if err := s.RegisterJprobes(jps); err != nil {
				t.Fatal(err)
			}
			var got []string
			handler := func(read func(regs *kprobe.Regs) error) func(*kprobe.KretprobeInstance, *kprobe.Regs) int {
				return func(ri *kprobe.KretprobeInstance, regs *kprobe.Regs) int {
					if err := read(regs); err != nil {
						t.Error(err)
					}
					return 0
				}
			}
			rps := []*kprobe.Kretprobe{
				{Kp: kprobe.Kprobe{SymbolName: "main.stormFloat"}, Handler: handler(func(r *kprobe.Regs) error {
					var f float64
					var c complex128
					err := r.GoResults(&f, &c)
					got = append(got, fmt.Sprint(f, c))
					return err
				})},
				{Kp: kprobe.Kprobe{SymbolName: "main.stormStruct"}, Handler: handler(func(r *kprobe.Regs) error {
					var p pair
					var e iface
					err := r.GoResults(&p, &e)
					got = append(got, fmt.Sprint(p, e == iface{}))
					return err
				})},
				{Kp: kprobe.Kprobe{SymbolName: "main.storm"}, Handler: handler(func(r *kprobe.Regs) error {
					var line string
					err := r.GoResults(&line)
					got = append(got, "storm "+line)
					return err
				})},
			}
			if err := s.RegisterKretprobes(rps); err != nil {
				t.Fatal(err)
			}
			line := p.Round("20")[0]
			// Once they are off, no handler runs any more, and what they noted can be read.
			if err := errors.Join(s.UnregisterJprobes(jps), s.UnregisterKretprobes(rps)); err != nil {
				t.Fatal(err)
			}
			if want := []string{"3.75 (-7+24i)", "{seven 4 true} true", line}; !slices.Equal(got, want) {
				t.Errorf("results %q, want %q", got, want)
			}
			if want := strings.Fields("7 6 5 4 3 2 1 0"); !slices.Equal(dedupe(grown), want) {
				t.Errorf("calls of stormGrow for %q, want %q", grown, want)
			}
			if ids[0] || len(ids) != 20 {
				t.Errorf("goroutines %v, want 20 numbers", ids)
			}
		})
	}
}

// dedupe leaves out what comes twice in a row: a function whose stack has to grow
// begins anew.
func dedupe(s []string) []string { return slices.Compact(slices.Clone(s)) }
