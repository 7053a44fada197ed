package life

import (
	"errors"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cilium/ebpf/asm"

	"kprobe"
	"kprobe/bpf"
	"kprobe/event"
	"kprobe/internal/testprog"
	"kprobe/target/ptrace"
	"kprobe/test/harness"
	"kprobe/trace"
)

// A library comes and goes all the time. Whatever is done to probes in it, at whatever moment: a probe whose code has just been unmapped
// waits for it. That is no error, nothing is reported, and nothing stays behind.
func TestLibraryGoesMeanwhile(t *testing.T) {
	rounds := 200
	if testing.Short() {
		rounds = 12
	}
	lib := testprog.Build(t, "dlib", "-shared", "-fPIC", "-O2")
	p := testprog.Start(t, testprog.Build(t, "dl", "-O2"), lib)
	w := harness.StartWork(t, harness.Victim{Proc: p, PID: p.Pid, Work: []func() error{harness.Repeat(p, "cycle 20")}})
	defer w.Stop()
	var hits atomic.Int64
	for round := range rounds {
		proc, err := ptrace.Attach(p.Pid)
		if err != nil {
			t.Fatal(err)
		}
		what := "attach"
		var tr *trace.Tracer
		ready := make(chan struct{})
		s, err := kprobe.Open(proc, &kprobe.Options{
			Unlisted: true,
			Report:   func(err error) { t.Errorf("round %d, %s: reported: %v", round, what, err) },
			Mapped: func(*kprobe.Session) {
				<-ready
				if left, err := tr.Remap(); err != nil || len(left) > 0 {
					t.Errorf("round %d: %v %v", round, left, err)
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		do := func(step string, f func() error) {
			if what = step; !t.Failed() {
				if err := f(); err != nil {
					t.Errorf("round %d, %s: %v", round, step, err)
				}
			}
		}
		tr = trace.New(s, func(*event.Event) { hits.Add(1) })
		tr.Inside = round%2 == 0
		close(ready)
		do("one function", func() error { return tr.Add("p dlib.so:dlib_inner", "r dlib.so:dlib_call $retval") })
		do("a pattern", func() error { return tr.Add("p:all/ dlib.so:dlib_*") })
		do("all off", func() error { return s.SetEnabled(false) })
		do("all on", func() error { return s.SetEnabled(true) })
		kp := &kprobe.Kprobe{SymbolName: "dlib.so:dlib_inner", Patient: true, PreHandler: func(*kprobe.Kprobe, *kprobe.Regs) int { return 0 }}
		do("register", func() error { return s.RegisterKprobe(kp) })
		do("disable", func() error { return s.DisableKprobe(kp) })
		do("enable", func() error { return s.EnableKprobe(kp) })
		do("unregister", func() error { return s.UnregisterKprobe(kp) })
		if round%4 < 2 {
			do("deletion", func() error { return tr.Add("-:p_dlib_so_dlib_inner_0") })
		}
		what = "close"
		if err := s.Close(); err != nil {
			t.Errorf("round %d, close: %v", round, err)
		}
		if t.Failed() {
			break
		}
	}
	w.Stop()
	if hits.Load() == 0 {
		t.Error("no hit")
	}
	harness.Ends(t, p)
}

// A program of an object counts each load of a library, whether that was mapped before or comes later.
func TestProgramsAtEachLoad(t *testing.T) {
	lib := testprog.Build(t, "dlib", "-shared", "-fPIC", "-O2")
	for _, first := range []string{"before", "later"} {
		t.Run(first, func(t *testing.T) {
			p := testprog.Start(t, testprog.Build(t, "dl", "-O2"), lib)
			if first == "before" {
				p.Round("open")
			}
			s := harness.Attach(t, p.Pid, nil)
			counts, err := bpf.FromAsm("counts", bpf.Kprobe, asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}, nil)
			if err != nil {
				t.Fatal(err)
			}
			ps, err := s.Load(&bpf.Collection{Programs: []*bpf.Program{counts}})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := ps.Attach(kprobe.Placement{Program: "counts", Place: "dl:no_such"}); !errors.Is(err, syscall.ENOENT) {
				t.Errorf("at no function: %v", err)
			}
			if _, err := ps.Attach(kprobe.Placement{Program: "counts", Place: "r:dl_call"}); !errors.Is(err, syscall.EINVAL) {
				t.Errorf("as in a definition: %v", err)
			}
			all, err := ps.Attach(kprobe.Placement{Program: "counts", Place: "dlib.so:dlib_call"})
			if err != nil {
				t.Fatal(err)
			}
			for load := uint64(1); load <= 3; load++ {
				if load > 1 || first != "before" {
					p.Round("open")
				}
				p.Round("call 20")
				p.Round("close")
				if n := all[0].(*kprobe.Kprobe).Hits(); n != load {
					t.Errorf("load %d: %d hits", load, n)
				}
			}
			harness.Ends(t, p)
		})
	}
}
