package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"kprobe"
	"kprobe/internal/testprog"
	"kprobe/script"
)

// BenchmarkScript is what a hit costs under a script, beside the same call without one and,
// where it is installed and may, under bpftrace. The ring of what is printed is read meanwhile.
func BenchmarkScript(b *testing.B) {
	for _, c := range []struct {
		body, aim string
		calls     int // in a round: no more records than a ring holds
		deep      bool
	}{
		{"{ @ = count(); }", "+3 ns", 100_000, false},
		{"{ @[arg0] = count(); }", "+10 ns", 100_000, false},
		{"{ @ = hist(arg0); }", "+10 ns", 100_000, false},
		{`{ printf("%d %s\n", arg0, comm); }`, "+40 ns", 2_000, false},
		{"{ @[ustack] = count(); }", "+150 ns", 20_000, true},
	} {
		b.Run(strings.ReplaceAll(c.body, " ", ""), func(b *testing.B) {
			path, function := buildHot(b), hot
			if c.deep {
				path, function = filepath.Join(filepath.Dir(floorProg), "deep"), "deepest"
				if msg, err := exec.Command("gcc", "testdata/deep.c", "-O2", "-fno-omit-frame-pointer", "-no-pie", "-o", path).CombinedOutput(); err != nil {
					b.Fatalf("%v\n%s", err, msg)
				}
			}
			start := func() *testprog.Proc {
				p := testprog.StartCmd(b, exec.Command(path))
				p.Expect("ready")
				return p
			}
			text := "uprobe:" + path + ":" + function + " " + c.body
			p, alone := start(), start()
			s := attach(b, p, kprobe.Options{})
			compiled, err := script.Compile(text, script.Options{Quiet: true, Output: io.Discard, PID: p.Pid})
			if err != nil {
				b.Fatal(err)
			}
			r, err := compiled.Start(s)
			if err != nil {
				b.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			over := make(chan error, 1)
			go func() { over <- r.Wait(ctx) }()
			allJumps(b, s)
			with, without := inTurns(b, nil, turn{p, c.calls, 1}, turn{alone, c.calls, 1})
			cancel()
			waiting := <-over
			if _, err := r.Close(); errors.Join(waiting, err) != nil {
				b.Error(waiting, err)
			}
			b.ReportMetric(with, "ns/op")
			b.ReportMetric(with-without, "added-ns")
			note("script "+c.body, func(row *row) {
				row.floor, row.ours, row.aim = without, with, c.aim
				if row.uprobe == "" {
					row.uprobe = bpftraced(b, start(), text, without)
				}
			})
		})
	}
}

// bpftraced is what a call costs under bpftrace; why that is not known where it cannot be told.
func bpftraced(b *testing.B, p *testprog.Proc, text string, alone float64) string {
	path, err := exec.LookPath("bpftrace")
	if err != nil {
		return "no bpftrace"
	}
	cmd := exec.Command(path, "-p", fmt.Sprint(p.Pid), "-e", text)
	if err := cmd.Start(); err != nil {
		return err.Error()
	}
	defer func() {
		cmd.Process.Signal(os.Interrupt)
		cmd.Wait()
	}()
	least := math.Inf(1)
	once := turn{p, 2_000, 1}
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if once.run(b) < alone+100 {
			continue // it is not there yet
		}
		for range 20 {
			least = min(least, once.run(b))
		}
		return fmt.Sprintf("bpftrace %.3g ns", least)
	}
	return "bpftrace attaches nothing"
}

// BenchmarkScriptStart is how long a script takes from the command line to its end, and to be attached to 10,000 functions.
func BenchmarkScriptStart(b *testing.B) {
	thousand := filepath.Join(filepath.Dir(floorProg), "thousand.bt")
	var text strings.Builder
	text.WriteString("begin {")
	for i := range 1000 {
		fmt.Fprintf(&text, " @x[%d] = %d;", i, i)
	}
	text.WriteString(" exit(); }")
	if err := os.WriteFile(thousand, []byte(text.String()), 0o644); err != nil {
		b.Fatal(err)
	}
	tool := testprog.Command(b, "kprobe/cmd/kprobe")
	for _, c := range []struct {
		name, aim string
		args      []string
	}{
		{"script that ends at once", "10 ms", []string{"script", "-q", "-e", "begin { exit() }"}},
		{"script of 1,000 assignments", "50 ms", []string{"script", "-q", thousand}},
	} {
		b.Run(strings.ReplaceAll(c.name, " ", "-"), func(b *testing.B) {
			started(b, c.name, c.aim, func() error { return exec.Command(tool, c.args...).Run() })
		})
	}
	b.Run("10,000-functions", func(b *testing.B) {
		p := testprog.Start(b, testprog.Build(b, "manyfns", "-O2"))
		s := attach(b, p, kprobe.Options{})
		started(b, "script attached to 10,000 functions", "1,000 ms", func() error {
			compiled, err := script.Compile("uprobe:manyfns:many_* { @ = count(); }", script.Options{Quiet: true, PID: p.Pid})
			if err != nil {
				return err
			}
			r, err := compiled.Start(s)
			if err != nil {
				return err
			}
			b.StopTimer()
			defer b.StartTimer()
			_, err = r.Close()
			return err
		})
	})
}

// started times what is begun, in milliseconds.
func started(b *testing.B, name, aim string, begin func() error) {
	b.Helper()
	var took []float64
	for b.Loop() {
		at := time.Now()
		err := begin()
		took = append(took, milliseconds(time.Since(at)))
		if err != nil {
			b.Fatal(errors.Join(errors.New(name), err))
		}
	}
	b.ReportMetric(slices.Min(took), "least-ms")
	note(name, func(r *row) { r.unit, r.ours, r.aim = "ms", slices.Min(took), aim })
}
