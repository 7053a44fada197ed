package inject_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"

	"kprobe/arch"
	"kprobe/bpf"
	"kprobe/internal/inject"
	arm64code "kprobe/internal/inject/arm64"
	"kprobe/internal/jit"
	"kprobe/internal/segment"
	"kprobe/internal/testprog"
	"kprobe/internal/testprog/qemurun"
)

// The tests of helpers run once more for arm64, with its routines under QEMU's user mode: TestARM64Helpers
// sets the variable.
const arm64Variable = "KPROBE_TEST_ARM64"

func foreign() bool { return hostMachine == arm64code.ARM64 }

// needARM64 is for tests that run code of arm64.
func needARM64(t testing.TB) {
	t.Helper()
	for _, tool := range []string{"qemu-aarch64", "aarch64-linux-gnu-gcc"} {
		_, err := exec.LookPath(tool)
		testprog.Need(t, tool+" runs code of arm64", err == nil)
	}
}

// TestARM64Helpers are what helpers answer, and what they leave in memory.
func TestARM64Helpers(t *testing.T) {
	if foreign() {
		t.Fatal("it runs itself")
	}
	needARM64(t)
	args := []string{"-test.v", "-test.run=^(TestReads|TestWrites|TestStackID|TestMaps|TestLock|TestRings|TestSmallHelpers|TestMapWalk|TestPrintTexts|TestARM64Identify)$"}
	if testing.Short() {
		args = append(args, "-test.short")
	}
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), arm64Variable+"=1")
	out, err := cmd.CombinedOutput()
	if n := bytes.Count(out, []byte("\n--- PASS")); err != nil || n != 10 {
		t.Errorf("%v, %d passed:\n%s", err, n, out)
	}
}

// Where its code is, and where it stops.
const (
	foreignArea = arch.Addr(0x4100_0000)
	foreignEnd  = foreignArea + areaRoom/2 // behind the code
)

// foreignHost is one whose code QEMU runs. Its segment is in the memory of both, and is carried over.
func foreignHost(t testing.TB, l segment.Layout) *host {
	t.Helper()
	needARM64(t)
	h := &host{TB: t, pid: 4711, foreign: qemurun.ARM64(t)}
	var err error
	if h.seg, err = segment.New(&arm64code.ARM64.Machine, l, arch.Addr(hostSegment), make([]byte, l.Size()), h.pid); err != nil {
		t.Fatal(err)
	}
	h.seg.SetReadsBase()
	h.foreign.Map(hostSegment, uint64(l.Size()))
	h.foreign.Map(uint64(foreignArea), areaRoom)
	h.area = (&inject.Target{Machine: arm64code.ARM64, Segment: h.seg}).Area(foreignArea)
	h.put(h.area.Addr, h.area.Image())
	h.next = h.area.Addr + arch.Addr(segment.RoundUp(h.area.Size(), 64))
	return h
}

// headParts are the parts of a segment's head that threads with some keys work with: all of it where one of them is known by its id.
func headParts(s *segment.Segment, keys ...uint64) [][2]int {
	parts := [][2]int{{0, segment.HeadTable}, {s.StatesAt(), s.StatesAt() + s.Stride()}}
	for _, key := range keys {
		if key == 0 {
			return [][2]int{{0, s.AwayAt()}}
		}
		start := segment.HeadTable + s.Hash(key)
		parts = append(parts, [2]int{start, start + segment.TableWindow*segment.EntrySize})
	}
	return parts
}

// foreignDriver calls helpers one by one, from a state's private stack.
func foreignDriver(t testing.TB, maps ...*bpf.MapSpec) *driver {
	t.Helper()
	h := foreignHost(t, segment.Layout{Threads: 4, Counters: 16, Extra: extra})
	h.seg.Assign(segment.Thread{Key: 0x1000, TID: h.pid, Comm: "host"})
	return &driver{host: h, maps: h.maps(maps...)}
}

// called does what was listed. What a routine must keep it finds changed registers by.
func (d *driver) called() (answers []uint64, faults int) {
	d.Helper()
	m, state := d.foreign, d.seg.StateAddr(0)
	used := d.used()
	for _, r := range used {
		m.Write(hostSegment+uint64(r[0]), d.seg.Mem[r[0]:r[1]])
	}
	m.Write(uint64(foreignEnd), arch.ARM64.Break)
	rnd := rand.New(rand.NewPCG(1, 3))
	for _, c := range d.calls {
		var s qemurun.State
		for i := range s.X {
			s.X[i] = rnd.Uint64()
		}
		copy(s.X[:5], c[1:6])
		s.X[28], s.X[30] = uint64(state), uint64(foreignEnd)
		s.SP, s.PC = uint64(state-arm64code.ARM64.TargetSP()), c[0]
		before := s
		for {
			stop := m.Run(&s)
			if stop.Signal == qemurun.SIGTRAP && s.PC == uint64(foreignEnd) {
				break
			}
			to, ok := d.area.Fixup(arch.Addr(s.PC))
			if !ok || stop.Signal != qemurun.SIGSEGV && stop.Signal != qemurun.SIGBUS {
				d.Fatalf("%+v at %#x, which is %#x of the routines", stop, s.PC, s.PC-uint64(d.area.Addr)-inject.AreaCode)
			}
			faults++
			s.PC = uint64(to)
		}
		if !bytes.Equal(words64(s.X[18:30]), words64(before.X[18:30])) || s.SP != before.SP || s.V != before.V {
			d.Fatalf("the routine at %#x changes what it must keep:\n%x\n%x", c[0], before, s)
		}
		answers = append(answers, s.X[jitResult])
	}
	for _, r := range used {
		copy(d.seg.Mem[r[0]:r[1]], m.Read(hostSegment+uint64(r[0]), r[1]-r[0]))
	}
	d.calls, d.buffers = nil, 0
	return answers, faults
}

