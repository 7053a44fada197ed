package bench

import (
	"testing"

	"kprobe"
	"kprobe/event"
	"kprobe/trace"
)

// BenchmarkInside is the cost of one hit that is served inside the target, behind a
// jump: to count it; to record a register and the time, for a trace line; to count a
// return; to measure how long a call takes. "added-ns" is what it costs more than the
// same calls without probes, which are timed in turn.
func BenchmarkInside(b *testing.B) {
	for _, c := range []struct {
		name  string
		setUp func(b *testing.B, s *kprobe.Session) func() uint64
	}{
		{"count", func(b *testing.B, s *kprobe.Session) func() uint64 {
			kp := &kprobe.Kprobe{SymbolName: hitFunc, Program: kprobe.CountOnly}
			register(b, s, kp)
			return kp.Hits
		}},
		{"event", func(b *testing.B, s *kprobe.Session) func() uint64 {
			tr := trace.New(s, func(*event.Event) {})
			tr.Inside = true
			if err := tr.Add("p:hit " + hitFunc + " n=%si"); err != nil {
				b.Fatal(err)
			}
			b.Cleanup(tr.Flush)
			return func() uint64 { return tr.Counts()[0].Hits }
		}},
		{"return", func(b *testing.B, s *kprobe.Session) func() uint64 {
			rp := &kprobe.Kretprobe{Program: kprobe.CountOnly}
			rp.Kp.SymbolName = hitFunc
			register(b, s, rp)
			return rp.Hits
		}},
		{"latency", func(b *testing.B, s *kprobe.Session) func() uint64 {
			st, err := trace.NewStat(s, true, "r "+hitFunc)
			if err != nil {
				b.Fatal(err)
			}
			return func() uint64 {
				rows, err := st.Rows()
				if err != nil {
					b.Fatal(err)
				}
				return rows[0].Hits
			}
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			p, alone := target(b, jumpers(b)), target(b, jumpers(b))
			s := attach(b, p, kprobe.Options{})
			hits := c.setUp(b, s)
			s.WaitOptimized()
			if l := s.List(); len(l) != 1 || !l[0].Optimized {
				b.Fatalf("no jump: %v", l)
			}
			const calls = 200_000 // in a turn
			var with, without []float64
			for b.Loop() {
				with = append(with, timed(b, p, calls))
				without = append(without, timed(b, alone, calls))
			}
			b.ReportMetric(median(with), "ns/op")
			b.ReportMetric(median(with)-median(without), "added-ns")
			b.ReportMetric(median(without), "alone-ns")
			if n := hits(); n != uint64(calls*len(with)) {
				b.Errorf("%d hits of %d calls", n, calls*len(with))
			}
		})
	}
}

func register(b *testing.B, s *kprobe.Session, ps ...kprobe.Probe) {
	b.Helper()
	if err := s.Register(ps...); err != nil {
		b.Fatal(err)
	}
}
