package amd64

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"kprobe/arch"
	"kprobe/internal/isa"
	"kprobe/internal/testprog"
)

// The machine as the tests' judge: testdata/native.c runs an instruction in
// its place and its slot from one and the same state, and everything that a
// program can see must come out the same.

// world says where instructions, slots and memory are.
type world struct {
	name       string
	mode       int
	text       arch.Addr // the instruction stands in the middle of this page
	near, far  arch.Addr // slots within rel32 reach and out of it
	data       arch.Addr
	stack      arch.Addr
	cs         uint64
	instrAt    arch.Addr // the instruction under test
	landings   arch.Addr // a page of int3 to jump to, away from text: that differs between the runs
	nativeProc *native
}

const (
	pageSize = 4096

	// Linux gives these selectors to 64-bit and 32-bit programs.
	linuxCS64, linuxCS32, linuxSS = 0x33, 0x23, 0x2b

	// signal numbers and codes of Linux
	sigTrap, trapInt3 = 5, 0x80
)

// Addresses that push imm32 can sign-extend, and addresses that it cannot.
var (
	lowWorld  = newWorld("low", 64, 0x10000000, 0x30000000, 0x5000_0000_0000, 0x20000000, 0x28000000, linuxCS64)
	highWorld = newWorld("high", 64, 0x7e00_1000_0000, 0x7e00_3000_0000, 0x5000_0000_0000, 0x7e00_2000_0000, 0x6d00_0000_0000, linuxCS64)
	world32   = newWorld("32-bit", 32, 0x10000000, 0x30000000, 0xb0000000, 0x20000000, 0x28000000, linuxCS32)
	worlds64  = []*world{lowWorld, highWorld}
)

func newWorld(name string, mode int, text, near, far, data, stack arch.Addr, cs uint64) *world {
	return &world{name: name, mode: mode, text: text, near: near, far: far, data: data, stack: stack, cs: cs,
		instrAt: text + pageSize/2, landings: text + 16*pageSize}
}

// machine386 is the ISA of a machine with 4-byte pointers.
var machine386 = func() isa.ISA {
	a := *arch.AMD64
	a.PtrSize = 4
	return New(&a)
}()

func (w *world) machine() isa.ISA {
	if w.mode == 32 {
		return machine386
	}
	return ISA
}

// userRegs are the registers as struct user_regs_struct has them; -1 stands
// for what arch.Regs does not hold.
var userRegs = [27]arch.Reg{
	arch.R15, arch.R14, arch.R13, arch.R12, arch.BP, arch.BX, arch.R11, arch.R10, arch.R9, arch.R8,
	arch.AX, arch.CX, arch.DX, arch.SI, arch.DI, arch.OrigAX, arch.IP, arch.CS, arch.FLAGS, arch.SP,
	arch.SS, arch.FSBase, arch.GSBase, arch.DS, arch.ES, arch.FS, arch.GS,
}

// state is all that an instruction can see and change.
type state struct {
	regs   arch.Regs
	vector []byte // as the regset NT_X86_XSTATE has it
	data   []byte // the data page
	stack  []byte // the stack page

	signal, sigCode int
	sigAddr         arch.Addr
}

func (s *state) clone() *state {
	c := *s
	c.vector, c.data, c.stack = bytes.Clone(s.vector), bytes.Clone(s.data), bytes.Clone(s.stack)
	return &c
}

// piece is code and where it stands.
type piece struct {
	at   arch.Addr
	code []byte
}

// native is the running test program.
type native struct {
	in      *bufio.Writer
	out     *bufio.Reader
	initial []byte // vector state of a new process

	// unseen flags are not compared: ptrace cannot set ID, and RF comes of how the state was
	// loaded.
	unseen uint64
	// anyStack tells whether a breakpoint is reported whatever the stack pointer is.
	anyStack bool
}

// compileNative builds the test program into a directory that goes with the
// test; the running program does not need the file.
func compileNative(t testing.TB) (string, error) {
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		return "", err
	}
	exe := filepath.Join(t.TempDir(), "native")
	if out, err := exec.Command(gcc, "-O1", "-o", exe, "testdata/native.c").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return exe, nil
}

// here are the worlds that this machine has.
func here(t testing.TB, worlds ...*world) []*world {
	return slices.DeleteFunc(worlds, func(w *world) bool { return w.mode == 32 && !testprog.Programs32.On(t) })
}

