package inject_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"kprobe/arch"
	"kprobe/bpf"
	"kprobe/bpf/bpftest"
	"kprobe/bpf/verify"
	"kprobe/internal/inject"
	arm64code "kprobe/internal/inject/arm64"
	x86code "kprobe/internal/inject/x86"
	"kprobe/internal/isa"
	"kprobe/internal/isa/amd64"
	"kprobe/internal/isa/arm64"
	"kprobe/internal/jit"
	"kprobe/internal/segment"
	"kprobe/internal/testprog"
	"kprobe/internal/testprog/qemurun"
)

// host is a running testdata/host.c with a segment and an area.
type host struct {
	testing.TB
	cmd  *exec.Cmd
	in   io.Writer
	out  *bufio.Reader
	addr map[string]arch.Addr // of functions
	seg  *segment.Segment
	area *inject.Area
	next arch.Addr // free code
	pid  int

	foreign *qemurun.Machine // runs its code, which is arm64's
}

// areaRoom is the memory for code; the second half is not given out by host.code.
const areaRoom = 1 << 20

// The tests of detours, routines and compiled programs run a second time in a 32-bit
// program: TestI386 sets the variable.
const narrowVariable = "KPROBE_TEST_I386"

var (
	hostSegment = uint64(0x5100_0000_0000)
	hostMachine = x86code.AMD64
	hostISA     = amd64.ISA
	hostSources = []string{"-m64", "testdata/host.c", "testdata/host_coroutines.c", "testdata/host_probed.S", "testdata/host_floor.S"}
	hostRedZone = 128
)

func init() {
	if os.Getenv(arm64Variable) != "" {
		hostMachine, hostISA, hostRedZone = arm64code.ARM64, arm64.ISA, 0
	}
	if os.Getenv(narrowVariable) != "" {
		hostSegment, hostMachine, hostISA, hostRedZone = 0x7000_0000, x86code.I386, amd64.New(arch.I386), 0
		hostState = x86code.I386.Code.State
		hostSources = []string{"-m32", "testdata/host.c", "testdata/host_coroutines.c", "testdata/host_probed32.S"}
	}
}

var hostState = x86code.AMD64.Code.State

func narrow() bool { return hostMachine == x86code.I386 }

var hostProgram string

// buildHost builds the program once.
func buildHost(t testing.TB) string {
	if hostProgram != "" {
		return hostProgram
	}
	gcc, err := exec.LookPath("gcc")
	testprog.Need(t, "gcc builds the program to probe", err == nil)
	dir, err := os.MkdirTemp("", "kprobe-inject")
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "host")
	if msg, err := exec.Command(gcc, slices.Concat([]string{"-O2", "-pthread", "-rdynamic", "-o", out}, hostSources, testprog.ILP32Headers(gcc, hostSources))...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, msg)
	}
	hostProgram = out
	return out
}

func TestMain(m *testing.M) {
	code := m.Run()
	if hostProgram != "" {
		os.RemoveAll(filepath.Dir(hostProgram))
	}
	os.Exit(code)
}

func startHost(t testing.TB, l segment.Layout) *host {
	t.Helper()
	memory, err := unix.MemfdCreate("segment", 0)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(memory), "segment")
	defer file.Close()
	if err := file.Truncate(int64(l.Size())); err != nil {
		t.Fatal(err)
	}
	mem, err := unix.Mmap(memory, 0, l.Size(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(mem) })

	h := &host{TB: t, cmd: exec.Command(buildHost(t)), addr: map[string]arch.Addr{}}
	h.cmd.ExtraFiles = []*os.File{file}
	h.cmd.Stderr = os.Stderr
	if h.in, err = h.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := h.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	h.out = bufio.NewReader(out)
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	h.pid = h.cmd.Process.Pid
	t.Cleanup(func() {
		h.cmd.Process.Kill()
		h.cmd.Wait()
	})
	for {
		var name string
		var at arch.Addr
		h.read("%s %x", &name, &at)
		if name == "ready" {
			break
		}
		h.addr[name] = at
	}
	if h.seg, err = segment.New(&hostMachine.Machine, l, arch.Addr(hostSegment), mem, h.pid); err != nil {
		t.Fatal(err)
	}
	h.say("map 3 %x %x", hostSegment, l.Size())
	near := h.addr["f_lea"]&^0xffff - 0x100_0000
	h.say("code %x %x", uint64(near), areaRoom)
	h.area = (&inject.Target{Machine: hostMachine, Segment: h.seg}).Area(near)
	h.put(near, h.area.Image())
	h.next = near + arch.Addr(segment.RoundUp(h.area.Size(), 64))
	return h
}

