package scale_test

import (
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"kprobe"
	"kprobe/arch"
	"kprobe/internal/testprog"
	"kprobe/target"
	"kprobe/target/ptrace"
	"kprobe/trace"
)

// observed is a process whose stops are counted, and in which one place cannot be written.
type observed struct {
	*ptrace.Process
	stops int
	bad   arch.Addr
}

func (o *observed) Freeze() ([]target.Stop, error) {
	o.stops++
	return o.Process.Freeze()
}

func (o *observed) WriteAt(at arch.Addr, p []byte) error {
	if at <= o.bad && o.bad < at+arch.Addr(len(p)) {
		return syscall.EIO
	}
	return o.Process.WriteAt(at, p)
}

// observe opens a session on manyfns, and makes a return probe for each of its functions; in short for as many as two stops place.
func observe(t *testing.T, inside bool) (*testprog.Proc, *observed, *kprobe.Session, []*kprobe.Kretprobe) {
	p := testprog.Start(t, testprog.Build(t, "manyfns", "-O2"))
	process, err := ptrace.Attach(p.Pid)
	if err != nil {
		t.Fatal(err)
	}
	o := &observed{Process: process}
	s, err := kprobe.Open(o, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			t.Error(err)
		}
	})
	var rps []*kprobe.Kretprobe
	for _, l := range s.Symbols().Match("manyfns", "many_[0-9]*") {
		rp := &kprobe.Kretprobe{Kp: kprobe.Kprobe{Addr: l.Addr}}
		if inside {
			rp.Program = kprobe.CountOnly
		}
		rps = append(rps, rp)
	}
	if testing.Short() {
		rps = rps[:5000]
	}
	return p, o, s, rps
}

// The stops of a batch are few: each has work for thousands of probes, and none is for one. Calls that are timed have
// private data, for which there must be memory.
func TestFewStops(t *testing.T) {
	p, o, s, _ := observe(t, true)
	const few = 60
	var st *trace.Stat
	for i, f := range []func() error{
		func() (err error) { st, err = trace.NewStat(s, false, "r manyfns:many_[0-9]*"); return err },
		func() error { p.Round("1"); return s.WaitOptimized() },
		func() error { return st.Close() },
	} {
		before := o.stops
		if err := f(); err != nil {
			t.Fatal(err)
		}
		if n := o.stops - before; n > few {
			t.Errorf("step %d: %d stops", i, n)
		}
		if i == 1 {
			rows, err := st.Rows()
			if err != nil || len(rows) != 10000 || slices.ContainsFunc(rows, func(r trace.StatRow) bool { return r.Hits != 1 }) {
				t.Errorf("%d rows, %v: %+v", len(rows), err, rows[:1])
			}
		}
	}
}

// If a late piece of a large batch cannot be placed, none of it stays, and the same probes can be placed then.
func TestLargeBatchAllOrNone(t *testing.T) {
	for name, inside := range map[string]bool{"handlers": false, "inside": true} {
		t.Run(name, func(t *testing.T) {
			p, o, s, rps := observe(t, inside)
			want := strings.Join(p.Round("1"), "\n")
			last := slices.MaxFunc(rps, func(a, b *kprobe.Kretprobe) int { return int(int64(a.Kp.Addr) - int64(b.Kp.Addr)) })
			o.bad = last.Kp.Addr
			if err := s.RegisterKretprobes(rps); !errors.Is(err, syscall.EIO) {
				t.Fatalf("a place that cannot be written: %v", err)
			}
			if n := len(s.List()); n != 0 {
				t.Errorf("%d probes are listed", n)
			}
			if got := strings.Join(p.Round("1"), "\n"); got != want {
				t.Errorf("it says %s, not %s", got, want)
			}
			diffs, err := testprog.TextDiff(p.Pid) // a probe of the session's own is on the linker
			if diffs = slices.DeleteFunc(diffs, func(d string) bool { return !strings.Contains(d, "manyfns") }); err != nil || len(diffs) > 0 {
				t.Errorf("its text: %v, %v", err, diffs)
			}
			o.bad = 0
			if err := s.RegisterKretprobes(rps); err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(p.Round("1"), "\n"); got != want {
				t.Errorf("then it says %s, not %s", got, want)
			}
			for _, rp := range rps {
				if rp.Hits() != 1 {
					t.Fatalf("%v: %d hits", rp.Kp.Addr, rp.Hits())
				}
			}
		})
	}
}

// Many probes are disabled, and enabled, in several stops. If a late piece cannot be switched, all are as they were.
func TestLargeSwitchAllOrNone(t *testing.T) {
	for name, inside := range map[string]bool{"handlers": false, "inside": true} {
		t.Run(name, func(t *testing.T) {
			p, o, s, rps := observe(t, inside)
			var kps []*kprobe.Kprobe
			for _, rp := range rps {
				rp.Kp.Program, rp.Program = rp.Program, nil
				kps = append(kps, &rp.Kp)
			}
			if err := s.RegisterKprobes(kps); err != nil {
				t.Fatal(err)
			}
			s.WaitOptimized()
			last := slices.MaxFunc(kps, func(a, b *kprobe.Kprobe) int { return int(int64(a.Addr) - int64(b.Addr)) })
			want, hits := strings.Join(p.Round("1"), "\n"), uint64(1)
			same := func(when string) {
				t.Helper()
				if got := strings.Join(p.Round("1"), "\n"); got != want {
					t.Errorf("%s it says %s, not %s", when, got, want)
				}
				for _, kp := range kps {
					if kp.Hits() != hits {
						t.Fatalf("%s %v: %d hits, want %d", when, kp.Addr, kp.Hits(), hits)
					}
				}
			}
			for _, tt := range []struct {
				name string
				turn func([]*kprobe.Kprobe) error
				off  bool
			}{{"disabled", s.DisableKprobes, true}, {"enabled", s.EnableKprobes, false}} {
				o.bad = last.Addr
				if err := tt.turn(kps); !errors.Is(err, syscall.EIO) {
					t.Fatalf("%s, where a place cannot be written: %v", tt.name, err)
				}
				if tt.off {
					hits++
				}
				same("not " + tt.name)
				o.bad = 0
				stops := o.stops
				if err := tt.turn(kps); err != nil {
					t.Fatal(err)
				}
				if stops = o.stops - stops; stops < len(kps)/4096+1 {
					t.Errorf("%s in %d stops", tt.name, stops)
				}
				if !tt.off {
					hits++
				}
				same(tt.name)
			}
		})
	}
}