// open starts the test program for the world, once for all tests. It ends
// when the tests do, because its input ends then.
func (w *world) open(t testing.TB) *native {
	t.Helper()
	if w.mode == 32 {
		testprog.Programs32.Need(t)
	}
	if w.nativeProc != nil {
		return w.nativeProc
	}
	exe, err := compileNative(t)
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skipf("running instructions natively needs gcc and an x86-64 Linux: %v", err)
	}
	args := []string{}
	for _, r := range []struct {
		kind string
		at   arch.Addr
	}{{"x", w.text}, {"x", w.landings}, {"x", w.near}, {"x", w.far}, {"d", w.data}, {"d", w.stack}} {
		args = append(args, fmt.Sprintf("%s:%x:%x", r.kind, uint64(r.at), pageSize))
	}
	cmd := exec.Command(exe, args...)
	in, out := testprog.StartPiped(t, cmd)
	n := &native{unseen: flagRF | flagID, anyStack: true, in: bufio.NewWriterSize(in, 1<<16), out: bufio.NewReaderSize(out, 1<<16)}
	size, err := n.read64()
	if err == nil {
		n.initial = make([]byte, size)
		_, err = io.ReadFull(n.out, n.initial)
	}
	if err != nil {
		t.Fatal("native: ", err)
	}
	w.nativeProc = n
	n.getToKnow(t, w)
	return n
}

// getToKnow finds out in which ways the system departs from a processor, as some hypervisors do.
func (n *native) getToKnow(t testing.TB, w *world) {
	s := w.random(n, rand.New(rand.NewPCG(1, 1)))
	nop := piece{w.instrAt, []byte{0x90}}
	s.regs[arch.FLAGS] = 0x202 | flagNT
	if n.run(t, s, nop).regs[arch.FLAGS]&flagNT == 0 {
		t.Logf("%sa breakpoint keeps the flag NT: it comes back as 0", testprog.NotHere)
		n.unseen |= flagNT
	}
	s.regs[arch.FLAGS] = 0x202
	s.regs[arch.SP] = 1 << 63
	if n.run(t, s, nop).signal != sigTrap {
		t.Logf("%sa breakpoint with a stack pointer that is no address: another signal comes", testprog.NotHere)
		n.anyStack = false
	}
}

func (n *native) read64() (uint64, error) {
	var b [8]byte
	_, err := io.ReadFull(n.out, b[:])
	return binary.LittleEndian.Uint64(b[:]), err
}

func (n *native) write64(v uint64) { n.in.Write(binary.LittleEndian.AppendUint64(nil, v)) }

// run lets the CPU go on from s with the given code in the text pages.
func (n *native) run(t testing.TB, s *state, pieces ...piece) *state {
	t.Helper()
	for _, r := range userRegs {
		n.write64(s.regs[r])
	}
	n.in.Write(s.vector)
	n.in.Write(s.data)
	n.in.Write(s.stack)
	n.write64(uint64(len(pieces)))
	for _, p := range pieces {
		n.write64(uint64(p.at))
		n.write64(uint64(len(p.code)))
		n.in.Write(p.code)
	}
	if err := n.in.Flush(); err != nil {
		t.Fatalf("native: %v", err)
	}
	var head [3]uint64
	var err error
	for i := range head {
		if head[i], err = n.read64(); err != nil {
			t.Fatalf("native: %v (running % x)", err, pieces[0].code)
		}
	}
	e := s.clone()
	e.signal, e.sigCode, e.sigAddr = int(head[0]), int(int32(head[1])), arch.Addr(head[2])
	for _, r := range userRegs {
		if e.regs[r], err = n.read64(); err != nil {
			t.Fatal(err)
		}
	}
	for _, b := range [][]byte{e.vector, e.data, e.stack} {
		if _, err := io.ReadFull(n.out, b); err != nil {
			t.Fatal(err)
		}
	}
	// An int3 that code ran into is reported behind it. An int3 that is under
	// test itself is not: that is how it behaves.
	if e.signal == sigTrap && e.sigCode == trapInt3 {
		pc := e.regs.Addr(arch.IP) - 1
		inside := false
		for _, p := range pieces {
			inside = inside || pc >= p.at && pc < p.at+arch.Addr(len(p.code))
		}
		if !inside {
			e.regs[arch.IP] = uint64(pc)
		}
	}
	e.regs[arch.FLAGS] &^= n.unseen
	return e
}

