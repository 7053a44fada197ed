package jit

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"kprobe/arch"
	"kprobe/bpf"
	"kprobe/internal/asm/x86"
	"kprobe/internal/testprog"
)

// Compiled programs run in the program of testdata/run.c, and are compared with the interpreter.

// Where things are in the harness.
const (
	codeAt    = 0x10000000
	stackAt   = 0x20000000 // its top
	contextAt = 0x30000000
	dataAt    = contextAt + 2048 // CALL_DATA of testdata/run.c
)

// machineVariable has the tests compile for another machine than x86-64, and run that: TestI386,
// TestARM64 and TestRISCV64 set it.
const machineVariable = "KPROBE_TEST_MACHINE"

// subject is a machine whose compiler is tested.
type subject struct {
	machine *Machine
	cc      []string // builds the harness
	run     []string // runs it
	objdump []string
	segment uint64
	mask    uint64 // of what a register holds
	names   []string
	reg     func(i int) arch.Reg // that the harness has at an index
	result  int                  // where a program's result is, and so on
	state   int
	context int
	stack   int
	above   uint64 // how far the stack pointer is above R10 at the end
	link    int    // the register that a call changes by itself; -1
	inlined func(*bpf.Proof, *Env) func(slot int) (regSet, bool)
	length  func(t testing.TB, code []byte) int
}

var subjects = map[string]*subject{
	"": {machine: AMD64, cc: []string{"gcc", "-m64", "-mgeneral-regs-only"}, segment: 0x123456780000, mask: 1<<64 - 1, // no short form of a constant reaches the segment
		objdump: []string{"objdump", "-m", "i386:x86-64", "-M", "intel"},
		names:   regNames[8], reg: func(i int) arch.Reg { return x86.Reg(i).Arch() },
		result: int(x86.RAX), state: int(x86.R12), context: int(x86.RDI), stack: int(x86.RSP), above: 8, link: -1,
		inlined: func(p *bpf.Proof, env *Env) func(int) (regSet, bool) {
			return newCompiler(p, env).inlined
		},
		length: lengthAt},
	"386": {machine: I386, cc: []string{"gcc", "-m32", "-mgeneral-regs-only"}, segment: 0x60000000, mask: 1<<32 - 1,
		objdump: []string{"objdump", "-m", "i386", "-M", "intel"},
		names:   regNames[8][:8], reg: func(i int) arch.Reg { return x86.Reg(i).Arch() },
		result: int(x86.RAX), state: int(x86.RBP), context: int(x86.RAX), stack: int(x86.RSP), above: 4 + align386, link: -1,
		inlined: func(p *bpf.Proof, env *Env) func(int) (regSet, bool) {
			return newNarrow(p, env).inlined
		},
		length: lengthAt},
	"arm64": {machine: ARM64, cc: []string{"aarch64-linux-gnu-gcc", "-mgeneral-regs-only", "-Wl,-Ttext-segment=0xc000000"}, run: []string{"qemu-aarch64"}, segment: 0x123456780000, mask: 1<<64 - 1,
		objdump: []string{"aarch64-linux-gnu-objdump", "-m", "aarch64"},
		names:   arch.ARM64.RegNames[:32], reg: func(i int) arch.Reg { return arch.Reg(i) },
		result: int(regs64[bpf.R0]), state: int(state64), context: 0, stack: 31, link: int(link64),
		inlined: func(p *bpf.Proof, env *Env) func(int) (regSet, bool) {
			return newCompiler64(p, env, &asm64{}, nil).inlined
		},
		length: func(testing.TB, []byte) int { return 4 }},
	// The harness has registers that its own code would reckon addresses from at any values.
	"riscv64": {machine: RISCV64, cc: []string{"riscv64-linux-gnu-gcc", "-Wl,-Ttext-segment=0xc000000", "-Wl,--no-relax"}, run: []string{"qemu-riscv64"}, segment: 0x12345678000, mask: 1<<64 - 1,
		objdump: []string{"riscv64-linux-gnu-objdump", "-m", "riscv:rv64"},
		names:   arch.RISCV64.RegNames[:32], reg: func(i int) arch.Reg { return arch.Reg(i) },
		result: int(placesRV.regs[bpf.R0]), state: int(rvState), context: int(placesRV.regs[bpf.R1]), stack: int(rvStack), link: int(rvLink),
		inlined: func(p *bpf.Proof, env *Env) func(int) (regSet, bool) {
			return newCompiler64(p, env, &asmRV{}, nil).inlined
		},
		length: func(testing.TB, []byte) int { return 4 }},
}

