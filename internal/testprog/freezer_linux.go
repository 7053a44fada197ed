package testprog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Freezer is a control group whose processes can be kept from running: of version 2, whose tasks can be traced meanwhile.
type Freezer struct{ dir string }

// NewFreezer makes one, of processes that a test has started. It is let go, and taken away, at the test's end.
func NewFreezer(t testing.TB, pids ...int) *Freezer {
	t.Helper()
	Freezers.Need(t)
	f, err := makeFreezer()
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		if err := f.write("cgroup.procs", fmt.Sprint(pid)); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		f.write("cgroup.freeze", "0")
		for _, pid := range pids {
			os.WriteFile(filepath.Join(filepath.Dir(f.dir), "cgroup.procs"), []byte(fmt.Sprint(pid)), 0)
		}
		if err := os.Remove(f.dir); err != nil {
			t.Error(err)
		}
	})
	return f
}

// Freeze keeps the group's processes from running. It returns when none runs.
func (f *Freezer) Freeze(t testing.TB) { t.Helper(); f.set(t, "1") }

// Thaw lets them run.
func (f *Freezer) Thaw(t testing.TB) { t.Helper(); f.set(t, "0") }

func (f *Freezer) set(t testing.TB, to string) {
	t.Helper()
	if err := f.write("cgroup.freeze", to); err != nil {
		t.Fatal(err)
	}
	Until(t, "the group says frozen "+to, Here, func() bool {
		b, _ := os.ReadFile(filepath.Join(f.dir, "cgroup.events"))
		return strings.Contains(string(b), "frozen "+to)
	})
}

func (f *Freezer) write(name, text string) error {
	return os.WriteFile(filepath.Join(f.dir, name), []byte(text), 0)
}

func makeFreezer() (*Freezer, error) {
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(groups)) {
		own, is := strings.CutPrefix(strings.TrimSpace(line), "0::")
		for m := range strings.Lines(string(mounts)) {
			if f := strings.Fields(m); is && strings.Contains(m, " - cgroup2 ") {
				dir, err := os.MkdirTemp(filepath.Join(f[4], own), "kprobe-test-")
				if err == nil {
					return &Freezer{dir}, nil
				}
				return nil, err
			}
		}
	}
	return nil, errors.New("no control groups of version 2 are mounted")
}

func makesFreezers(testing.TB) error {
	f, err := makeFreezer()
	if err != nil {
		return err
	}
	_, err = os.Stat(filepath.Join(f.dir, "cgroup.freeze"))
	return errors.Join(err, os.Remove(f.dir))
}
