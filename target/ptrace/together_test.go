//go:build linux && (amd64 || arm64 || riscv64 || s390x)

package ptrace

import (
	"errors"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"kprobe/arch"
	"kprobe/internal/testprog"
	"kprobe/internal/tracee"
	"kprobe/target"
)

// Several calls that a thread makes in one go do the same as each alone, one that is refused keeps
// no other from being made, and the thread has its registers of before. Meanwhile it is led away
// once: its registers lead to the frame all the time.
func TestCallsTogether(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "threads", "-O2"), "4")
	want := prog.Round("100")
	p, err := Attach(prog.Pid)
	if err != nil {
		t.Fatal(err)
	}
	page := p.PageSize()
	p.Run(func() {
		stops, err := p.Freeze() // a thread of the round may still be about to end
		if err != nil || slices.ContainsFunc(stops, func(s target.Stop) bool { return s.Kind != target.StopThreadExit }) {
			t.Errorf("freeze: %v, %v", stops, err)
			return
		}
		defer p.Thaw()
		maps, err := p.Maps()
		if err != nil {
			t.Error(err)
			return
		}
		at := maps[0].Start - 1<<30
		var before, after, during, later tracee.Registers
		th := p.volunteer(p.pid)
		if err := tracee.GetRegs(th.tid, &before); err != nil {
			t.Error(err)
		}
		mask, _ := tracee.SignalMask(unix.PTRACE_GETSIGMASK, th.tid, 0)
		failed := errors.New("of the caller's")
		err = p.Together(func() error {
			for i := range 4 {
				if err := p.Alloc(at+arch.Addr(2*i*page), page); err != nil {
					t.Error(err)
				}
				now := &during
				if i > 0 {
					now = &later
				}
				tracee.GetRegs(th.tid, now)
				if now.SP() != during.SP() || now.PC() == before.PC() || now.PC() != during.PC() {
					t.Errorf("between calls it stands at %#x, its stack at %#x", now.PC(), now.SP())
				}
			}
			if err := p.Alloc(at, page); !errors.Is(err, syscall.EEXIST) {
				t.Errorf("over the first: %v, want EEXIST", err)
			}
			if _, err := p.TrapAction(); err != nil {
				t.Error(err)
			}
			for i := range 4 {
				if err := p.Free(at+arch.Addr(2*i*page), page); err != nil {
					t.Error(err)
				}
			}
			return failed
		})
		if err != failed {
			t.Errorf("it answers %v", err)
		}
		tracee.GetRegs(th.tid, &after)
		if after != before {
			t.Errorf("registers before %+v\nand after %+v", before, after)
		}
		if now, _ := tracee.SignalMask(unix.PTRACE_GETSIGMASK, th.tid, 0); now != mask {
			t.Errorf("it blocks %#x, and before %#x", now, mask)
		}
		if left, err := p.Maps(); err != nil || len(left) != len(maps) {
			t.Errorf("%d mappings, %v, and before %d", len(left), err, len(maps))
		}
	})
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if got := prog.Round("100"); !slices.Equal(got, want) {
		t.Errorf("the program says %q, and said %q", got, want)
	}
}
