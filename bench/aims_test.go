package bench

import (
	_ "embed"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"kprobe"
	"kprobe/bpf"
	"kprobe/bpf/bpftest"
	"kprobe/internal/testprog"
)

//go:embed testdata/hot.c
var hotC string

//go:embed testdata/hot.S
var hotS string

// hotProg is testdata/hot.c with hot.S, built once. It is at low addresses: gdb's
// tracepoints reach nothing else.
var hotProg string

func buildHot(b *testing.B) string {
	b.Helper()
	if hotProg != "" {
		return hotProg
	}
	dir := filepath.Dir(floorProg)
	var files []string
	for name, text := range map[string]string{"hot.c": hotC, "hot.S": hotS} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			b.Fatal(err)
		}
		files = append(files, file)
	}
	out := filepath.Join(dir, "hot")
	if msg, err := exec.Command("gcc", append(files, "-O2", "-no-pie", "-pthread", "-o", out)...).CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, msg)
	}
	hotProg = out
	return out
}

const hot = "hot" // the function

// hotRunning starts the program, with a detour made by hand or none.
func hotRunning(b *testing.B, detour string) *testprog.Proc {
	b.Helper()
	p := testprog.StartCmd(b, exec.Command(buildHot(b), detour))
	p.Expect("ready")
	return p
}

// The programs. Each does what the detour made by hand beside it does.
const (
	addRegisters = `
		r0 = *(u64 *)(r1 +0)
		r2 = *(u64 *)(r1 +8)
		r0 += r2
		r2 = *(u64 *)(r1 +16)
		r0 += r2
		r2 = *(u64 *)(r1 +24)
		r0 += r2
		r2 = *(u64 *)(r1 +32)
		r0 += r2
		r2 = *(u64 *)(r1 +40)
		r0 += r2
		r2 = *(u64 *)(r1 +48)
		r0 += r2
		r2 = *(u64 *)(r1 +56)
		r0 += r2
		r2 = *(u64 *)(r1 +64)
		r0 += r2
		r2 = *(u64 *)(r1 +72)
		r0 += r2
		r2 = *(u64 *)(r1 +80)
		r0 += r2
		r2 = *(u64 *)(r1 +88)
		r0 += r2
		r2 = *(u64 *)(r1 +96)
		r0 += r2
		r2 = *(u64 *)(r1 +104)
		r0 += r2
		r2 = *(u64 *)(r1 +112)
		r6 = r0
		r6 += r2
		*(u32 *)(r10 -4) = 0
		r2 = r10
		r2 += -4
		r1 = map sum
		call map_lookup_elem
		if r0 == 0 goto out
		r1 = *(u64 *)(r0 +0)
		r1 += r6
		*(u64 *)(r0 +0) = r1
	out:	r0 = 0
		exit`
	writeRecord = `
		r6 = r1
		r1 = map ring
		r2 = 32
		r3 = 0
		call ringbuf_reserve
		if r0 == 0 goto out
		r7 = r0
		call ktime_get_ns
		*(u64 *)(r7 +0) = r0
		r1 = 42
		*(u64 *)(r7 +8) = r1
		r1 = *(u64 *)(r6 +112)
		*(u64 *)(r7 +16) = r1
		r1 = *(u64 *)(r6 +104)
		*(u64 *)(r7 +24) = r1
		r1 = r7
		r2 = 0
		call ringbuf_submit
	out:	r0 = 0
		exit`
	countByArgument = `
		r1 = *(u64 *)(r1 +112)
		*(u64 *)(r10 -8) = r1
		r2 = r10
		r2 += -8
		r1 = map hash
		call map_lookup_elem
		if r0 == 0 goto new
		r1 = *(u64 *)(r0 +0)
		r1 += 1
		*(u64 *)(r0 +0) = r1
		r0 = 0
		exit
	new:	r1 = 1
		*(u64 *)(r10 -16) = r1
		r1 = map hash
		r2 = r10
		r2 += -8
		r3 = r10
		r3 += -16
		r4 = 0
		call map_update_elem
		r0 = 0
		exit`
)

var (
	sumMap  = &bpf.MapSpec{Name: "sum", Type: bpf.PerCPUArray, KeySize: 4, ValueSize: 8, MaxEntries: 1}
	ringMap = &bpf.MapSpec{Name: "ring", Type: bpf.RingBuf, MaxEntries: 1 << 20}
	hashMap = &bpf.MapSpec{Name: "hash", Type: bpf.PerCPUHash, KeySize: 8, ValueSize: 8, MaxEntries: 1024}
)

