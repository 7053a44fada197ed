package life

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"kprobe"
	"kprobe/internal/testprog"
	"kprobe/target/ptrace"
	"kprobe/test/harness"
)

// docs/PROCESS.md has a table of what becomes of probes in the course of a
// process's life. The life_*_test.go files hold its rows.

// living is a program of lives.c with a probe of each kind on its function.
func living(t *testing.T) (*testprog.Proc, *kprobe.Session, *kprobe.Kprobe, *kprobe.Kretprobe) {
	t.Helper()
	p := testprog.Start(t, testprog.Build(t, "lives", "-O2"))
	s := harness.Attach(t, p.Pid, nil)
	kp := &kprobe.Kprobe{SymbolName: "live_work", PostHandler: func(*kprobe.Kprobe, *kprobe.Regs, uint64) {}}
	rp := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "live_work"}}
	harness.Register(t, s, kp)
	harness.OK(t, s.RegisterKretprobe(rp))
	return p, s, kp, rp
}

// over waits for the end of a session's target.
func over(t *testing.T, s *kprobe.Session, code, signal int) {
	t.Helper()
	testprog.Receive(t, "the session learns of its target's end", testprog.Here, s.Done())
	if e, gone := s.Exited(); !gone || signal == 0 && (e.Code != code || e.Signal != 0) || e.Signal != signal {
		t.Errorf("the session says %v, %v", e, gone)
	}
}

func exited(t *testing.T, st syscall.WaitStatus, code int) {
	t.Helper()
	if !st.Exited() || st.ExitStatus() != code {
		t.Errorf("the parent is told %#x, not exit status %d", st, code)
	}
}

func worked(n int) string { return fmt.Sprintf("worked %d", 3*n*(n-1)/2+n) }

func TestLifeExecByAThread(t *testing.T) {
	p, s, kp, rp := living(t)
	for i := range uint64(3) {
		if got := p.Round("work 100")[0]; got != worked(100) {
			t.Error(got)
		}
		harness.Settle(t, s)
		if kp.Hits() != 100*(i+1) || rp.Hits() != 100*(i+1) {
			t.Errorf("after %d execs: %d hits, %d returns", i, kp.Hits(), rp.Hits())
		}
		p.Send("thread_exec")
		p.Expect("ready")
	}
	harness.Ends(t, p)
}

func TestLifeLeaderEndsFirst(t *testing.T) {
	p, s, kp, rp := living(t)
	p.Send("leader_exit")
	if got := p.Expect("worked"); got != worked(1000) {
		t.Error(got)
	}
	exited(t, p.Wait(), 5)
	over(t, s, 5, 0)
	if kp.Hits() != 1000 || rp.Hits() != 1000 {
		t.Errorf("%d hits, %d returns", kp.Hits(), rp.Hits())
	}
}

// A vfork child of a program whose leader has ended is in the memory of the threads that are left. Whether two tasks have the same
// memory cannot be asked of one that has ended: the child was taken for one with a copy, and that cleaned of the probes.
func TestLifeVforkWithoutLeader(t *testing.T) {
	p, s, kp, rp := living(t)
	p.Send("leader_vforks")
	if got := p.Expect("vforked"); got != "vforked 20" {
		t.Error(got)
	}
	harness.Register(t, s, &kprobe.Kprobe{SymbolName: "live_work"}) // its memory is still looked into
	p.Send("")
	if got := p.Expect("worked"); got != worked(1000) {
		t.Error(got)
	}
	exited(t, p.Wait(), 5)
	over(t, s, 5, 0)
	if kp.Hits() != 1040 || rp.Hits() != 1040 {
		t.Errorf("%d hits, %d returns", kp.Hits(), rp.Hits())
	}
}

func TestLifeExitWithThreadsInProbes(t *testing.T) {
	for _, concurrent := range []bool{false, true} {
		p := testprog.Start(t, testprog.Build(t, "lives", "-O2"))
		s := harness.Attach(t, p.Pid, &kprobe.Options{Concurrent: concurrent})
		kp := &kprobe.Kprobe{SymbolName: "live_work", PreHandler: harness.Pre(func(*kprobe.Regs) { time.Sleep(50 * time.Microsecond) })}
		harness.Register(t, s, kp)
		harness.OK(t, s.RegisterKretprobe(&kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "live_work"}}))
		p.Send("exit_group")
		exited(t, p.Wait(), 7)
		over(t, s, 7, 0)
		if err := s.RegisterKprobe(&kprobe.Kprobe{SymbolName: "live_work"}); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("a registration after the end: %v", err)
		}
	}
}

