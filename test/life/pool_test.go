package life

import (
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"kprobe"
	"kprobe/bpf"
	"kprobe/internal/testprog"
	"kprobe/test/harness"
)

// byKey counts in a hash that every process has, by the low bits of the function's argument and of its process's id.
const byKey = `
	r6 = r1
	call get_current_pid_tgid
	r0 >>= 32
	*(u64 *)(r10 -8) = r0
	r1 = map by_pid
	r2 = r10
	r2 += -8
	call map_lookup_elem
	if r0 != 0 goto there
	*(u64 *)(r10 -16) = 0
	r1 = map by_pid
	r2 = r10
	r2 += -8
	r3 = r10
	r3 += -16
	r4 = 1
	call map_update_elem
	r1 = map by_pid
	r2 = r10
	r2 += -8
	call map_lookup_elem
	if r0 == 0 goto end
there:
	r1 = 1
	lock fetch_add *(u64 *)(r0 +0), r1
	*(u32 *)(r10 -4) = 0
	r1 = map all
	r2 = r10
	r2 += -4
	call map_lookup_elem
	if r0 == 0 goto end
	r1 = 1
	lock fetch_add *(u64 *)(r0 +0), r1
	*(u32 *)(r10 -4) = 0
	r1 = map own
	r2 = r10
	r2 += -4
	call map_lookup_elem
	if r0 == 0 goto end
	r1 = *(u64 *)(r0 +0)
	r1 += 1
	*(u64 *)(r0 +0) = r1
end:
	r0 = 0
	exit`

// Several processes work on one set of maps at the same time: what they count there is exact, what each has of its
// own is its own, and one that comes later or is killed changes nothing of that.
func TestPool(t *testing.T) {
	maps := []*bpf.MapSpec{
		{Name: "own", Type: bpf.PerCPUArray, KeySize: 4, ValueSize: 8, MaxEntries: 1},
		{Name: "by_pid", Type: bpf.Hash, KeySize: 8, ValueSize: 8, MaxEntries: 64},
		{Name: "ring", Type: bpf.RingBuf, MaxEntries: 4096},
		{Name: "all", Type: bpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1},
		{Name: "apart", Type: bpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1, Apart: true},
	}
	p, err := harness.Assembled("count", bpf.Kprobe, byKey, maps...)
	harness.OK(t, err)
	pool, err := kprobe.NewPool(&bpf.Collection{Maps: maps, Programs: []*bpf.Program{p}})
	harness.OK(t, err)
	defer func() { harness.OK(t, pool.Close()) }()

	type one struct {
		*testprog.Proc
		s  *kprobe.Session
		ps *kprobe.Programs
		n  uint64
	}
	join := func() *one {
		o := &one{Proc: testprog.Start(t, testprog.Build(t, "threads", "-O2"), "3")}
		o.s = harness.Attach(t, o.Pid, nil)
		o.ps, err = o.s.LoadPooled(pool)
		harness.OK(t, err)
		program, err := o.ps.Program("count")
		harness.OK(t, err)
		harness.OK(t, o.s.RegisterKprobe(&kprobe.Kprobe{SymbolName: "hammer_add", Program: program}))
		return o
	}
	const each, calls = 3000, 3 * 3000
	all := []*one{join(), join()}
	work := func(some ...*one) {
		var wg sync.WaitGroup
		for _, o := range some {
			o.n += calls
			wg.Go(func() { o.Round(fmt.Sprint(each)) })
		}
		wg.Wait()
	}
	word := func(m *bpf.Map, err error, key []byte) (n uint64) {
		t.Helper()
		harness.OK(t, err)
		v, err := m.Lookup(key)
		harness.OK(t, err)
		return binary.LittleEndian.Uint64(v)
	}
	look := func(when string) {
		t.Helper()
		want := uint64(0)
		for _, o := range all {
			want += o.n
			by, err := o.ps.Map("by_pid")
			if n := word(by, err, binary.LittleEndian.AppendUint64(nil, uint64(o.Pid))); n != o.n {
				t.Errorf("%s: process %d has counted %d, want %d", when, o.Pid, n, o.n)
			}
			own, err := o.ps.Map("own")
			harness.OK(t, err)
			threads, err := own.Threads(make([]byte, 4))
			harness.OK(t, err)
			sum := uint64(0)
			for _, v := range threads {
				sum += binary.LittleEndian.Uint64(v)
			}
			if sum != o.n {
				t.Errorf("%s: the threads of process %d have %d of their own, want %d", when, o.Pid, sum, o.n)
			}
		}
		of, err := all[0].ps.Map("all")
		if n := word(of, err, make([]byte, 4)); n != want {
			t.Errorf("%s: %d in all, want %d", when, n, want)
		}
		for i, m := range maps {
			if m.Name == "all" {
				if n := word(pool.Segment().Map(i), nil, make([]byte, 4)); n != want {
					t.Errorf("%s: the controller sees %d, want %d", when, n, want)
				}
			}
		}
	}
	work(all...)
	look("two")
	for _, o := range all {
		harness.OK(t, o.s.WaitOptimized())
	}
	work(all...)
	look("by jumps")
	all = append(all, join())
	work(all...)
	look("three")

	// What is not the pool's is not seen by others.
	for i, o := range all {
		m, err := o.ps.Map("apart")
		harness.OK(t, err)
		harness.OK(t, m.Update(make([]byte, 4), binary.LittleEndian.AppendUint64(nil, uint64(i+1)), bpf.UpdateAny))
	}
	for i, o := range all {
		m, err := o.ps.Map("apart")
		if n := word(m, err, make([]byte, 4)); n != uint64(i+1) {
			t.Errorf("a map apart of session %d has %d", i, n)
		}
	}

	// A process that ends leaves its counts.
	gone := all[0]
	harness.Errno(t, gone.ps.Free(), syscall.EBUSY)
	harness.OK(t, syscall.Kill(gone.Pid, syscall.SIGKILL))
	<-gone.s.Done()
	harness.OK(t, gone.s.Close())
	look("one is gone")
	all[1].n, all[2].n = all[1].n+calls, all[2].n+calls
	all[1].Round(fmt.Sprint(each))
	all[2].Round(fmt.Sprint(each))
	late := join()
	all = append(all, late)
	work(late) // with a key that was not there
	look("after that")
	harness.OK(t, gone.ps.Free())
	all = all[1:]

	for _, o := range all {
		harness.OK(t, o.s.Close())
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", o.Pid))
		harness.OK(t, err)
		if strings.Contains(string(text), "SYSV") {
			t.Errorf("process %d keeps memory of ours:\n%s", o.Pid, text)
		}
		harness.Ends(t, o.Proc)
	}
}
