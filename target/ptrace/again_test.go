//go:build linux && (amd64 || arm64 || riscv64 || s390x)

package ptrace

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"kprobe/arch"
	"kprobe/internal/faults"
	"kprobe/internal/proc"
	"kprobe/internal/testprog"
	"kprobe/target"
)

// A process that stands is not asked twice for facts that cannot have changed: a list of mappings
// that is as it was is not taken apart again, and a thread that was found without filters has none
// as long as no thread runs.
func TestAskedOnce(t *testing.T) {
	p, err := Start([]string{testprog.Build(t, "threads", "-O2"), "4"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	reads := 0
	round := func() {
		t.Helper()
		if _, err := p.Freeze(); err != nil {
			t.Errorf("freeze: %v", err)
			return
		}
		defer p.Thaw()
		first, err := p.Maps()
		if err != nil || len(first) == 0 {
			t.Errorf("%d mappings, %v", len(first), err)
			return
		}
		if second, err := p.Maps(); err != nil || &first[0] != &second[0] {
			t.Errorf("the same mappings are another list, %v", err)
		}
		var last arch.Addr // a page that is free, behind all
		for _, m := range first {
			if m.Path == "[stack]" {
				last = m.Start - 256<<20
			}
		}
		if err := p.Alloc(last, p.PageSize()); err != nil {
			t.Error(err)
			return
		}
		if third, err := p.Maps(); err != nil || len(third) <= len(first) {
			t.Errorf("a page was mapped, and %d mappings became %d, %v", len(first), len(third), err)
		}
		if err := p.Free(last, p.PageSize()); err != nil {
			t.Error(err)
		}
	}
	p.Run(func() {
		round()
		faults.Inject = func(c faults.Call) error {
			if c.Name == "read" {
				reads++
			}
			return nil
		}
		defer func() { faults.Inject = nil }()
		round()
	})
	if reads != 0 {
		t.Errorf("what was known was read %d times again", reads)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	child, err := os.FindProcess(p.PID())
	if err != nil {
		t.Fatal(err)
	}
	child.Kill()
	if _, err := child.Wait(); err != nil { // the report of a zombie never goes
		t.Error(err)
	}
}

// A process that was killed has no memory any more, while its end is not reported yet. It has no empty list of mappings then: it is gone.
func TestMapsOfOneThatWasKilled(t *testing.T) {
	p, err := Start([]string{testprog.Build(t, "threads", "-O2"), "4"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := unix.Kill(p.PID(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	testprog.Until(t, "it has no memory", p.PID(), func() bool { return !proc.Thread(p.PID()).HasMemory() })
	if maps, err := p.Maps(); err != target.ErrGone {
		t.Errorf("%d mappings, %v", len(maps), err)
	}
}
