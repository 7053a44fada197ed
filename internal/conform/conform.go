// Package conform is kprobes.txt as tests, in a section each, for whatever can be
// probed: what a session promises of code that is the same everywhere
// (internal/testprog's conform.c, as a program and as a kernel's module) and that can
// be told what to call. What only a process, or only a kernel, can do is tested
// where that target is.
package conform

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"kprobe"
	"kprobe/arch"
)

// Victim is who plays rounds of conform.c.
type Victim struct {
	// Start has a round played; what it answers waits for the end, and tells what
	// was said.
	Start func(t testing.TB, round string) (wait func() []string)

	// Attach opens a session. The end of the test closes it, unless that has been
	// done, and holds it to leaving the code as it was.
	Attach func(t testing.TB, o *kprobe.Options) *kprobe.Session

	// Text is conform.c's code as anybody sees it who reads memory.
	Text func(t testing.TB) []byte

	// Home is what a list says of where conform.c is: "" where it is the program.
	Home string

	// Visible says that Text shows breakpoints. Those of a stub it does not.
	Visible bool

	// Data and Nowhere are addresses that no code is at; nothing is at Nowhere.
	Data, Nowhere arch.Addr
}

// tests are all of them, by the section of kprobes.txt.
var tests = []struct {
	name string
	f    func(*testing.T, *Victim)
}{
	{"OrderAtOneAddress", orderAtOneAddress},                   // 1.1
	{"MaxActive", maxActive},                                   // 1.3.1
	{"CallsUnderWay", callsUnderWay},                           // 1.3.1
	{"EntryHandlerVeto", entryHandlerVeto},                     // 1.3.2
	{"PrivateData", privateData},                               // 1.3.2
	{"ReturnsTogether", returnsTogether},                       // 1.3
	{"HandlersAreOptional", handlersAreOptional},               // 4.1
	{"PreHandlerMovesThePC", preHandlerMovesThePC},             // 4.1
	{"RegistersAreTheThreads", registersAreTheThreads},         // 4.1
	{"MemoryChanges", memoryChanges},                           // 4.1
	{"PanickingHandler", panickingHandler},                     // 4.1
	{"PlaceRefused", placeRefused},                             // 4.1
	{"AddrAndOffset", addrAndOffset},                           // 4.1
	{"SameStructTwice", sameStructTwice},                       // 4.1
	{"Flags", flags},                                           // 4.1
	{"BlackList", blackList},                                   // 1.5
	{"JprobeArguments", jprobeArguments},                       // 1.2, 4.2
	{"JprobeRefused", jprobeRefused},                           // 4.2
	{"JprobeBadPointers", jprobeBadPointers},                   // 4.2
	{"ReturnRefused", returnRefused},                           // 4.3
	{"UnregisterWaitsForHandlers", unregisterWaitsForHandlers}, // 4.4
	{"BatchRollsBack", batchRollsBack},                         // 4.5
	{"UnregisterBadEntries", unregisterBadEntries},             // 4.6
	{"DisableAndEnable", disableAndEnable},                     // 4.7, 4.8
	{"NoRegistrationFromHandlers", noRegistrationFromHandlers}, // 5
	{"HandlersRunOneAfterAnother", handlersRunOneAfterAnother}, // 5
	{"List", list}, // appendix A
	{"AfterClose", afterClose},
}

// engines are the tests of the engine alone: they are the same for all targets.
var engines = []string{"MaxActive", "EntryHandlerVeto", "PrivateData", "HandlersAreOptional", "PanickingHandler", "SameStructTwice", "JprobeRefused",
	"JprobeBadPointers", "UnregisterBadEntries", "NoRegistrationFromHandlers", "List", "AfterClose"}

// Briefly are the tests that -short leaves out where targets are slow: processes are held to them.
func Briefly() []string {
	if testing.Short() {
		return engines
	}
	return nil
}

// Run holds victims to all of it. Each test has one of its own from open, or what
// is as good. Those of names in without are left out: what they ask for the target does not have.
func Run(t *testing.T, open func(testing.TB) *Victim, without ...string) {
	for _, test := range tests {
		if slices.Contains(without, test.name) {
			continue
		}
		t.Run(test.name, func(t *testing.T) { test.f(t, open(t)) })
	}
}

// play is a round under probes. What handlers and the test write is seen by
// the other: both ends wait for the thread that handlers run on.
func (v *Victim) play(t testing.TB, s *kprobe.Session, format string, args ...any) []string {
	t.Helper()
	settle(t, s)
	defer settle(t, s)
	return v.Start(t, fmt.Sprintf(format, args...))()
}