// random makes a state in which much that instructions do comes off: pointers
// into data, stack and code are everywhere, between small and wild numbers.
func (w *world) random(n *native, rng *rand.Rand) *state {
	s := &state{vector: bytes.Clone(n.initial), data: make([]byte, pageSize), stack: make([]byte, pageSize)}
	mask := ^uint64(0) >> (64 - w.mode)
	word := func() uint64 {
		switch rng.IntN(9) {
		case 8: // a far pointer
			return (w.cs<<32 | uint64(uint32(w.landings))) & mask
		case 0, 1:
			return uint64(w.data) + 1024 + uint64(rng.IntN(2048))&^15
		case 2:
			return uint64(w.stack) + 1024 + uint64(rng.IntN(2048))&^15
		case 3, 4:
			return uint64(w.landings) + 1024 + uint64(rng.IntN(2048))
		case 5:
			return uint64(rng.IntN(256))
		case 6:
			return -uint64(rng.IntN(256)) & mask
		}
		return rng.Uint64() & mask
	}
	for r := arch.AX; r <= arch.R15; r++ {
		s.regs[r] = word()
	}
	if rng.IntN(2) == 0 {
		s.regs[arch.CX] = uint64(rng.IntN(4)) // counts
		if rng.IntN(2) == 0 {
			s.regs[arch.CX] |= rng.Uint64() & mask << (16 + 16*uint(rng.IntN(2))) & mask // of a narrower register
		}
	}
	s.regs[arch.SP] = uint64(w.stack) + 1024 + uint64(rng.IntN(2048))&^7
	s.regs[arch.IP] = uint64(w.instrAt)
	s.regs[arch.CS], s.regs[arch.SS] = w.cs, linuxSS
	if w.mode == 32 {
		s.regs[arch.DS], s.regs[arch.ES] = linuxSS, linuxSS
	}
	s.regs[arch.FLAGS] = 0x202 | rng.Uint64()&(flagCF|flagPF|flagAF|flagZF|flagSF|flagOF|flagDF)
	if rng.IntN(16) == 0 {
		s.regs[arch.FLAGS] |= flagNT &^ n.unseen // iret refuses
	}
	s.regs[arch.OrigAX] = ^uint64(0) // in no system call
	if w.mode == 64 {
		s.regs[arch.FSBase], s.regs[arch.GSBase] = uint64(w.data)+512, uint64(w.stack)+512
	}
	for i := 0; i < pageSize; i += 8 {
		binary.LittleEndian.PutUint64(s.data[i:], word())
		// The flags that popf takes from the stack must not turn on single-stepping, nor alignment
		// checks: the absolute jump would not pass them.
		binary.LittleEndian.PutUint64(s.stack[i:], word()&^(flagTF|flagAC))
	}
	if rng.IntN(4) == 0 {
		// The words that far returns pop: IP, CS, flags, SP, SS, in words of some size.
		size := 2 << rng.IntN(3)
		at := s.regs[arch.SP] % pageSize
		for i, v := range []uint64{uint64(w.landings) + 512, w.cs, rng.Uint64() &^ (flagTF | flagAC), word(), linuxSS} {
			var b [8]byte
			binary.LittleEndian.PutUint64(b[:], v)
			copy(s.stack[at+uint64(i*size):], b[:size])
		}
	}
	s.randomVector(rng)
	return s
}

// Offsets in the vector state (the standard form of xsave, Intel SDM vol. 1, 13.4): x87 control and
// tags, ST0, XMM0, the header, the upper halves of YMM0 and on, and the word in which Linux tells
// the CPU's features.
const (
	vecTags, vecLastInsn, vecLastEnd = 4, 6, 24
	vecST, vecXMM, vecHeader, vecYMM = 32, 160, 512, 576
	vecFeatures                      = 464
)

func (s *state) randomVector(rng *rand.Rand) {
	v := s.vector
	features := binary.LittleEndian.Uint64(v[vecFeatures:])
	fill := func(b []byte) {
		for i := 0; i < len(b); i += 8 {
			binary.LittleEndian.PutUint64(b[i:], rng.Uint64())
		}
	}
	fill(v[vecXMM : vecXMM+256])
	if features&4 != 0 {
		fill(v[vecYMM : vecYMM+256])
	}
	v[vecTags] = byte(rng.Uint32())
	for i := 0; i < 8; i++ {
		st := v[vecST+16*i:]
		binary.LittleEndian.PutUint64(st, 1<<63|rng.Uint64())
		binary.LittleEndian.PutUint16(st[8:], uint16(0x3ff0+rng.IntN(32)))
	}
	binary.LittleEndian.PutUint64(v[vecHeader:], features&7)
}

