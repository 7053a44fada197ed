// Package examples has, in programs/, handlers in C that run inside a process, written as
// they are for the kernel: with libbpf's headers, and nothing of ours.
package examples_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kprobe"
	"kprobe/bpf"
	"kprobe/internal/testprog"
	"kprobe/target/ptrace"
)

// calls is an interpreter that calls C functions on command, and prints what they
// answered.
const calls = `
import sys, ctypes
libc = ctypes.CDLL(None)
libc.getenv.argtypes = [ctypes.c_char_p]
libc.getenv.restype = ctypes.c_char_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]
libc.usleep(0), libc.getpid(), libc.free(libc.malloc(1)), libc.getenv(b'A')
print('ready', flush=True)
for line in sys.stdin:
    exec(line)
    print('done', flush=True)
`

// object is one of the programs here, compiled.
func object(t testing.TB, name string) *bpf.Collection {
	t.Helper()
	b := testprog.CompileBPF(t, filepath.Join("programs", name+".bpf.c"), "-Wall", "-Werror")
	c, err := bpf.Load(bytes.NewReader(b))
	check(t, err)
	return c
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// live is a process with programs at work in it.
type live struct {
	*testprog.Proc
	*kprobe.Programs
	s *kprobe.Session
	c *bpf.Collection
}

func start(t testing.TB, c *bpf.Collection) live {
	t.Helper()
	p := testprog.StartCmd(t, exec.Command("/usr/bin/python3", "-c", calls))
	p.Expect("ready")
	target, err := ptrace.Attach(p.Pid)
	check(t, err)
	s, err := kprobe.Open(target, nil)
	check(t, err)
	t.Cleanup(func() { s.Close() }) // a test may have done it
	programs, err := s.Load(c)
	check(t, err)
	_, err = programs.Attach()
	check(t, err)
	s.WaitOptimized()
	for _, e := range s.List() {
		if !e.Optimized {
			t.Errorf("not optimized: %v", e)
		}
	}
	return live{p, programs, s, c}
}

func (l live) table(t testing.TB, name string) *bpf.Map {
	t.Helper()
	m, err := l.Map(name)
	check(t, err)
	return m
}

// variable is a global variable's bytes.
func (l live) variable(t testing.TB, name string) []byte {
	t.Helper()
	v := l.c.Var(name)
	if v == nil {
		t.Fatalf("no variable %q", name)
	}
	b, err := v.In(l.table(t, v.Map.Name))
	check(t, err)
	return b
}

func TestLatency(t *testing.T) {
	l := start(t, object(t, "latency"))
	l.Round("for i in range(20): libc.usleep(2000)")
	hist := l.variable(t, "hist")
	total := uint32(0)
	for slot := range len(hist) / 4 {
		n := binary.LittleEndian.Uint32(hist[4*slot:])
		total += n
		if n > 0 && slot < 10 {
			t.Errorf("%d calls took less than %d us", n, 2<<slot)
		}
	}
	if total != 20 {
		t.Errorf("%d calls in the histogram", total)
	}
}

func TestAllocations(t *testing.T) {
	const size = 77777
	c := object(t, "allocs")
	check(t, c.Set("least", size))
	l := start(t, c)
	l.Round("kept = [libc.malloc(%d) for i in range(5)]", size)
	l.Round("for i in range(10): libc.free(libc.malloc(%d))", size)
	left := func() (n int, stacks []uint64) {
		for _, value := range l.table(t, "blocks").All() {
			if binary.LittleEndian.Uint64(value[0]) == size {
				n++
				stacks = append(stacks, binary.LittleEndian.Uint64(value[0][16:]))
			}
		}
		return n, stacks
	}
	n, stacks := left()
	if n != 5 || len(slices.Compact(stacks)) != 1 {
		t.Fatalf("%d blocks are out, of stacks %v", n, stacks)
	}
	trace, err := l.table(t, "stacks").Lookup(binary.LittleEndian.AppendUint32(nil, uint32(stacks[0])))
	check(t, err)
	maps, err := testprog.Mappings(l.Pid)
	check(t, err)
	caller := binary.LittleEndian.Uint64(trace)
	if !slices.ContainsFunc(maps, func(m testprog.Mapping) bool {
		return m.Executable() && caller >= m.Start && caller < m.End && strings.Contains(m.Path, "libffi")
	}) {
		t.Errorf("the caller is %#x, which is not in libffi", caller)
	}
	l.Round("for p in kept: libc.free(p)")
	if n, _ := left(); n != 0 {
		t.Errorf("%d blocks are out in the end", n)
	}
}

func TestTop(t *testing.T) {
	l := start(t, object(t, "top"))
	l.Round("for i in range(1000): libc.getenv(b'NAME%%d' %% (i %% 10 * (i %% 2)))")
	got := make(map[string]uint64)
	for key, threads := range l.table(t, "counts").All() {
		got[string(bytes.TrimRight(key, "\x00"))] = binary.LittleEndian.Uint64(bpf.Sum(threads))
	}
	want := map[string]uint64{"NAME0": 500, "NAME1": 100, "NAME3": 100, "NAME5": 100, "NAME7": 100, "NAME9": 100}
	ring, err := bpf.NewReader(l.table(t, "fresh"))
	check(t, err)
	for name, n := range want {
		if got[name] != n {
			t.Errorf("%s was asked for %d times, not %d", name, got[name], n)
		}
	}
	told := make(map[string]int)
	for {
		rec, more, err := ring.Read()
		check(t, err)
		if !more {
			break
		}
		told[string(bytes.TrimRight(rec.Data, "\x00"))]++
	}
	if len(got) != len(want) || len(told) != len(want) {
		t.Errorf("counted %v, told %v", got, told)
	}
}

func TestDeny(t *testing.T) {
	c := object(t, "deny")
	check(t, c.Set("answer", 4242))
	l := start(t, c)
	if got := l.Round("print(libc.getpid(), libc.getpid())"); !slices.Equal(got, []string{"4242 4242"}) {
		t.Errorf("the answers are %q", got)
	}
	if n := binary.LittleEndian.Uint64(l.variable(t, "denied")); n != 2 {
		t.Errorf("%d calls were denied", n)
	}
	lines, err := l.s.Printed()
	check(t, err)
	if len(lines) != 1 || !strings.Contains(lines[0].String(), "the first call is told 4242") {
		t.Errorf("printed %v", lines)
	}
	check(t, l.s.Close())
	if got := l.Round("print(libc.getpid())"); !slices.Equal(got, []string{fmt.Sprint(l.Pid)}) {
		t.Errorf("afterwards the answer is %q", got)
	}
}
