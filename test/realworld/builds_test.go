package realworld

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"kprobe"
	"kprobe/arch"
	"kprobe/internal/testprog"
	"kprobe/symbol"
	"kprobe/test/harness"
)

// Every way that a program can be built and found: without a dynamic linker,
// with another C library, by another compiler, out of another root directory,
// and without a file that could be opened by its name.

// probedRound puts probes on all functions given, runs a round, and leaves.
func probedRound(t testing.TB, p *testprog.Proc, funcs []symbol.Symbol, least int, round string) {
	t.Helper()
	want := p.Round("%s", round)
	before := harness.RemainsOf(t, p.Pid)
	s := harness.Attach(t, p.Pid, nil)
	ps := harness.RegisterEntries(t, s, harness.EntryProbes(t, funcs))
	harness.SameLines(t, p.Round("%s", round), want)
	n, hits := harness.Reached(ps)
	t.Logf("%d functions were reached, %d hits", n, hits)
	if n < least {
		t.Errorf("only %d functions of %d were reached", n, len(ps))
	}
	harness.Detach(t, s)
	before.Check(t)
	harness.SameLines(t, p.Round("%s", round), want)
	if r := p.Result(); !r.OK() {
		t.Error(r)
	}
}

func TestAllFunctionsOfEveryBuild(t *testing.T) {
	for _, build := range [][]string{
		{"-static"}, {"-static-pie"}, {"-no-pie"}, {"-fcf-protection=full"}, {"-static", "-s"}, {"-s"},
		{"CC=musl-gcc"}, {"CC=musl-gcc", "-static"}, {"CC=musl-gcc", "-static", "-s"},
	} {
		t.Run(strings.Join(build, ""), func(t *testing.T) {
			path := testprog.Build(t, "args", append([]string{"-O2"}, build...)...)
			p := testprog.Start(t, path)
			p.Round("1")
			funcs := harness.Entries(t, p.Pid, path)
			if !slices.Contains(build, "-static") && slices.Contains(build, "CC=musl-gcc") {
				// The C library is the dynamic linker too.
				funcs = append(funcs, harness.Entries(t, p.Pid, muslOf(t, p.Pid))...)
			}
			probedRound(t, p, funcs, 8, "3")
		})
	}
}

func muslOf(t testing.TB, pid int) string {
	t.Helper()
	ms, err := testprog.Mappings(pid)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range ms {
		if m.Executable() && (strings.Contains(m.Path, "musl")) && m.File() {
			return m.Path
		}
	}
	t.Fatalf("no musl in %v", ms)
	return ""
}

// A Go program with probes on every function, those of its scheduler, its
// allocator and its collector included, which run on stacks of their own.
func TestAllFunctionsOfAGoProgram(t *testing.T) {
	builds := [][]string{nil, {"-buildmode=pie"}, {"-ldflags=-s -w"}}
	if testing.Short() {
		builds = builds[1:]
	}
	for _, flags := range builds {
		t.Run(strings.Join(flags, ""), func(t *testing.T) {
			path := testprog.Build(t, "goprog", flags...)
			p := testprog.Start(t, path)
			p.Round("10")
			funcs := slices.DeleteFunc(harness.Entries(t, p.Pid, path), func(fn symbol.Symbol) bool {
				// The linker's marks, which have padding behind them: traps.
				return slices.Contains([]string{"go:textfipsstart", "go:textfipsend", "runtime.etext"}, fn.Name)
			})
			if len(funcs) < 1000 {
				t.Fatalf("%d functions", len(funcs))
			}
			s := harness.Attach(t, p.Pid, nil)
			leaf := slices.IndexFunc(funcs, func(fn symbol.Symbol) bool { return fn.Name == "main.goLeaf" })
			if leaf < 0 {
				t.Fatal("main.goLeaf has no symbol")
			}
			rp := &kprobe.Kretprobe{Kp: kprobe.Kprobe{Addr: arch.Addr(funcs[leaf].Addr)}, Engine: kprobe.EngineSwap}
			harness.Errno(t, s.RegisterKretprobe(rp), syscall.ENOTSUP)
			harness.Detach(t, s)
			probedRound(t, p, funcs, 150, "100")
		})
	}
}

// A function of a Go program is counted once a call, although the scheduler takes
// calls away with a signal just before the probed instruction runs, and lets them
// go on later, perhaps on another thread. Calls are many, or it would hardly happen.
func TestGoFunctionIsCounted(t *testing.T) {
	calls := 20000
	if testing.Short() {
		calls = 2000
	}
	p := testprog.Start(t, testprog.Build(t, "goprog"))
	want := p.Round("%d", calls)
	s := harness.Attach(t, p.Pid, nil)
	leaf := &kprobe.Kprobe{SymbolName: "main.goLeaf"}
	grow := &kprobe.Kprobe{SymbolName: "main.goGrow"} // its stack moves under it
	throws := &kprobe.Kprobe{SymbolName: "main.goPanic"}
	if err := s.RegisterKprobes([]*kprobe.Kprobe{leaf, grow, throws}); err != nil {
		t.Fatal(err)
	}
	harness.SameLines(t, p.Round("%d", calls), want)
	// Entries to a function that must grow its stack are executed again.
	if leaf.Hits() != 4*uint64(calls) || grow.Hits() < 101+102+103+104 || throws.Hits() != 11 {
		t.Errorf("%d, %d and %d hits", leaf.Hits(), grow.Hits(), throws.Hits())
	}
}

