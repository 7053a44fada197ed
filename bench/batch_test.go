package bench

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"kprobe"
	"kprobe/internal/testprog"
)

// many is how many functions testprog's manyfns has.
const many = 10_000

var batches = []int{1, 1_000, many}

// rounds are how many of a batch make an iteration: a stop is short, and whether somebody
// else runs in the middle of it is chance.
const rounds = 8

// BenchmarkRegister registers so many probes in one batch: ns/op is the whole
// call, planning included, stopped-ms for how long the target stood still, at most: there may be several stops.
func BenchmarkRegister(b *testing.B) { benchBatch(b, "register", nil) }

// BenchmarkUnregister is the way back.
func BenchmarkUnregister(b *testing.B) { benchBatch(b, "unregister", nil) }

// The same with probes that count inside the target; in between, their traps
// become jumps.
func BenchmarkRegisterInside(b *testing.B)   { benchBatch(b, "register", kprobe.CountOnly) }
func BenchmarkOptimize(b *testing.B)         { benchBatch(b, "optimize", kprobe.CountOnly) }
func BenchmarkUnregisterInside(b *testing.B) { benchBatch(b, "unregister", kprobe.CountOnly) }

func benchBatch(b *testing.B, which string, program *kprobe.Program) {
	for _, n := range batches {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			p := testprog.Start(b, testprog.Build(b, "manyfns", "-O2"))
			s, watch := attachWatched(b, p, kprobe.Options{})
			kps := make([]*kprobe.Kprobe, n)
			for i := range kps {
				kps[i] = &kprobe.Kprobe{SymbolName: fmt.Sprintf("many_%d", i), Program: program}
				if program == nil {
					kps[i].PreHandler = pre
				}
			}
			steps := []step{
				{name: "register", do: func() error { return s.RegisterKprobes(kps) }},
				{name: "optimize", do: func() error { s.WaitOptimized(); return nil }},
				{name: "unregister", do: func() error { return s.UnregisterKprobes(kps) }},
			}
			resident := uint64(0)
			for b.Loop() {
				before := residentOf(b, p.Pid)
				for i := range steps {
					steps[i].run(b, watch)
					if steps[i].name == "optimize" && resident == 0 {
						resident = residentOf(b, p.Pid) - min(before, residentOf(b, p.Pid))
					}
				}
				for range rounds - 1 {
					for i := range steps {
						steps[i].run(b, watch)
					}
				}
			}
			for _, st := range steps {
				if st.name != which {
					continue
				}
				total := median(st.total)
				b.ReportMetric(total*1e6, "ns/op")
				b.ReportMetric(total*1e6/float64(n), "ns/probe")
				b.ReportMetric(total, "total-ms")
				b.ReportMetric(median(st.stopped), "stopped-ms")
				noteBatch(b, p.Pid, n, &st, program != nil)
			}
			if program != nil && n == many && which == "register" {
				b.ReportMetric(float64(resident)/many, "B/probe")
				note("memory of a counting probe", func(r *row) { r.unit, r.ours, r.aim = "B", float64(resident)/many, "256 B" })
			}
		})
	}
}

// noteBatch adds the stop of a batch to the table, beside the least that it could be:
// the pages read and written once.
func noteBatch(b *testing.B, pid, n int, st *step, inside bool) {
	aims := map[string]string{"register": "10 ms", "optimize": "10 ms", "unregister": "5 ms"}
	name, aim := fmt.Sprintf("%s %d trap probes, stop", st.name, n), "20 ms"
	if inside {
		name, aim = fmt.Sprintf("%s %d jump probes, stop", st.name, n), aims[st.name]
	}
	bare := math.Inf(1)
	for range 5 {
		bare = min(bare, milliseconds(rewritten(b, pid, n)))
	}
	note(name, func(r *row) { r.unit, r.floor, r.ours, r.aim = "ms", bare, slices.Min(st.stopped), aim })
}

// rewritten reads and writes the pages that so many of the functions are on.
func rewritten(b *testing.B, pid, n int) time.Duration {
	b.Helper()
	mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer mem.Close()
	const apart, page = 16, 4096
	at := manyFunctions(b, pid)
	buf := make([]byte, page)
	start := time.Now()
	for end := at + int64(n)*apart; at < end; at += page {
		if _, err := mem.ReadAt(buf, at); err != nil {
			b.Fatal(err)
		}
		if _, err := mem.WriteAt(buf, at); err != nil {
			b.Fatal(err)
		}
	}
	return time.Since(start)
}

// manyFunctions is the page on which the functions begin in a process.
func manyFunctions(b *testing.B, pid int) int64 {
	b.Helper()
	off := symbolOf(b, testprog.Build(b, "manyfns", "-O2"), "many_0").fileOff
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(maps)) {
		var from, to, start uint64
		var mode string
		if _, err := fmt.Sscanf(line, "%x-%x %s %x", &from, &to, &mode, &start); err == nil && strings.Contains(line, "manyfns") &&
			mode[2] == 'x' && off >= start && off < start+to-from {
			return int64(from+off-start) &^ 4095
		}
	}
	b.Fatal("the functions are mapped nowhere")
	return 0
}

// residentOf is the memory that a process has, in bytes.
func residentOf(b *testing.B, pid int) uint64 {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var kB uint64
		if _, err := fmt.Sscanf(line, "Rss: %d kB", &kB); err == nil {
			return kB << 10
		}
	}
	b.Fatal("no resident memory")
	return 0
}

// step is one of the calls that take turns, with what its runs took.
type step struct {
	name           string
	do             func() error
	total, stopped []float64 // milliseconds
}

func (st *step) run(b *testing.B, watch *stopwatch) {
	b.Helper()
	watch.longest = 0
	start := time.Now()
	if err := st.do(); err != nil {
		b.Fatal(err)
	}
	st.total = append(st.total, milliseconds(time.Since(start)))
	st.stopped = append(st.stopped, milliseconds(watch.longest))
}
