// Package foreign runs the suites of other packages on other machines than this one: built for
// the machine, in a guest with a kernel of its own.
package foreign

import (
	"flag"
	"testing"
	"time"

	"kprobe/internal/testprog"
	"kprobe/internal/vm"
	"kprobe/internal/vm/vmtest"
)

func TestMain(m *testing.M) { vmtest.Main(m) }

var long = flag.Duration("native.long", time.Minute, "how long these may take")

var only = flag.String("native.run", "", "run these tests in the guest only: a `PATTERN` as of -run")

// recipes are the programs that the suites below build on every machine. A suite that asks for another says so.
var recipes = []testprog.Recipe{
	{Name: "jumpers", Flags: []string{"-O2", "-static", "-no-pie"}},
	{Name: "threads", Flags: []string{"-O2"}},
	{Name: "jumpers", Flags: []string{"-O2"}},
	{Name: "rets", Flags: []string{"-O2"}},
	{Name: "args", Flags: []string{"-O2"}},
	{Name: "args", Flags: []string{"-O0"}},
	{Name: "forks", Flags: []string{"-O2"}},
	{Name: "vforks", Flags: []string{"-O2"}},
	{Name: "values", Flags: []string{"-O2"}},
	{Name: "signalled", Flags: []string{"-O2"}},
	{Name: "lives", Flags: []string{"-O2"}},
	{Name: "remaps", Flags: []string{"-O2"}},
	{Name: "sleepers", Flags: []string{"-O2"}},
	{Name: "environs", Flags: []string{"-O2"}},
	{Name: "conform", Flags: []string{"-O2"}},
	{Name: "signals", Flags: []string{"-O2"}},
	{Name: "dl", Flags: []string{"-O2"}},
	{Name: "seizes", Flags: []string{"-O2"}},
	{Name: "dlib", Flags: []string{"-shared", "-fPIC", "-O2"}},
	{Name: "goprog"},
	{Name: "gostorm"},
	{Name: "gostorm", Flags: []string{"-ldflags=-s -w"}},
}

// suites are every machine's: they hold its own parts to handlers, returns, and targets that outlive their controller.
// conforms has more tests of the first, and except the cases that mean nothing there.
func suites(conforms string, except map[string]string) []vmtest.Suite {
	except["TestConform/CallsUnderWay/switch_off"] = "returns are noticed at exits, which are switched off with the rest"
	return []vmtest.Suite{
		{Package: "kprobe/test/conform", Short: true, Long: 15 * time.Minute, Except: except,
			Run: "^(TestConform|TestHitsAreCounted|TestPostHandlerSeesTheEffect|TestReturnProbe" + conforms + ")$"},
		{Package: "kprobe/test/life", Short: true, Run: "^TestLifeFollow"},
		{Package: "kprobe/test/torture", Short: true, Run: "^(TestKilledControllerLeavesAHealthyTarget|TestSoakKilledWithinCallsOfSleepers)$"},
	}
}

// What a live process promises, and what is built on it, holds on arm64 as it does here.
func TestARM64(t *testing.T) {
	guarded := []string{"-O2", "-DGUARDED", "-nostartfiles", "-mbranch-protection=standard", "-Wl,-z,force-bti"}
	own := []testprog.Recipe{
		{Name: "threads", Flags: []string{"-O2", "-mbranch-protection=standard"}},
		{Name: "threads", Flags: guarded},
		{Name: "signals", Flags: guarded},
		{Name: "rets", Flags: guarded},
		{Name: "watched", Flags: []string{"-O2"}},
		{Name: "callers", Flags: []string{"-O0", "-g"}},
		{Name: "gostorm", Flags: []string{"-buildmode=pie"}},
	}
	native(t, "arm64", append(own, recipes...), append([]vmtest.Suite{
		{Package: "kprobe/target/ptrace"},
		{Package: "kprobe/trace", Run: "^(TestCapturedInside|TestTracerEndsWithItsSession|TestStat|TestCallers)$", Short: true},
		{Package: "kprobe/test/inside", Short: true, Long: 15 * time.Minute,
			Run: "^(TestCountOnly|TestSignalsWhileCounting|TestProgramsInside|TestInsideExitsInC|TestSignalsUnderJumps|TestProgramsAtEveryInstruction|TestProgramsInGo)$"},
		{Package: "kprobe/test/torture", Run: "^TestKilledControllerOfJumps$", Short: true},
	}, suites("|TestGoArguments", map[string]string{})...)...)
}