// load puts one program into the session's target.
func load(b *testing.B, s *kprobe.Session, text string, m *bpf.MapSpec) (*kprobe.Program, *kprobe.Programs) {
	b.Helper()
	maps := []*bpf.MapSpec{m}
	ps, err := s.Load(&bpf.Collection{Maps: maps, Programs: []*bpf.Program{{Name: "p", Insns: bpftest.MustAssemble(text, m), Maps: maps}}})
	if err != nil {
		b.Fatal(err)
	}
	p, err := ps.Program("p")
	if err != nil {
		b.Fatal(err)
	}
	return p, ps
}

// BenchmarkAims is what jump probes are held to: each with the detour made by hand
// that does the same, in rounds that take turns. The least of each is kept: what
// disturbs only adds. Two threads are held against one of ours.
func BenchmarkAims(b *testing.B) {
	for _, c := range []struct {
		name, floor, aim string
		calls            int // in a round: no more records than a ring holds
		setUp            func(b *testing.B, s *kprobe.Session) (between func())
		uprobe, uret     asm.Instructions
		tracepoint       []string
	}{
		{name: "count", floor: "count", aim: "1.3x", calls: 100_000, uprobe: countUprobe, tracepoint: []string{"tvariable $n = 0", "ftrace *hot", "actions", "teval $n = $n + 1", "end"},
			setUp: func(b *testing.B, s *kprobe.Session) func() {
				register(b, s, &kprobe.Kprobe{SymbolName: hot, Program: kprobe.CountOnly})
				return nil
			}},
		{name: "full register frame", floor: "registers", aim: "1.5x", calls: 100_000, uprobe: frameUprobe,
			tracepoint: []string{"ftrace *hot", "actions", "collect $regs", "end"},
			setUp: func(b *testing.B, s *kprobe.Session) func() {
				p, _ := load(b, s, addRegisters, sumMap)
				register(b, s, &kprobe.Kprobe{SymbolName: hot, Program: p})
				return nil
			}},
		{name: "32-byte record with time", floor: "record", aim: "1.3x", calls: 20_000, uprobe: recordUprobe,
			setUp: func(b *testing.B, s *kprobe.Session) func() {
				onCPU(b, s.Target().PID(), 0)
				return recording(b, s)
			}},
		{name: "return, entry and return", floor: "return", aim: "1.4x", calls: 100_000, uret: countUprobe,
			setUp: func(b *testing.B, s *kprobe.Session) func() {
				rp := &kprobe.Kretprobe{Program: kprobe.CountOnly}
				rp.Kp.SymbolName = hot
				register(b, s, rp)
				return nil
			}},
		{name: "hash count by argument", aim: "15 ns", calls: 100_000,
			setUp: func(b *testing.B, s *kprobe.Session) func() {
				p, _ := load(b, s, countByArgument, hashMap)
				register(b, s, &kprobe.Kprobe{SymbolName: hot, Program: p})
				return nil
			}},
	} {
		b.Run(strings.ReplaceAll(c.name, " ", "-"), func(b *testing.B) {
			p := hotRunning(b, "none")
			s := attach(b, p, kprobe.Options{})
			between := c.setUp(b, s)
			allJumps(b, s)
			detour := c.floor
			if detour == "" {
				detour = "none"
			}
			f := hotRunning(b, detour)
			ours, least := inTurns(b, between, turn{p, c.calls, 1}, turn{f, c.calls, 1})
			b.ReportMetric(ours, "ns/op")
			if c.floor == "" {
				least = 0
			} else {
				b.ReportMetric(least, "floor-ns")
				b.ReportMetric(ours/least, "x-floor")
			}
			note(c.name, func(r *row) {
				r.floor, r.ours, r.aim = least, ours, c.aim
				if r.uprobe == "" && (c.uprobe != nil || c.uret != nil) {
					r.uprobe = uprobed(b, c.uprobe, c.uret)
				}
				if r.gdbTracing == "" && c.tracepoint != nil {
					r.gdbTracing = traced(b, c.tracepoint)
				}
			})
		})
	}
	for _, c := range []struct {
		name  string
		calls int
		setUp func(b *testing.B, s *kprobe.Session) (between func())
	}{
		{"two threads count, by one", 100_000, func(b *testing.B, s *kprobe.Session) func() {
			register(b, s, &kprobe.Kprobe{SymbolName: hot, Program: kprobe.CountOnly})
			return nil
		}},
		{"two threads record, by one", 20_000, recording},
	} {
		b.Run(strings.NewReplacer(" ", "-", ",", "").Replace(c.name), func(b *testing.B) {
			p := hotRunning(b, "none")
			s := attach(b, p, kprobe.Options{})
			between := c.setUp(b, s)
			allJumps(b, s)
			two, one := inTurns(b, between, turn{p, c.calls, 2}, turn{p, c.calls, 1})
			b.ReportMetric(two, "ns/op")
			b.ReportMetric(two/one, "x-one")
			note(c.name, func(r *row) { r.floor, r.ours, r.aim = one, two, "1.1x" })
		})
	}
}

