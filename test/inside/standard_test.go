package inside

import (
	"testing"

	"kprobe"
	"kprobe/arch"
	"kprobe/internal/testprog"
	"kprobe/test/harness"
)

// The standard library's own tests pass with programs at the entry and at every exit of every
// function of the package under test: the runtime's, too, its scheduler, collector, allocator and
// whatever moves stacks. Most calls end where only a jump ahead of the exit has room. A soak runs
// all tests; here are none that look at the clock. In short there are those packages only whose
// functions do most that matters: jumps into tables, panics, goroutines that wait, stacks that move.
func TestInsideGoStandardLibrary(t *testing.T) {
	testprog.ReadsFSBase.Need(t)
	for _, tt := range []struct{ pkg, run, short string }{
		{"sort", "", ""},
		{"strings", "", "Builder|Cut|Fields"},
		{"sync", "Once|Cond|WaitGroup|MapConcurrent", "Once|Cond"},
		{"encoding/json", "", ""},
		{"net/http", "Header|Cookie|ServeMux|ReadRequest|WriteRequest|Multipart|Redirect", ""},
		{"runtime", "Chan|DeferPtrs|PanicAfterGoexit|Map[NI]|Caller|Iface|Slice|StackPanic|StackGrowthCallback", "ChanSend|Caller|Slice"},
	} {
		if testing.Short() && tt.short == "" {
			continue
		}
		t.Run(tt.pkg, func(t *testing.T) {
			if testing.Short() {
				tt.run = tt.short
			}
			if testprog.Soak(t, 0) > 0 {
				tt.run = ""
			}
			insideStandard(t, tt.pkg, tt.run)
		})
	}
}

func insideStandard(t *testing.T, pkg, run string) {
	st := startStandard(t, pkg, run)
	s := st.s
	var ps []kprobe.Probe
	var calls []*kprobe.Kprobe
	var returns []*kprobe.Kretprobe
	refused := 0
	for _, f := range st.funcs {
		rp := &kprobe.Kretprobe{Kp: kprobe.Kprobe{Addr: arch.Addr(f.Addr)}, Program: kprobe.CountOnly, MaxActive: 1 << 20}
		if e := s.Plan(rp); e.Verdict == kprobe.VerdictRefuse {
			refused++
			continue
		}
		kp := &kprobe.Kprobe{Addr: rp.Kp.Addr, Program: kprobe.CountOnly}
		calls, returns, ps = append(calls, kp), append(returns, rp), append(ps, kp, rp)
	}
	if err := s.Register(ps...); err != nil {
		t.Fatal(err)
	}
	s.WaitOptimized()
	entries, exits, jumps := harness.Optimized(s)/2, 0, 0
	for _, rp := range returns {
		n, j := rp.Exits()
		exits, jumps = exits+n, jumps+j
	}
	t.Logf("%d functions, %d entries and %d of %d exits are jumps; target stopped for %v; %d refused", len(returns), entries, jumps, exits, s.LastStop(), refused)
	if jumps < exits*95/100 {
		t.Errorf("only %d of %d exits are jumps", jumps, exits)
	}
	s.Continue()
	switches := 3
	if testing.Short() {
		switches = 1
	}
	for range switches { // while it runs
		for _, on := range []bool{false, true} {
			if err := s.SetOptimization(on); err != nil {
				<-s.Done() // it has ended meanwhile, or it does not end
			}
		}
		s.WaitOptimized()
	}
	st.pass()
	var called, returned uint64
	var lost kprobe.Lost
	for i, rp := range returns {
		n, l := calls[i].Hits(), rp.Lost()
		called, returned = called+n, returned+rp.Hits()
		lost.Unwound, lost.Goexit = lost.Unwound+l.Unwound, lost.Goexit+l.Goexit
		if rp.NMissed() > 0 || calls[i].NMissed() > 0 || l.Longjmp+l.Exited+l.NoInstance > 0 {
			t.Errorf("%v: %d and %d missed, lost %+v", rp.Kp.Addr, calls[i].NMissed(), rp.NMissed(), l)
		}
		if n < rp.Hits()+rp.Abandoned() {
			t.Errorf("%v: %d calls, but %d returns and %d that ended otherwise", rp.Kp.Addr, n, rp.Hits(), rp.Abandoned())
		}
	}
	t.Logf("%d calls, %d returns, lost %+v", called, returned, lost)
	if returned < 1000 {
		t.Errorf("only %d returns", returned)
	}
}
