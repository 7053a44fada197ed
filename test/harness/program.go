package harness

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"kprobe"
	"kprobe/arch"
	"kprobe/internal/machine"
	"kprobe/internal/proc"
	"kprobe/internal/testprog"
	"kprobe/symbol"
)

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

// Compile builds a program, or with -shared a library, from C text.
func Compile(t testing.TB, name, source string, flags ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), name)
	testprog.CompileText(t, out, []string{"gcc", "-g", "-O2", "-pthread", "-idirafter", "/usr/include/x86_64-linux-gnu"}, name+".c", prelude+source,
		append(flags[:len(flags):len(flags)], testprog.MachineFlags()...)...)
	return out
}

// PaddedFlags are those for programs of arm64 whose every indirect branch leads to a landing pad, or faults.
var PaddedFlags = []string{"-O2", "-DGUARDED", "-nostartfiles", "-mbranch-protection=standard", "-Wl,-z,force-bti"}

// Jumper starts jumpers: jumper(a, b) is a*3 + b, and a round calls it with a's last result and 0, 1, 2 ...
func Jumper(t testing.TB, o *kprobe.Options) (*testprog.Proc, *kprobe.Session) {
	t.Helper()
	p := testprog.Start(t, testprog.Build(t, "jumpers", "-O2"))
	return p, Attach(t, p.Pid, o)
}

// ProgramOf is the path of a process's program.
func ProgramOf(t testing.TB, pid int) string {
	t.Helper()
	path, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// MappedFile finds the path of a file of which a process runs code.
func MappedFile(t testing.TB, pid int, base string) string {
	t.Helper()
	ms, err := testprog.Mappings(pid)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range ms {
		if m.Executable() && m.File() && filepath.Base(m.Path) == base {
			return m.Path
		}
	}
	t.Fatalf("process %d runs no code of %s", pid, base)
	return ""
}

// OpenELF reads the symbols of a file.
func OpenELF(t testing.TB, path string) *symbol.File {
	t.Helper()
	f, err := openFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func openFile(path string) (*symbol.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	return symbol.Open(f, &symbol.Options{Path: path})
}

// FuncsOf lists the functions of a program's own file, with run-time addresses.
func FuncsOf(t testing.TB, pid int, path string) []symbol.Symbol {
	t.Helper()
	ms, err := testprog.Mappings(pid)
	if err != nil {
		t.Fatal(err)
	}
	f := OpenELF(t, path)
	var bias uint64
	for _, m := range ms {
		if m.Path == path && m.Executable() {
			v, ok := f.VaddrOf(m.Offset)
			if !ok {
				t.Fatalf("%s: offset %#x is in no segment", path, m.Offset)
			}
			bias = m.Start - v
			break
		}
	}
	var funcs []symbol.Symbol
	for _, fn := range f.Funcs() {
		fn.Addr += bias
		funcs = append(funcs, fn)
	}
	return funcs
}

// Entries lists the functions of a file in a process, one for each address.
// Stubs that only jump to another file are not functions of this one.
func Entries(t testing.TB, pid int, path string) []symbol.Symbol {
	t.Helper()
	seen := make(map[uint64]bool)
	return slices.DeleteFunc(FuncsOf(t, pid, path), func(fn symbol.Symbol) bool {
		again := seen[fn.Addr]
		seen[fn.Addr] = true
		return again || fn.Source == symbol.Plt
	})
}

// Instructions decodes a function and lists the addresses of its instructions.
func Instructions(t testing.TB, s *kprobe.Session, fn symbol.Symbol) []arch.Addr {
	t.Helper()
	code := make([]byte, fn.Size)
	if err := s.ReadMem(arch.Addr(fn.Addr), code); err != nil {
		t.Fatal(err)
	}
	m, err := machine.Of(s.Arch())
	OK(t, err)
	var at []arch.Addr
	for off := 0; off < len(code); {
		in, err := m.ISA.Decode(code[off:], arch.Addr(fn.Addr)+arch.Addr(off))
		if err != nil {
			t.Fatalf("%s+%#x: %v: % x", fn.Name, off, err, code[off:min(off+15, len(code))])
		}
		at = append(at, arch.Addr(fn.Addr)+arch.Addr(off))
		off += in.Len
	}
	return at
}

// RawMem reads the memory of a process as it is, breakpoints and all.
func RawMem(t testing.TB, pid int, at arch.Addr, n int) []byte {
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

// OwnText counts the KiB of its files' code that a process has for itself.
func OwnText(t *testing.T, pid int) (kib int) {
	t.Helper()
	maps, err := testprog.Mappings(pid)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range maps {
		if !m.Executable() || !m.File() {
			continue
		}
		err := proc.Process(pid).Present(m.Start, m.End, true, func(from, to uint64) error { kib += int(to-from) >> 10; return nil })
		if err != nil {
			t.Fatal(err)
		}
	}
	return kib
}
