package realworld

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"kprobe"
	"kprobe/internal/testprog"
	"kprobe/test/harness"
)

func TestRedisUnderProbesOnAllOfLibc(t *testing.T) {
	testprog.Long(t, "the gate does the same with another program")
	r := harness.StartRedis(t)
	c := r.Connect(t)
	want := c.MustWork(t, "k")
	if again := c.MustWork(t, "k"); !slices.Equal(again, want) {
		t.Fatal("two rounds differ")
	}
	before := harness.RemainsOf(t, r.Pid)
	s := harness.Attach(t, r.Pid, nil)
	ps := harness.RegisterEntries(t, s, harness.EntryProbes(t, harness.Entries(t, r.Pid, harness.MappedFile(t, r.Pid, "libc.so.6"))))
	for range 3 {
		harness.SameLines(t, c.MustWork(t, "k"), want)
	}
	c.Saves(t)
	harness.SameLines(t, r.Connect(t).MustWork(t, "k"), want)
	n, hits := harness.Reached(ps)
	t.Logf("%d of them were reached, %d hits", n, hits)
	if n < 50 {
		t.Errorf("only %d functions were reached", n)
	}
	harness.Detach(t, s)
	before.Check(t)
	harness.SameLines(t, c.MustWork(t, "k"), want)
}

// The server's own functions, and return probes on those of libc, at once.
func TestRedisUnderProbesOnItself(t *testing.T) {
	testprog.Long(t, "the gate does the same with another program")
	r := harness.StartRedis(t)
	c := r.Connect(t)
	want := c.MustWork(t, "k")
	before := harness.RemainsOf(t, r.Pid)
	s := harness.Attach(t, r.Pid, nil)
	ps := harness.RegisterEntries(t, s, harness.EntryProbes(t, harness.Entries(t, r.Pid, harness.ProgramOf(t, r.Pid))))
	libc := harness.Entries(t, r.Pid, harness.MappedFile(t, r.Pid, "libc.so.6"))
	rps := harness.RegisterReturns(t, s, harness.ReturnProbes(t, libc))
	harness.SameLines(t, c.MustWork(t, "k"), want)
	c.Saves(t)
	n, hits := harness.Reached(ps)
	t.Logf("%d of the server's %d functions were reached, %d hits", n, len(ps), hits)
	if n < 500 {
		t.Errorf("only %d functions were reached", n)
	}
	accounted(t, rps, libc, "__longjmp_chk", "") // Lua throws so; the second is static
	harness.Detach(t, s)
	before.Check(t)
	harness.SameLines(t, c.MustWork(t, "k"), want)
}

// A server that is never idle while sessions come and go: clients see nothing
// but answers, and those that they would get otherwise.
func TestSessionsComeAndGoOnABusyRedis(t *testing.T) {
	rounds := 50
	if testing.Short() {
		rounds = 4
	}
	r := harness.StartRedis(t)
	want := r.Connect(t).MustWork(t, "key")
	before := harness.RemainsOf(t, r.Pid)
	stop := make(chan struct{})
	var clients sync.WaitGroup
	var served [3]int
	for i := range served {
		c := r.Connect(t)
		prefix := fmt.Sprintf("ke%d", i) // as long as the one of want, for what counts bytes
		clients.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				got, err := c.Work(prefix)
				if err != nil {
					t.Error(err)
					return
				}
				served[i]++
				for j, a := range got {
					if strings.ReplaceAll(a, prefix, "key") != want[j] {
						t.Errorf("answer %q, without probes %q", a, want[j])
						return
					}
				}
			}
		})
	}
	defer func() {
		close(stop)
		clients.Wait()
		t.Logf("%d rounds of sessions while clients worked %v times through their list", rounds, served)
		if !t.Failed() {
			before.Check(t)
		}
	}()

	funcs := harness.Entries(t, r.Pid, harness.MappedFile(t, r.Pid, "libc.so.6"))
	var stopped, longest time.Duration
	var hits uint64
	for round := range rounds {
		s := harness.Attach(t, r.Pid, nil)
		// Other functions each time, by entry and by return.
		var ps []*kprobe.Kprobe
		var rps []*kprobe.Kretprobe
		for i := range 200 {
			fn := funcs[(round*37+i*len(funcs)/200)%len(funcs):][:1]
			if i%4 == 0 {
				rps = append(rps, harness.ReturnProbes(t, fn)...)
			} else {
				ps = append(ps, harness.EntryProbes(t, fn)...)
			}
		}
		for _, name := range []string{"memcpy", "read", "write", "epoll_wait", "memchr", "clock_gettime"} {
			ps = append(ps, &kprobe.Kprobe{SymbolName: "libc.so.6:" + name})
		}
		rps = append(rps, &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "libc.so.6:read"}})
		ps = registerQuietly(t, s, ps)
		rps = slices.DeleteFunc(rps, func(rp *kprobe.Kretprobe) bool { return s.RegisterKretprobe(rp) != nil })
		longest = max(longest, s.LastStop())
		stopped += s.LastStop()
		var n uint64
		testprog.Until(t, "probes are hit", r.Pid, func() bool { _, n = harness.Reached(ps); return n > 0 })
		hits += n
		if round%2 == 0 { // else Close does it
			if err := s.UnregisterKretprobes(rps); err != nil {
				t.Error(err)
			}
			if err := s.UnregisterKprobes(ps); err != nil {
				t.Error(err)
			}
		}
		harness.Detach(t, s)
		if t.Failed() {
			return
		}
	}
	t.Logf("%d hits; the last registrations stopped the server for %v each, at most %v", hits, stopped/time.Duration(rounds), longest)
	if hits == 0 {
		t.Error("no probe was hit")
	}
}

// registerQuietly registers what can be probed, in one batch.
func registerQuietly(t testing.TB, s *kprobe.Session, ps []*kprobe.Kprobe) []*kprobe.Kprobe {
	t.Helper()
	if err := s.RegisterKprobes(ps); err == nil {
		return ps
	}
	return harness.RegisterEntries(t, s, ps)
}

// An indirect function of libc may be bound to the kernel's own code.
func TestIndirectFunctionOfTheKernel(t *testing.T) {
	r := harness.StartRedis(t)
	s := harness.Attach(t, r.Pid, nil)
	err := s.RegisterKprobe(&kprobe.Kprobe{SymbolName: "libc.so.6:gettimeofday"})
	harness.Errno(t, err, syscall.EINVAL)
	if err == nil || !strings.Contains(err.Error(), "[vdso]") {
		t.Errorf("the error does not tell whose it is: %v", err)
	}
}
