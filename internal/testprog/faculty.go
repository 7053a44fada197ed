package testprog

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Faculty is something that most machines can do and some, for all that anybody installs,
// cannot: a hypervisor may not run 32-bit programs, or never report a watchpoint. It is asked
// of the machine itself, by nothing of the project's: a defect of ours is never taken for it.
type Faculty struct {
	name string
	try  func(testing.TB) error // why the machine does not have it
	once sync.Once
	err  error
}

// The faculties that tests of ours need.
var (
	Programs32 = &Faculty{name: "32-bit programs", try: runs32}
	Watches    = &Faculty{name: "watchpoints", try: watches}
	// ReadsFSBase is the instruction by which a Go program's threads are told apart on x86-64.
	ReadsFSBase = &Faculty{name: "rdfsbase", try: readsFSBase}
	// PIDNamespaces is to make one: root may, unless it is confined.
	PIDNamespaces = &Faculty{name: "namespaces of processes", try: makesPIDNamespaces}
	// RunTimes are what the scheduler counts for each thread.
	RunTimes = &Faculty{name: "run times of threads", try: countsRunTimes}
	// MemoryGroups are control groups that count memory: root may make one, where such groups are mounted.
	MemoryGroups = &Faculty{name: "control groups of memory", try: makesMemoryGroups}
	// Freezers are control groups that keep processes from running: root may make one, where version 2 is mounted.
	Freezers = &Faculty{name: "control groups that freeze", try: makesFreezers}
	// LocksMemory is to keep any amount of memory from being swapped out: root may, unless it is confined.
	LocksMemory = &Faculty{name: "locked memory", try: func(testing.TB) error { return hasCapability(14, "CAP_IPC_LOCK") }}
	// RaisesLimits is to give a process more than it may give itself: root may, unless it is confined.
	RaisesLimits = &Faculty{name: "raised limits", try: func(testing.TB) error { return hasCapability(24, "CAP_SYS_RESOURCE") }}
	// WaitsAsleep is a followed child's wait for its session: on x86-64 it sleeps in the kernel, elsewhere it loops.
	WaitsAsleep = &Faculty{name: "followed children that wait asleep", try: func(testing.TB) error { return onlyOn("x86_64") }}
	// SyscallDispatch is to have the kernel hand a program's system calls back to it.
	SyscallDispatch = &Faculty{name: "dispatch of system calls", try: dispatchesSyscalls}
	// HoldsPrograms is to be asked before somebody executes a program: root may, unless it is confined.
	HoldsPrograms = &Faculty{name: "fanotify that asks for leave", try: holdsPrograms}
)

// NotHere begins what a test says of a faculty that the machine does not have. The tally
// counts those tests by themselves: they are no skips, which somebody could end.
const NotHere = "not on this machine: "

// On tells whether this machine has the faculty. Where it has not, the test's log says so:
// the test goes on without it.
func (f *Faculty) On(t testing.TB) bool {
	t.Helper()
	f.once.Do(func() { f.err = f.try(t) })
	if f.err != nil {
		t.Logf("%s%s: %v", NotHere, f.name, f.err)
	}
	return f.err == nil
}

// Need ends a test that is about nothing but what the machine does not have.
func (f *Faculty) Need(t testing.TB) {
	t.Helper()
	if !f.On(t) {
		t.SkipNow()
	}
}

// onlyOn returns an error where uname names another machine.
func onlyOn(machine string) error {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return err
	}
	if this := unix.ByteSliceToString(u.Machine[:]); this != machine {
		return fmt.Errorf("%s has it, %s has not", machine, this)
	}
	return nil
}

// needToRun ends a test that would run a program that the machine cannot.
func needToRun(t testing.TB, path string) {
	t.Helper()
	if f, err := elf.Open(path); err == nil {
		defer f.Close()
		if f.Class == elf.ELFCLASS32 && f.Machine == elf.EM_386 {
			Programs32.Need(t)
		}
	}
}

// exits32 is all of a 32-bit program: exit(0) by int $0x80, behind its headers (System V ABI, 4 and 5).
const exits32 = "\x7fELF\x01\x01\x01" + "\x00\x00\x00\x00\x00\x00\x00\x00\x00" + // 32 bits, little endian
	"\x02\x00\x03\x00\x01\x00\x00\x00" + "\x54\x80\x04\x08" + "\x34\x00\x00\x00" + // begins at 0x8048054
	"\x00\x00\x00\x00" + "\x00\x00\x00\x00" + "\x34\x00\x20\x00\x01\x00" + "\x00\x00\x00\x00\x00\x00" +
	"\x01\x00\x00\x00" + "\x00\x00\x00\x00" + "\x00\x80\x04\x08" + "\x00\x80\x04\x08" + // all of the file, at 0x8048000
	"\x5d\x00\x00\x00" + "\x5d\x00\x00\x00" + "\x05\x00\x00\x00" + "\x00\x10\x00\x00" +
	"\xb8\x01\x00\x00\x00" + "\x31\xdb" + "\xcd\x80" // mov $1, %eax; xor %ebx, %ebx; int $0x80

func runs32(t testing.TB) error {
	path := filepath.Join(t.TempDir(), "exits32")
	if err := os.WriteFile(path, []byte(exits32), 0o755); err != nil {
		t.Fatal(err)
	}
	err := exec.Command(path).Run()
	if errors.Is(err, syscall.ENOEXEC) {
		return syscall.ENOEXEC // without the name of a folder that is another each time
	}
	if err != nil { // it began, or could not for another reason: that is no machine's fault
		t.Fatalf("testprog: a 32-bit program that ends at once: %v", err)
	}
	return nil
}

// watches runs a program that watches a word of its child's by ptrace(2).
func watches(t testing.TB) error {
	out, err := exec.Command(Build(t, "watches", "-O1")).CombinedOutput()
	if err != nil {
		t.Fatalf("testprog: watches: %v: %s", err, out)
	}
	if answer := strings.TrimSpace(string(out)); answer != "reported" {
		return errors.New(answer)
	}
	return nil
}

func makesPIDNamespaces(testing.TB) error {
	return exec.Command("unshare", "--pid", "--fork", "true").Run()
}

func countsRunTimes(testing.TB) error {
	b, err := os.ReadFile("/proc/self/schedstat")
	if err == nil && strings.HasPrefix(string(b), "0 ") {
		err = errors.New("/proc/self/schedstat is " + strings.TrimSpace(string(b)))
	}
	return err
}

func readsFSBase(t testing.TB) error {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		t.Fatal(err)
	}
	words := strings.Fields(string(b))
	if !slices.Contains(words, "flags") {
		return nil // not x86-64: a thread's pointer is in a register that every program may read
	}
	if !slices.Contains(words, "fsgsbase") {
		return errors.New("/proc/cpuinfo does not name fsgsbase")
	}
	return nil
}

func hasCapability(bit int, name string) error {
	line, err := statusLine("/proc/self", "CapEff")
	if err != nil {
		return err
	}
	caps, err := strconv.ParseUint(line, 16, 64)
	if err == nil && caps>>bit&1 == 0 {
		err = errors.New(name + " is needed")
	}
	return err
}
