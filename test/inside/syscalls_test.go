package inside

import (
	"bytes"
	"testing"

	"kprobe"
	"kprobe/arch"
	"kprobe/internal/isa/amd64"
	"kprobe/internal/testprog"
	"kprobe/symbol"
	"kprobe/test/harness"
)

// callsIn are the system call instructions of functions, as far as these can be read.
func callsIn(t *testing.T, s *kprobe.Session, funcs []symbol.Symbol) (at []arch.Addr) {
	t.Helper()
	machine := amd64.New(s.Arch())
	seen := make(map[arch.Addr]bool)
	for _, fn := range funcs {
		code := make([]byte, fn.Size)
		if err := s.ReadMem(arch.Addr(fn.Addr), code); err != nil {
			t.Fatal(err)
		}
		for off := 0; off < len(code); {
			in, err := machine.Decode(code[off:], arch.Addr(fn.Addr)+arch.Addr(off))
			if err != nil {
				break
			}
			if pc := arch.Addr(fn.Addr) + arch.Addr(off); bytes.HasPrefix(code[off:], []byte{0x0f, 0x05}) && !seen[pc] {
				seen[pc] = true
				at = append(at, pc)
			}
			off += in.Len
		}
	}
	return at
}

// Every system call of a program can be probed: those that make threads and processes, those that threads sleep in, and
// those that we would have it make for us.
func TestProbesOnSystemCalls(t *testing.T) {
	for _, prog := range []string{"threads", "forks"} {
		path := testprog.Build(t, prog, "-O2", "-static", "-pthread")
		for _, way := range []string{"stops", "traps", "jumps"} {
			t.Run(prog+"/"+way, func(t *testing.T) {
				p := testprog.Start(t, path)
				want := p.Round("2")
				s := harness.Attach(t, p.Pid, nil)
				harness.OK(t, s.SetOptimization(way == "jumps"))
				calls := callsIn(t, s, harness.FuncsOf(t, p.Pid, path))
				if len(calls) < 100 {
					t.Fatalf("only %d system calls found", len(calls))
				}
				var all []*kprobe.Kprobe
				const batch = 40 // memory is mapped between them
				for from := 0; from < len(calls); from += batch {
					var ps []*kprobe.Kprobe
					for _, at := range calls[from:min(from+batch, len(calls))] {
						kp := &kprobe.Kprobe{Addr: at, Program: kprobe.CountOnly}
						if way == "stops" {
							kp.Program, kp.PreHandler = nil, func(*kprobe.Kprobe, *kprobe.Regs) int { return 0 }
						}
						ps = append(ps, kp)
					}
					all = append(all, harness.RegisterAll(t, s, ps)...)
				}
				harness.OK(t, s.WaitOptimized())
				if n := harness.Optimized(s); (n > 0) != (way == "jumps") {
					t.Errorf("%d are jumps", n)
				}
				harness.SameRound(t, s, p, want, "2")
				hits := uint64(0)
				for _, kp := range all {
					hits += kp.Hits()
				}
				if hits < 10 {
					t.Errorf("%d hits of %d probes", hits, len(all))
				}
				t.Logf("%d hits of %d probes, %d of them jumps", hits, len(all), harness.Optimized(s))
				harness.OK(t, s.UnregisterKprobes(all))
				harness.SameRound(t, s, p, want, "2")
			})
		}
	}
}
