package life

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"kprobe"
	"kprobe/arch"
	"kprobe/internal/testprog"
	"kprobe/target"
	"kprobe/target/ptrace"
	"kprobe/test/harness"
)

// memory is what a process maps, on each machine that there are processes of.
type memory interface {
	target.Allocator
	target.Sharer
	target.Grower
}

// coarse is a process whose kernel has larger pages than this machine's: what is not of whole pages is told of.
type coarse struct {
	*ptrace.Process
	memory memory
	page   int
	tell   func(error)
	calls  atomic.Int64
}

func (c *coarse) PageSize() int { return c.page }

// whole tells of a range that is not of whole pages.
func (c *coarse) whole(what string, at arch.Addr, size int) {
	c.calls.Add(1)
	if page := arch.Addr(c.page); at%page != 0 || size <= 0 || arch.Addr(size)%page != 0 {
		c.tell(fmt.Errorf("%s %#x bytes at %v, with pages of %#x", what, size, at, c.page))
	}
}

func (c *coarse) Alloc(at arch.Addr, size int) error {
	c.whole("map", at, size)
	return c.memory.Alloc(at, size)
}

func (c *coarse) Free(at arch.Addr, size int) error {
	c.whole("unmap", at, size)
	return c.memory.Free(at, size)
}

func (c *coarse) Share(at arch.Addr, size int) ([]byte, error) {
	c.whole("share", at, size)
	return c.memory.Share(at, size)
}

func (c *coarse) ShareSome(at arch.Addr, size, there int) ([]byte, error) {
	c.whole("share", at, size)
	c.whole("of what is shared, use", at, there)
	return c.memory.ShareSome(at, size, there)
}

func (c *coarse) Extend(at arch.Addr, part []byte, there int) error {
	c.whole("extend", at, len(part))
	return c.memory.Extend(at, part, there)
}

func (c *coarse) Resize(ours []byte, there int) error {
	c.whole("resize", 0, there)
	return c.memory.Resize(ours, there)
}

// All that a session maps is of whole pages of the target's: slots, the lifeline, jumps and what they count in.
// Kernels of arm64 have pages of 16 and of 64 KiB, too.
func TestLargePages(t *testing.T) {
	for _, page := range []int{16 << 10, 64 << 10} {
		t.Run(fmt.Sprint(page>>10, "k"), func(t *testing.T) {
			p := testprog.Start(t, testprog.Build(t, "threads", "-O2"), "4")
			const line, calls = "20", 80
			before := p.Round(line)
			process, err := ptrace.Attach(p.Pid)
			harness.OK(t, err)
			c := &coarse{Process: process, page: page, tell: func(err error) { t.Error(err) }}
			c.memory = any(process).(memory)
			s, err := kprobe.Open(c, &kprobe.Options{Report: func(err error) { t.Errorf("reported: %v", err) }})
			harness.OK(t, err)
			t.Cleanup(func() { harness.Detach(t, s) })

			jump := &kprobe.Kprobe{SymbolName: "hammer_mul", Program: kprobe.CountOnly}
			trap := &kprobe.Kprobe{SymbolName: "hammer_mul", PreHandler: harness.Pre(func(*kprobe.Regs) {}),
				PostHandler: func(*kprobe.Kprobe, *kprobe.Regs, uint64) {}}
			back := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "hammer_mul"}, Handler: func(*kprobe.KretprobeInstance, *kprobe.Regs) int { return 0 }}
			harness.OK(t, s.Register(jump))
			s.WaitOptimized()
			harness.SameRound(t, s, p, before, line)
			harness.OK(t, s.Register(trap, back))
			harness.SameRound(t, s, p, before, line)
			if jump.Hits() != 2*calls || trap.Hits() != calls || back.Kp.Hits() != calls {
				t.Errorf("%d hits by the jump, %d by the trap, %d returns; want %d, %d, %d", jump.Hits(), trap.Hits(), back.Kp.Hits(), 2*calls, calls, calls)
			}
			harness.OK(t, s.Close())
			if got := p.Round(line); !slices.Equal(got, before) {
				t.Errorf("in the end %q, want %q", got, before)
			}
			if c.calls.Load() == 0 {
				t.Error("nothing was mapped")
			}
		})
	}
}
