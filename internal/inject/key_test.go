package inject

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"kprobe/arch"
)

// The ways to know a thread, as code.
func TestKeyCode(t *testing.T) {
	h := startHost(t, testLayout)
	for _, tt := range []struct {
		key  ThreadKey
		dead arch.RegSet
		want []string
	}{
		{ThreadKey{Kind: FSSelf}, 0, []string{"mov rcx,QWORD PTR fs:0x0"}},
		{ThreadKey{Kind: FSSelf}, arch.SetOf(arch.R9), []string{"mov r9,QWORD PTR fs:0x0"}},
		{ThreadKey{Kind: FSBase}, 0, []string{"rdfsbase rcx"}},
		{ThreadKey{Kind: FSBase}, arch.SetOf(arch.R9), []string{"rdfsbase r9"}},
		{ThreadKey{Kind: GoM, Offset: 48}, 0, []string{"mov rcx,QWORD PTR fs:0xfffffffffffffff8", "mov rcx,QWORD PTR [rcx+0x30]"}},
		{ThreadKey{Kind: CPU, Offset: 0x1234}, arch.SetOf(arch.R9) | arch.SetOf(arch.R10), []string{"mov r9d,DWORD PTR gs:0x1234", "mov r10,QWORD PTR [r10+r9*8+", "lock inc QWORD PTR [r10+"}},
		{ThreadKey{Kind: CPU, Offset: -64}, 0, []string{"mov ecx,DWORD PTR gs:0xffffffffffffffc0", "mov rdx,QWORD PTR [rdx+rcx*8+"}},
	} {
		d := h.detour("f_lea", Detour{Hits: 3, Missed: NoCounter, Key: tt.key, Dead: tt.dead})
		code, err := d.Code()
		if err != nil {
			t.Fatal(err)
		}
		list := strings.Join(strings.Fields(disassemble(t, d.At, code)), " ")
		for _, w := range tt.want {
			if !strings.Contains(list, w) {
				t.Errorf("%+v: no %s in %s", tt.key, w, list)
			}
		}
	}
}

// A thread of a Go program is known by its m. The thread here is given an fs base
// of our own for it.
func TestKeyOfGo(t *testing.T) {
	h := startHost(t, testLayout)
	const offset = 48
	d := h.arm(h.detour("f_lea", Detour{Hits: 3, Missed: NoCounter, Key: ThreadKey{Kind: GoM, Offset: offset}}))
	s := h.step()
	start, stack := s.entry("f_lea", rand.New(rand.NewPCG(1, 1)))
	s.poke(s.stack, stack)
	tls := s.stack + 3*stackSizeOfTests
	g, m := tls+64, uint64(0x1234560)
	s.poke(tls-8, binary.LittleEndian.AppendUint64(nil, uint64(g)))
	s.poke(g+offset, binary.LittleEndian.AppendUint64(nil, m))
	s.home.Fs_base = uint64(tls)
	n := h.seg.Assign(Thread{Key: m, TID: 5})
	s.setRegs(&start)
	s.run()
	if h.seg.Find(m) != n || h.seg.get(h.seg.state(n)+counter(d.Hits)) != 1 {
		t.Errorf("not counted by state %d", n)
	}
}

// A CPU is known by its number; whose is nobody's counts as lost. The thread here is given
// a gs base for it.
func TestKeyOfCPU(t *testing.T) {
	const offset = 20
	for _, dead := range []arch.RegSet{0, arch.SetOf(arch.R10) | arch.SetOf(arch.R11)} {
		h := startHost(t, testLayout)
		d := h.arm(h.detour("f_lea", Detour{Hits: 3, Missed: NoCounter, Key: ThreadKey{Kind: CPU, Offset: offset}, Dead: dead, DeadFlags: dead != 0}))
		if !h.seg.AssignCPU(0) || !h.seg.AssignCPU(2) || h.seg.AssignCPU(MaxCPUs) {
			t.Fatal("the wrong CPUs have states")
		}
		s := h.step()
		base := s.stack + 3*stackSizeOfTests
		s.home.Gs_base = uint64(base)
		var sum, lost uint64
		for number, counts := range []bool{true, false, true} {
			start, stack := s.entry("f_lea", rand.New(rand.NewPCG(1, 1)))
			s.poke(s.stack, stack)
			s.poke(base+offset, binary.LittleEndian.AppendUint32(nil, uint32(number)))
			s.setRegs(&start)
			s.run()
			if counts {
				sum++
			} else {
				lost++
			}
			if n, l := h.seg.Counter(d.Hits); n != sum || l != lost {
				t.Errorf("after CPU %d: %d, and %d lost, want %d, %d", number, n, l, sum, lost)
			}
		}
	}
}

