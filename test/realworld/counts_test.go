package realworld

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"kprobe"
	"kprobe/arch"
	"kprobe/internal/testprog"
	"kprobe/symbol"
	"kprobe/target/ptrace"
	"kprobe/test/harness"
)

// Counts, held to those of tools that share nothing with us: the kernel's own
// uprobes, and gdb. Programs that are the same to the byte and the address do the
// same work, one counted by the tool, two by us, by traps and by jumps, and one by the tool again; a
// function that the tool itself counts differently twice says nothing.

// A counter counts the entries of functions while work runs.
type counter func(t testing.TB, pid int, path string, funcs []symbol.Symbol, work func()) []uint64

// countKprobes is ours.
func countKprobes(t testing.TB, pid int, _ string, funcs []symbol.Symbol, work func()) []uint64 {
	t.Helper()
	s := harness.Attach(t, pid, nil)
	defer harness.Detach(t, s)
	ps := harness.EntryProbes(t, funcs)
	if err := s.RegisterKprobes(ps); err != nil {
		t.Fatal(err)
	}
	work()
	counts := make([]uint64, len(ps))
	for i, p := range ps {
		counts[i] = p.Hits()
		if n := p.NMissed(); n != 0 {
			t.Errorf("%s: %d missed", funcs[i].Label(), n)
		}
	}
	return counts
}

// countJumps is ours as well, inside the target and without stops.
func countJumps(t testing.TB, pid int, _ string, funcs []symbol.Symbol, work func()) []uint64 {
	t.Helper()
	s := harness.Attach(t, pid, nil)
	defer harness.Detach(t, s)
	ps := harness.CountingProbes(funcs)
	if err := s.RegisterKprobes(ps); err != nil {
		t.Fatal(err)
	}
	s.WaitOptimized()
	if n := harness.Optimized(s); n < len(ps)*97/100 {
		t.Errorf("only %d of %d are jumps", n, len(ps))
	}
	work()
	counts := make([]uint64, len(ps))
	for i, p := range ps {
		counts[i] = p.Hits()
		if n := p.NMissed(); n != 0 {
			t.Errorf("%s: %d missed", funcs[i].Label(), n)
		}
	}
	return counts
}

// uprobes are the kernel's, through a tracefs of our own: one event made of many
// places, because switching an event off costs the kernel a grace period, and
// uprobe_profile still counts each place by itself. They count every process that
// runs the file, so the file must be one that only the target runs.
type uprobes struct{ dir string }

