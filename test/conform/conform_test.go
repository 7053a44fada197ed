package conform

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
	"kprobe/test/harness"
)

// TestConform holds the package to kprobes.txt where processes and kernels are alike, the
// others of this folder in what only processes have, a section each.
// What the programs of internal/testprog do not do, small ones below do.

// rawText reads a program's own text as it is, breakpoints and all.
func rawText(t testing.TB, pid int, path string) []byte {
	t.Helper()
	ms, err := testprog.Mappings(pid)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range ms {
		if m.Path == path && m.Executable() {
			return harness.RawMem(t, pid, arch.Addr(m.Start), int(m.End-m.Start))
		}
	}
	t.Fatalf("no text of %s in process %d", path, pid)
	return nil
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
	for _, fn := range harness.FuncsOf(t, pid, path) {
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
	harness.OK(t, err)
	c := &stopCounter{Process: p}
	s, err := kprobe.Open(c, nil)
	harness.OK(t, err)
	t.Cleanup(func() { harness.Detach(t, s) })
	return s, c
}

// listOf is the list as its file has it, without what was registered by others.
func listOf(t testing.TB, s *kprobe.Session) string {
	t.Helper()
	var b bytes.Buffer
	harness.OK(t, kprobe.WriteList(&b, s.List()))
	return b.String()
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
	harness.OK(t, s.ReadMem(at, b))
	in, err := amd64.New(s.Arch()).Decode(b, at)
	harness.OK(t, err)
	return in.Len
}

// disassemble is objdump's text of one instruction.
func disassemble(t testing.TB, code []byte) string {
	t.Helper()
	file := writeFile(t, "code", string(code))
	out, err := exec.Command("objdump", "-D", "-b", "binary", "-m", "i386:x86-64", file).Output()
	harness.OK(t, err)
	return string(out)
}

// hasErrno tells an errno without failing the test.
func hasErrno(err error, want syscall.Errno) bool { return errors.Is(err, want) }