// differs names the differences that a program could see, "" if there are none.
func (s *state) differs(o *state) string {
	for _, r := range userRegs {
		if s.regs[r] != o.regs[r] && !bothNull(r, s.regs[r], o.regs[r]) {
			return fmt.Sprintf("%s is %#x, want %#x", arch.AMD64.RegName(r), o.regs[r], s.regs[r])
		}
	}
	if s.signal != o.signal || s.sigCode != o.sigCode || s.sigAddr != o.sigAddr {
		return fmt.Sprintf("signal %d code %d at %v, want %d code %d at %v",
			o.signal, o.sigCode, o.sigAddr, s.signal, s.sigCode, s.sigAddr)
	}
	for _, c := range []struct {
		name      string
		want, got []byte
	}{{"data", s.data, o.data}, {"stack", s.stack, o.stack}, {"vector", s.vector, o.vector}} {
		if i := firstDifference(c.want, c.got, c.name == "vector"); i >= 0 {
			return fmt.Sprintf("%s differs at %#x: % x, want % x", c.name, i, c.got[i:i+8], c.want[i:i+8])
		}
	}
	return ""
}

// bothNull says that two segment registers select nothing. 0 to 3 do; which of
// them is read back depends on whether an interrupt came in between: a return
// from the kernel makes 1 to 3 a 0 (Intel SDM vol. 2, IRET; so does a switch of
// threads).
func bothNull(r arch.Reg, a, b uint64) bool {
	return r >= arch.DS && r <= arch.GS && a <= 3 && b <= 3
}

// firstDifference is an offset rounded down to 8, or -1. In the vector state
// the x87's last instruction pointer is the known trace of a slot, and which
// parts the CPU tracked as unused is its own affair.
func firstDifference(a, b []byte, vector bool) int {
	if bytes.Equal(a, b) {
		return -1
	}
	for i := range a {
		known := vector && (i >= vecLastInsn && i < vecLastEnd || i >= vecHeader && i < vecHeader+8)
		if a[i] != b[i] && !known {
			return i &^ 7
		}
	}
	return -1
}

// translate turns a state that was found in or behind the slot into the state that the program must
// be shown, by the verdict's marks.
func translate(before, after *state, slot arch.Addr, v *isa.Verdict, ptrSize int) error {
	off := int(after.regs[arch.IP] - uint64(slot))
	if off < 0 || off >= len(v.Code) {
		return nil
	}
	for _, m := range v.Marks {
		if m.Off != off {
			continue
		}
		if after.sigAddr == after.regs.Addr(arch.IP) {
			after.sigAddr = m.PC
		}
		after.regs[arch.IP] = uint64(m.PC)
		if m.SP != 0 {
			// The half-done push left its word below the stack pointer.
			if m.SP != ptrSize {
				return fmt.Errorf("mark at %d undoes %d bytes", off, m.SP)
			}
			o := after.regs[arch.SP] - stackBase(before)
			copy(after.stack[o:o+uint64(m.SP)], before.stack[o:])
			after.regs[arch.SP] += uint64(m.SP)
		}
		return nil
	}
	return fmt.Errorf("stopped at slot+%d, where there is no mark", off)
}

// stackBase is the page that SP points into.
func stackBase(s *state) uint64 { return s.regs[arch.SP] &^ (pageSize - 1) }

// stateMemory is the memory of a state for emulation: the data and the stack
// page, and the page of int3.
type stateMemory struct {
	w        *world
	s        *state
	landings []byte
}

var errUnmapped = errors.New("not mapped")

func (m *stateMemory) at(a arch.Addr, n int) ([]byte, error) {
	for _, r := range []struct {
		base arch.Addr
		b    []byte
	}{{m.w.data, m.s.data}, {m.w.stack, m.s.stack}, {m.w.landings, m.landings}} {
		if a-r.base <= arch.Addr(pageSize-n) {
			return r.b[a-r.base:][:n], nil
		}
	}
	return nil, errUnmapped
}

func (m *stateMemory) ReadAt(a arch.Addr, p []byte) error {
	b, err := m.at(a, len(p))
	copy(p, b)
	return err
}

func (m *stateMemory) WriteAt(a arch.Addr, p []byte) error {
	b, err := m.at(a, len(p))
	copy(b, p)
	return err
}
