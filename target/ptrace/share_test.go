//go:build linux && (amd64 || arm64 || ppc64le || riscv64 || s390x)

package ptrace_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"kprobe/internal/testprog"
	"kprobe/target/ptrace"
)

// A word that one of the two writes is read by the other, and the process has no descriptor more
// than before.
func TestShare(t *testing.T) {
	const size = 3 << 20
	prog := testprog.Start(t, testprog.Build(t, "threads", "-O2"), "4")
	want := prog.Round("100")
	p, err := ptrace.Attach(prog.Pid)
	if err != nil {
		t.Fatal(err)
	}
	descriptors := func() string {
		es, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", prog.Pid))
		if err != nil {
			t.Error(err)
		}
		return fmt.Sprint(es)
	}
	before := descriptors()
	frozen := func(f func()) {
		p.Run(func() {
			stops, err := p.Freeze()
			if err != nil || len(stops) != 0 {
				t.Errorf("freeze: %v, %v", stops, err)
			}
			f()
			if err := p.Thaw(); err != nil {
				t.Error(err)
			}
		})
	}
	maps, err := p.Maps()
	if err != nil {
		t.Fatal(err)
	}
	addr := maps[0].Start - 1<<30
	frozen(func() {
		ours, err := p.Share(addr, size)
		if err != nil {
			t.Error(err)
			return
		}
		theirs := make([]byte, 8)
		copy(ours[size-8:], "from us.")
		if err := p.ReadAt(addr+size-8, theirs); err != nil || string(theirs) != "from us." {
			t.Errorf("the process reads %q, %v", theirs, err)
		}
		if err := p.WriteAt(addr, []byte("from it.")); err != nil || !bytes.HasPrefix(ours, []byte("from it.")) {
			t.Errorf("we read %q, %v", ours[:8], err)
		}
		if _, err := p.Share(addr, size); !errors.Is(err, syscall.EEXIST) {
			t.Errorf("over it, another: %v, want EEXIST", err)
		}
		if err := errors.Join(p.Unshare(ours), p.Free(addr, size)); err != nil {
			t.Error(err)
		}
	})
	if got := descriptors(); got != before {
		t.Errorf("descriptors of the process: %v, before %v", got, before)
	}
	if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", prog.Pid)); err != nil || strings.Contains(string(b), "memfd") {
		t.Errorf("left mapped: %v\n%s", err, b)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if got := prog.Round("100"); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("after it %q, before %q", got, want)
	}
}
