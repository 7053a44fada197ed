package jit

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"kprobe/bpf"
	"kprobe/bpf/bpftest"
	"kprobe/bpf/verify"
	"kprobe/internal/testprog"
)

// The helpers that random programs may call: all that do not need a map.
var plainHelpers = []int32{bpf.FnKtimeGetNs, bpf.FnKtimeGetBootNs, bpf.FnGetPrandomU32, bpf.FnGetSmpProcessorID, bpf.FnGetCurrentPidTgid, bpf.FnGetCurrentUidGid,
	bpf.FnGetFuncIP, bpf.FnGetAttachCookie, bpf.FnGetCurrentComm, bpf.FnProbeRead, bpf.FnProbeReadUser, bpf.FnProbeReadKernelStr}

// Addresses that can be read, that cannot, and at the edges.
var readable = []uint64{0, 0x2000, 0x2ffa, 0x3000, 0xfff, 0xff8, 1<<32 - 8192 - 4, 1 << 32, 1<<64 - 8}

// randomRun is the run of a seed: a program, and a world to run it in. nil: it has more
// paths than the verifier walks, as one of some 100,000 has.
func randomRun(t testing.TB, m *machine, seed uint64, template *world) *run {
	rng := rand.New(rand.NewPCG(seed, 20))
	p := bpftest.Random(rng, bpftest.Options{Size: 5 + rng.IntN(40), Maps: template.layout.Maps, Helpers: plainHelpers, Memory: readable})
	proof, err := verify.Program(p)
	if err != nil {
		if strings.Contains(err.Error(), "too complex") {
			return nil
		}
		t.Fatalf("seed %d: %v", seed, err)
	}
	r, err := newRun(m, proof, randomWorld(t, rng, template))
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	return r
}

// randomMaps are bpftest's but for the perf event array, whose big rings cost more to
// compare than all the rest.
func randomMaps() []*bpf.MapSpec {
	return slices.DeleteFunc(bpftest.Maps(), func(m *bpf.MapSpec) bool { return m.Type == bpf.PerfEventArray })
}

// compareRandom runs the programs of n seeds.
func compareRandom(t *testing.T, m *machine, template *world, first, n uint64) {
	const batch = 200
	refused := uint64(0)
	for seed := first; seed < first+n; seed += batch {
		var runs []*run
		var seeds []uint64
		for i := range min(batch, first+n-seed) {
			if r := randomRun(t, m, seed+i, template); r != nil {
				runs, seeds = append(runs, r), append(seeds, seed+i)
			} else if refused++; refused > 1+n/1000 {
				t.Fatalf("seed %d: %d programs too complex", seed+i, refused)
			}
		}
		m.execute(t, runs)
		for i, r := range runs {
			if err := r.check(); err != nil {
				t.Fatalf("seed %d: %v\n%s", seeds[i], err, r.show(t))
			}
		}
	}
}

// Random programs do the same compiled as interpreted.
func TestRandomPrograms(t *testing.T) {
	n := uint64(20000)
	if testing.Short() {
		n = 1000
	}
	if under.run != nil { // each of two
		n = min(n, 4000) / 2
	}
	m := harness(t)
	compareRandom(t, m, mapWorld(t, randomMaps()...), 0, n)
	compareRandom(t, m, mapWorld(t, bpftest.Maps()...), 1<<32, n/100)
}

// A million of them, and more as long as SOAK says.
func TestSoakRandomPrograms(t *testing.T) {
	n, least := uint64(200), 1
	if testprog.Soak(t, 0) > 0 {
		n, least = 1<<14, 1_000_000>>14
	}
	m := harness(t)
	template := mapWorld(t, randomMaps()...)
	done := uint64(0)
	for range testprog.Rounds(t, 0, least) {
		compareRandom(t, m, template, 1<<40+done, n)
		done += n
	}
	t.Logf("%d programs agree", done)
}

// A program that the verifier accepts does the same, compiled or interpreted.
func FuzzCompile(f *testing.F) {
	for _, p := range programs {
		f.Add(bpf.Marshal(bpftest.MustAssemble(p.text, testMaps...)), uint64(1))
	}
	template := mapWorld(f, testMaps...)
	f.Fuzz(func(t *testing.T, code []byte, seed uint64) {
		insns, err := bpf.Unmarshal(code)
		if err != nil {
			return
		}
		proof, err := verify.Program(&bpf.Program{Name: "fuzz", Insns: insns, Maps: testMaps})
		if err != nil {
			return
		}
		m := harness(t)
		r, err := newRun(m, proof, randomWorld(t, rand.New(rand.NewPCG(seed, 21)), template))
		if err != nil {
			t.Fatal(err)
		}
		compare(t, m, []*run{r})
	})
}
