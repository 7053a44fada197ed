package kprobe

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"kprobe/arch"
	"kprobe/internal/listing"
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
func (s *Session) List() []ListEntry {
	es := []ListEntry{}
	for _, e := range s.shown.Load().Entries(&s.on.View, s.OnCPUs()) {
		es = append(es, ListEntry(e))
	}
	return es
}

// Pending lists the names of the probes that wait for their code to be mapped, as of
// the last change that is complete.
func (s *Session) Pending() []string { return slices.Clone(s.shown.Load().Pending) }

// shown is the list as others than the owner may ask for it.
type shown = listing.Shown

// publish makes the list be what it is now. It is called in a turn.
func (s *Session) publish() {
	l := &shown{Program: s.on.Image.Program()}
	for _, p := range s.probes {
		if p.hidden {
			continue
		}
		r := listing.Probe{Of: &p.probe, Point: p.probe.Point, Row: listing.Row{Addr: p.Addr, Kind: p.as().letter(), Name: p.SymbolName, Offset: p.Offset}}
		if r.Loc, r.Placed = p.as().place(); !r.Placed && !p.probe.Gone.Load() {
			continue
		}
		if p.probe.Point != nil {
			r.Rank = slices.Index(p.probe.Point.Probes, &p.probe)
		}
		if rp := p.as().returns(); rp != nil {
			for _, x := range rp.exits {
				r.Exits = append(r.Exits, x.probe.Point)
			}
		}
		l.Probes = append(l.Probes, r)
	}
	for _, p := range s.pending {
		if !p.hidden {
			l.Pending = append(l.Pending, p.where())
		}
	}
	s.shown.Store(l)
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
