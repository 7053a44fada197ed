package trace_test

import (
	"fmt"
	"runtime"
	"slices"
	"testing"

	"kprobe/internal/testprog"
	"kprobe/trace"
)

// Every call is counted for who made it, from when that is asked for, beside what the Stat counts.
func TestCallers(t *testing.T) {
	for _, flags := range [][]string{{"-O0", "-g"}, {"-O0", "-g", "-m32"}} {
		t.Run(fmt.Sprint(flags), func(t *testing.T) {
			if slices.Contains(flags, "-m32") {
				if runtime.GOARCH != "amd64" {
					return
				}
				testprog.Programs32.Need(t)
			}
			second := 1 // where an instruction is that is not the first
			if runtime.GOARCH != "amd64" {
				second = 4
			}
			p := testprog.Start(t, testprog.Build(t, "callers", flags...))
			p.Round("10")
			s := attach(t, p.Pid, nil)
			st, err := trace.NewStat(s, true, "r:timed work", fmt.Sprintf("p:counted often+%d", second), "p:often often")
			ok(t, err)
			rows, err := st.Rows()
			ok(t, err)
			c, err := st.Callers(rows[0].Place)
			ok(t, err)
			if _, err := st.Callers(rows[1].Place); err == nil {
				t.Errorf("callers of %s, which is no function's beginning", rows[1].Place)
			}
			if most, calls := c.Most(5); len(most) != 0 || calls != 0 {
				t.Errorf("%v before the first call", most)
			}
			want := p.Round("200")
			most, calls := c.Most(5)
			if len(most) != 2 || calls != 800 || most[0].Calls != 600 || most[1].Calls != 200 ||
				most[0].Frames[0].Name() != "often" || most[1].Frames[0].Name() != "seldom" {
				t.Errorf("%d calls, %+v", calls, most)
			}
			if one, _ := c.Most(1); len(one) != 1 || one[0].Calls != 600 {
				t.Errorf("the most of one: %+v", one)
			}
			ok(t, c.Close())
			if got := p.Round("200"); !slices.Equal(got, want) {
				t.Errorf("%q, want %q", got, want)
			}
			if _, calls := c.Most(5); calls != 800 {
				t.Errorf("%d calls, some when it was closed", calls)
			}
			ok(t, st.Close())
		})
	}
}
