// Package bench measures the engine where it counts: what a hit costs, and
// for how long a batch has the target stopped. Nothing here fails for being slow.
//
//	go test -run '^$' -bench . -benchmem ./bench/...
//
// The machines this runs on are shared and noisy, so no figure stands alone. A
// hit is timed by the target itself, in short rounds that take turns with
// rounds of the floor (see testdata/floor.c), and "x-floor" is the median of the
// ratios of neighbours: what disturbs one disturbs the other too. ns/op is the
// median of the rounds, per hit; a benchmark's iterations are such pairs.
package bench

import (
	"debug/elf"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kprobe"
	"kprobe/internal/testprog"
	engine "kprobe/target"
	"kprobe/target/ptrace"
)

// round is how many hits are timed at once: some milliseconds, about what a
// busy machine lets run undisturbed.
const round = 500

// floorProg is testdata/floor.c, built once.
var floorProg string

//go:embed testdata/floor.c
var floorSource string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "kprobe-bench")
	if err == nil {
		floorProg = filepath.Join(dir, "floor")
		var msg []byte
		gcc := exec.Command("gcc", "-O2", "-o", floorProg, "-x", "c", "-")
		gcc.Stdin = strings.NewReader(floorSource)
		msg, err = gcc.CombinedOutput()
		os.Stderr.Write(msg)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench: cannot build the floor:", err)
		os.Exit(1)
	}
	code := m.Run()
	printTable(os.Stdout)
	os.RemoveAll(dir)
	os.Exit(code)
}

// attach opens a session on a program, with nothing between it and the engine.
func attach(b *testing.B, p *testprog.Proc, o kprobe.Options) *kprobe.Session {
	b.Helper()
	s, _ := attachWatched(b, p, o)
	return s
}

// stopwatch is a process that tells how long its longest stop was.
type stopwatch struct {
	*ptrace.Process
	began   time.Time
	longest time.Duration
}

func (w *stopwatch) Freeze() ([]engine.Stop, error) {
	w.began = time.Now()
	return w.Process.Freeze()
}

func (w *stopwatch) Thaw() error {
	err := w.Process.Thaw()
	w.longest = max(w.longest, time.Since(w.began))
	return err
}

func attachWatched(b *testing.B, p *testprog.Proc, o kprobe.Options) (*kprobe.Session, *stopwatch) {
	b.Helper()
	process, err := ptrace.Attach(p.Pid)
	if err != nil {
		b.Fatal(err)
	}
	t := &stopwatch{Process: process}
	o.Unlisted = true
	o.Report = func(err error) { b.Errorf("reported: %v", err) }
	s, err := kprobe.Open(t, &o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
	return s, t
}

// timed has a program run a round, and returns what the program says that it
// took, per hit.
func timed(b *testing.B, p *testprog.Proc, hits int) float64 {
	b.Helper()
	for _, line := range p.Round("%d", hits) {
		var ns float64
		if _, err := fmt.Sscanf(line, "ns %g", &ns); err == nil {
			return ns / float64(hits)
		}
	}
	b.Fatal("the program does not say how long its round took")
	return 0
}

// target starts a program to be probed, on one CPU, as the floor's child is: a
// traced thread that may go anywhere is woken on whichever CPU is idle, and
// that, not the tracer, is then what is measured. The rows "apart" show it.
func target(b *testing.B, path string, args ...string) *testprog.Proc {
	b.Helper()
	p := testprog.Start(b, path, args...)
	var set unix.CPUSet
	set.Set(0)
	if err := unix.SchedSetaffinity(p.Pid, &set); err != nil {
		b.Fatal(err)
	}
	return p
}

// floor starts the floor.
func floor(b *testing.B, role ...string) *testprog.Proc {
	b.Helper()
	p := testprog.StartCmd(b, exec.Command(floorProg, role...))
	p.Expect("ready")
	return p
}

// besideFloor times rounds of a benchmark and of the floor in turn. hit runs a
// round of so many hits and returns ns per hit.
func besideFloor(b *testing.B, hit func(hits int) float64) {
	b.Helper()
	beside(b, floor(b), hit)
}

// leastOf notes a row of the table: the least of the rounds, of ours and of the floor.
func leastOf(name, aim string, ours, bare []float64) {
	note(name, func(r *row) { r.unit, r.floor, r.ours, r.aim = "us", slices.Min(bare)/1e3, slices.Min(ours)/1e3, aim })
}

// beside does it with the floor of one's choice.
func beside(b *testing.B, f *testprog.Proc, hit func(hits int) float64) (ns, floors []float64) {
	b.Helper()
	hit(round) // caches, and the pinning to the target's CPU
	timed(b, f, round)
	var ratios []float64
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for b.Loop() {
		bare := timed(b, f, round)
		mine := hit(round)
		ns = append(ns, mine)
		floors = append(floors, bare)
		ratios = append(ratios, mine/bare)
	}
	runtime.ReadMemStats(&after)
	hits := float64(len(ns) * round)
	b.ReportMetric(median(ns), "ns/op")
	b.ReportMetric(median(ratios), "x-floor")
	// Reading the programs' answers allocates too, by far less than once a hit.
	b.ReportMetric(float64(after.Mallocs-before.Mallocs)/hits, "allocs/op")
	b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/hits, "B/op")
	return ns, floors
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Sorted(slices.Values(v))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// absent notes that a peer cannot be measured here. That fails nothing.
func absent(b *testing.B, why string, args ...any) {
	b.Helper()
	b.Skip("left out: " + strings.TrimSpace(fmt.Sprintf(why, args...)))
}

// function is a function of a program.
type function struct {
	size    uint64
	fileOff uint64 // where in the file its code begins
}

func symbolOf(b *testing.B, path, name string) function {
	b.Helper()
	f, err := elf.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	syms, err := f.Symbols()
	if err != nil {
		b.Fatal(err)
	}
	for _, sym := range syms {
		if sym.Name == name {
			sec := f.Sections[sym.Section]
			return function{sym.Size, sym.Value - sec.Addr + sec.Offset}
		}
	}
	b.Fatalf("%s has no %s", path, name)
	return function{}
}
