package life

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"kprobe"
	"kprobe/bpf"
	"kprobe/internal/testprog"
	"kprobe/test/harness"
)

// A program that locks all of its memory (databases do) takes in the memory that it shares with us.
// That is as much as its threads and probes need, and not all that is reserved, whether it is
// probed before or after, with maps and rings of threads, and with programs that print.
func TestLockedMemory(t *testing.T) {
	testprog.LocksMemory.Need(t)
	for _, tt := range []struct {
		threads       int
		before, after string
		most          int // MiB
	}{
		{10, "", "1 lock", 64},
		{10, "1 lock", "3 lock", 64},
		{10, "2 lock", "", 64},
		{300, "", "1 lock", 256},
	} {
		t.Run(fmt.Sprintf("%d threads, %q and %q", tt.threads, tt.before, tt.after), func(t *testing.T) {
			p := testprog.Start(t, testprog.Build(t, "crowd", "-O2"), "64")
			lock := func(how string) {
				if how == "" {
					return
				}
				if got := p.Round("%s", how); len(got) != 1 || got[0] != "locked 0" {
					t.Fatalf("%q: %q", how, got)
				}
			}
			p.Round("%d", tt.threads)
			lock(tt.before)
			before := sharedMemory(t, p.Pid)
			s := harness.Attach(t, p.Pid, nil)
			prints := harness.Load(t, s, nil, nil, map[string]string{"prints": `
				*(u64 *)(r10 -8) = 0x21
				r1 = r10; r1 += -8; r2 = 8; r3 = 0; r4 = 0; r5 = 0; call trace_printk
				r0 = 0
				exit`})
			program, err := prints.Program("prints")
			harness.OK(t, err)
			printed := &kprobe.Kprobe{SymbolName: "main", Program: program}
			harness.OK(t, s.Register(printed))
			probes := newCrowd(t, s)
			p.Round("%d", tt.threads)
			lock(tt.after)
			p.Round("%d", tt.threads) // with the memory locked
			probes.check(t, "locked", uint64(2*3*tt.threads))
			if kib := sharedMemory(t, p.Pid); kib > tt.most<<10 {
				t.Errorf("%d KiB of memory in common are there, more than %d MiB", kib, tt.most)
			}
			harness.Detach(t, s)
			if kib := sharedMemory(t, p.Pid); kib > before+16 {
				t.Errorf("%d KiB of shared memory are left, and there were %d", kib, before)
			}
		})
	}
}

// A program that may lock a part of its addresses (RLIMIT_MEMLOCK) may do so when it is probed, too: addresses of ours count.
func TestLockedMemoryWithALimit(t *testing.T) {
	testprog.RaisesLimits.Need(t)
	const limit = 512 << 20
	p := testprog.Start(t, testprog.Build(t, "crowd", "-O2"), "64")
	if got := p.Round("%d limit", limit); len(got) != 1 || got[0] != "limited 0" {
		t.Fatalf("%q", got)
	}
	s := harness.Attach(t, p.Pid, nil)
	hits := &kprobe.Kprobe{SymbolName: "crowd_leaf", Program: kprobe.CountOnly}
	harness.OK(t, s.Register(hits))
	p.Round("10")
	if got := p.Round("1 lock"); len(got) != 1 || got[0] != "locked 0" {
		t.Errorf("%q", got)
	}
	p.Round("10")
	if hits.Hits() != 60 {
		t.Errorf("%d hits of 60", hits.Hits())
	}
}

// Maps of threads are cleared for all of them when a key comes, and not for those that might be: that would make memory.
func TestKeysOfThreadsCostLittle(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "crowd", "-O2"), "64")
	s := harness.Attach(t, p.Pid, nil)
	ps := harness.Load(t, s, []*bpf.MapSpec{{Name: "keys", Type: bpf.PerCPUHash, KeySize: 8, ValueSize: 8, MaxEntries: 4096}}, nil, map[string]string{"counts": `
		r1 = *(u64 *)(ARG1); *(u64 *)(r10 -8) = r1; *(u64 *)(r10 -16) = 1
		r1 = map keys; r2 = r10; r2 += -8; r3 = r10; r3 += -16; r4 = 0; call map_update_elem
		r0 = 0
		exit`})
	program, err := ps.Program("counts")
	harness.OK(t, err)
	hits := &kprobe.Kprobe{SymbolName: "crowd_leaf", Program: program}
	harness.OK(t, s.Register(hits))
	s.WaitOptimized()
	for _, n := range []int{5, 50} {
		p.Round("%d", n)
		if kib := sharedMemory(t, p.Pid); kib > 8<<10 {
			t.Errorf("%d threads: %d KiB of memory in common are there", n, kib)
		}
	}
	keys, err := ps.Map("keys")
	harness.OK(t, err)
	n := 0
	for range keys.All() {
		n++
	}
	if n < 100 || hits.NMissed() != 0 {
		t.Errorf("%d keys, %d missed", n, hits.NMissed())
	}
}

// sharedMemory counts the KiB of shared memory that a process uses.
func sharedMemory(t *testing.T, pid int) (kib int) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	harness.OK(t, err)
	_, line, _ := strings.Cut(string(b), "RssShmem:")
	if _, err := fmt.Sscan(line, &kib); err != nil {
		t.Fatal(err)
	}
	return kib
}
