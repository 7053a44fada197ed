package bpf_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"kprobe/bpf"
	"kprobe/bpf/bpftest"
)

// listing is a program as a report shows it.
func listing(p *bpf.Program) string {
	var b strings.Builder
	for pc, i := range p.Insns {
		if s := i.String(); s != "" {
			fmt.Fprintf(&b, "%4d  %s\n", pc, s)
		}
	}
	return b.String()
}

// machine is an interpreter with maps, and a target to read: a page with a string
// at pageAddr, nothing around it.
func machine(t testing.TB, proof *bpf.Proof) *bpf.VM {
	t.Helper()
	l, err := bpf.Arrange(proof.Program.Maps, 3)
	if err != nil {
		t.Fatal(err)
	}
	seg, err := l.Bind(make([]byte, l.Size), 0x7f0000000000)
	if err != nil {
		t.Fatal(err)
	}
	if err := seg.Init(); err != nil {
		t.Fatal(err)
	}
	page := make([]byte, 4096)
	for i := range page {
		page[i] = byte(i*7)%100 + 1
	}
	copy(page[pageText:], "some text\x00")
	clock := uint64(1000)
	return &bpf.VM{Proof: proof, Segment: seg, StackTop: 0x7e0000001000, Ctx: 0x7d0000000000, Env: bpf.Env{
		PidTgid: 1000<<32 | 1001, UidGid: 5<<32 | 6, Comm: "redis-server", CPU: 3, Slot: 1, FuncIP: 0x401000, Cookie: 77,
		Read: func(addr uint64, p []byte) error {
			if addr < pageAddr || addr-pageAddr > 4096 || uint64(len(p)) > 4096-(addr-pageAddr) {
				return fmt.Errorf("no memory at %#x", addr)
			}
			copy(p, page[addr-pageAddr:])
			return nil
		},
		Now:    func(int32) uint64 { clock++; return clock },
		Random: func() uint32 { clock++; return uint32(clock * 2654435761) },
	}}
}

const (
	pageAddr = 0x10000
	pageText = 100
)

// pageEdge are addresses in, at the end of and outside the page.
var pageEdge = []uint64{pageAddr, pageAddr + pageText, pageAddr + 4090, pageAddr + 4096, pageAddr - 1, 0, 1 << 63, 1<<64 - 4}

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

// The generator is right, the verifier accepts what is right, and the interpreter
// does what the verifier has proved: it never faults.
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
		proof, err := bpf.Verify(p)
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, listing(p))
		}
		vm := machine(t, proof)
		for range 3 {
			if _, err := vm.Run(context(r)); err != nil {
				t.Fatalf("seed %d: %v\n%s", seed, err, listing(p))
			}
		}
	}
	if len(seen) < 100 {
		t.Errorf("only %d different opcodes", len(seen))
	}
}

var plainHelpers = []int32{bpf.FnKtimeGetNs, bpf.FnGetPrandomU32, bpf.FnGetSmpProcessorID, bpf.FnGetCurrentPidTgid, bpf.FnGetCurrentUidGid,
	bpf.FnGetFuncIP, bpf.FnGetAttachCookie, bpf.FnGetCurrentComm, bpf.FnProbeRead, bpf.FnProbeReadUser, bpf.FnProbeReadUserStr, bpf.FnProbeReadKernelStr}

// A program changed at random is refused, or runs without a fault: what is proved holds.
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
		proof, err := bpf.Verify(p)
		if err != nil {
			continue
		}
		accepted++
		vm := machine(t, proof)
		vm.MaxSteps = bpf.MaxStates
		if _, err := vm.Run(context(r)); err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, listing(p))
		}
	}
	t.Logf("%d of %d accepted", accepted, n)
	if accepted < n/20 || accepted > n*19/20 {
		t.Errorf("%d of %d accepted: the changes are too wild, or too tame", accepted, n)
	}
}
