package bpf_test

import (
	"math/rand/v2"
	"testing"

	"kprobe/bpf"
	"kprobe/bpf/bpftest"
	"kprobe/bpf/verify"
)

// pageEdge are addresses in, at the end of and outside the page.
var pageEdge = []uint64{bpftest.PageAddr, bpftest.PageAddr + bpftest.PageText, bpftest.PageAddr + 4090, bpftest.PageAddr + 4096, bpftest.PageAddr - 1, 0, 1 << 63, 1<<64 - 4}

// context is 21 words of numbers.
func context(r *rand.Rand) []byte {
	b := make([]byte, 168)
	for i := range b {
		b[i] = byte(r.Uint32())
		if i%8 > 2 && r.IntN(2) == 0 {
			b[i] = 0
		}
	}
	return b
}

// The generator is right, the verifier accepts right programs, and the interpreter does as the
// verifier has proved: it never faults.
func TestRandomProgramsRun(t *testing.T) {
	n := 3000
	if testing.Short() {
		n = 200
	}
	seen := map[uint8]bool{}
	for seed := range n {
		r := rand.New(rand.NewPCG(uint64(seed), 1))
		o := bpftest.Options{Maps: bpftest.Maps(), Memory: pageEdge, Helpers: plainHelpers}
		p := bpftest.Random(r, o)
		for _, i := range p.Insns {
			seen[i.Op] = true
		}
		proof, err := verify.Program(p)
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, bpftest.Listing(p))
		}
		vm := bpftest.Machine(t, proof)
		for range 3 {
			if _, err := vm.Run(context(r)); err != nil {
				t.Fatalf("seed %d: %v\n%s", seed, err, bpftest.Listing(p))
			}
		}
	}
	if len(seen) < 100 {
		t.Errorf("only %d different opcodes", len(seen))
	}
}

var plainHelpers = []int32{bpf.FnKtimeGetNs, bpf.FnGetPrandomU32, bpf.FnGetSmpProcessorID, bpf.FnGetCurrentPidTgid, bpf.FnGetCurrentUidGid,
	bpf.FnGetFuncIP, bpf.FnGetAttachCookie, bpf.FnGetCurrentComm, bpf.FnProbeRead, bpf.FnProbeReadUser, bpf.FnProbeReadUserStr, bpf.FnProbeReadKernelStr}

// A program changed at random is refused, or runs without a fault: the proof holds.
func TestChangedProgramsAreSafe(t *testing.T) {
	n := 3000
	if testing.Short() {
		n = 500
	}
	accepted := 0
	for seed := range n {
		r := rand.New(rand.NewPCG(uint64(seed), 2))
		p := bpftest.Random(r, bpftest.Options{Size: 8, Maps: bpftest.Maps(), Memory: pageEdge, Helpers: plainHelpers})
		for range 1 + r.IntN(3) {
			i := &p.Insns[r.IntN(len(p.Insns))]
			switch r.IntN(6) {
			case 0:
				i.Dst = uint8(r.IntN(11))
			case 1:
				i.Src = uint8(r.IntN(11))
			case 2:
				i.Off += int16(r.IntN(64)) - 32
			case 3:
				i.Imm += int32(r.IntN(64)) - 32
			case 4:
				i.Op ^= 1 << r.IntN(8)
			case 5:
				*i = p.Insns[r.IntN(len(p.Insns))]
			}
		}
		proof, err := verify.Program(p)
		if err != nil {
			continue
		}
		accepted++
		vm := bpftest.Machine(t, proof)
		vm.MaxSteps = verify.MaxStates
		if _, err := vm.Run(context(r)); err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, bpftest.Listing(p))
		}
	}
	t.Logf("%d of %d accepted", accepted, n)
	if accepted < n/20 || accepted > n*19/20 {
		t.Errorf("%d of %d accepted: the changes are too wild, or too tame", accepted, n)
	}
}
