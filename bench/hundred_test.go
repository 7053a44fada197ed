package bench

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"kprobe"
	"kprobe/internal/testprog"
)

// most is how many probes one process gets.
const most = 100_000

// buildMost makes a program of so many functions, f0 to f99999, which waits.
func buildMost(b *testing.B) string {
	b.Helper()
	dir := b.TempDir()
	var s bytes.Buffer
	fmt.Fprintf(&s, "\t.intel_syntax noprefix\n\t.text\n")
	for i := range most {
		fmt.Fprintf(&s, "\t.p2align 4\n\t.globl f%d\n\t.type f%d,@function\nf%d:\tlea eax, [rdi+%d]\n\timul eax, edi\n\tret\n\t.size f%d,.-f%d\n", i, i, i, i, i, i)
	}
	fmt.Fprint(&s, "\t.section .note.GNU-stack,\"\",@progbits\n")
	const mainC = "#include <stdio.h>\nint main(void) { puts(\"ready\"); fflush(stdout); getchar(); return 0; }\n"
	for name, text := range map[string][]byte{"most.S": s.Bytes(), "main.c": []byte(mainC)} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			b.Fatal(err)
		}
	}
	out := filepath.Join(dir, "most")
	if msg, err := exec.Command("gcc", "-O1", filepath.Join(dir, "main.c"), filepath.Join(dir, "most.S"), "-o", out).CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, msg)
	}
	return out
}

// BenchmarkHundredThousand is 100,000 counting probes on one process: to bring them, to make jumps of them, to
// take them out, and what they take of the target's and of the controller's memory.
func BenchmarkHundredThousand(b *testing.B) {
	p := testprog.StartCmd(b, exec.Command(buildMost(b)))
	p.Expect("ready")
	s, watch := attachWatched(b, p, kprobe.Options{})
	kps := make([]*kprobe.Kprobe, most)
	for i := range kps {
		kps[i] = &kprobe.Kprobe{SymbolName: fmt.Sprintf("f%d", i), Program: kprobe.CountOnly}
	}
	steps := []step{
		{name: "register", do: func() error { return s.RegisterKprobes(kps) }},
		{name: "optimize", do: func() error { s.WaitOptimized(); return nil }},
		{name: "unregister", do: func() error { return s.UnregisterKprobes(kps) }},
	}
	theirs, heap, ours, peak := uint64(0), uint64(0), 0.0, 0.0
	for b.Loop() {
		before, mine := residentOf(b, p.Pid), residentMB()
		var m, m0 runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m0)
		stop := make(chan float64)
		go func() { stop <- peakMB(stop) }()
		for i := range steps {
			steps[i].run(b, watch)
			if steps[i].name != "optimize" || theirs != 0 {
				continue
			}
			stop <- 0
			peak = <-stop - mine
			theirs = residentOf(b, p.Pid) - before
			runtime.GC()
			runtime.ReadMemStats(&m)
			heap, ours = m.HeapInuse-m0.HeapInuse, residentMB()-mine
		}
	}
	for _, st := range steps {
		b.ReportMetric(median(st.total), st.name+"-ms")
		b.ReportMetric(median(st.stopped), st.name+"-stop-ms")
		note(st.name+" 100,000 jump probes", func(r *row) { r.unit, r.ours = "ms", median(st.total) })
		note(st.name+" 100,000 jump probes, longest stop", func(r *row) { r.unit, r.ours = "ms", median(st.stopped) })
	}
	b.ReportMetric(float64(theirs)/most, "B/probe")
	b.ReportMetric(float64(heap)/most, "controller-B/probe")
	note("memory of one of 100,000 in the target", func(r *row) { r.unit, r.ours = "B", float64(theirs)/most })
	note("live memory of one in the controller", func(r *row) { r.unit, r.ours = "B", float64(heap)/most })
	note("controller's memory for 100,000, then", func(r *row) { r.unit, r.ours = "MB", ours })
	note("controller's memory for 100,000, at most", func(r *row) { r.unit, r.ours = "MB", peak })
}

// peakMB looks at this process's resident memory until it is told to stop.
func peakMB(stop <-chan float64) (peak float64) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return max(peak, residentMB())
		case <-tick.C:
			peak = max(peak, residentMB())
		}
	}
}
