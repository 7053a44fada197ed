package inside

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"kprobe"
	"kprobe/internal/testprog"
	"kprobe/test/harness"
)

// uncalledBuilds are the program that jumps to functions with words on the stack that are no return addresses.
func uncalledBuilds(t *testing.T) [][]string {
	testprog.Need(t, "a machine that has return addresses on the stack", runtime.GOARCH == "amd64")
	return [][]string{{"-O2"}, {"-O2", "-static"}, {"-O2", "CC=musl-gcc"}, {"-O2", "-m32"}, {"-O2", "-static", "-no-pie", "-m32"}}
}

// onUncalled has return probes on all functions of the program that are jumped to or called, be it with handlers or
// with a program.
func onUncalled(program *kprobe.Program) (landed, counted, handled *kprobe.Kretprobe) {
	on := func(name string) *kprobe.Kretprobe {
		rp := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: name}, Engine: kprobe.EngineSwap, Program: program}
		if program == nil {
			rp.Handler = func(*kprobe.KretprobeInstance, *kprobe.Regs) int { return 0 }
		}
		return rp
	}
	return on("landed"), on("counted"), on("handled")
}

// What is on top of the stack in code that is jumped to is its own: it finds that there, and the hit is a miss. Each
// call is one, however it is written, and its return is told: also where probes stand on the calls.
func TestWhatIsNotCalledKeepsItsStack(t *testing.T) {
	const n = 20
	for _, flags := range uncalledBuilds(t) {
		for _, inside := range []bool{false, true} {
			t.Run(fmt.Sprint(flags, " inside ", inside), func(t *testing.T) {
				p := testprog.Start(t, testprog.Build(t, "uncalled", flags...))
				want := p.Round("%d", n)
				s := harness.Attach(t, p.Pid, nil)
				var program *kprobe.Program
				if inside {
					program = kprobe.CountOnly
				}
				landed, counted, handled := onUncalled(program)
				rps := []*kprobe.Kretprobe{landed, counted, handled}
				harness.OK(t, s.RegisterKretprobes(rps))

				var words, calls, signals uint64
				check := func(when string) {
					t.Helper()
					if got := p.Round("%d", n); !slices.Equal(got, want) {
						t.Errorf("%s: %q, want %q", when, got, want)
					}
					harness.Settle(t, s)
					var w, c, h uint64
					if _, err := fmt.Sscanf(want[0], "landed %d, changed 0, counted %d, handled %d", &w, &c, &h); err != nil {
						t.Fatal(err)
					}
					words, calls, signals = words+w, calls+c, signals+h
					for _, x := range []struct {
						rp           *kprobe.Kretprobe
						hits, missed uint64
					}{{landed, 0, words}, {counted, calls, 0}, {handled, signals, 0}} {
						if x.rp.Hits() != x.hits || x.rp.NMissed() != x.missed {
							t.Errorf("%s: %s: %d returns, %d missed; want %d, %d", when, x.rp.Kp.SymbolName, x.rp.Hits(), x.rp.NMissed(), x.hits, x.missed)
						}
					}
				}
				check("at first")

				calling := func(name string) bool { return name == "counted_ways" || name == "called_first" }
				on := harness.EveryInstruction(t, s, harness.FuncsOf(t, p.Pid, harness.ProgramOf(t, p.Pid)), calling, false)
				if len(on) < 20 {
					t.Fatalf("%d instructions", len(on))
				}
				for _, kp := range on {
					if inside {
						kp.PreHandler, kp.Program = nil, kprobe.CountOnly
					}
				}
				harness.OK(t, s.RegisterKprobes(on))
				check("with probes on the calls")
			})
		}
	}
}

// What its file says it of has no return probe.
func TestNoReturnWithoutAnAddress(t *testing.T) {
	for _, flags := range uncalledBuilds(t) {
		p := testprog.Start(t, testprog.Build(t, "uncalled", flags...))
		s := harness.Attach(t, p.Pid, nil)
		rp := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "begins"}, Program: kprobe.CountOnly}
		const why = "it is not called, and returns to nobody: by its unwind table it has no return address"
		if plan := s.Plan(rp); plan.Verdict != kprobe.VerdictRefuse || !strings.Contains(plan.Reason, why) {
			t.Errorf("%q: %v", flags, plan)
		}
		if err := s.RegisterKretprobe(rp); err == nil {
			t.Errorf("%q: it is registered", flags)
		}
		harness.Detach(t, s)
	}
}

// A function that a context begins with was not called, and returns: to another function of the C library, and that is told.
func TestContextsReturn(t *testing.T) {
	const n = 20
	testprog.Need(t, "a machine that has return addresses on the stack", runtime.GOARCH == "amd64")
	for _, flags := range [][]string{{"-O2"}, {"-O2", "-static"}, {"-O2", "-m32"}} {
		for _, program := range []*kprobe.Program{nil, kprobe.CountOnly} {
			p := testprog.Start(t, testprog.Build(t, "contexts", flags...))
			want := p.Round("%d", n)
			s := harness.Attach(t, p.Pid, nil)
			rp := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "adds"}, Engine: kprobe.EngineSwap, Program: program}
			if program == nil {
				rp.Handler = func(*kprobe.KretprobeInstance, *kprobe.Regs) int { return 0 }
			}
			harness.OK(t, s.RegisterKretprobe(rp))
			harness.SameRound(t, s, p, want, fmt.Sprint(n))
			harness.Settle(t, s)
			if rp.Hits() != 2*n || rp.NMissed() != 0 {
				t.Errorf("%q, inside %v: %d returns, %d missed; want %d, 0", flags, program != nil, rp.Hits(), rp.NMissed(), 2*n)
			}
			harness.Detach(t, s)
		}
	}
}
