package links_test

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"syscall"
	"testing"

	"kprobe/arch"
	"kprobe/internal/change"
	"kprobe/internal/links"
	"kprobe/internal/parts"
	"kprobe/internal/probed"
	"kprobe/symbol"
)

// large is a program of so many pages, with a batch of a probe for each of its instructions but the first
// ones. Function is how many instructions a function has; the probes of a function belong to its first.
func large(t *testing.T, pages, function int) (*engine, *links.Batch) {
	e := start(t)
	for i := range arch.Addr(pages) {
		e.mem[code+i*page] = bytes.Repeat([]byte{push}, page)
	}
	if _, err := e.on.Image.Look(); err != nil {
		t.Fatal(err)
	}
	b := e.links.Batch()
	var entry *probe
	for i := 16; i < pages*page; i++ {
		p := &probe{of: entry}
		if i%function == 0 {
			entry, p.of = p, nil
		}
		pt, err := b.Point(symbol.Loc{Addr: code + arch.Addr(i)})
		if err != nil {
			t.Fatal(err)
		}
		pt.Loc.Off = uint64(i % function)
		b.Add(p.known(), pt)
	}
	return e, b
}

// changes counts the bytes of the text that each stop has changed, and has the text after each.
func (e *engine) changes(pages int, f func()) (changed []int, texts [][]byte) {
	all := func() (text []byte) {
		for i := range arch.Addr(pages) {
			text = append(text, e.mem[code+i*page]...)
		}
		return text
	}
	was := all()
	e.thawed = func() {
		is, n := all(), 0
		for i := range is {
			if is[i] != was[i] {
				n++
			}
		}
		if n > 0 {
			changed, texts = append(changed, n), append(texts, is)
		}
		was = is
	}
	f()
	e.thawed = nil
	return changed, texts
}

// A large batch comes, and goes, in several stops, none of which has more work than another; a small one in one.
func TestPieces(t *testing.T) {
	for _, pages := range []int{1, 3} {
		e, b := large(t, pages, 1)
		ps := slices.Clone(b.Probes)
		stops, _ := e.changes(pages, func() {
			if err := e.apply(b); err != nil {
				t.Fatal(err)
			}
		})
		if len(stops) != pages || slices.Max(stops) > change.AtOnce || len(e.on.Points.List) != len(ps) {
			t.Errorf("%d probes come in stops of %d, %d points", len(ps), stops, len(e.on.Points.List))
		}
		stops, texts := e.changes(pages, func() {
			if err := e.leaveAll(ps); err != nil {
				t.Error(err)
			}
		})
		if len(stops) != pages || slices.Max(stops) > change.AtOnce || slices.Contains(texts[pages-1], 0xcc) || len(e.on.Points.List) != 0 {
			t.Errorf("%d probes go in stops of %d, and %d points are left", len(ps), stops, len(e.on.Points.List))
		}
	}
}

// All of a function comes in one stop.
func TestPiecesAreOfFunctions(t *testing.T) {
	const pages, function = 3, 100
	e, b := large(t, pages, function)
	slices.Reverse(b.Probes) // whatever their order is
	stops, texts := e.changes(pages, func() {
		if err := e.apply(b); err != nil {
			t.Fatal(err)
		}
	})
	if len(stops) < pages || slices.Max(stops) > change.AtOnce {
		t.Errorf("stops of %d", stops)
	}
	for at := function; at+function <= pages*page; at += function {
		for _, text := range texts {
			if n := bytes.Count(text[at:at+function], []byte{0xcc}); n != 0 && n != function {
				t.Fatalf("%d of the %d probes of a function have come at once", n, function)
			}
		}
	}
}

// Where a piece cannot come, those before it go again.
func TestPiecesAllOrNone(t *testing.T) {
	const pages = 3
	for failing := range arch.Addr(pages) {
		e, b := large(t, pages, 1)
		ps := slices.Clone(b.Probes)
		e.bad = code + failing*page + 100
		stops, texts := e.changes(pages, func() {
			if err := e.apply(b); !errors.Is(err, syscall.EIO) {
				t.Fatal(err)
			}
		})
		if len(stops) != 2*int(failing) {
			t.Errorf("%d pieces: stops of %d", failing, stops)
		}
		if len(texts) > 0 && slices.Contains(texts[len(texts)-1], 0xcc) || len(e.on.Points.List) != 0 {
			t.Errorf("%d points are left after %d pieces", len(e.on.Points.List), failing)
		}
		if i := slices.IndexFunc(ps, func(p *probed.Probe) bool { return p.Point != nil && p.Point.Live }); i >= 0 {
			t.Errorf("probe %d is on its point", i)
		}
	}
}