// recording has every hit write a record, and somebody read them between rounds.
func recording(b *testing.B, s *kprobe.Session) func() {
	p, ps := load(b, s, writeRecord, ringMap)
	register(b, s, &kprobe.Kprobe{SymbolName: hot, Program: p})
	m, err := ps.Map("ring")
	if err != nil {
		b.Fatal(err)
	}
	r, err := bpf.NewReader(m)
	if err != nil {
		b.Fatal(err)
	}
	return func() {
		for {
			if _, ok, err := r.Read(); !ok || err != nil {
				return
			}
		}
	}
}

// onCPU keeps a program and whoever reads its records on one CPU: nobody reads the
// floor's, and what is measured is the writing, not the way from cache to cache.
func onCPU(b *testing.B, pid, cpu int) {
	b.Helper()
	runtime.LockOSThread() // for good: the thread ends with the benchmark's goroutine
	var set unix.CPUSet
	set.Set(cpu)
	if err := errors.Join(unix.SchedSetaffinity(0, &set), unix.SchedSetaffinity(pid, &set)); err != nil {
		b.Fatal(err)
	}
}

func allJumps(b *testing.B, s *kprobe.Session) {
	b.Helper()
	s.WaitOptimized()
	for _, e := range s.List() {
		if !e.Optimized {
			b.Fatalf("no jump: %v", e)
		}
	}
}

// turn is a round of a program: so many calls, by each of so many threads.
type turn struct {
	p              *testprog.Proc
	calls, threads int
}

func (t turn) run(b *testing.B) float64 {
	b.Helper()
	for _, line := range t.p.Round("%d %d", t.calls, t.threads) {
		var ns float64
		if _, err := fmt.Sscanf(line, "ns %g", &ns); err == nil {
			return ns / float64(t.calls)
		}
	}
	b.Fatal("the program does not say how long its round took")
	return 0
}

// inTurns runs two programs in turn, and gives the least that a call took in each.
func inTurns(b *testing.B, between func(), x, y turn) (float64, float64) {
	const pairs = 20 // an iteration
	least := [2]float64{math.Inf(1), math.Inf(1)}
	for b.Loop() {
		for range pairs {
			for i, t := range []turn{x, y} {
				least[i] = min(least[i], t.run(b))
				if between != nil {
					between()
				}
			}
		}
	}
	return least[0], least[1]
}

// What the kernel's uprobes run. Each counts in a map's value; r7 holds its context then.
var (
	countUprobe  = kernelProgram()
	frameUprobe  = kernelProgram(sumOfRegisters()...)
	recordUprobe = kernelProgram(
		asm.LoadMapPtr(asm.R1, 0).WithReference("ring"),
		asm.Mov.Imm(asm.R2, 32),
		asm.Mov.Imm(asm.R3, 0),
		asm.FnRingbufReserve.Call(),
		asm.JEq.Imm(asm.R0, 0, "out"),
		asm.Mov.Reg(asm.R6, asm.R0),
		asm.FnKtimeGetNs.Call(),
		asm.StoreMem(asm.R6, 0, asm.R0, asm.DWord),
		asm.Mov.Imm(asm.R1, 42),
		asm.StoreMem(asm.R6, 8, asm.R1, asm.DWord),
		asm.LoadMem(asm.R1, asm.R7, 112, asm.DWord),
		asm.StoreMem(asm.R6, 16, asm.R1, asm.DWord),
		asm.LoadMem(asm.R1, asm.R7, 104, asm.DWord),
		asm.StoreMem(asm.R6, 24, asm.R1, asm.DWord),
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.Mov.Imm(asm.R2, 0),
		asm.FnRingbufSubmit.Call(),
	)
)

func kernelProgram(more ...asm.Instruction) asm.Instructions {
	return slices.Concat(asm.Instructions{
		asm.Mov.Reg(asm.R7, asm.R1),
		asm.LoadMapValue(asm.R6, 0, 0).WithReference("counts"),
		asm.LoadMem(asm.R2, asm.R6, 0, asm.DWord),
		asm.Add.Imm(asm.R2, 1),
		asm.StoreMem(asm.R6, 0, asm.R2, asm.DWord),
	}, more, asm.Instructions{
		asm.Mov.Imm(asm.R0, 0).WithSymbol("out"),
		asm.Return(),
	})
}