// emulated is said after the name of an x86 machine whose code QEMU runs.
const emulated = " emulated"

// under is the machine under test.
var under = func() *subject {
	name, byQEMU := strings.CutSuffix(os.Getenv(machineVariable), emulated)
	s := *subjects[name]
	if byQEMU {
		s.run = []string{"qemu-i386"}
	}
	return &s
}()

var segmentAt = under.segment

// compileHere compiles for the machine under test.
func compileHere(p *bpf.Proof, env *Env) (*Code, error) {
	return under.machine.Compile(p, env)
}

// inlinedHere tells whether a helper call is compiled in place.
func inlinedHere(p *bpf.Proof, env *Env) func(slot int) bool {
	f := under.inlined(p, env)
	return func(slot int) bool { _, inline := f(slot); return inline }
}

// job is a run: its input and its output, as struct job there.
type job struct {
	Size                   uint64
	Repeat, Entry, Emptied uint64
	Code, Segment, Call    uint64

	Status     uint64
	Signal, PC uint64
	Calls, ID  uint64
	Args       [5]uint64
	Depth, Ns  uint64
	Regs       [32]uint64
	Context    [8 * ContextWords]byte
	State      [512]byte
}

const (
	jobDone     = 1
	jobCrashed  = 2
	jobMismatch = 3
)

type replayCall struct {
	ID     uint64
	Args   [5]uint64
	Result uint64
	Exact  uint64
	Writes uint64
}

type replayWrite struct{ Arg, Off, Size uint64 }

// machine is the harness.
type machine struct {
	sync.Mutex
	in             io.Writer
	out            io.Reader
	routines, each uint64
	functions      [4]uint64 // native_empty, native_count, native_record, native_hash
}

var native struct {
	sync.Once
	*machine
}

// startHarness is the harness at work, or nil where it ended before it began.
func startHarness(t testing.TB, exe string) *machine {
	t.Helper()
	args := append(slices.Clone(under.run), exe, fmt.Sprintf("%x", codeAt), fmt.Sprintf("%x", segmentAt), fmt.Sprintf("%x", stackAt), fmt.Sprintf("%x", contextAt))
	cmd := exec.Command(args[0], args[1:]...)
	in, out := testprog.StartPiped(t, cmd)
	var said [6]uint64
	if err := binary.Read(out, binary.LittleEndian, &said); err != nil {
		t.Log("harness: ", errors.Join(err, cmd.Wait()))
		return nil
	}
	return &machine{in: in, out: out, routines: said[0], each: said[1], functions: [4]uint64(said[2:])}
}

// harness starts the machine, once for all tests. It ends when the tests do,
// because its input ends then.
func harness(t testing.TB) *machine {
	t.Helper()
	native.Do(func() {
		exe := filepath.Join(t.TempDir(), "run")
		args := append(slices.Clone(under.cc), "-O2", "-Wall", "-Werror", "-static", "-no-pie", "-fno-pie", "-o", exe, "testdata/run.c")
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", args[0], err, out)
		}
		// The kernel may have put something where the harness wants its memory: elsewhere next
		// time.
		for try := 0; native.machine == nil && try < 20; try++ {
			native.machine = startHarness(t, exe)
		}
	})
	if native.machine == nil {
		t.Fatal("no harness")
	}
	return native.machine
}

// routine is the address at which the harness answers a helper's calls.
func (m *machine) routine(id int32) (arch.Addr, bool) {
	return arch.Addr(m.routines + numberOf(id)*m.each), true
}

// numberOf is the harness's number of a helper: ours, which are beyond the kernel's, are the last.
func numberOf(id int32) uint64 {
	if id < bpf.FnCallData {
		return uint64(id)
	}
	return uint64(id - bpf.FnCallData + 240)
}