// Keys come and go; those alive always have a state of their own, as long as
// there are enough.
func TestKeysComeAndGo(t *testing.T) {
	const threads = 100
	l := Layout{Threads: threads, Counters: 1}
	s, err := NewSegment(AMD64, l, 0x10000, make([]byte, l.Size()), 77)
	if err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	var keys []uint64         // of threads that are alive
	alive := map[uint64]int{} // their states
	rounds := 50000
	if testing.Short() {
		rounds = 5000
	}
	for range rounds {
		key := 0x7f0000000000 + rnd.Uint64N(1<<24)<<6
		_, known := alive[key]
		switch {
		case len(alive) == threads || rnd.IntN(2) == 0:
			if i := rnd.IntN(len(keys) + 1); i < len(keys) {
				if keys[i]%128 == 0 {
					s.Release(keys[i])
				} else {
					s.Forget(alive[keys[i]] + 1000)
				}
				delete(alive, keys[i])
				keys = slices.Delete(keys, i, i+1)
			}
		case !known:
			n := s.Assign(Thread{Key: key})
			if n < 0 {
				t.Fatalf("no state with %d of %d in use", len(alive), threads)
			}
			if again := s.Assign(Thread{Key: key, TID: 1000 + n}); again != n {
				t.Fatalf("state %d, then %d", n, again)
			}
			alive[key] = n
			keys = append(keys, key)
		}
		used := map[int]bool{}
		for k, n := range alive {
			if used[n] || s.Find(k) != n {
				t.Fatalf("key %#x has state %d, not %d, or not alone", k, s.Find(k), n)
			}
			used[n] = true
		}
	}
}

// Two threads turn out to have one thread pointer. Whatever the first of them had looked up before,
// or looks up now, it has one state; the second never gets that.
func TestSharedPointer(t *testing.T) {
	l := Layout{Threads: 100, Counters: 1}
	s, err := NewSegment(AMD64, l, 0x10000, make([]byte, l.Size()), 77)
	if err != nil {
		t.Fatal(err)
	}
	s.SetReadsBase()
	alone := func(uint64) int { return 1 }
	for n := range 3 * maxShared { // more than there is room for
		pointer, first, second := uint64(0x1000*(n+1)), 1000+2*n, 1001+2*n
		i := s.Assign(Thread{Key: s.KeyOf(pointer, false, first), TID: first})
		s.Share(pointer, first)
		j := s.Assign(Thread{Key: s.KeyOf(pointer, false, second), TID: second})
		if i < 0 || j < 0 || i == j || s.Find(s.IDKey(first)) != i || s.Find(s.IDKey(second)) != j {
			t.Fatalf("pair %d: states %d and %d; by their ids they have %d and %d", n, i, j, s.Find(s.IDKey(first)), s.Find(s.IDKey(second)))
		}
		if found := s.Find(pointer); found != i && n < maxShared {
			t.Fatalf("pair %d: who was on its way by the pointer finds %d, not %d", n, found, i)
		}
		if n == maxShared/2 {
			s.Settle(func(uint64) int { return 2 })
			if !s.shared(pointer) || s.Find(pointer) >= 0 || s.Find(s.IDKey(first)) != i {
				t.Errorf("settled, the pointer leads to %d and the id to %d", s.Find(pointer), s.Find(s.IDKey(first)))
			}
		}
		if n%3 == 0 { // the first ends, and its state is another's
			s.Forget(first)
			if s.Find(pointer) >= 0 || s.Find(s.IDKey(first)) >= 0 {
				t.Fatalf("pair %d: a dead thread's keys lead to states %d and %d", n, s.Find(pointer), s.Find(s.IDKey(first)))
			}
		}
		s.Forget(second)
	}
	s.Settle(alone)
	if !s.Settled() || s.shared(0x1000) {
		t.Error("a pointer of one thread is not its key again")
	}
}

// Threads run while they are given other keys, and while those are asked for.
func TestKeysChangeUnderThreads(t *testing.T) {
	h := startHost(t, testLayout)
	h.arm(h.detour("f_push", Detour{Hits: 5, Missed: 4, Programs: []Program{h.program(clobber)}, Return: &Return{Max: 5, Missed: 7, Hits: 8}}))
	const threads, n = 4, 200000
	h.say("start %d", threads)
	var tids, keys [threads]uint64
	for i := range threads {
		tids[i], keys[i] = h.tid(i+1), h.key(i+1)
		h.seg.Assign(Thread{Key: keys[i], TID: int(tids[i])})
	}
	mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", h.pid), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	over := make(chan struct{})
	go func() {
		defer close(over)
		h.expectSum("f_push", threads, n, 0, 5, threads*sums(n, 5))
	}()
	for careful := true; ; careful = !careful {
		select {
		case <-over:
			h.expectCounter(8, threads*n)
			for _, c := range []int{4, 7} {
				h.expectCounter(c, 0)
			}
			h.expectCalls(0)
			h.say("stop")
			return
		default:
		}
		if careful {
			h.seg.ByID()
		} else {
			for i := range threads {
				h.seg.Rekey(h.seg.IDKey(int(tids[i])), keys[i])
			}
		}
		h.seg.SetCareful(careful)
		if _, err := mem.WriteAt([]byte{h.seg.CarefulByte()}, int64(h.area.CarefulAt())); err != nil {
			t.Fatal(err)
		}
	}
}
