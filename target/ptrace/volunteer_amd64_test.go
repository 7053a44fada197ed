//go:build linux && amd64

package ptrace_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"kprobe/arch"
	"kprobe/internal/testprog"
	"kprobe/target"
	"kprobe/target/ptrace"
)

// A process whose only thread waits in vfork can do nothing for us, and the error says for whom it waits. It is
// let go as it was.
func TestNobodyButAThreadInVfork(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "vforked", "-O2"))
	prog.Send("1")
	prog.Expect("child")
	for { // another thread ends soon
		if tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", prog.Pid)); err != nil || len(tasks) == 1 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	p, err := ptrace.Attach(prog.Pid)
	if err != nil {
		t.Fatal(err)
	}
	p.Run(func() {
		stops, e := p.Freeze()
		if e != nil || len(stops) != 0 {
			t.Errorf("the target stopped for %v, %v", stops, e)
		}
		err = p.Alloc(arch.Addr(0x10000000), 4096)
		p.Thaw()
	})
	says := fmt.Sprintf("thread %d waits in vfork for its child ", prog.Pid)
	if !errors.Is(err, target.ErrNotNow) || !strings.Contains(err.Error(), says) {
		t.Errorf("%v, which does not say %q", err, says)
	}
	prog.Send("go on")
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	prog.Expect("outer 5")
}
