package kprobe

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"kprobe/arch"
	"kprobe/internal/listing"
	"kprobe/internal/text"
	"kprobe/symbol"
)

// ListEntry is one line of the list (kprobes.txt appendix A).
type ListEntry struct {
	Addr     arch.Addr
	Kind     byte   // 'k', 'j' or 'r'; 'w' for a watchpoint
	Symbol   string // symbol+0xoffset
	Module   string // the library; "" for the program itself
	Gone     bool
	Disabled bool

	Optimized bool // by a jump (kprobes.txt 1.4)
}

// String gives the entry as the kernel's file kprobes/list does.
func (e ListEntry) String() string { return listing.Entry(e).String() }

// List lists the registered probes by address, and at one address in the order
// in which their handlers run. Probes that wait for their code to be mapped
// are in none yet, as with the kernel; see Pending. The list is that of the last
// change that is complete: a handler may ask for it at any time, and waits for nobody.
func (s *Session) List() []ListEntry { return s.shown.Load().list(s) }

// Pending lists the names of the probes that wait for their code to be mapped, as of
// the last change that is complete.
func (s *Session) Pending() []string { return slices.Clone(s.shown.Load().pending) }

// shown is what a session has, as it was after a change: for those who must not wait
// for the next one to be over. It is never changed, but replaced.
type shown struct {
	program *symbol.Module
	rows    []row
	pending []string
}

// row is one probe of it. Whether the probe is switched off, gone or optimized is asked
// when the list is.
type row struct {
	listing.Row
	p     *Kprobe
	point *point
	exits []*point // of its function
}

// publish makes the list be what it is now. mu is held.
func (s *Session) publish() {
	l := &shown{program: s.image.Program(), rows: make([]row, 0, len(s.probes))}
	for _, p := range s.probes {
		if p.hidden {
			continue
		}
		r := row{p: p, point: p.point, Row: listing.Row{Addr: p.Addr, Kind: p.as().letter(), Name: p.SymbolName, Offset: p.Offset}}
		if r.Loc, r.Placed = p.as().place(p); !r.Placed && !p.gone.Load() {
			continue
		}
		if p.point != nil {
			r.Rank = slices.Index(p.point.probes, p)
		}
		if rp := p.as().returns(); rp != nil {
			for _, x := range rp.exits {
				r.exits = append(r.exits, x.point)
			}
		}
		l.rows = append(l.rows, r)
	}
	for _, p := range s.pending {
		if !p.hidden {
			l.pending = append(l.pending, p.SymbolName)
		}
	}
	s.shown.Store(l)
}

func (l *shown) list(s *Session) []ListEntry {
	rows := make([]listing.Row, len(l.rows))
	s.view.RLock()
	for i, r := range l.rows {
		rows[i] = r.Row
		rows[i].Gone, rows[i].Disabled, rows[i].Optimized = r.p.gone.Load(), r.p.disabled(), r.jumps(s.machine != nil)
	}
	s.view.RUnlock()
	es := make([]ListEntry, 0, len(rows))
	for _, e := range listing.Entries(rows, l.program) {
		es = append(es, ListEntry(e))
	}
	return es
}

// jumps tells whether a jump leads to what the probe has inside the target. In a kernel, where anything else is a stop
// of it, that goes for a function's exits too. view is held.
func (r *row) jumps(exits bool) bool {
	jumps := func(pt *point) bool { return pt != nil && pt.Text == text.Jump }
	return jumps(r.point) && (!exits || !slices.ContainsFunc(r.exits, func(pt *point) bool { return !jumps(pt) }))
}

// exitsOf tells how many exits a return probe has, and how many of them are jumps.
func (l *shown) exitsOf(s *Session, rp *Kretprobe) (probed, jumps int) {
	i := slices.IndexFunc(l.rows, func(r row) bool { return r.p == &rp.Kp })
	if i < 0 {
		return 0, 0
	}
	s.view.RLock()
	defer s.view.RUnlock()
	for _, pt := range l.rows[i].exits {
		if pt != nil && pt.Text == text.Jump {
			jumps++
		}
	}
	return len(l.rows[i].exits), jumps
}

// WriteList writes the list, a line each.
func WriteList(w io.Writer, es []ListEntry) error {
	var b strings.Builder
	for _, e := range es {
		fmt.Fprintln(&b, e)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