func TestLifeVforkExecFails(t *testing.T) {
	p, s, kp, _ := living(t)
	if got := p.Round("vfork_fails")[0]; got != "vfork_fails 3" {
		t.Error(got)
	}
	harness.Settle(t, s)
	if kp.Hits() != 1 {
		t.Errorf("%d hits in the child", kp.Hits())
	}
	harness.Ends(t, p)
}

// A child is let go, and so is free to be traced by its own parent.
func TestLifeTracedChild(t *testing.T) {
	p, _, _, _ := living(t)
	if got := p.Round("traced_child")[0]; got != "traced_child 6" {
		t.Error(got)
	}
	harness.Ends(t, p)
}

// Who is to be traced by another of its family is let go first, even in the moment of its birth; what its session
// promised holds all the same.
func TestLifeTracersAreFollowed(t *testing.T) {
	commands := map[string]bool{"traced_child": false, "attach_child": false, "seize_child": false, "vfork_traced": true}
	if runtime.GOARCH == "amd64" { // elsewhere only libc's function is watched
		for _, command := range []string{"raw_child", "syscall_child", "pushed_child", "wrapped_child"} {
			commands[command] = false
		}
	}
	for command, whole := range commands {
		t.Run(command, func(t *testing.T) {
			p := testprog.Start(t, testprog.Build(t, "lives", "-O2"))
			var told atomic.Int64
			f := &family{t: t, on: make(map[int]*member), names: []string{"live_work"}}
			f.parent = harness.Attach(t, p.Pid, &kprobe.Options{Unlisted: true, Follow: f.follow, Report: func(err error) {
				if told.Add(1); !strings.Contains(err.Error(), "shall be traced by another") {
					t.Errorf("reported: %v", err)
				}
			}})
			f.join(f.parent)
			if got := p.Round(command)[0]; got != command+" 6" {
				t.Error(got)
			}
			if got := p.Round("work 10")[0]; got != "worked 145" {
				t.Error(got)
			}
			if whole { // a vfork child is in its parent's memory: both are let go
				<-f.parent.Done()
				w := harness.StartWork(t, harness.Victim{PID: p.Pid, Work: []func() error{harness.Repeat(p, "work 10")}})
				if err := harness.Healthy(p.Pid, w); err != nil {
					t.Error(err)
				}
				w.Stop()
				if err := f.parent.Close(); err != nil {
					t.Errorf("the first Close of a session that has let go: %v", err)
				}
			} else if hits := f.hits(p.Pid, "live_work"); hits != 10 {
				t.Errorf("%d hits in the parent", hits)
			}
			if told.Load() != 1 {
				t.Errorf("%d reports", told.Load())
			}
			harness.Ends(t, p)
			f.wait()
		})
	}
}

// Go programs ask by functions of their own.
func TestLifeGoTracersAreFollowed(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		return // elsewhere only libc's function is watched
	}
	for _, command := range []string{"child", "attach"} {
		t.Run(command, func(t *testing.T) {
			p := testprog.Start(t, testprog.Command(t, "kprobe/internal/testprog/cmd/gotracer"))
			var children sync.WaitGroup
			target, err := ptrace.Attach(p.Pid)
			harness.OK(t, err)
			s, err := kprobe.Open(target, &kprobe.Options{Unlisted: true, Follow: func(child *kprobe.Session) {
				children.Go(func() { <-child.Done(); child.Close() })
			}})
			harness.OK(t, err)
			harness.Register(t, s, &kprobe.Kprobe{SymbolName: "main.tracerWork"})
			if got := p.Round("%s", command); !slices.Equal(got, []string{command + " 6 4"}) {
				t.Errorf("%q", got)
			}
			harness.OK(t, s.Close()) // also where a vfork child was let go, and its parent with it
			children.Wait()
			harness.Ends(t, p)
		})
	}
}