// execute runs programs. A program's outcome follows from its input, so a program that goes wrong
// does so again. If it does not, it was not wrong: under a nested hypervisor code of 32 bits that
// adds two registers got a SIGSEGV, once. And one of 2,000 programs of TestAtomics computed
// something else, once in some 200 runs of the test, beside ten busy processes.
func (m *machine) execute(t testing.TB, runs []*run) {
	t.Helper()
	m.Lock()
	defer m.Unlock()
	m.batch(t, runs)
	var wrong []*run
	for _, r := range runs {
		if err := r.check(); err != nil && r.repeat == 0 {
			t.Logf("%v: it runs once more", err)
			wrong = append(wrong, r)
		}
	}
	if len(wrong) > 0 {
		m.batch(t, wrong)
	}
}

func (m *machine) batch(t testing.TB, runs []*run) {
	t.Helper()
	var b bytes.Buffer
	for _, r := range runs {
		b.Write(r.encode(t))
	}
	batch := b.Bytes()
	answers := make([]byte, len(batch))
	got := make(chan error, 1)
	go func() {
		_, err := io.ReadFull(m.out, answers)
		got <- err
	}()
	if err := binary.Write(m.in, binary.LittleEndian, [2]uint64{uint64(len(batch)), uint64(len(runs))}); err != nil {
		t.Fatal("harness: ", err)
	}
	if _, err := m.in.Write(batch); err != nil {
		t.Fatal("harness: ", err)
	}
	if err := <-got; err != nil {
		t.Fatal("harness: ", err)
	}
	for _, r := range runs {
		r.decode(t, answers[:r.job.Size])
		answers = answers[r.job.Size:]
	}
}

const efault = 1<<64 - bpf.EFAULT

const harnessComm = "harness" // the thread's name

// world is the input of a run.
type world struct {
	context [8 * ContextWords]byte
	segment []byte // initialised by Bind and Init; nil where there are no maps
	layout  *bpf.Layout
	slot    int
	pidTgid uint64
	funcIP  uint64
	cookie  uint64
	data    uint64 // address of the call's private data
	memory  func(addr uint64, p []byte) error
}

// run is one program in one world, interpreted and compiled.
type run struct {
	proof *bpf.Proof
	code  *Code
	text  []byte // linked
	world *world

	want    bpf.Result
	regs    [11]uint64 // of the interpreter at its end
	segment []byte     // the segment as the interpreter left it
	replay  []byte

	repeat, entry, emptied uint64 // for benchmarks; see testdata/run.c

	job  job
	left []byte // the segment as the machine left it
}

// canary is the content of a register that the program has no business with.
func canary(r int) uint64 { return 0x1111111111111111*uint64(r) ^ 0x5a5a }

// newRun compiles a program and interprets it.
func newRun(m *machine, p *bpf.Proof, w *world) (*run, error) {
	r := &run{proof: p, world: w}
	var err error
	if r.code, err = compileHere(p, &Env{Segment: arch.Addr(segmentAt), Layout: w.layout}); err != nil {
		return nil, err
	}
	if r.text, err = r.code.Link(codeAt, m.routine); err != nil {
		return nil, err
	}
	return r, r.interpret()
}

