package view

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"kprobe/arch"
	"kprobe/event"
	"kprobe/graph"
	"kprobe/spec"
)

// at makes an event of the function of an address.
func at(addr arch.Addr, us int, ret bool) *event.Event {
	return &event.Event{PID: 1, TID: 2, Comm: "worker", Time: time.Duration(us) * time.Microsecond, Addr: addr, Func: fmt.Sprintf("f%d", addr), Return: ret, Name: "e"}
}

// story is main(1) that calls a(2) twice, in which b(3) is called, with an event at 4 in it and one
// outside, and leaves a second b by a longjmp.
func story() []*event.Event {
	n := at(4, 25, false)
	n.Args = []event.Value{{Name: "n", Base: spec.Signed, Size: 4, Bits: 0xffffffff}, {Name: "text", Base: spec.String, Text: "<b>"},
		{Name: "big" + spec.PartSep + spec.PartLow + spec.WideSigned, Size: 8}, {Name: "big" + spec.PartSep + spec.PartHigh, Size: 8, Bits: 1<<64 - 1}}
	return []*event.Event{
		at(1, 0, false),
		at(2, 10, false), at(3, 20, false), n, at(3, 30, true), at(2, 40, true),
		at(2, 50, false), at(3, 60, false), at(2, 90, true), // b does not return
		at(1, 100, true),
		at(4, 110, false),
	}
}

func taken(over func(*graph.Span), other func(*event.Event, int)) {
	c := NewCalls(over, other, 1, 2, 3)
	for _, e := range story() {
		c.Take(e)
	}
}

func TestCalls(t *testing.T) {
	var got []string
	taken(func(s *graph.Span) {
		got = append(got, fmt.Sprintf("%*s%s %d-%d %d", s.Depth, "", s.Name, s.Start.Microseconds(), s.End.Microseconds(), s.Ended))
	}, func(e *event.Event, depth int) { got = append(got, fmt.Sprintf("%*s%s", depth, "", e.Func)) })
	want := []string{"   f4", "  f3 20-30 1", " f2 10-40 1", "  f3 60-90 2", " f2 50-90 1", "f1 0-100 1", "f4"}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	// Of a function that is not known to return, the first call is found by its return only.
	calls := 0
	c := NewCalls(func(*graph.Span) { calls++ }, nil)
	for range 3 {
		c.Take(at(1, 0, false))
		c.Take(at(1, 1, true))
	}
	if calls != 2 {
		t.Errorf("%d calls", calls)
	}
}

func tree() *Tree {
	tr := NewTree()
	taken(tr.Add, tr.Mark)
	return tr
}

func TestFolded(t *testing.T) {
	var b bytes.Buffer
	if err := tree().WriteFolded(&b); err != nil {
		t.Fatal(err)
	}
	if want := "worker-2;f1 30\nworker-2;f1;f2 30\nworker-2;f1;f2;f3 40\n"; b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
	tr := NewTree()
	tr.Mark(at(7, 1, false), 0)
	tr.Mark(at(7, 2, false), 0)
	b.Reset()
	if tr.WriteFolded(&b); b.String() != "worker-2;f7 2\n" {
		t.Errorf("%q", b.String())
	}
}

// Events with stacks are added up by these, whatever calls they lie in.
func TestStacks(t *testing.T) {
	tr := NewTree()
	for i, inner := range []string{"alloc+0x10", "alloc+0x10", "free+0x4"} {
		e := at(7, i, false)
		e.Args = []event.Value{{Name: "size"}, {Frames: []event.Frame{{Func: inner}, {Func: "f(int)+0x8"}, {Addr: 0x1234}, {Func: "main+0x55"}}}}
		tr.Mark(e, i)
	}
	var b bytes.Buffer
	if err := tr.WriteFolded(&b); err != nil {
		t.Fatal(err)
	}
	if want := "worker-2;main;0x1234;f(int);alloc 2\nworker-2;main;0x1234;f(int);free 1\n"; b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
	// pprof counts, and has no time that would be 0.
	if out := top(t, tr); !regexp.MustCompile(`2 66.67% 66.67% .* alloc\n`).MatchString(out) || !strings.Contains(out, "3   100%  main") {
		t.Error(out)
	}
}

