package bench

import (
	"testing"
	"time"

	"kprobe"
	"kprobe/event"
	"kprobe/internal/testprog"
	"kprobe/trace"
)

// hitFunc is the function of testprog's jumpers that is called in a loop. It
// begins with an instruction that is copied into a slot, and ends with its ret,
// which is emulated.
const hitFunc = "jumper"

func pre(*kprobe.Kprobe, *kprobe.Regs) int { return 0 }

func post(*kprobe.Kprobe, *kprobe.Regs, uint64) {}

// BenchmarkHit is the cost of one hit, by what there is to do: nothing; a
// pre-handler; a post-handler too, for which a copied instruction takes a second
// stop; an emulated instruction (a ret: it reads the stack); a definition that
// reads a register and a text, printed as a trace line. The target has one CPU;
// "pre-apart" is a target, and a floor, that may use all of them.
func BenchmarkHit(b *testing.B) {
	b.Run("empty", func(b *testing.B) { benchHit(b, &kprobe.Kprobe{}) })
	b.Run("pre", func(b *testing.B) {
		ours, bare := benchHit(b, &kprobe.Kprobe{PreHandler: pre})
		leastOf("trap with a pre-handler, by a bare stop", "1.3x", ours, bare)
	})
	b.Run("post", func(b *testing.B) { benchHit(b, &kprobe.Kprobe{PreHandler: pre, PostHandler: post}) })
	b.Run("emulated", func(b *testing.B) {
		ret := symbolOf(b, jumpers(b), hitFunc).size - 1
		benchHit(b, &kprobe.Kprobe{PreHandler: pre, Offset: ret})
	})
	b.Run("emulated-post", func(b *testing.B) {
		ret := symbolOf(b, jumpers(b), hitFunc).size - 1
		benchHit(b, &kprobe.Kprobe{PreHandler: pre, PostHandler: post, Offset: ret})
	})
	b.Run("pre-apart", func(b *testing.B) {
		p := testprog.Start(b, jumpers(b))
		s := attach(b, p, kprobe.Options{})
		kp := &kprobe.Kprobe{SymbolName: hitFunc, PreHandler: pre}
		if err := s.RegisterKprobe(kp); err != nil {
			b.Fatal(err)
		}
		beside(b, floor(b, "apart"), func(hits int) float64 { return timed(b, p, hits) })
		allHit(b, kp.Hits())
	})
	b.Run("event-with-string", func(b *testing.B) {
		p := target(b, jumpers(b))
		s := attach(b, p, kprobe.Options{})
		var line []byte
		var n uint64
		tr := trace.New(s, func(e *event.Event) {
			n++
			line = e.AppendText(line[:0])
		})
		if err := tr.Add("p:hit " + hitFunc + " n=%si round=@command:string"); err != nil {
			b.Fatal(err)
		}
		besideFloor(b, func(hits int) float64 { return timed(b, p, hits) })
		allHit(b, n)
		b.Logf("%s", line)
	})
}

func benchHit(b *testing.B, kp *kprobe.Kprobe) (ours, bare []float64) {
	p := target(b, jumpers(b))
	s := attach(b, p, kprobe.Options{})
	kp.SymbolName = hitFunc
	if err := s.RegisterKprobe(kp); err != nil {
		b.Fatal(err)
	}
	ours, bare = beside(b, floor(b), func(hits int) float64 { return timed(b, p, hits) })
	allHit(b, kp.Hits())
	return ours, bare
}

// BenchmarkReturn is a return probe: the stop at the entry, which swaps the
// return address in the target's memory, and the stop at the return.
func BenchmarkReturn(b *testing.B) {
	p := target(b, jumpers(b))
	s := attach(b, p, kprobe.Options{})
	rp := &kprobe.Kretprobe{Handler: func(*kprobe.KretprobeInstance, *kprobe.Regs) int { return 0 }}
	rp.Kp.SymbolName = hitFunc
	if err := s.RegisterKretprobe(rp); err != nil {
		b.Fatal(err)
	}
	besideFloor(b, func(hits int) float64 { return timed(b, p, hits) })
	allHit(b, rp.Hits())
}

// BenchmarkHitThreads has several threads of the target hit one probe at the
// same time; ns/op is wall time by all their hits, thread creation included.
func BenchmarkHitThreads(b *testing.B) {
	const nthreads = 2
	for _, c := range []struct {
		name string
		o    kprobe.Options
	}{
		{"2", kprobe.Options{}},
		{"2/concurrent", kprobe.Options{Concurrent: true}},
	} {
		b.Run(c.name, func(b *testing.B) {
			p := testprog.Start(b, testprog.Build(b, "threads", "-O2"), "2")
			s := attach(b, p, c.o)
			kp := &kprobe.Kprobe{SymbolName: "hammer_leaf", PreHandler: pre}
			if err := s.RegisterKprobe(kp); err != nil {
				b.Fatal(err)
			}
			besideFloor(b, func(hits int) float64 {
				start := time.Now()
				p.Round("%d", hits/nthreads)
				return float64(time.Since(start)) / float64(hits)
			})
			allHit(b, kp.Hits())
		})
	}
}

func jumpers(b *testing.B) string { return testprog.Build(b, "jumpers", "-O2") }

// allHit holds a benchmark to having measured what it says: each call of its
// rounds, which besideFloor has run one more of, was a hit.
func allHit(b *testing.B, n uint64) {
	b.Helper()
	if want := uint64(b.N+1) * round; n != want {
		b.Errorf("%d hits of %d calls", n, want)
	}
}
