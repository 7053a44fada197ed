package scale_test

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"kprobe"
	"kprobe/event"
	"kprobe/internal/testprog"
	"kprobe/trace"
)

// A pattern's functions are probed but for those that cannot be, which are named with their
// reasons. Strictly, all are or none is.
func TestPatternLeavesOut(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "threads", "-O2", "-pthread"))
	s := attach(t, p.Pid, nil)
	for _, def := range []string{"p libc.so.6:*", "r libc.so.6:*"} {
		strict := trace.New(s, func(*event.Event) {})
		strict.Inside, strict.Strict = true, true
		if err := strict.Add(def); !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOTSUP) {
			t.Errorf("%s, strictly: %v", def, err)
		}
		if n := len(s.List()); n != 0 {
			t.Fatalf("%s, strictly: %d probes", def, n)
		}
		tr := trace.New(s, func(*event.Event) {})
		tr.Inside = true
		if err := tr.Add(def); err != nil {
			t.Fatalf("%s: %v", def, err)
		}
		all, out := s.Symbols().Match("libc.so.6", "*"), tr.LeftOut()
		if n := len(s.List()); n < len(all)*9/10 || n+len(out) > len(all) {
			t.Errorf("%s: %d probes, %d left out of %d", def, n, len(out), len(all))
		}
		var text strings.Builder
		if err := trace.WriteLeftOut(&text, out); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(text.String(), def) || !strings.Contains(text.String(), "unwinders know signal frames by its bytes (__restore_rt+0x0)") {
			t.Errorf("%s: %s", def, &text)
		}
		if err := tr.Close(); err != nil {
			t.Fatal(err)
		}
	}
	// Where nothing is left, it is refused.
	if err := trace.New(s, nil).Add("p libc.so.6:__restore_r*"); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a pattern of nothing that can be probed: %v", err)
	}
}

// A batch goes without an optional probe that cannot be placed, and leaves no trace of it.
func TestOptional(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "remaps", "-O2"))
	s := attach(t, p.Pid, nil)
	good, bad := count("remaps_moved"), &kprobe.Kprobe{SymbolName: "remaps_moved", Offset: 1, Program: kprobe.CountOnly}
	worse := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "remaps_after", Offset: 4, Optional: true}, Program: kprobe.CountOnly}
	bad.Optional = true
	if err := s.Register(bad, good, worse); err != nil {
		t.Fatal(err)
	}
	if bad.Registered() || bad.Refusal() == nil || worse.Kp.Refusal() == nil || !good.Registered() || good.Refusal() != nil {
		t.Errorf("refused: %v, %v; placed: %v", bad.Refusal(), worse.Kp.Refusal(), good.Registered())
	}
	if got := call(p); got != "called 1 2 3 4" || good.Hits() != 1 {
		t.Errorf("%s, %d hits", got, good.Hits())
	}
	if err := s.Register(bad); !errors.Is(err, syscall.EILSEQ) {
		t.Errorf("nothing else: %v", err)
	}
	bad.Offset = 0 // it is nobody's, and can be another
	if err := s.Register(bad); err != nil || bad.Refusal() != nil {
		t.Errorf("as another: %v", err)
	}
}

// 40,000 counters and more have room, each for itself.
func TestManyCounters(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "manyfns", "-O2", "-DMANY=40000"))
	s := attach(t, p.Pid, nil)
	st, err := trace.NewStat(s, true, "p manyfns:many_[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	p.Round("2")
	rows, err := st.Rows()
	if err != nil || len(rows) != 40000 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	for _, r := range rows {
		if r.Hits != 2 || r.Missed != 0 {
			t.Fatalf("%s: %d hits, %d missed", r.Place, r.Hits, r.Missed)
		}
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
}

// A process that may not have the addresses has a smaller room.
func TestFewAddresses(t *testing.T) {
	path := testprog.Build(t, "manyfns", "-O2")
	p := testprog.StartCmd(t, exec.Command("sh", "-c", "ulimit -v 1000000; exec "+path))
	p.Round("1") // it is no shell any more
	s := attach(t, p.Pid, nil)
	kp := count("many_7")
	if err := s.RegisterKprobe(kp); err != nil {
		t.Fatal(err)
	}
	p.Round("3")
	if kp.Hits() != 3 {
		t.Errorf("%d hits", kp.Hits())
	}
}

// A definition may name a file from the folder that we are in, or by the way that the process
// itself has to it. Both are there at once: nothing waits for them.
func TestFilesByOtherNames(t *testing.T) {
	path := testprog.Build(t, "remaps", "-O2")
	p := testprog.Start(t, path)
	s := attach(t, p.Pid, nil)
	t.Chdir(filepath.Dir(path))
	for _, def := range []string{"p ./remaps:remaps_moved", "p ../" + filepath.Base(filepath.Dir(path)) + "/remaps:remaps_moved",
		"p /proc/self/exe:remaps_moved", "p /proc/thread-self/exe:remaps_moved", "p " + path + ":remaps_moved"} {
		st, err := trace.NewStat(s, true, def)
		if err != nil {
			t.Fatal(err)
		}
		call(p)
		if rows, err := st.Rows(); err != nil || len(rows) != 1 || rows[0].Hits != 1 {
			t.Errorf("%s: %v, %v", def, rows, err)
		}
		if err := st.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Definitions from a file, each of its own address, are placed and recorded as those of a pattern.
func TestManyAddresses(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "manyfns", "-O2"))
	s := attach(t, p.Pid, nil)
	var defs []string
	for _, l := range s.Symbols().Match("manyfns", "many_[0-9]*") {
		defs = append(defs, fmt.Sprintf("p:at_%x %#x n=%%di", l.Addr, l.Addr))
	}
	var mu sync.Mutex
	events := map[string]int{}
	tr := trace.New(s, func(e *event.Event) {
		mu.Lock()
		events[fmt.Sprintf("%s %x", e.Name, uint64(e.Addr))]++
		mu.Unlock()
	})
	tr.Inside = true
	if err := tr.Add(defs...); err != nil {
		t.Fatal(err)
	}
	p.Round("1")
	counts := tr.Counts()
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	lost := 0
	for _, c := range counts {
		if c.Hits != 1 {
			t.Fatalf("%s: %d hits", c.Name, c.Hits)
		}
		lost += int(c.Missed[event.Lost])
	}
	if len(counts) != 10000 || len(events)+lost != 10000 {
		t.Errorf("%d definitions, %d events, %d lost", len(counts), len(events), lost)
	}
	for name, n := range events {
		if at, addr, _ := strings.Cut(name, " "); at != "at_"+addr || n != 1 {
			t.Fatalf("%s: %d", name, n)
		}
	}
}