func (h *host) read(format string, values ...any) {
	h.Helper()
	line, err := h.out.ReadString('\n')
	if err != nil {
		h.Fatalf("the program is gone: %v, %v", err, h.cmd.Wait())
	}
	if _, err := fmt.Sscanf(line, format, values...); err != nil {
		h.Fatalf("%q: %v", line, err)
	}
}

// say has a command done that answers "ok".
func (h *host) say(format string, values ...any) {
	h.Helper()
	fmt.Fprintf(h.in, format+"\n", values...)
	var ok string
	if h.read("%s", &ok); ok != "ok" {
		h.Fatalf("%s: %s", fmt.Sprintf(format, values...), ok)
	}
}

func (h *host) put(at arch.Addr, code []byte) {
	h.Helper()
	if h.foreign != nil {
		h.foreign.Write(uint64(at), code)
		return
	}
	h.say("put %x %x", uint64(at), code)
}

// call calls a function n times and gives the sum of its results and the time of one call.
func (h *host) call(f string, threads, n int, a, b uint64) (sum uint64, ns float64) {
	h.Helper()
	fmt.Fprintf(h.in, "call %s %d %d %d %d\n", f, threads, n, a, b)
	h.read("%d %f", &sum, &ns)
	return sum, ns
}

func (h *host) key(thread int) (k uint64) {
	h.Helper()
	fmt.Fprintf(h.in, "key %d\n", thread)
	h.read("%x", &k)
	return k
}

func (h *host) tid(thread int) (tid uint64) {
	h.Helper()
	fmt.Fprintf(h.in, "tid %d\n", thread)
	h.read("%d", &tid)
	return tid
}

// Code gives memory for n bytes of code.
func (h *host) code(n int) arch.Addr {
	at := h.next
	if h.next += arch.Addr(segment.RoundUp(n, 64)); h.next > h.area.Addr+areaRoom/2 {
		h.Fatal("no room for code")
	}
	return at
}

// program puts a program there that does nothing but what f writes; rdi is the
// context, r12 the state.
func (h *host) program(f func(a *x86code.Asm)) inject.Program {
	h.Helper()
	a := x86code.NewAsm(h.code(256), narrow())
	f(a)
	a.Ret()
	a.Finish()
	h.put(a.Base, a.Code)
	return inject.Program{Entry: a.Base, Clobbers: amd64.RegGeneral &^ arch.SetOf(arch.R12) &^ arch.SetOf(arch.SP), Context: 1<<21 - 1}
}

// compiled verifies, compiles and places a program in bpftest's notation. Its maps are
// those that l has in the segment's extra memory.
func (h *host) compiled(text string, l *bpf.Layout) inject.Program {
	h.Helper()
	insns, err := bpftest.Assemble(text, l.Maps...)
	if err != nil {
		h.Fatal(err)
	}
	proof, err := verify.Program(&bpf.Program{Name: "test", Insns: insns, Maps: l.Maps})
	if err != nil {
		h.Fatal(err)
	}
	env := &jit.Env{Segment: h.seg.ExtraAddr(), Layout: l, Clock: &jit.Clock{Mult: 1 << 20, Shift: 20}}
	code, err := hostMachine.Code.Compile(proof, env)
	if err != nil {
		h.Fatal(err)
	}
	at := h.code(len(code.Bytes))
	linked, err := code.Link(at, h.area.Helper)
	if err != nil {
		h.Fatal(err)
	}
	h.put(at, linked)
	return inject.Program{Entry: at, Clobbers: code.Clobbers, Context: code.Context, Needs: code.Needs}
}