// mountTracefs answers why there are no uprobes here.
func mountTracefs(t testing.TB) (uprobes, error) {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("kprobe-test", dir, "tracefs", 0, ""); err != nil {
		return uprobes{}, os.NewSyscallError("mount", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	_, err := os.Stat(filepath.Join(dir, "uprobe_profile"))
	return uprobes{dir}, err
}

// write writes lines to one of the control files, each in a write of its own.
func (u uprobes) write(file string, lines ...string) error {
	f, err := os.OpenFile(filepath.Join(u.dir, file), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	for _, line := range lines {
		if _, err := f.WriteString(line + "\n"); err != nil {
			return fmt.Errorf("%s: %w", line, err)
		}
	}
	return nil
}

func (u uprobes) count(t testing.TB, pid int, path string, funcs []symbol.Symbol, work func()) []uint64 {
	t.Helper()
	file, bias := harness.OpenELF(t, path), biasOf(t, pid, path)
	group := fmt.Sprintf("kprobe_test_%d", os.Getpid())
	var lines []string
	for _, fn := range funcs {
		off, ok := file.OffOf(fn.Addr - bias)
		if !ok {
			t.Fatalf("%s is not in the file", fn.Label())
		}
		lines = append(lines, fmt.Sprintf("p:%s/entry %s:%#x", group, path, off))
	}
	defer func() {
		if err := u.write("uprobe_events", "-:"+group+"/entry"); err != nil {
			t.Error(err)
		}
	}()
	if err := u.write("uprobe_events", lines...); err != nil {
		t.Fatal(err)
	}
	enable := "events/" + group + "/entry/enable"
	if err := u.write(enable, "1"); err != nil {
		t.Fatal(err)
	}
	work()
	if err := u.write(enable, "0"); err != nil {
		t.Fatal(err)
	}
	profile, err := os.ReadFile(filepath.Join(u.dir, "uprobe_profile"))
	if err != nil {
		t.Fatal(err)
	}
	var counts []uint64 // in the order of definition
	for line := range strings.Lines(string(profile)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == path && f[1] == "entry" {
			n, err := strconv.ParseUint(f[2], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			counts = append(counts, n)
		}
	}
	if len(counts) != len(funcs) {
		t.Fatalf("uprobe_profile has %d places of %d", len(counts), len(funcs))
	}
	return counts
}

// biasOf tells how far from its own addresses a file is mapped.
func biasOf(t testing.TB, pid int, path string) uint64 {
	t.Helper()
	there, file := harness.FuncsOf(t, pid, path), harness.OpenELF(t, path).Funcs()
	if len(file) == 0 || len(file) != len(there) {
		t.Fatalf("%s: %d functions", path, len(file))
	}
	return there[0].Addr - file[0].Addr
}

// countGDB lets gdb count how often it passes breakpoints that it is told to
// ignore.
func countGDB(t testing.TB, pid int, _ string, funcs []symbol.Symbol, work func()) []uint64 {
	t.Helper()
	var script strings.Builder
	for _, line := range []string{
		"set pagination off", "set breakpoint always-inserted on", "set debuginfod enabled off",
		"handle SIGINT stop nopass", "handle all nostop pass noprint", "handle SIGINT stop nopass", "handle SIGTRAP stop",
	} {
		fmt.Fprintln(&script, line)
	}
	for i, fn := range funcs {
		fmt.Fprintf(&script, "break *%#x\nignore %d 1000000000\n", fn.Addr, i+1)
	}
	script.WriteString("echo armed\\n\ncontinue\ninfo breakpoints\ndelete\ndetach\nquit\n")
	file := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(file, []byte(script.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	gdb := testprog.StartCmd(t, exec.Command(gdbPath(t), "-nx", "-q", "-batch", "-iex", "set auto-load off", "-p", strconv.Itoa(pid), "-x", file))
	gdb.Expect("armed")
	work()
	if err := syscall.Kill(pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	r := gdb.Result()
	if !r.OK() {
		t.Fatalf("gdb: %v", r)
	}
	counts := make([]uint64, len(funcs))
	row := regexp.MustCompile(`^(\d+)\s+breakpoint\s+keep`)
	hits := regexp.MustCompile(`breakpoint already hit (\d+) time`)
	at, rows := -1, 0
	for _, line := range r.Lines {
		if m := row.FindStringSubmatch(line); m != nil {
			n, _ := strconv.Atoi(m[1])
			at = n - 1
			rows++
		} else if m := hits.FindStringSubmatch(line); m != nil && at >= 0 {
			counts[at], _ = strconv.ParseUint(m[1], 10, 64)
		}
	}
	if rows != len(funcs) {
		t.Fatalf("gdb lists %d breakpoints of %d:\n%s", rows, len(funcs), r)
	}
	return counts
}

func gdbPath(t testing.TB) string {
	t.Helper()
	path, err := exec.LookPath("gdb")
	testprog.Need(t, fmt.Sprintf("gdb: %v", err), err == nil)
	return path
}

// compareCounts holds ours to the tool's, for the functions of a file that a
// round of work reaches and for some others.
func compareCounts(t *testing.T, tool counter, start func(testing.TB) *testprog.Proc, base, work string, others int) {
	t.Helper()
	var funcs []symbol.Symbol
	count := func(c counter) (counts []uint64) {
		p := start(t)
		p.Round(work) // whatever is imported late, and cached
		idle(t, p.Pid)
		path := harness.MappedFile(t, p.Pid, base)
		round := func() {
			p.Round(work)
			idle(t, p.Pid)
		}
		if c == nil {
			funcs = sample(t, p.Pid, path, others, round)
		} else {
			counts = c(t, p.Pid, path, funcs, round)
		}
		if r := p.Result(); !r.OK() {
			t.Error(r)
		}
		return counts
	}
	count(nil)
	first, ours, jumps, second := count(tool), count(countKprobes), count(countJumps), count(tool)
	judged, reached, unsure := 0, 0, []string(nil)
	var total uint64
	for i, fn := range funcs {
		if first[i] != second[i] {
			unsure = append(unsure, fmt.Sprintf("%s %d, %d (ours %d)", fn.Label(), first[i], second[i], ours[i]))
			continue
		}
		judged++
		if first[i] > 0 {
			reached++
			total += first[i]
		}
		if ours[i] != first[i] {
			t.Errorf("%s was entered %d times, we say %d", fn.Label(), first[i], ours[i])
		}
		if jumps[i] != first[i] {
			t.Errorf("%s was entered %d times, our jumps say %d", fn.Label(), first[i], jumps[i])
		}
	}
	t.Logf("%d functions judged, %d of them reached, %d calls; the tool disagrees with itself on %d: %s",
		judged, reached, total, len(unsure), strings.Join(unsure, ", "))
	if reached < 50 || len(unsure) > reached/10 {
		t.Errorf("only %d functions reached, %d not judged", reached, len(unsure))
	}
}

// idle waits until a program has come back to reading its input: its answer is
// out before that, and what it calls on the way counts.
func idle(t testing.TB, pid int) {
	t.Helper()
	want := fmt.Sprintf("%d 0x0 ", syscall.SYS_READ)
	testprog.Until(t, "the program reads its input", pid, func() bool {
		call, err := os.ReadFile(fmt.Sprintf("/proc/%d/syscall", pid))
		if err != nil {
			t.Fatal(err)
		}
		return strings.HasPrefix(string(call), want)
	})
}

// sample finds the functions that work reaches, and some that it does not.
func sample(t testing.TB, pid int, path string, others int, work func()) []symbol.Symbol {
	t.Helper()
	s := harness.Attach(t, pid, nil)
	defer harness.Detach(t, s)
	funcs := harness.Entries(t, pid, path)
	ps := harness.RegisterEntries(t, s, harness.EntryProbes(t, funcs))
	work()
	hit := make(map[arch.Addr]bool)
	refused := make(map[arch.Addr]bool)
	for _, fn := range funcs {
		refused[arch.Addr(fn.Addr)] = true
	}
	for _, p := range ps {
		hit[p.Addr] = p.Hits() > 0
		delete(refused, p.Addr)
	}
	var out []symbol.Symbol
	for i, fn := range funcs {
		a := arch.Addr(fn.Addr)
		if !refused[a] && !refusedByUprobes(t, s, fn) && (hit[a] || i%(len(funcs)/others) == 0) {
			out = append(out, fn)
		}
	}
	return out
}

// The work has no threads and no children: the tools differ in whether those
// count. Nor has it names of temporary files and numbers of ports, which are
// never the same twice.
func TestCountsAgreeWithUprobes(t *testing.T) {
	tool := counter(countGDB) // where there are none
	if u, err := mountTracefs(t); err == nil {
		tool = u.count
	} else {
		t.Logf("no uprobes: %v", err)
	}
	start, program := privatePython(t)
	for _, base := range []string{"libc.so.6", program} {
		t.Run(base, func(t *testing.T) { compareCounts(t, tool, start, base, "repeatable 3", 100) })
	}
}

func TestCountsAgreeWithGDB(t *testing.T) {
	gdbPath(t)
	start, _ := privatePython(t)
	compareCounts(t, countGDB, start, "libc.so.6", "repeatable 1", 30)
}

// refusedByUprobes tells functions that the kernel's uprobes do not take
// (ENOTSUPP): those of which the first instruction has a vector prefix.
func refusedByUprobes(t testing.TB, s *kprobe.Session, fn symbol.Symbol) bool {
	t.Helper()
	b := make([]byte, 1)
	if err := s.ReadMem(arch.Addr(fn.Addr), b); err != nil {
		t.Fatal(err)
	}
	return b[0] == 0xc4 || b[0] == 0xc5 || b[0] == 0x62
}

// privatePython makes copies of the interpreter and of libc that no other process
// runs, and answers how to start one: always at the same addresses.
func privatePython(t testing.TB) (start func(testing.TB) *testprog.Proc, program string) {
	t.Helper()
	setarch, err := exec.LookPath("setarch")
	testprog.Need(t, fmt.Sprintf("setarch: %v", err), err == nil)
	like := harness.StartPython(t)
	dir := t.TempDir()
	for _, path := range []string{harness.ProgramOf(t, like.Pid), harness.MappedFile(t, like.Pid, "libc.so.6")} {
		copyFile(t, path, filepath.Join(dir, filepath.Base(path)))
	}
	program = filepath.Base(harness.ProgramOf(t, like.Pid))
	return func(t testing.TB) *testprog.Proc {
		return harness.StartPythonWith(t, []string{setarch, "-R", filepath.Join(dir, program)}, "LD_LIBRARY_PATH="+dir, "PYTHONHOME=/usr")
	}, program
}

func copyFile(t testing.TB, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, b, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A kernel's uprobe is somebody else's breakpoint: it is seen, and left alone.
func TestUprobesAreLeftAlone(t *testing.T) {
	u, err := mountTracefs(t)
	testprog.Need(t, fmt.Sprintf("uprobes (root and tracefs): %v", err), err == nil)
	path := filepath.Join(t.TempDir(), "jumpers")
	copyFile(t, testprog.Build(t, "jumpers", "-O2"), path)
	p := testprog.Start(t, path)
	funcs := slices.DeleteFunc(harness.Entries(t, p.Pid, path), func(fn symbol.Symbol) bool { return fn.Name != "jumper" })
	counts := u.count(t, p.Pid, path, funcs, func() {
		q, err := ptrace.Attach(p.Pid)
		if err != nil {
			t.Fatal(err)
		}
		s, err := kprobe.Open(q, nil)
		if err != nil {
			t.Fatal(err)
		}
		harness.Errno(t, s.RegisterKprobe(&kprobe.Kprobe{SymbolName: "jumper"}), syscall.EBUSY)
		p.Round("100")
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		p.Round("100")
	})
	if len(counts) != 1 || counts[0] != 200 {
		t.Errorf("the uprobe counted %v", counts)
	}
	harness.RemainsOf(t, p.Pid).Check(t)
}
