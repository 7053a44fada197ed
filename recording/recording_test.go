package recording

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"kprobe/arch"
	"kprobe/event"
	"kprobe/internal/gen"
	"kprobe/spec"
)

// program is the format that a definition would have made: an entry with a number, an address and a
// text, and a return.
func program(t testing.TB, ret bool) *gen.Format {
	t.Helper()
	form := event.Form{
		{Name: "n", Type: spec.Type{Base: spec.Unsigned, Size: 8}, Mask: ^uint64(0)},
		{Name: "at", Type: spec.Type{Base: spec.Symbol, Size: 8}, Mask: ^uint64(0)},
		{Name: "text", Type: spec.Type{Base: spec.String}, Mask: ^uint64(0)},
		{Name: "const", Type: spec.Type{Base: spec.String}, Const: true, Text: "always", Mask: ^uint64(0)},
	}
	f := &gen.Format{
		Layout: gen.Layout{Fields: 15, Args: []gen.LayoutArg{{}, {}, {Text: true}}, Faults: 32, Values: 40, Fixed: 64},
		Form:   form, At: []int{0, 1, 2, -1}, PCArg: -1, CommArg: -1,
	}
	if ret {
		f.Args, f.Fixed, f.PCArg = append(f.Args, gen.LayoutArg{}), 72, 3
	}
	if err := f.Check(); err != nil {
		t.Fatal(err)
	}
	return f
}

// world names things.
type world struct{ ret bool }

func (w world) Place(cookie uint64) *Place {
	if cookie > 2 {
		return nil
	}
	return &Place{Group: "g", Name: fmt.Sprint("e", cookie), Return: w.ret, Addr: arch.Addr(0x1000 * cookie), Func: "func", Off: 1, Size: 9}
}

func (w world) Symbol(a arch.Addr) string {
	if a%2 == 1 {
		return ""
	}
	return fmt.Sprintf("f%d+0x0/0x1", a)
}

func (w world) Comm(tid int) string { return fmt.Sprint("thread ", tid) }

// record makes one, as it is in a block.
func record(r *rand.Rand, f *gen.Format, at uint64, tid int) []byte {
	text := strings.Repeat("x", r.IntN(20)) + "\x00"
	rec := binary.LittleEndian.AppendUint64(nil, at)
	rec = binary.LittleEndian.AppendUint64(rec, 7<<32|uint64(tid))
	rec = binary.LittleEndian.AppendUint64(rec, uint64(r.IntN(4)))
	rec = binary.LittleEndian.AppendUint64(rec, uint64(tid%2))
	rec = binary.LittleEndian.AppendUint64(rec, uint64(r.IntN(2)))
	rec = binary.LittleEndian.AppendUint64(rec, r.Uint64())
	rec = binary.LittleEndian.AppendUint64(rec, uint64(r.IntN(50)))
	rec = binary.LittleEndian.AppendUint64(rec, uint64(f.Fixed)|uint64(len(text))<<32)
	if f.PCArg >= 0 {
		rec = binary.LittleEndian.AppendUint64(rec, uint64(r.IntN(50)))
	}
	rec = append(rec, text...)
	block := binary.LittleEndian.AppendUint64(nil, uint64(len(rec)))
	return append(append(block, rec...), make([]byte, -len(rec)&7)...)
}

// session is looks at the rings of three threads, in two processes, with events of handlers
// between. each is told every block; look, that a look at a process is over.
func session(r *rand.Rand, formats [2]*gen.Format, each func(process, stream int, block []byte), handler func(process int, e *event.Event), look func(process int, last bool)) {
	now := uint64(1000)
	var late [2][3][]byte // records that a ring got while others were read
	for n := range 20 {
		for process := range 2 {
			for thread := range 3 {
				block := late[process][thread]
				for range r.IntN(5) {
					now += uint64(1 + r.IntN(10))
					block = append(block, record(r, formats[thread%2], now, 10+thread)...)
				}
				late[process][thread] = nil
				for other := range thread {
					now += uint64(1 + r.IntN(10))
					late[process][other] = append(late[process][other], record(r, formats[other%2], now, 10+other)...)
				}
				if len(block) > 0 {
					each(process, thread%2, block)
				}
			}
			if n%3 == 0 {
				now++
				handler(process, &event.Event{Time: time.Duration(now), Name: "handled", Comm: "a\xffb", Args: []event.Value{{Name: "v", Array: true, Elems: []event.Value{{Bits: 3, Size: 8, Base: spec.Unsigned}}}}})
			}
			look(process, false)
		}
	}
	for process := range 2 {
		for thread, block := range late[process] {
			each(process, thread%2, block)
		}
		look(process, true)
	}
}