// sumOfRegisters does what addRegisters does.
func sumOfRegisters() (insns asm.Instructions) {
	insns = append(insns, asm.LoadMem(asm.R1, asm.R6, 8, asm.DWord))
	for word := range int16(15) {
		insns = append(insns, asm.LoadMem(asm.R2, asm.R7, 8*word, asm.DWord), asm.Add.Reg(asm.R1, asm.R2))
	}
	return append(insns, asm.StoreMem(asm.R6, 8, asm.R1, asm.DWord))
}

// uprobed is what a call takes with a uprobe of the kernel, or why that is not to be had.
func uprobed(b *testing.B, entry, ret asm.Instructions) string {
	b.Helper()
	p := hotRunning(b, "none")
	rlimit.RemoveMemlock() // older kernels count maps as locked memory; where that is refused, so is the map
	insns := entry
	if ret != nil {
		insns = ret
	}
	c, err := ebpf.NewCollection(&ebpf.CollectionSpec{
		Maps: map[string]*ebpf.MapSpec{
			"counts": {Type: ebpf.Array, KeySize: 4, ValueSize: 16, MaxEntries: 1}, // and the sum
			"ring":   {Type: ebpf.RingBuf, MaxEntries: 1 << 20},
		},
		Programs: map[string]*ebpf.ProgramSpec{"count": {Type: ebpf.Kprobe, Instructions: insns, License: "GPL"}},
	})
	if err != nil {
		return "not available: " + oneLine(err)
	}
	defer c.Close()
	x, err := link.OpenExecutable(hotProg)
	var l link.Link
	if err == nil {
		if o := (&link.UprobeOptions{PID: p.Pid}); ret != nil {
			l, err = x.Uretprobe(hot, c.Programs["count"], o)
		} else {
			l, err = x.Uprobe(hot, c.Programs["count"], o)
		}
	}
	if err != nil {
		return "not available: " + oneLine(err)
	}
	defer l.Close()
	const calls = 2000
	ns := math.Inf(1)
	for range 5 {
		ns = min(ns, turn{p, calls, 1}.run(b))
	}
	var n [2]uint64
	if err := c.Maps["counts"].Lookup(uint32(0), &n); err != nil || n[0] != 5*calls {
		b.Errorf("the uprobe counted %d of %d calls: %v", n[0], 5*calls, err)
	}
	return fmt.Sprintf("%.3g ns", ns)
}

func oneLine(err error) string {
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	text, _, _ := strings.Cut(err.Error(), "\n")
	return text
}

// traced is what a call takes with a fast tracepoint of gdb's, which is a jump as well:
// the in-process agent is loaded when the program starts.
func traced(b *testing.B, commands []string) string {
	b.Helper()
	agent, err := exec.Command("gcc", "-print-file-name=libinproctrace.so").Output()
	at := strings.TrimSpace(string(agent))
	if err != nil || !filepath.IsAbs(at) {
		return "not available: no libinproctrace.so"
	}
	gdb, err := exec.LookPath("gdb")
	if err != nil {
		return "not available: no gdb"
	}
	if _, err := exec.LookPath("gdbserver"); err != nil {
		return "not available: no gdbserver"
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "not available: " + oneLine(err)
	}
	place := free.Addr().String()
	free.Close()
	p := testprog.StartCmd(b, exec.Command("gdbserver", "--wrapper", "env", "LD_PRELOAD="+at, "--", place, buildHot(b), "none"))
	args := []string{"-nx", "-batch"}
	script := append([]string{"set pagination off", "set confirm off", "set sysroot /", "set tcp auto-retry on", "target remote " + place,
		"break main", "continue", "delete 1", "set circular-trace-buffer on"}, commands...)
	file := filepath.Join(b.TempDir(), "script")
	if err := os.WriteFile(file, []byte(strings.Join(append(script, "tstart", "continue"), "\n")+"\n"), 0o644); err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(gdb, append(args, "-x", file, hotProg)...)
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() {
		p.CloseStdin() // which ends the program, and that gdb
		cmd.Wait()
	}()
	p.Expect("ready")
	ns := math.Inf(1)
	for range 10 {
		ns = min(ns, turn{p, 20_000, 1}.run(b))
	}
	return fmt.Sprintf("%.3g ns", ns)
}