// used are the parts of the segment that helpers may read or write: from, to.
func (d *driver) used() [][2]int {
	at := d.seg.ExtraAt()
	const chain = bufferAt + 1<<20 // TestStackID's
	return append(headParts(d.seg), [][2]int{{d.seg.AwayAt(), at + int(d.maps.Size)}, {at + bufferAt, at + bufferAt + d.buffers}, {at + chain, at + chain + 1<<10}, {d.seg.StatesAt(), d.seg.Size()}}...)
}

// jitResult is the register of a helper's answer.
const jitResult = 7

func words64(ws []uint64) (b []byte) {
	for _, w := range ws {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	return b
}

// A thread finds its state: one that is known, by its pointer; a new one, which enters itself; one that shares its
// pointer or has none, by its id; and none is left where the table is full. The registers of the program are kept.
func TestARM64Identify(t *testing.T) {
	if !foreign() {
		needARM64(t)
		return // in TestARM64Helpers
	}
	h := foreignHost(t, segment.Layout{Threads: 3, Counters: 4})
	h.seg.SetCareful(false)
	h.put(h.area.Addr, h.area.Image())
	// What a program does before it asks is to set the pointer: msr tpidr_el0, x9.
	const setPointer = 0xd51bd049
	code := binary.LittleEndian.AppendUint32(nil, setPointer)
	at := h.code(64)
	jump, err := hostISA.Jump(at+4, h.area.Routine("identify"))
	if err != nil {
		t.Fatal(err)
	}
	h.put(at, append(code, jump...))
	h.foreign.Write(uint64(foreignEnd), arch.ARM64.Break)
	identify := func(pointer uint64) (state arch.Addr, key uint64) {
		t.Helper()
		h.foreign.Write(hostSegment, h.seg.Mem)
		var s qemurun.State
		for i := range s.X {
			s.X[i] = 0x0101_0101_0101_0101 * uint64(i)
		}
		s.X[9], s.X[30], s.SP, s.PC, s.PState = pointer, uint64(foreignEnd), uint64(foreignEnd)-256, uint64(at), 0x6000_0000
		before := s
		if stop := h.foreign.Run(&s); stop.Signal != qemurun.SIGTRAP || s.PC != uint64(foreignEnd) {
			t.Fatalf("%+v at %#x", stop, s.PC)
		}
		copy(h.seg.Mem, h.foreign.Read(hostSegment, len(h.seg.Mem)))
		for _, r := range []int{0, 1, 2} {
			before.X[r] = s.X[r]
		}
		before.PC = s.PC
		if s != before {
			t.Fatalf("registers have changed:\n%x\n%x", before, s)
		}
		return arch.Addr(s.X[1]), s.X[0]
	}
	number := func(state arch.Addr) int { return h.seg.NumberOf(uint64(state)) }
	known := h.seg.Assign(segment.Thread{Key: 0x7000_0010, TID: 1})
	if s, _ := identify(0x7000_0010); number(s) != known {
		t.Errorf("a known thread has the state %v", s)
	}
	s, _ := identify(0x7000_0020)
	if n := number(s); n != known+1 || n != h.seg.Find(0x7000_0020) || h.seg.Get(h.seg.State(n)+jit.StatePidTgid)>>32 != uint64(h.pid) ||
		uint32(h.seg.Get(h.seg.State(n)+jit.StatePidTgid)) == 0 {
		t.Errorf("a new thread has the state %d", n)
	}
	if again, _ := identify(0x7000_0020); again != s {
		t.Errorf("it comes again, and has %v", again)
	}
	identify(0)
	byID, id := identify(0)
	if number(byID) != 2 || id != h.seg.IDKey(int(uint32(h.seg.Get(h.seg.State(2)+jit.StatePidTgid)))) {
		t.Errorf("one without a pointer has the state %d by %#x", number(byID), id)
	}
	for _, odd := range []uint64{1, 0x7000_0013} {
		if s, key := identify(odd); s != byID || key != id {
			t.Errorf("with the pointer %#x it is %d by %#x", odd, number(s), key)
		}
	}
	h.seg.Share(0x7000_0010, 1)
	if s, key := identify(0x7000_0010); s != byID || key != id {
		t.Errorf("with a pointer that is shared it is %d by %#x", number(s), key)
	}
	if s, _ := identify(0x7000_0030); number(s) != h.seg.Threads {
		t.Errorf("one too many has the state %d", number(s))
	}
}
