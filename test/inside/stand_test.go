package inside

import (
	"sync/atomic"
	"testing"

	"kprobe"
	"kprobe/arch"
	"kprobe/internal/testprog"
	"kprobe/target"
	"kprobe/target/ptrace"
	"kprobe/test/harness"
)

// stood is a process of which is counted what is read and written in it while it stands. under is where its threads are said
// to be then: 0, where they are.
type stood struct {
	*ptrace.Process
	under  atomic.Uint64
	stands atomic.Bool
	moved  atomic.Int64 // bytes, of the last stop
}

func (p *stood) Freeze() ([]target.Stop, error) {
	p.moved.Store(0)
	p.stands.Store(true)
	return p.Process.Freeze()
}

func (p *stood) Thaw() error {
	p.stands.Store(false)
	return p.Process.Thaw()
}

func (p *stood) count(n int) {
	if p.stands.Load() {
		p.moved.Add(int64(n))
	}
}

func (p *stood) ReadAt(a arch.Addr, b []byte) error {
	p.count(len(b))
	return p.Process.ReadAt(a, b)
}

func (p *stood) WriteAt(a arch.Addr, b []byte) error {
	p.count(len(b))
	return p.Process.WriteAt(a, b)
}

func (p *stood) Regs(th target.Thread, r *arch.Regs) error {
	err := p.Process.Regs(th, r)
	if under := p.under.Load(); under != 0 && p.stands.Load() {
		r[p.Process.Arch().PC] = under
	}
	return err
}

// A thread that stands where one of very many jumps is to be makes that one a trap. The others are not planned anew while the
// process stands: what is read and written then is what it was without that thread, but for the one place.
func TestOneInTheWayOfMany(t *testing.T) {
	const many, page = 3000, 4096
	p := testprog.Start(t, testprog.Build(t, "manyfns", "-O2"))
	want := p.Round("1")[0]
	process, err := ptrace.Attach(p.Pid)
	harness.OK(t, err)
	w := &stood{Process: process}
	s, err := kprobe.Open(w, nil)
	harness.OK(t, err)
	t.Cleanup(func() { harness.Detach(t, s) })
	all := s.Symbols().Match("manyfns", "many_*")
	register := func(under arch.Addr) (moved int64, ps []*kprobe.Kprobe) {
		t.Helper()
		ps = make([]*kprobe.Kprobe, many)
		batch := make([]kprobe.Probe, many)
		for i := range ps {
			ps[i] = &kprobe.Kprobe{Addr: all[i].Addr, Program: kprobe.CountOnly}
			batch[i] = ps[i]
		}
		w.under.Store(uint64(under))
		harness.OK(t, s.Register(batch...))
		moved = w.moved.Load()
		w.under.Store(0)
		if got := p.Round("1")[0]; got != want {
			t.Errorf("it says %q, and before it said %q", got, want)
		}
		for i, k := range ps {
			if k.Hits() != 1 {
				t.Fatalf("%v has %d hits, want 1", all[i], k.Hits())
			}
		}
		harness.OK(t, s.Unregister(batch...))
		return moved, ps
	}
	register(0) // what is mapped once
	free, _ := register(0)
	hindered, _ := register(all[many/2].Addr + 1)
	t.Logf("%d bytes in the stop, %d with a thread in the way", free, hindered)
	if free < many || hindered > free+2*page {
		t.Errorf("%d bytes in the stop, %d with a thread in the way", free, hindered)
	}
}