func settle(t testing.TB, s *kprobe.Session) {
	t.Helper()
	ok(t, s.SetEnabled(s.Enabled()))
}

// same plays a round and compares it with what it says without probes.
func (v *Victim) same(t testing.TB, s *kprobe.Session, want []string, round string) {
	t.Helper()
	if got := v.play(t, s, "%s", round); !slices.Equal(got, want) {
		t.Errorf("under probes:\n%s\nwithout:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// jumper(a, b) is a*3 + b; sum has it called with its last result and 0, 1, 2 ...
// and answers the last result of n calls.
func (v *Victim) sum(t testing.TB, s *kprobe.Session, n int) uint64 {
	t.Helper()
	var calls int
	var r uint64
	said := v.play(t, s, "jumper %d", n)
	if len(said) == 0 {
		t.Fatal("it said nothing")
	}
	if _, err := fmt.Sscanf(said[0], "jumper %d %d", &calls, &r); err != nil || calls != n {
		t.Fatalf("%q", said)
	}
	return r
}

func sumOf(n int) (r uint64) {
	for i := range n {
		r = r*3 + uint64(i)
	}
	return r
}

// where is a function of the victim's: the addresses of its instructions, and its
// end. A kernel's symbols have no sizes, so padding belongs to the function before.
func where(t testing.TB, s *kprobe.Session, name string) (at []arch.Addr, end arch.Addr) {
	t.Helper()
	loc, err := s.Lookup(name)
	ok(t, err)
	end = loc.End()
	for pc := loc.Start(); pc < end; {
		e := s.Plan(&kprobe.Kprobe{Addr: pc})
		if a := s.Arch(); len(e.Bytes) == 0 && a.MinInsn == 4 {
			pc += arch.Addr(a.MinInsn) // in a delay slot, or the compiler's table behind the code: no place for a probe
			continue
		}
		if len(e.Bytes) == 0 {
			t.Fatalf("no instruction: %v", e)
		}
		at = append(at, pc)
		pc += arch.Addr(len(e.Bytes))
	}
	return at, end
}

// returnAddress is where a function goes back to, at its entry; leave has it do so.
func returnAddress(s *kprobe.Session, regs *kprobe.Regs) (uint64, error) {
	if a := s.Arch(); !a.RetAddrOnStack {
		return regs.Get(a.LR), nil
	}
	return regs.Word(regs.SP())
}

func leave(s *kprobe.Session, regs *kprobe.Regs) error {
	ret, err := returnAddress(s, regs)
	if a := s.Arch(); a.RetAddrOnStack {
		regs.Set(a.SP, uint64(regs.SP())+uint64(a.PtrSize))
	}
	regs.SetPC(arch.Addr(ret))
	return err
}

// returns are the bytes of a plain return, by the machine's name.
var returns = map[string]string{"amd64": "\xc3", "arm64": "\xc0\x03\x5f\xd6", "riscv64": "\x82\x80", "s390x": "\x07\xfe",
	"ppc": "\x4e\x80\x00\x20", "ppc64le": "\x20\x00\x80\x4e"}

// returnOf finds the return of a function that has one only, at the end.
func returnOf(t testing.TB, s *kprobe.Session, at []arch.Addr) (i int) {
	t.Helper()
	for i, pc := range at {
		if b := s.Plan(&kprobe.Kprobe{Addr: pc}).Bytes; string(b) == returns[s.Arch().Name] {
			return i
		}
	}
	t.Fatal("no return")
	return 0
}

func register(t testing.TB, s *kprobe.Session, ps ...*kprobe.Kprobe) {
	t.Helper()
	ok(t, s.RegisterKprobes(ps))
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func errno(t testing.TB, err error, want syscall.Errno) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("error is %v, not errno %d (%v)", err, int(want), want)
	}
}

// pre makes a pre-handler that lets the instruction be.
func pre(f func(regs *kprobe.Regs)) func(*kprobe.Kprobe, *kprobe.Regs) int {
	return func(_ *kprobe.Kprobe, regs *kprobe.Regs) int {
		f(regs)
		return 0
	}
}

// failed is the entry that a batch failed for.
func failed(err error) int {
	if b := (*kprobe.BatchError)(nil); errors.As(err, &b) {
		return b.Index
	}
	return -1
}

func listText(t testing.TB, s *kprobe.Session) string {
	t.Helper()
	var b bytes.Buffer
	ok(t, kprobe.WriteList(&b, s.List()))
	return b.String()
}