// interpret runs the program in the interpreter and notes the helpers' calls.
func (r *run) interpret() error {
	w := r.world
	inlined := inlinedHere(r.proof, &Env{Segment: arch.Addr(segmentAt), Layout: w.layout})
	vm := &bpf.VM{Proof: r.proof, StackTop: stackAt, Ctx: contextAt, MaxSteps: 1 << 26}
	random := uint32(1)
	vm.Env = bpf.Env{PidTgid: w.pidTgid, UidGid: 0x3e8000003e9, Comm: harnessComm, CPU: 3, Slot: w.slot, FuncIP: w.funcIP, Cookie: w.cookie,
		CallData: make([]byte, 64), CallDataAddr: w.data,
		Read:   w.memory,
		Now:    func(int32) uint64 { random++; return uint64(random) * 0x123456789 },
		Random: func() uint32 { random = random*1664525 + 1013904223; return random },
	}
	if w.layout != nil && len(w.layout.Maps) > 0 {
		r.segment = bytes.Clone(w.segment)
		seg, err := w.layout.Bind(r.segment, segmentAt)
		if err != nil {
			return err
		}
		vm.Segment = seg
	}

	var pending *bpf.HelperCall // made, its effects not seen yet
	var args [5]uint64
	var before []byte
	settle := func(now *[11]uint64) {
		call := pending
		if pending = nil; call == nil {
			return
		}
		var writes bytes.Buffer
		n := uint64(0)
		write := func(arg, off uint64, b []byte) {
			binary.Write(&writes, binary.LittleEndian, replayWrite{arg, off, uint64(len(b))})
			writes.Write(b)
			writes.Write(make([]byte, -len(b)&7))
			n++
		}
		exact := uint64(1)<<len(call.Helper.Args) - 1
		if call.Bounded && now[0] == efault {
			exact &^= 1 << 2 // the address was replaced
		}
		clear(args[call.Set:])
		for i, a := range call.Helper.Args {
			size := uint64(0)
			switch a {
			case bpf.ArgMemOut:
				size = args[i+1]
			case bpf.ArgPosition:
				size = 8
			case bpf.ArgKeyOut:
				size = uint64(r.proof.Program.Maps[call.Map].KeySize)
			}
			if b := vm.Memory(args[i], size); len(b) > 0 {
				write(uint64(i), 0, b)
			}
		}
		for off := 0; off < len(before); off += 8 {
			if !bytes.Equal(before[off:off+8], r.segment[off:off+8]) {
				end := off + 8
				for end < len(before) && !bytes.Equal(before[end:end+8], r.segment[end:end+8]) {
					end += 8
				}
				write(5, segmentAt+uint64(off), r.segment[off:end])
				off = end - 8
			}
		}
		var b bytes.Buffer
		binary.Write(&b, binary.LittleEndian, replayCall{numberOf(call.Helper.ID), args, now[0], exact, n})
		r.replay = append(append(r.replay, b.Bytes()...), writes.Bytes()...)
	}
	vm.Step = func(slot int, now *[11]uint64) {
		settle(now)
		r.regs = *now
		if call := r.proof.Calls[slot]; call != nil {
			if !inlined(slot) {
				pending, args, before = call, [5]uint64(now[1:6]), bytes.Clone(r.segment)
			}
		}
	}
	var err error
	r.want, err = vm.Run(w.context[:])
	return err
}

func (r *run) encode(t testing.TB) []byte {
	w := r.world
	padded := append(bytes.Clone(r.text), make([]byte, -len(r.text)&7)...)
	r.job = job{Repeat: max(1, r.repeat), Entry: r.entry, Emptied: r.emptied, Code: uint64(len(padded)), Segment: uint64(len(w.segment)), Call: uint64(len(r.replay)), Context: w.context}
	for i := range r.job.Regs {
		r.job.Regs[i] = canary(i) & under.mask
	}
	for i := range ContextWords {
		if r.code.Context>>i&1 == 0 { // it says that it does not read this
			binary.LittleEndian.PutUint64(r.job.Context[8*i:], 0xdead_0000_beef+uint64(i))
		}
	}
	binary.LittleEndian.PutUint64(r.job.State[StatePidTgid:], w.pidTgid)
	binary.LittleEndian.PutUint32(r.job.State[StateSlot:], uint32(w.slot))
	binary.LittleEndian.PutUint64(r.job.State[StateFuncIP:], w.funcIP)
	binary.LittleEndian.PutUint64(r.job.State[StateCookie:], w.cookie)
	binary.LittleEndian.PutUint64(r.job.State[StateData:], w.data)
	copy(r.job.State[StateComm:], harnessComm+"\x00\x00\x00\x00\x00\x00\x00\x00!") // no NUL at its end
	r.job.Size = uint64(binary.Size(r.job)) + r.job.Code + r.job.Segment + r.job.Call
	b, err := binary.Append(nil, binary.LittleEndian, &r.job)
	if err != nil {
		t.Fatal(err)
	}
	b = append(b, padded...)
	b = append(b, w.segment...)
	return append(b, r.replay...)
}