// top is what pprof prints of a profile.
func top(t *testing.T, tr *Tree) string {
	t.Helper()
	var b bytes.Buffer
	if err := tr.WritePprof(&b, time.Unix(1e9, 0), time.Second); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "p.pb.gz")
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("go", "tool", "pprof", "-top", file).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// The judge is pprof itself.
func TestPprof(t *testing.T) {
	file := filepath.Join(t.TempDir(), "p.pb.gz")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := tree().WritePprof(f, time.Unix(1e9, 0), time.Second); err != nil {
		t.Fatal(err)
	}
	f.Close()
	for kind, want := range map[string][]string{
		"time":  {`40us +40.00% +40.00% +40us +40.00%  f3`, `30us .* 70us +70.00%  f2`, `30us .* 100us +100%  f1`},
		"calls": {`2 .* 2 .*  f4`, `1 .* 6 .*  f1`},
	} {
		out, err := exec.Command("go", "tool", "pprof", "-top", "-sample_index="+kind, file).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for _, w := range want {
			if !regexp.MustCompile(w).Match(out) {
				t.Errorf("%s: no %q in\n%s", kind, w, out)
			}
		}
	}
	out, _ := exec.Command("go", "tool", "pprof", "-tags", file).CombinedOutput()
	if !strings.Contains(string(out), "worker") {
		t.Errorf("%s", out)
	}
}

// fields reads a message: what its fields hold, numbers as uint64, all else as []byte.
func fields(t testing.TB, m []byte) map[int][]any {
	t.Helper()
	all := make(map[int][]any)
	uvarint := func() uint64 {
		v, n := binary.Uvarint(m)
		if n <= 0 {
			t.Fatalf("no number: %x", m)
		}
		m = m[n:]
		return v
	}
	for len(m) > 0 {
		key := uvarint()
		switch v := uvarint(); {
		case key&7 == 0:
			all[int(key>>3)] = append(all[int(key>>3)], v)
		case key&7 == 2 && v <= uint64(len(m)):
			all[int(key>>3)] = append(all[int(key>>3)], m[:v])
			m = m[v:]
		default:
			t.Fatalf("a field of wire type %d, %d bytes of %d", key&7, v, len(m))
		}
	}
	return all
}