// The switch of all probes takes several stops, too, and where a piece of the text cannot follow, all is as it was.
func TestPiecesOfTheSwitch(t *testing.T) {
	const pages = 3
	e, b := large(t, pages, 1)
	if err := e.apply(b); err != nil {
		t.Fatal(err)
	}
	turn := func(on bool) error {
		set := func(on bool) func() { return func() { e.on.Points.Disarmed = !on } }
		return e.links.Everywhere("switch", &parts.State{Set: set(on), Was: set(!on)}, change.Nothing{})
	}
	for _, on := range []bool{false, true, false, true} {
		for failing := range arch.Addr(pages) {
			e.bad = code + failing*page + 100
			stops, texts := e.changes(pages, func() {
				if err := turn(on); !errors.Is(err, syscall.EIO) {
					t.Fatal(err)
				}
			})
			if len(stops) != 2*int(failing) || e.on.Points.Disarmed != on {
				t.Errorf("on %v, %d pieces: stops of %d, disarmed: %v", on, failing, stops, e.on.Points.Disarmed)
			}
			if last := []byte{0xcc, push}; len(texts) > 0 && bytes.IndexByte(texts[len(texts)-1][16:], last[map[bool]int{true: 0, false: 1}[on]]) >= 0 {
				t.Errorf("on %v, %d pieces: part of it stays", on, failing)
			}
		}
		e.bad = 0
		stops, _ := e.changes(pages, func() {
			if err := turn(on); err != nil {
				t.Fatal(err)
			}
		})
		if len(stops) != pages || slices.Max(stops) > change.AtOnce {
			t.Errorf("on %v: stops of %d", on, stops)
		}
	}
}

// Probes that are switched off or on take several stops, too: where a piece fails, those before it are as they were.
// Some are off before, and stay so then.
func TestPiecesOfDisabled(t *testing.T) {
	const pages, function = 3, 100
	e, b := large(t, pages, function)
	ps := slices.Clone(b.Probes)
	if err := e.apply(b); err != nil {
		t.Fatal(err)
	}
	all := func(off bool) map[*probed.Probe]bool {
		is := make(map[*probed.Probe]bool)
		for _, p := range ps {
			is[p] = off
		}
		return is
	}
	now := func() map[*probed.Probe]bool {
		is := make(map[*probed.Probe]bool)
		for _, p := range ps {
			is[p] = p.Disabled()
		}
		return is
	}
	turn := func(ps []*probed.Probe, off bool) error {
		was := now()
		return e.links.Switch(ps, off, func(ps []*probed.Probe, back bool) {
			for _, p := range ps {
				p.Role.(role).off = off
				if back {
					p.Role.(role).off = was[p]
				}
				e.on.Points.Refresh(p.Point)
			}
		}, change.Nothing{})
	}
	text := func() (all []byte) {
		for i := range arch.Addr(pages) {
			all = append(all, e.mem[code+i*page]...)
		}
		return all
	}
	for _, off := range []bool{true, false} {
		if err := turn(ps[:50], off); err != nil { // is so already, and is no other after a failure
			t.Fatal(err)
		}
		for failing := range arch.Addr(pages) {
			was, is := now(), text()
			e.bad = code + failing*page + 100
			stops, _ := e.changes(pages, func() {
				if err := turn(ps, off); !errors.Is(err, syscall.EIO) {
					t.Fatal(err)
				}
			})
			if len(stops) != 2*int(failing) || !maps.Equal(now(), was) || !bytes.Equal(text(), is) {
				t.Errorf("off %v, %d pieces: stops of %d, all as before: %v, its text: %v", off, failing, stops, maps.Equal(now(), was), bytes.Equal(text(), is))
			}
		}
		e.bad = 0
		stops, texts := e.changes(pages, func() {
			if err := turn(ps, off); err != nil {
				t.Fatal(err)
			}
		})
		if len(stops) < pages || slices.Max(stops) > change.AtOnce || !maps.Equal(now(), all(off)) {
			t.Errorf("off %v: stops of %d", off, stops)
		}
		for at := function; at+function <= pages*page; at += function {
			for _, text := range texts {
				if n := bytes.Count(text[at:at+function], []byte{0xcc}); n != 0 && n != function {
					t.Fatalf("off %v: %d of the %d probes of a function", off, n, function)
				}
			}
		}
	}
}
