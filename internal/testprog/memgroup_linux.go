package testprog

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// MemoryGroup is a control group that counts memory (cgroups(7)), of either version.
type MemoryGroup struct {
	dir    string
	second bool
}

// NewMemoryGroup makes one, without a limit. It goes with the test, when nothing is in it any more.
func NewMemoryGroup(t testing.TB) *MemoryGroup {
	t.Helper()
	MemoryGroups.Need(t)
	g, err := makeMemoryGroup()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		UntilNil(t, "the control group is empty", 0, func() error { return os.Remove(g.dir) })
	})
	return g
}

func makesMemoryGroups(testing.TB) error {
	g, err := makeMemoryGroup()
	if err != nil {
		return err
	}
	return os.Remove(g.dir)
}

// makeMemoryGroup makes one below our own in version 1; in version 2, where a group has processes or groups below it, beside our own.
func makeMemoryGroup() (g *MemoryGroup, err error) {
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	g = &MemoryGroup{}
	for line := range strings.Lines(string(groups)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if f[1] == "memory" {
			g.dir, g.second = filepath.Join("/sys/fs/cgroup/memory", f[2]), false
			break
		}
		if f[0] == "0" {
			g.dir, g.second = filepath.Join("/sys/fs/cgroup", filepath.Dir(f[2])), true
		}
	}
	g.dir, err = os.MkdirTemp(g.dir, "kprobe-test-")
	if err != nil {
		return nil, err
	}
	if _, err = g.number(g.file("memory.max", "memory.limit_in_bytes")); errors.Is(err, os.ErrNotExist) {
		os.Remove(g.dir)
		return nil, err
	}
	return g, nil
}

// Command runs a program in the group.
func (g *MemoryGroup) Command(path string, args ...string) *exec.Cmd {
	return exec.Command("sh", append([]string{"-c", `echo $$ > "$0"/cgroup.procs && exec "$@"`, g.dir, path}, args...)...)
}

// Leave gives the group so many bytes more than it uses now. Files' pages that the kernel would take back first are
// room, too: a busy machine may have read a library anew, on account of the group.
func (g *MemoryGroup) Leave(t testing.TB, bytes uint64) {
	t.Helper()
	limit := fmt.Sprint(g.Used(t) - min(g.Used(t), g.unused(t)) + bytes)
	memory, swap := g.file("memory.max", "memory.limit_in_bytes"), g.file("memory.swap.max", "memory.memsw.limit_in_bytes")
	inSwap := limit // version 1 has a limit of both together, which is never below the other
	if g.second {
		inSwap = "0"
	}
	write := func(file, what string) error { return os.WriteFile(file, []byte(what), 0) }
	if write(memory, limit) == nil {
		write(swap, inSwap) // where the machine has swap
		return
	}
	write(swap, inSwap)
	if err := write(memory, limit); err != nil {
		t.Fatal(err)
	}
}

// unused is the size of the files' pages that were not used for long.
func (g *MemoryGroup) unused(t testing.TB) uint64 {
	t.Helper()
	stat, err := os.ReadFile(filepath.Join(g.dir, "memory.stat"))
	if err != nil {
		t.Fatal(err)
	}
	field := "total_inactive_file "
	if g.second {
		field = "inactive_file "
	}
	for line := range strings.Lines(string(stat)) {
		if s, ok := strings.CutPrefix(line, field); ok {
			n, _ := strconv.ParseUint(strings.TrimSpace(s), 10, 64)
			return n
		}
	}
	return 0
}

// Used is what the group uses.
func (g *MemoryGroup) Used(t testing.TB) uint64 {
	t.Helper()
	n, err := g.number(g.file("memory.current", "memory.usage_in_bytes"))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func (g *MemoryGroup) file(second, first string) string {
	if g.second {
		return filepath.Join(g.dir, second)
	}
	return filepath.Join(g.dir, first)
}

func (g *MemoryGroup) number(name string) (uint64, error) {
	b, err := os.ReadFile(name)
	if s := strings.TrimSpace(string(b)); err == nil && s != "max" {
		return strconv.ParseUint(s, 10, 64)
	}
	return 0, err
}