func (r *run) decode(t testing.TB, b []byte) {
	if _, err := binary.Decode(b, binary.LittleEndian, &r.job); err != nil {
		t.Fatal(err)
	}
	b = b[uint64(binary.Size(r.job))+r.job.Code:]
	r.left = bytes.Clone(b[:r.job.Segment])
}

// check describes the first difference between the compiled program and the interpreter.
func (r *run) check() error {
	j := &r.job
	switch {
	case j.Status == jobCrashed:
		return fmt.Errorf("signal %d at offset %#x", j.Signal, j.PC-codeAt)
	case j.Status == jobMismatch && j.ID == 0:
		return fmt.Errorf("ended after %d helper calls; the interpreter made more", j.Calls)
	case j.Status == jobMismatch:
		return fmt.Errorf("helper call %d: helper %d with %#x; the interpreter: %s", j.Calls, j.ID, j.Args, r.callAt(int(j.Calls)))
	case j.Status != jobDone:
		return fmt.Errorf("status %d", j.Status)
	case j.Regs[under.result] != r.want.R0:
		return fmt.Errorf("R0 is %#x, the interpreter's %#x", j.Regs[under.result], r.want.R0)
	case j.Regs[under.state] != 0 || j.Regs[under.stack] != under.above:
		return fmt.Errorf("the state's register or the stack pointer changed by %#x, %#x", j.Regs[under.state], j.Regs[under.stack]-under.above)
	case j.Depth > uint64(r.code.Stack)+8: // the return address of the routine
		return fmt.Errorf("%d bytes of stack used, Code.Stack says %d", j.Depth, r.code.Stack)
	}
	for i, name := range under.names {
		given := i == under.stack || i == under.state || i == under.context || i == under.link
		if !given && j.Regs[i] != canary(i)&under.mask && !r.code.Clobbers.Has(under.reg(i)) {
			return fmt.Errorf("%s changed, Code.Clobbers does not have it", name)
		}
	}
	for off := range r.left {
		if r.left[off] != r.segment[off] {
			return fmt.Errorf("byte %#x of the segment is %#x, the interpreter's %#x", off, r.left[off], r.segment[off])
		}
	}
	return nil
}

// callAt shows call n of the interpreter.
func (r *run) callAt(n int) string {
	b := r.replay
	for len(b) > 0 {
		var c replayCall
		k, _ := binary.Decode(b, binary.LittleEndian, &c)
		if n--; n < 0 {
			return fmt.Sprintf("helper %d with %#x", c.ID, c.Args)
		}
		for b = b[k:]; c.Writes > 0; c.Writes-- {
			var w replayWrite
			k, _ := binary.Decode(b, binary.LittleEndian, &w)
			b = b[k+int((w.Size+7)&^7):]
		}
	}
	return "none"
}

// show lists a program with the machine code of each instruction.
func (r *run) show(t testing.TB) string { return listing(t, r.proof, r.code) }

func listing(t testing.TB, p *bpf.Proof, code *Code) string {
	var s strings.Builder
	at := map[int]string{}
	for i, in := range p.Program.Insns {
		if i == 0 || !p.Program.Insns[i-1].Wide() {
			at[code.Lines[i]] += fmt.Sprintf("%4d: %v\n", i, in)
		}
	}
	off := 0
	for _, l := range disassemble(t, code.Bytes) {
		s.WriteString(at[off])
		n := under.length(t, code.Bytes[off:])
		fmt.Fprintf(&s, "%12x  %-20x | %s\n", off, code.Bytes[off:off+n], l)
		off += n
	}
	s.WriteString(at[off])
	return s.String()
}

// compare runs and checks; the first difference ends the test.
func compare(t *testing.T, m *machine, runs []*run) {
	t.Helper()
	m.execute(t, runs)
	for i, r := range runs {
		if err := r.check(); err != nil {
			t.Fatalf("run %d: %v\n%s", i, err, r.show(t))
		}
	}
}