// both gives a session's lines as they are printed while it goes on, and its file.
func both(t testing.TB, seed uint64, o Options) (live []string, rec []byte) {
	t.Helper()
	formats := [2]*gen.Format{program(t, false), program(t, true)}
	var merges [2]*Merge
	var streams [2]*Stream
	for i := range merges {
		merges[i] = NewMerge(func(e *event.Event) { live = append(live, string(e.AppendJSON(nil))) })
		streams[i] = &Stream{Format: formats[i], Names: world{i == 1}}
	}
	session(rand.New(rand.NewPCG(seed, 1)), formats,
		func(process, stream int, block []byte) { merges[process].Add(streams[stream], block) },
		func(process int, e *event.Event) { merges[process].AddEvent(e) },
		func(process int, last bool) { merges[process].Emit(last) })

	var file bytes.Buffer
	w := NewWriter(&file, Head{Definitions: []string{"p x"}}, o)
	var spaces [2]*Space
	var written [2][2]*Stream
	for i := range spaces {
		spaces[i] = w.Space()
		for k := range formats {
			written[i][k] = spaces[i].Stream(formats[k], world{k == 1})
		}
	}
	session(rand.New(rand.NewPCG(seed, 1)), formats,
		func(process, stream int, block []byte) { spaces[process].Records(written[process][stream], block) },
		func(process int, e *event.Event) { spaces[process].Event(e) },
		func(process int, last bool) { spaces[process].Look(last) })
	spaces[0].Lost(Loss{Name: "e1", N: 5, From: 1, To: 2})
	if err := w.Close(End{Counts: []event.Count{{Name: "e1", Hits: 9}}, Took: time.Second}); err != nil {
		t.Fatal(err)
	}
	return live, file.Bytes()
}

func lines(t testing.TB, file []byte) (got []string, a *Account) {
	t.Helper()
	a, err := Read(bytes.NewReader(file), func(e *event.Event) { got = append(got, string(e.AppendJSON(nil))) })
	if err != nil {
		t.Fatal(err)
	}
	return got, a
}

// A recording prints the same lines as were printed live, in the same order, which is that of time
// within each process.
func TestReportIsTrace(t *testing.T) {
	for seed := range uint64(5) {
		live, file := both(t, seed, Options{})
		got, a := lines(t, file)
		if !slices.Equal(got, live) {
			for i := range live {
				if i >= len(got) || got[i] != live[i] {
					t.Fatalf("seed %d: %d lines of %d: line %d is\n%q, want\n%q", seed, len(got), len(live), i, got[min(i, len(got)-1)], live[i])
				}
			}
		}
		if len(live) < 100 || a.End == nil || a.End.Counts[0].Hits != 9 || len(a.Losses) != 1 || a.Losses[0].N != 5 || a.Head.Definitions[0] != "p x" || a.Faults["e1"] == 0 {
			t.Fatalf("seed %d: %d lines, %+v", seed, len(live), a)
		}
	}
}

// A file that breaks off anywhere is read up to there.
func TestBrokenOff(t *testing.T) {
	live, file := both(t, 1, Options{})
	whole := slices.Clone(live)
	slices.Sort(whole)
	for n := len(magic); n < len(file); n += 1 + n%1997 {
		got, a := lines(t, file[:n])
		if a.End != nil {
			t.Fatalf("%d bytes of %d have an end", n, len(file))
		}
		for _, l := range got {
			if _, ok := slices.BinarySearch(whole, l); !ok {
				t.Fatalf("%d bytes of %d: %q was never there", n, len(file), l)
			}
		}
		if n > len(file)*3/4 && len(got) < len(live)/2 {
			t.Fatalf("%d bytes of %d give %d lines of %d", n, len(file), len(got), len(live))
		}
	}
}

// However a file is damaged, reading it ends, with an error or without.
func TestDamaged(t *testing.T) {
	_, file := both(t, 2, Options{})
	r := rand.New(rand.NewPCG(2, 2))
	failed := 0
	for range 60 {
		bad := slices.Clone(file)
		for range 1 + r.IntN(4) {
			bad[len(magic)+r.IntN(len(bad)-len(magic))] = byte(r.Uint32())
		}
		if _, err := Read(bytes.NewReader(bad), func(e *event.Event) { e.AppendJSON(nil) }); err != nil {
			failed++
		}
	}
	if failed < 5 {
		t.Error("nothing was noticed")
	}
	for _, s := range []string{"", "ELF", "kprobe99xxxxxxxxxxxx"} {
		if _, err := Read(strings.NewReader(s), nil); err == nil {
			t.Errorf("%q is read", s)
		}
	}
}

// A flight recorder keeps the newest.
func TestKeepsTheNewest(t *testing.T) {
	for _, once := range []uint64{1, 4000} { // records at once: one block may have more than is kept
		t.Run(fmt.Sprint(once), func(t *testing.T) { keepsTheNewest(t, once) })
	}
}

