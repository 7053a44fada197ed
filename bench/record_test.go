package bench

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"kprobe"
	"kprobe/event"
	file "kprobe/recording"
	"kprobe/trace"
)

// BenchmarkKept is what becomes of events of two arguments that come as fast as a loop calls:
// as text, as JSON, and in a recording. "kept" is the share that found room in a ring of 4 MiB,
// "Mev/s" how many were kept in a second of the target's time, "cpu-ns" the controller's processor
// time for each, whoever else had the machine.
func BenchmarkKept(b *testing.B) {
	for _, c := range []struct {
		name   string
		format func(*event.Event, []byte) []byte
	}{
		{"text", (*event.Event).AppendText},
		{"json", (*event.Event).AppendJSON},
		{"recording", nil},
	} {
		b.Run(c.name, func(b *testing.B) {
			p := target(b, jumpers(b))
			s := attach(b, p, kprobe.Options{})
			f, err := os.Create(filepath.Join(b.TempDir(), "events"))
			if err != nil {
				b.Fatal(err)
			}
			defer f.Close()
			var out []byte
			var w *file.Writer
			tr := trace.New(s, func(e *event.Event) {
				if out = append(c.format(e, out), '\n'); len(out) > 1<<20 {
					f.Write(out)
					out = out[:0]
				}
			})
			tr.Inside, tr.Buffer = true, 4<<20
			if c.format == nil {
				w = file.NewWriter(f, file.Head{}, file.Options{})
				tr.Record = w.Space()
			}
			if err := tr.Add("p:hit " + hitFunc + " a=%di b=%si"); err != nil {
				b.Fatal(err)
			}
			s.WaitOptimized()
			const calls = 1_000_000 // in a turn
			var before, after unix.Rusage
			unix.Getrusage(unix.RUSAGE_SELF, &before)
			ns, rounds := 0.0, 0
			for b.Loop() {
				ns += timed(b, p, calls) * calls
				rounds++
			}
			counts := tr.Counts()
			tr.Flush()
			if w != nil {
				if err := w.Close(file.End{}); err != nil {
					b.Fatal(err)
				}
			}
			unix.Getrusage(unix.RUSAGE_SELF, &after)
			hits, lost := float64(counts[0].Hits), float64(counts[0].Missed[event.Lost])
			cpu := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
			b.ReportMetric((hits-lost)/hits, "kept")
			b.ReportMetric((hits-lost)/ns*1e3, "Mev/s")
			b.ReportMetric(float64(cpu)/(hits-lost), "cpu-ns")
			if hits != float64(rounds*calls) {
				b.Errorf("%v hits of %d calls", hits, rounds*calls)
			}
		})
	}
}