// maps puts maps into the segment's extra memory.
func (h *host) maps(specs ...*bpf.MapSpec) *bpf.Segment {
	h.Helper()
	l, err := bpf.Arrange(specs, h.seg.Threads+1)
	if err != nil {
		h.Fatal(err)
	}
	s, err := l.Bind(h.seg.Extra(), uint64(h.seg.ExtraAddr()))
	if err != nil {
		h.Fatal(err)
	}
	if err := s.Init(); err != nil {
		h.Fatal(err)
	}
	return s
}

// detourRoom is more than any detour here needs.
const detourRoom = 4096

// detour fills in what all detours of functions have in common.
func (h *host) detour(f string, d inject.Detour) *inject.Detour {
	h.Helper()
	return h.detourAt(h.addr[f], d)
}

// text is what stands at an address.
func (h *host) text(at arch.Addr, n int) []byte {
	h.Helper()
	b := make([]byte, n)
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", h.pid))
	if err != nil {
		h.Fatal(err)
	}
	defer mem.Close()
	if _, err := mem.ReadAt(b, int64(at)); err != nil {
		h.Fatal(err)
	}
	return b
}

// detourAt is for an instruction that is long enough for a jump.
func (h *host) detourAt(site arch.Addr, d inject.Detour) *inject.Detour {
	h.Helper()
	const first = 8 // bytes, more than there are in some
	d.At, d.Site, d.Area, d.RedZone = h.code(detourRoom), site, h.area, hostRedZone
	if d.Return != nil && d.Return.ID == 0 { // the counters that it needs follow
		ret := *d.Return
		ret.ID = 10
		d.Return = &ret
	}
	original := h.text(site, first)
	d.Tail = func(at arch.Addr) (inject.Tail, error) {
		v, err := hostISA.Place(original, site, at)
		return inject.Tail{v.Code, v.Marks}, err
	}
	return &d
}

// ahead is detour for the second instruction of a function, with the jump at the first.
func (h *host) ahead(f string, d inject.Detour) *inject.Detour {
	h.Helper()
	start := h.addr[f]
	code := h.text(start, hostMachine.MaxInsn)
	in, err := hostISA.Decode(code, start)
	if err != nil {
		h.Fatal(err)
	}
	d.Head = func(at arch.Addr) (inject.Tail, error) {
		v, err := hostISA.Displace(code[:in.Len], start, at)
		marks := slices.DeleteFunc(slices.Clone(v.Marks), func(m isa.Mark) bool { return m.Off >= v.Body })
		return inject.Tail{v.Code[:v.Body], marks}, err
	}
	return h.detourAt(start+arch.Addr(in.Len), d)
}

// arm writes the detour and the jump to it.
func (h *host) arm(d *inject.Detour) *inject.Detour {
	h.Helper()
	code, err := d.Code()
	if err != nil {
		h.Fatal(err)
	}
	if len(code) > detourRoom {
		h.Fatalf("%d bytes of code", len(code))
	}
	h.put(d.At, code)
	jump, err := hostISA.Jump(d.Site, d.At)
	if err != nil {
		h.Fatal(err)
	}
	h.put(d.Site, jump)
	return d
}

// disassemble is for messages.
func disassemble(t testing.TB, at arch.Addr, code []byte) string {
	file := filepath.Join(t.TempDir(), "code")
	if err := os.WriteFile(file, code, 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("objdump", "-D", "-bbinary", "-m"+map[bool]string{false: "i386:x86-64", true: "i386"}[narrow()], "-Mintel", fmt.Sprintf("--adjust-vma=%#x", uint64(at)), file).Output()
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(out), "<.data>:\n")
	return list
}