// On riscv64 live processes are what targets have to be, and sessions with handlers hold what they promise. A guest is booted once, in the
// ordinary pass.
func TestRISCV64(t *testing.T) {
	if testing.Short() && !testprog.Gate() { // the gate leaves that to make lint
		vmtest.BuildTests(t, "riscv64", "kprobe/target/ptrace")
		return
	}
	native(t, "riscv64", recipes, append([]vmtest.Suite{{Package: "kprobe/target/ptrace", Run: "^TestConformance$", Short: true}},
		suites("|TestGoArguments", map[string]string{"TestGoArguments/-buildmode=pie": "Go links such programs for riscv64 with cgo only"})...)...)
}

// On s390x, which is big-endian, as on riscv64.
func TestS390X(t *testing.T) {
	if testing.Short() && !testprog.Gate() { // the gate leaves that to make lint
		vmtest.BuildTests(t, "s390x", "kprobe/target/ptrace")
		return
	}
	native(t, "s390x", recipes, append([]vmtest.Suite{{Package: "kprobe/target/ptrace", Run: "^TestConformance$", Short: true}},
		suites("", map[string]string{})...)...)
}

// On ppc64le, whose kernel has pages of 64 KiB, as on riscv64.
func TestPPC64LE(t *testing.T) {
	if testing.Short() && !testprog.Gate() { // the gate leaves that to make lint
		vmtest.BuildTests(t, "ppc64le", "kprobe/target/ptrace")
		return
	}
	native(t, "ppc64le", recipes, append([]vmtest.Suite{{Package: "kprobe/target/ptrace", Run: "^TestConformance$", Short: true}},
		suites("", map[string]string{})...)...)
}

// Not each x86-64 machine runs 32-bit programs, and a guest on it does. What programs do with processes and signals
// holds for those of i386.
func TestI386(t *testing.T) {
	flags := []string{"-O2", "-m32"}
	own := []testprog.Recipe{{Name: "sigtraps", Flags: []string{"-O2", "-pthread", "-m32"}}}
	for _, name := range []string{"runner", "lives", "forks", "vforks", "seizes", "signalled", "sleepers", "environs"} {
		own = append(own, testprog.Recipe{Name: name, Flags: flags})
	}
	native(t, "amd64", own, vmtest.Suite{Package: "kprobe/test/life", Short: true, Env: []string{"KPROBE_TEST_CFLAGS=-m32"},
		Run: "^(TestLifeFollow|TestLifeFollowSignalledChildren|TestLifeFollowNobodyComes|TestLifeTracedChild|" +
			"TestTrapHandlerSetWhileProbedMeetsTraps|TestTrapHandlerForOnce|TestTrapActionOfVforkChild)$"})
}

func native(t *testing.T, machine string, recipes []testprog.Recipe, suites ...vmtest.Suite) {
	t.Helper()
	testprog.Long(t, "it boots a guest")
	if testing.Short() {
		suites = suites[:1] // what the others stand on
	}
	for i := range suites {
		suites[i].Short = suites[i].Short || testing.Short()
		if *only != "" {
			suites[i].Run, suites[i].Long = *only, *long
		}
		suites[i].Env = append(suites[i].Env, testprog.GuestEnv, "CI=1")
	}
	files := testprog.Ready(t, machine, recipes...)
	vs := vmtest.RunIn(t, vm.Config{Machine: machine, Memory: 1536, CPUs: 2, Files: files}, suites...)
	t.Logf("%s in its guest:\n%s", machine, vmtest.Table(vs))
}