func keepsTheNewest(t *testing.T, once uint64) {
	const keep = 64 << 10
	f := program(t, false)
	var file bytes.Buffer
	w := NewWriter(&file, Head{}, Options{Keep: keep, Trigger: "e2"})
	s := w.Space()
	st := s.Stream(f, world{})
	r := rand.New(rand.NewPCG(1, 1))
	const looks = 4000
	for i := uint64(0); i < looks; {
		var block []byte
		for range once {
			rec := record(r, f, i, 1)
			binary.LittleEndian.PutUint64(rec[8+16:], 1)
			block = append(block, rec...)
			i++
		}
		s.Records(st, block)
		s.Look(false)
	}
	if file.Len() != 0 {
		t.Errorf("%d bytes are written before the end", file.Len())
	}
	select {
	case <-w.Triggered():
		t.Error("triggered by another event")
	default:
	}
	block := record(r, f, looks, 1)
	binary.LittleEndian.PutUint64(block[8+16:], 2)
	s.Records(st, block)
	<-w.Triggered()
	s.Look(true)
	if err := w.Close(End{}); err != nil {
		t.Fatal(err)
	}
	if n := file.Len(); n > keep*3/2 || n < keep*3/4 {
		t.Errorf("%d bytes, want about %d", n, keep)
	}
	last, n := time.Duration(-1), 0
	a, err := Read(&file, func(e *event.Event) {
		if n++; last >= 0 && e.Time != last+1 {
			t.Errorf("%d follows %d", e.Time, last)
		}
		last = e.Time
	})
	if err != nil || a.End == nil || last != looks || n < 100 {
		t.Errorf("%v: %d events up to %d", err, n, last)
	}
}

// failing takes nothing.
type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, fmt.Errorf("disk is full") }

func TestFileThatFails(t *testing.T) {
	w := NewWriter(failing{}, Head{}, Options{})
	s := w.Space()
	st := s.Stream(program(t, false), world{})
	r := rand.New(rand.NewPCG(1, 1))
	block := bytes.Repeat(record(r, st.Format, 1, 1), 1000)
	for range 100 {
		s.Records(st, block)
	}
	<-w.Failed()
	if err := w.Close(End{}); err == nil || err.Error() != "disk is full" {
		t.Errorf("%v", err)
	}
}

// Losses that follow each other are one, and there are never too many.
func TestLosses(t *testing.T) {
	var all []Loss
	all = AppendLoss(all, Loss{"a", 1, 10, 20})
	all = AppendLoss(all, Loss{"b", 2, 10, 20})
	all = AppendLoss(all, Loss{"a", 3, 20, 30})
	all = AppendLoss(all, Loss{"a", 4, 50, 60})
	if want := []Loss{{"a", 4, 10, 30}, {"b", 2, 10, 20}, {"a", 4, 50, 60}}; !slices.Equal(all, want) {
		t.Errorf("%v", all)
	}
	for i := range 3 * mostLosses {
		all = AppendLoss(all, Loss{"a", 1, time.Duration(100 + 10*i), time.Duration(101 + 10*i)})
	}
	if len(all) > mostLosses {
		t.Errorf("%d", len(all))
	}
}

// An event costs no allocation, live or in a file.
func TestNoAllocations(t *testing.T) {
	f := program(t, true)
	st := &Stream{Format: f, Names: sameNames{}}
	var out []byte
	m := NewMerge(func(e *event.Event) { out = e.AppendText(out[:0]) })
	r := rand.New(rand.NewPCG(1, 1))
	block := bytes.Repeat(record(r, f, 5, 1), 100)
	look := func() {
		m.Add(st, block)
		m.Emit(false)
	}
	look()
	look()
	if n := testing.AllocsPerRun(20, look); n > 1 {
		t.Errorf("%v allocations for 100 events", n)
	}
}

// sameNames allocate nothing.
type sameNames struct{}

var somewhere = &Place{Name: "e", Func: "func", Return: true}

func (sameNames) Place(uint64) *Place     { return somewhere }
func (sameNames) Symbol(arch.Addr) string { return "main+0x1/0x2" }
func (sameNames) Comm(int) string         { return "thread" }

func BenchmarkText(b *testing.B) {
	f := program(b, false)
	st := &Stream{Format: f, Names: sameNames{}}
	var out []byte
	m := NewMerge(func(e *event.Event) { out = e.AppendText(out[:0]) })
	block := bytes.Repeat(record(rand.New(rand.NewPCG(1, 1)), f, 5, 1), 1000)
	b.ReportAllocs()
	for b.Loop() {
		m.Add(st, block)
		m.Emit(true)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/event")
}

func BenchmarkRecords(b *testing.B) {
	w := NewWriter(nothing{}, Head{}, Options{})
	s := w.Space()
	st := s.Stream(program(b, false), sameNames{})
	block := bytes.Repeat(record(rand.New(rand.NewPCG(1, 1)), st.Format, 5, 1), 1000)
	b.ReportAllocs()
	for b.Loop() {
		s.Records(st, block)
		s.Look(false)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/event")
}

type nothing struct{}

func (nothing) Write(p []byte) (int, error) { return len(p), nil }
