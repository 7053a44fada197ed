package inject_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"kprobe/arch"
	"kprobe/internal/inject"
	"kprobe/internal/segment"
)

// The ways to know a thread, as code.
func TestKeyCode(t *testing.T) {
	h := startHost(t, testLayout)
	for _, tt := range []struct {
		key  segment.ThreadKey
		dead arch.RegSet
		want []string
	}{
		{segment.ThreadKey{Kind: segment.FSSelf}, 0, []string{"mov rcx,QWORD PTR fs:0x0"}},
		{segment.ThreadKey{Kind: segment.FSSelf}, arch.SetOf(arch.R9), []string{"mov r9,QWORD PTR fs:0x0"}},
		{segment.ThreadKey{Kind: segment.FSBase}, 0, []string{"rdfsbase rcx"}},
		{segment.ThreadKey{Kind: segment.FSBase}, arch.SetOf(arch.R9), []string{"rdfsbase r9"}},
		{segment.ThreadKey{Kind: segment.CPU, Offset: 0x1234}, arch.SetOf(arch.R9) | arch.SetOf(arch.R10), []string{"mov r9d,DWORD PTR gs:0x1234", "mov r10,QWORD PTR [r10+r9*8+", "lock inc QWORD PTR [r10+"}},
		{segment.ThreadKey{Kind: segment.CPU, Offset: -64}, 0, []string{"mov ecx,DWORD PTR gs:0xffffffffffffffc0", "mov rdx,QWORD PTR [rdx+rcx*8+"}},
	} {
		d := h.detour("f_lea", inject.Detour{Hits: 3, Missed: inject.NoCounter, Key: tt.key, Dead: tt.dead})
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

// A CPU is known by its number; whose is nobody's counts as lost. The thread here is given
// a gs base for it.
func TestKeyOfCPU(t *testing.T) {
	const offset = 20
	for _, dead := range []arch.RegSet{0, arch.SetOf(arch.R10) | arch.SetOf(arch.R11)} {
		h := startHost(t, testLayout)
		d := h.arm(h.detour("f_lea", inject.Detour{Hits: 3, Missed: inject.NoCounter, Key: segment.ThreadKey{Kind: segment.CPU, Offset: offset}, Dead: dead, DeadFlags: dead != 0}))
		if !h.seg.AssignCPU(0) || !h.seg.AssignCPU(2) || h.seg.AssignCPU(segment.MaxCPUs) {
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

// Threads run while they are given other keys, and while those are asked for.
func TestKeysChangeUnderThreads(t *testing.T) {
	h := startHost(t, testLayout)
	h.arm(h.detour("f_push", inject.Detour{Hits: 5, Missed: 4, Programs: []inject.Program{h.program(clobber)}, Return: &inject.Return{Max: 5, Missed: 7, Hits: 8}}))
	const threads, n = 4, 200000
	h.say("start %d", threads)
	var tids, keys [threads]uint64
	for i := range threads {
		tids[i], keys[i] = h.tid(i+1), h.key(i+1)
		h.seg.Assign(segment.Thread{Key: keys[i], TID: int(tids[i])})
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
