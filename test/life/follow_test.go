package life

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"kprobe"
	"kprobe/internal/testprog"
	"kprobe/test/harness"
)

// family are the sessions on a process and on all that come from it.
type family struct {
	t  testing.TB
	mu sync.Mutex
	on map[int]*member // by process id
	// names are the functions that get a probe in each child.
	names  []string
	parent *kprobe.Session
	ended  sync.WaitGroup
}

type member struct {
	s    *kprobe.Session
	hits map[string]uint64
	pids map[int]bool // that events named
}

// followed attaches to a process and follows its children.
func followed(t testing.TB, pid int, names ...string) (*kprobe.Session, *family) {
	f := &family{t: t, on: make(map[int]*member), names: names}
	s := harness.Attach(t, pid, &kprobe.Options{Unlisted: true, Follow: f.follow})
	f.parent = s
	f.join(s)
	return s, f
}

func (f *family) join(s *kprobe.Session) *member {
	m := &member{s: s, hits: make(map[string]uint64), pids: make(map[int]bool)}
	var ps []*kprobe.Kprobe
	for _, name := range f.names {
		ps = append(ps, &kprobe.Kprobe{SymbolName: name, PreHandler: func(_ *kprobe.Kprobe, regs *kprobe.Regs) int {
			f.mu.Lock()
			defer f.mu.Unlock()
			m.hits[name]++
			m.pids[regs.Task().PID] = true
			return 0
		}})
	}
	if err := s.RegisterKprobes(ps); err != nil {
		f.t.Errorf("process %d: %v", s.Target().PID(), err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.on[s.Target().PID()] = m
	return m
}

// hits are those of a function in one of them so far.
func (f *family) hits(pid int, name string) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.on[pid].hits[name]
}

func (f *family) follow(s *kprobe.Session) {
	f.join(s)
	f.ended.Go(func() {
		<-s.Done()
		if err := s.Close(); err != nil {
			f.t.Errorf("process %d: close: %v", s.Target().PID(), err)
		}
	})
}

// wait waits for all to have ended. The parent, which must be about to, comes first: until
// then there may be children that nobody has been told of.
func (f *family) wait() {
	<-f.parent.Done()
	f.ended.Wait()
}

// children sums the hits in all processes but one, and counts them.
func (f *family) children(but int) (n int, hits map[string]uint64) {
	f.wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	hits = make(map[string]uint64)
	for pid, m := range f.on {
		if pid == but {
			continue
		}
		n++
		for name, h := range m.hits {
			hits[name] += h
		}
		for p := range m.pids {
			if p != pid {
				f.t.Errorf("an event of process %d says %d", pid, p)
			}
		}
	}
	return n, hits
}

// Every way to make a child, each followed from its first instruction of its
// own on; what it executes too.
func TestLifeFollow(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "forks", "-O2"))
	want := p.Round("3")
	_, f := followed(t, p.Pid, "child_work", "libc.so.6:_exit")
	if got := p.Round("3"); !slices.Equal(got, want) {
		t.Errorf("followed:\n%s\nwithout:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	harness.Ends(t, p)
	n, hits := f.children(p.Pid)
	// By fork, fork_exec, vfork, spawn, clone and double_fork (two): 7 processes
	// with memory of their own. In it child_work is called once by each, and
	// before the exec as well by fork_exec's.
	if n != 3*7 || hits["child_work"] != 3*8 {
		t.Errorf("%d children were followed, with %v hits", n, hits)
	}
	// In the parent's memory: the three that vfork, vfork_exit and clone_vm make,
	// and the parent itself once.
	if m := f.on[p.Pid]; m.hits["child_work"] != 3*3+1 || len(m.pids) != 3*3+1 {
		t.Errorf("%v hits in the parent's memory, by %d processes", m.hits, len(m.pids))
	}
}