// Children are born while probes come and go: each is clean of those that there
// were when it was born.
func TestLifeForksDuringBatches(t *testing.T) {
	p, s, _, _ := living(t)
	until := make(chan string)
	children := "children 300"
	if testing.Short() {
		children = "children 100"
	}
	born := func() {
		p.Send("%s", children)
		go func() { until <- p.Expect("children") }()
	}
	born()
	for batches := 1; ; batches++ {
		kp := &kprobe.Kprobe{SymbolName: "live_work"}
		rp := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "live_work"}}
		exit := &kprobe.Kprobe{SymbolName: "libc.so.6:_exit"}
		harness.Register(t, s, kp, exit)
		harness.OK(t, s.RegisterKretprobe(rp))
		harness.OK(t, s.UnregisterKprobes([]*kprobe.Kprobe{exit, kp}))
		harness.OK(t, s.UnregisterKretprobe(rp))
		select {
		case got := <-until:
			if got != children {
				t.Errorf("%q after %d batches", got, batches)
			} else if batches < 6 {
				born() // we have hardly run
				continue
			}
			harness.Ends(t, p)
			return
		default:
		}
	}
}

// The target is killed at any moment of a batch.
func TestLifeKilledDuringBatches(t *testing.T) {
	path := testprog.Build(t, "threads", "-O2")
	for i := range 15 {
		p := testprog.Start(t, path, "4")
		s := harness.Attach(t, p.Pid, nil)
		p.Send("100000000")
		killer := time.AfterFunc(time.Duration(i)*700*time.Microsecond, func() { p.Signal(syscall.SIGKILL) })
		defer killer.Stop()
		for batches := 0; ; batches++ {
			kp := &kprobe.Kprobe{SymbolName: "hammer_add"}
			rp := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "hammer_mul"}}
			err := errors.Join(s.RegisterKprobe(kp), s.RegisterKretprobe(rp), s.UnregisterKprobe(kp), s.UnregisterKretprobe(rp))
			if err != nil {
				if !errors.Is(err, syscall.ESRCH) && !errors.Is(err, syscall.EINVAL) {
					t.Errorf("kill %d, batch %d: %v", i, batches, err)
				}
				break
			}
			if _, gone := s.Exited(); gone {
				break
			}
		}
		over(t, s, -1, int(syscall.SIGKILL))
		if st := p.Wait(); !st.Signaled() || st.Signal() != syscall.SIGKILL {
			t.Errorf("kill %d: the parent is told %#x", i, st)
		}
		harness.OK(t, s.Close())
	}
}

// Group stops while probes are hit all the time: what stops stays stopped, and
// no hit is lost.
func TestLifeGroupStops(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "threads", "-O2"), "3")
	want := p.Round("3000")
	s := harness.Attach(t, p.Pid, nil)
	kp := &kprobe.Kprobe{SymbolName: "hammer_add"}
	harness.Register(t, s, kp)
	p.Send("3000")
	for i := range 20 {
		stop := []syscall.Signal{syscall.SIGSTOP, syscall.SIGTSTP}[i%2]
		harness.OK(t, p.Signal(stop))
		testprog.Until(t, "the target stops", p.Pid, func() bool {
			hits := kp.Hits()
			for range 5 { // none is on its way, and nobody only waits for a processor
				harness.Settle(t, s)
				time.Sleep(2 * time.Millisecond)
			}
			return kp.Hits() == hits
		})
		if i%4 == 0 {
			other := &kprobe.Kprobe{SymbolName: "hammer_mul"}
			harness.Register(t, s, other)
			harness.OK(t, s.UnregisterKprobe(other))
		}
		time.Sleep(2 * time.Millisecond)
		hits := kp.Hits()
		time.Sleep(2 * time.Millisecond)
		if now := kp.Hits(); now > hits {
			t.Errorf("%v: %d hits while it is stopped", stop, now-hits)
		}
		harness.OK(t, p.Signal(syscall.SIGCONT))
		time.Sleep(5 * time.Millisecond)
	}
	if got := p.Expect("hammer"); got != want[0] {
		t.Errorf("%q, want %q", got, want[0])
	}
	p.Expect("done")
	harness.Settle(t, s)
	if kp.Hits() != 9000 {
		t.Errorf("%d hits", kp.Hits())
	}
	harness.Ends(t, p)
}