// argsNames are functions of testdata/args.c that a round calls as often as told.
var argsNames = []string{"args_ints", "args_many", "args_float", "args_struct", "args_pointer"}

// byName probes functions of a module by name, where the test could not say an
// address: that the names are found is what is tested. Each is hit want times a round.
func byName(t testing.TB, p *testprog.Proc, module string, names []string, round string, want uint64) {
	t.Helper()
	answers := p.Round("%s", round)
	before := harness.RemainsOf(t, p.Pid)
	s := harness.Attach(t, p.Pid, nil)
	var ps []*kprobe.Kprobe
	for _, name := range names {
		ps = append(ps, &kprobe.Kprobe{SymbolName: module + ":" + name})
	}
	if err := s.RegisterKprobes(ps); err != nil {
		t.Fatal(err)
	}
	harness.SameLines(t, p.Round("%s", round), answers)
	for _, k := range ps {
		if k.Hits() != want || k.NMissed() != 0 {
			t.Errorf("%s: %d hits, %d missed, want %d", k.SymbolName, k.Hits(), k.NMissed(), want)
		}
	}
	harness.Detach(t, s)
	before.Check(t)
	harness.SameLines(t, p.Round("%s", round), answers)
}

// A program out of another root directory, on a file system that only its own
// mount namespace has, as those in containers are: the path that maps tells is
// nothing here.
func TestProgramInAContainer(t *testing.T) {
	testprog.Need(t, "root, for chroot and mount namespaces", os.Getuid() == 0)
	unshare, err := exec.LookPath("unshare")
	testprog.Need(t, fmt.Sprintf("unshare: %v", err), err == nil)
	static := testprog.Build(t, "args", "-O2", "-static", "-no-pie")
	script := `mount -t tmpfs none "$1" && cp "$2" "$1/program" && exec chroot "$1" /program`
	p := testprog.StartCmd(t, exec.Command(unshare, "--mount", "--net", "--ipc", "--uts", "sh", "-c", script, "sh", t.TempDir(), static))
	p.Expect("ready")
	if _, err := os.Stat("/program"); err == nil {
		t.Fatal("there is a /program outside as well")
	}
	byName(t, p, "program", argsNames, "5", 5)
	probedRound(t, p, slices.DeleteFunc(harness.OpenELF(t, static).Funcs(), func(fn symbol.Symbol) bool {
		return fn.Source == symbol.Plt
	}), 30, "2")
}

// A process in a process namespace has another id for itself than for us.
func TestProgramInAProcessNamespace(t *testing.T) {
	testprog.Need(t, "root, for process namespaces", os.Getuid() == 0)
	unshare, err := exec.LookPath("unshare")
	testprog.Need(t, fmt.Sprintf("unshare: %v", err), err == nil)
	p := testprog.StartCmd(t, exec.Command(unshare, "--pid", "--mount-proc", "--fork", "--kill-child",
		testprog.Build(t, "threads", "-O2")))
	p.Expect("ready")
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", p.Pid))
	if err != nil {
		t.Fatal(err)
	}
	inner, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	want := p.Round("200")
	before := harness.RemainsOf(t, inner)
	s := harness.Attach(t, inner, nil)
	ps := harness.RegisterEntries(t, s, harness.EntryProbes(t, harness.Entries(t, inner, harness.MappedFile(t, inner, "libc.so.6"))))
	harness.SameLines(t, p.Round("200"), want)
	n, hits := harness.Reached(ps)
	t.Logf("%d functions were reached, %d hits", n, hits)
	if n < 10 {
		t.Error("hardly a function was reached")
	}
	harness.Detach(t, s)
	before.Check(t)
	harness.SameLines(t, p.Round("200"), want)
}

// What runs is what was started, whatever is on the disk by now.
func TestProgramGoneFromDisk(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(t *testing.T, path string) (module string)
	}{
		{"deleted", func(t *testing.T, path string) string {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			return path
		}},
		{"upgraded", func(t *testing.T, path string) string {
			// The way of package managers: a new file takes the name. Its
			// functions are elsewhere.
			copyFile(t, testprog.Build(t, "args", "-O0"), path+".new")
			if err := os.Rename(path+".new", path); err != nil {
				t.Fatal(err)
			}
			return path
		}},
		{"renamed", func(t *testing.T, path string) string {
			if err := os.Rename(path, path+".old"); err != nil {
				t.Fatal(err)
			}
			return path + ".old"
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "args")
			copyFile(t, testprog.Build(t, "args", "-O2"), path)
			p := testprog.Start(t, path)
			byName(t, p, path, argsNames, "5", 5)
			byName(t, p, c.change(t, path), argsNames, "5", 5)
			if r := p.Result(); !r.OK() {
				t.Error(r)
			}
		})
	}
}

// The same for a library, which there is no /proc/PID/exe to.
func TestLibraryUpgradedOnDisk(t *testing.T) {
	testprog.Need(t, "root, to open replaced files through /proc", os.Getuid() == 0)
	lib := filepath.Join(t.TempDir(), "dlib.so")
	copyFile(t, testprog.Build(t, "dlib", "-shared", "-fPIC", "-O2"), lib)
	p := testprog.Start(t, testprog.Build(t, "dl", "-O2"), lib)
	p.Round("open")
	copyFile(t, testprog.Build(t, "dlib", "-shared", "-fPIC", "-O0"), lib+".new")
	if err := os.Rename(lib+".new", lib); err != nil {
		t.Fatal(err)
	}
	byName(t, p, "dlib.so", []string{"dlib_call"}, "call 20", 1)
}