// The trace holds to Perfetto's schema, whose numbers stand here a second time: every event is
// on a track that was described before, slices begin and end in pairs and lie in each other.
func TestPerfetto(t *testing.T) {
	var b bytes.Buffer
	p := NewPerfetto(&b)
	taken(p.Add, func(e *event.Event, _ int) { p.Mark(e) })
	if err := p.Flush(); err != nil {
		t.Fatal(err)
	}
	type mark struct {
		at   uint64
		what string
	}
	var marks []mark
	var tracks []string
	for _, raw := range fields(t, b.Bytes())[1] {
		packet := fields(t, raw.([]byte))
		if packet[10][0] != uint64(1) {
			t.Errorf("sequence %v", packet[10])
		}
		if d, ok := packet[60]; ok {
			track := fields(t, d[0].([]byte))
			if track[1][0] != uint64(len(tracks)+1) {
				t.Errorf("track %v is number %d", track[1], len(tracks)+1)
			}
			switch {
			case track[3] != nil:
				process := fields(t, track[3][0].([]byte))
				tracks = append(tracks, fmt.Sprintf("process %d %s", process[1][0], process[6][0]))
			case track[4] != nil:
				th := fields(t, track[4][0].([]byte))
				tracks = append(tracks, fmt.Sprintf("thread %d %d %s", th[1][0], th[2][0], th[5][0]))
			case track[8] != nil:
				tracks = append(tracks, fmt.Sprintf("counter %s of %d", track[2][0], track[5][0]))
			}
			continue
		}
		e := fields(t, packet[11][0].([]byte))
		if int(e[11][0].(uint64)) > len(tracks) {
			t.Errorf("an event on track %v, of %d", e[11], len(tracks))
		}
		what := fmt.Sprintf("%d track %d", e[9][0], e[11][0])
		if e[23] != nil {
			what += fmt.Sprintf(" %s", e[23][0])
		}
		if e[30] != nil {
			what += fmt.Sprintf(" value %d", int64(e[30][0].(uint64)))
		}
		for _, raw := range e[4] {
			a := fields(t, raw.([]byte))
			what += fmt.Sprintf(" %s", a[10][0])
			if a[4] != nil {
				what += fmt.Sprintf("=%d", int64(a[4][0].(uint64)))
			}
			if a[6] != nil {
				what += fmt.Sprintf("=%s", a[6][0])
			}
		}
		marks = append(marks, mark{packet[8][0].(uint64) / 1000, what})
	}
	slices.SortStableFunc(marks, func(a, b mark) int { return int(a.at) - int(b.at) })
	var got []string
	for _, m := range marks {
		got = append(got, fmt.Sprintf("%d: %s", m.at, m.what))
	}
	want := []string{"0: 1 track 2 f1", "10: 1 track 2 f2", "20: 1 track 2 f3", "25: 3 track 2 e n=-1 text=<b> big=-18446744073709551616", "25: 4 track 3 value -1",
		"30: 2 track 2", "40: 2 track 2", "50: 1 track 2 f2", "60: 1 track 2 f3", "90: 2 track 2", "90: 2 track 2", "100: 2 track 2", "110: 3 track 2 e"}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	if want := []string{"process 1 worker", "thread 1 2 worker", "counter e n of 1"}; !slices.Equal(tracks, want) {
		t.Errorf("%q", tracks)
	}
}

func TestHeat(t *testing.T) {
	h := NewHeat()
	calls := uint32(0)
	for i := range 5000 { // 50 s: columns must be joined
		end := time.Duration(i)*10*time.Millisecond + time.Second
		h.Add(&graph.Span{Name: fmt.Sprint("f", i%2), Start: end - time.Duration(i+1)*time.Microsecond, End: end})
		calls++
	}
	var sum uint32
	for name, columns := range h.funcs {
		if len(columns) > heatColumns {
			t.Errorf("%s: %d columns", name, len(columns))
		}
		for _, c := range columns {
			for _, n := range c {
				sum += n
			}
		}
	}
	if sum != calls || h.width != 256*time.Millisecond {
		t.Errorf("%d calls of %d, columns of %v", sum, calls, h.width)
	}
	for took, want := range map[time.Duration]int{0: 0, 1: 0, 2: 2, 3: 3, 4: 4, 5: 4, 6: 5, 1024: 20, 1 << 62: heatRows - 1} {
		if got := heatRow(took); got != want {
			t.Errorf("%d ns: row %d, want %d", took, got, want)
		}
	}
}

// Pages are one file that loads nothing, and what a target names cannot end a script.
func TestPages(t *testing.T) {
	f, h := NewFlame(), NewHeat()
	taken(func(s *graph.Span) {
		s.Name += "</script><script>alert(1)"
		f.Add(s)
		h.Add(s)
	}, f.Mark)
	seen := About{Process: "server 12", Asked: "p x", Began: time.Unix(1e9, 0), Took: time.Second, Events: 11}
	for name, write := range map[string]func(*bytes.Buffer) error{
		"flame": func(b *bytes.Buffer) error { return f.WriteHTML(b, seen) },
		"heat":  func(b *bytes.Buffer) error { return h.WriteHTML(b, seen) },
	} {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			t.Fatal(err)
		}
		page := b.String()
		if strings.Count(page, "</script>") != 1 || strings.Contains(page, "/*DATA*/null") || !strings.Contains(page, `const data = {"about":{"process":"server 12","asked":"p x"`) {
			t.Errorf("%s: %s", name, page)
		}
		if regexp.MustCompile(`https?:|src=|href=|@import|fetch\(`).MatchString(page) {
			t.Errorf("%s loads something", name)
		}
	}
}
