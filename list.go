package kprobe

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"kprobe/arch"
	"kprobe/internal/text"
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
func (e ListEntry) String() string {
	module, tags := e.Module, ""
	if module == "" {
		module = " "
	}
	switch {
	case e.Gone:
		tags = "[GONE]"
	case e.Disabled:
		tags = "[DISABLED]"
	}
	if e.Optimized {
		tags += "[OPTIMIZED]"
	}
	return fmt.Sprintf("%016x  %c  %s  %s %s", uint64(e.Addr), e.Kind, e.Symbol, module, tags)
}

// List lists the registered probes by address, and at one address in the order
// in which their handlers run. Probes that wait for their code to be mapped
// are in none yet, as with the kernel; see Pending.
func (s *Session) List() []ListEntry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.list()
}

func (s *Session) list() []ListEntry {
	var ps []*Kprobe
	for _, p := range s.probes {
		if _, placed := p.as().place(p); !p.hidden && (placed || p.gone.Load()) {
			ps = append(ps, p)
		}
	}
	rank := func(p *Kprobe) int {
		if p.point == nil {
			return 0
		}
		return slices.Index(p.point.probes, p)
	}
	slices.SortStableFunc(ps, func(a, b *Kprobe) int { return cmp.Or(cmp.Compare(a.Addr, b.Addr), rank(a)-rank(b)) })
	es := make([]ListEntry, 0, len(ps))
	program := s.image.Program()
	for _, p := range ps {
		e := ListEntry{Addr: p.Addr, Kind: p.as().letter(), Gone: p.gone.Load(), Disabled: p.disabled()}
		if loc, placed := p.as().place(p); !placed {
			e.Symbol = fmt.Sprintf("%s+0x%x", p.SymbolName, p.Offset)
			if p.SymbolName == "" {
				e.Symbol = p.Addr.String()
			}
		} else {
			e.Optimized = s.jumps(p)
			e.Symbol = loc.Offset()
			if m := loc.Module; m != nil && m != program {
				e.Module = m.Name
			}
		}
		es = append(es, e)
	}
	return es
}

// jumps tells whether a jump leads to what a probe has inside the target. In a kernel, where anything else is a stop of
// it, that goes for a function's exits too.
func (s *Session) jumps(p *Kprobe) bool {
	ps := []*Kprobe{p}
	if s.machine != nil {
		ps = withExits(ps)
	}
	return !slices.ContainsFunc(ps, func(p *Kprobe) bool { return p.point == nil || s.standing(p.point) != text.Jump })
}

// Pending lists the names of the probes that wait for their code to be mapped.
func (s *Session) Pending() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for _, p := range s.pending {
		if !p.hidden {
			names = append(names, p.SymbolName)
		}
	}
	return names
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
