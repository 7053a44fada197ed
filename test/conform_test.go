package test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"kprobe"
	"kprobe/arch"
	"kprobe/internal/isa/amd64"
	"kprobe/internal/testprog"
	"kprobe/symbol"
	"kprobe/target"
	"kprobe/target/ptrace"
)

// TestConform holds the package to kprobes.txt where processes and kernels are alike, the
// other conform_*_test.go files in what only processes have, a section each.
// What the programs of internal/testprog do not do, small ones below do.

// prelude is what these programs share: a round for each line of input.
const prelude = `
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#define PROBED __attribute__((noinline, noclone, used, visibility("default")))
#define BARRIER() __asm__ volatile("" ::: "memory")
static char line[100];
static inline int next(void)
{
	static int running;
	puts(running++ ? "done" : "ready");
	fflush(stdout);
	if (!fgets(line, sizeof line, stdin))
		return 0;
	line[strcspn(line, "\n")] = 0;
	return 1;
}
`

// compile builds a program, or with -shared a library, from C text.
func compile(t testing.TB, name, source string, flags ...string) string {
	t.Helper()
	dir := t.TempDir()
	c := filepath.Join(dir, name+".c")
	if err := os.WriteFile(c, []byte(prelude+source), 0o644); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, name)
	flags = append(flags[:len(flags):len(flags)], testprog.MachineFlags()...)
	cmd := exec.Command("gcc", append([]string{"-g", "-O2", "-pthread", "-idirafter", "/usr/include/x86_64-linux-gnu", "-o", out, c}, flags...)...)
	if msg, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, msg)
	}
	return out
}

// rawText reads a program's own text as it is, breakpoints and all.
func rawText(t testing.TB, pid int, path string) []byte {
	t.Helper()
	ms, err := testprog.Mappings(pid)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range ms {
		if m.Path == path && m.Executable() {
			return rawMem(t, pid, arch.Addr(m.Start), int(m.End-m.Start))
		}
	}
	t.Fatalf("no text of %s in process %d", path, pid)
	return nil
}

func rawMem(t testing.TB, pid int, at arch.Addr, n int) []byte {
	t.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, n)
	if _, err := f.ReadAt(b, int64(at)); err != nil {
		t.Fatal(err)
	}
	return b
}

func writeRaw(t testing.TB, pid int, at arch.Addr, b []byte) {
	t.Helper()
	f, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(b, int64(at)); err != nil {
		t.Fatal(err)
	}
}

// funcNamed finds one function of a program.
func funcNamed(t testing.TB, pid int, path, name string) symbol.Symbol {
	t.Helper()
	for _, fn := range funcsOf(t, pid, path) {
		if fn.Name == name {
			return fn
		}
	}
	t.Fatalf("%s has no function %s", path, name)
	return symbol.Symbol{}
}

// mapping finds what is mapped under a name that the kernel gives.
func mapping(t testing.TB, pid int, name string) testprog.Mapping {
	t.Helper()
	ms, err := testprog.Mappings(pid)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(ms, func(m testprog.Mapping) bool { return m.Path == name })
	if i < 0 {
		t.Fatalf("process %d has no %s", pid, name)
	}
	return ms[i]
}

func register(t testing.TB, s *kprobe.Session, ps ...*kprobe.Kprobe) {
	t.Helper()
	if err := s.RegisterKprobes(ps); err != nil {
		t.Fatal(err)
	}
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// pre makes a pre-handler that lets the instruction be.
func pre(f func(regs *kprobe.Regs)) func(*kprobe.Kprobe, *kprobe.Regs) int {
	return func(_ *kprobe.Kprobe, regs *kprobe.Regs) int {
		f(regs)
		return 0
	}
}

// stopCounter counts how often the target was stopped as a whole.
type stopCounter struct {
	*ptrace.Process
	n atomic.Int64
}

func (c *stopCounter) Freeze() ([]target.Stop, error) {
	c.n.Add(1)
	return c.Process.Freeze()
}

// attachCounted is attach with a stopCounter.
func attachCounted(t testing.TB, pid int) (*kprobe.Session, *stopCounter) {
	t.Helper()
	p, err := ptrace.Attach(pid)
	ok(t, err)
	c := &stopCounter{Process: p}
	s, err := kprobe.Open(c, nil)
	ok(t, err)
	t.Cleanup(func() { detach(t, s) })
	return s, c
}

// round is a round under probes. What handlers and the test write is seen by
// the other: both ends wait for the thread that handlers run on.
func round(t testing.TB, s *kprobe.Session, p *testprog.Proc, format string, args ...any) []string {
	t.Helper()
	settle(t, s)
	defer settle(t, s)
	return p.Round(format, args...)
}

func settle(t testing.TB, s *kprobe.Session) {
	t.Helper()
	ok(t, s.SetEnabled(s.Enabled()))
}

// listOf is the list as its file has it, without what was registered by others.
func listOf(t testing.TB, s *kprobe.Session) string {
	t.Helper()
	var b bytes.Buffer
	ok(t, kprobe.WriteList(&b, s.List()))
	return b.String()
}

// sameRound runs a round and compares it with an unprobed one.
func sameRound(t testing.TB, s *kprobe.Session, p *testprog.Proc, want []string, line string) {
	t.Helper()
	if got := round(t, s, p, "%s", line); !slices.Equal(untimed(got), untimed(want)) {
		t.Errorf("under probes:\n%s\nwithout:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// untimed is what a round prints, without how often timers came: that is another matter.
func untimed(lines []string) []string {
	return slices.DeleteFunc(slices.Clone(lines), func(l string) bool { return strings.HasPrefix(l, "timers ") })
}

// ends holds a program to an end in order.
func ends(t testing.TB, p *testprog.Proc) {
	t.Helper()
	if r := p.Result(); !r.OK() {
		t.Errorf("the program ended so: %s", r)
	}
}

func writeFile(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// length is that of an instruction.
func length(t testing.TB, s *kprobe.Session, at arch.Addr) int {
	t.Helper()
	b := make([]byte, arch.AMD64.MaxInsn)
	ok(t, s.ReadMem(at, b))
	in, err := amd64.New(s.Arch()).Decode(b, at)
	ok(t, err)
	return in.Len
}

// disassemble is objdump's text of one instruction.
func disassemble(t testing.TB, code []byte) string {
	t.Helper()
	file := writeFile(t, "code", string(code))
	out, err := exec.Command("objdump", "-D", "-b", "binary", "-m", "i386:x86-64", file).Output()
	ok(t, err)
	return string(out)
}

// hasErrno tells an errno without failing the test.
func hasErrno(err error, want syscall.Errno) bool { return errors.Is(err, want) }
