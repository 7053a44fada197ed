package inside

import (
	"encoding/binary"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"kprobe"
	"kprobe/bpf"
	"kprobe/internal/testprog"
	"kprobe/test/harness"
)

// dataTexts are a program for the entry that keeps the function's argument in the call's
// private data, of a size, at its end, if nothing is there yet; and one for the return, that
// writes down what is there, with the result.
func dataTexts(size int) (entry, exit string) {
	find := fmt.Sprintf("r2 = %d; call call_data; r0 += %d; ", size, size-8)
	return "r6 = *(u64 *)(r1 +112); " + find + "r7 = *(u64 *)(r0 +0); if r7 == 0 goto fresh; r6 = -1; fresh: *(u64 *)(r0 +0) = r6; r0 = 0; exit",
		"r6 = *(u64 *)(r1 +80); " + find + `r7 = *(u64 *)(r0 +0); *(u64 *)(r10 -16) = r7; *(u64 *)(r10 -8) = r6;
			r1 = map pairs; r2 = r10; r2 += -16; r3 = 16; r4 = 0; call ringbuf_output; r0 = 0; exit`
}

// Programs at a function's entry and at its return share what belongs to the call, however
// many calls are under way, in whichever engine: recursion, and threads. Several probes at one
// function have their own.
func TestPrivateDataOfPrograms(t *testing.T) {
	fib := func(n uint64) uint64 {
		a, b := uint64(0), uint64(1)
		for range n {
			a, b = b, a+b
		}
		return a
	}
	for _, c := range []struct {
		program, round, function string
		args                     []string
		result                   func(arg uint64) uint64
	}{
		{"rets", "3", "ret_fib", nil, fib},
		{"threads", "100", "hammer_mul", []string{"4"}, func(a uint64) uint64 { return a*2862933555777941757 + 3037000493 }},
	} {
		for _, engine := range []kprobe.Engine{kprobe.EngineSwap, kprobe.EngineExits} {
			t.Run(fmt.Sprintf("%s/%d", c.function, engine), func(t *testing.T) {
				p := testprog.Start(t, testprog.Build(t, c.program, "-O2"), c.args...)
				want := p.Round(c.round)
				s := harness.Attach(t, p.Pid, nil)
				var rps []*kprobe.Kretprobe
				var rings []*bpf.Reader
				for _, size := range []int{8, 64, 4} {
					asked := max(size, 8)
					entry, exit := dataTexts(asked)
					ps := harness.Load(t, s, []*bpf.MapSpec{{Name: "pairs", Type: bpf.RingBuf, MaxEntries: 1 << 22}},
						map[string]bpf.Kind{"exit": bpf.Kretprobe}, map[string]string{"entry": entry, "exit": exit})
					rp := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: c.function}, MaxActive: 100, DataSize: size, Engine: engine}
					var err error
					rp.EntryProgram, err = ps.Program("entry")
					harness.OK(t, err)
					rp.Program, err = ps.Program("exit")
					harness.OK(t, err)
					if size < asked {
						harness.Errno(t, s.RegisterKretprobe(rp), syscall.EINVAL)
						continue
					}
					pairs, err := ps.Map("pairs")
					harness.OK(t, err)
					ring, err := bpf.NewReader(pairs)
					harness.OK(t, err)
					harness.OK(t, s.RegisterKretprobe(rp))
					rps, rings = append(rps, rp), append(rings, ring)
				}
				for i := range 3 {
					if i > 0 { // by traps, then by jumps
						s.WaitOptimized()
					}
					if got := harness.Round(t, s, p, c.round); strings.Join(got, "\n") != strings.Join(want, "\n") {
						t.Errorf("round %d: %q, want %q", i, got, want)
					}
				}
				for i, ring := range rings {
					n := uint64(0)
					for {
						rec, more, err := ring.Read()
						harness.OK(t, err)
						if !more {
							break
						}
						n++
						arg, got := binary.LittleEndian.Uint64(rec.Data), binary.LittleEndian.Uint64(rec.Data[8:])
						if want := c.result(arg); got != want {
							t.Fatalf("probe %d, call %d: %s(%d) is %d, want %d", i, n, c.function, arg, got, want)
						}
					}
					if n < 100 || n != rps[i].Hits() || rps[i].NMissed() != 0 {
						t.Errorf("probe %d: %d records of %d returns, %d missed", i, n, rps[i].Hits(), rps[i].NMissed())
					}
				}
				harness.Detach(t, s)
			})
		}
	}
}

// Private data is a return probe's, and as much as it has.
func TestPrivateDataIsThere(t *testing.T) {
	p, s := harness.Jumper(t, nil)
	entry, exit := dataTexts(3000)
	ps := harness.Load(t, s, []*bpf.MapSpec{{Name: "pairs", Type: bpf.RingBuf, MaxEntries: 1 << 12}},
		map[string]bpf.Kind{"exit": bpf.Kretprobe}, map[string]string{"entry": entry, "exit": exit})
	in, err := ps.Program("entry")
	harness.OK(t, err)
	out, err := ps.Program("exit")
	harness.OK(t, err)
	harness.Errno(t, s.RegisterKprobe(&kprobe.Kprobe{SymbolName: "jumper", Program: in}), syscall.EINVAL)
	probe := func(size int) *kprobe.Kretprobe {
		return &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "jumper"}, EntryProgram: in, Program: out, DataSize: size}
	}
	harness.Errno(t, s.RegisterKretprobe(probe(0)), syscall.EINVAL)
	harness.Errno(t, s.RegisterKretprobe(probe(2999)), syscall.EINVAL)
	harness.OK(t, s.RegisterKretprobe(probe(3000)))
	// A call of both would need more than there is for one.
	second := probe(3000)
	second.Engine = kprobe.EngineSwap
	harness.Errno(t, s.RegisterKretprobe(second), syscall.EINVAL)
	if got := harness.Round(t, s, p, "10")[0]; got != fmt.Sprintf("jumper 10 %d", harness.SumOf(10)) {
		t.Errorf("%q", got)
	}
	harness.Detach(t, s)
}
