// Package listing makes the list of probes that a session shows, in the format of the
// kernel's file kprobes/list.
package listing

import (
	"cmp"
	"fmt"
	"slices"

	"kprobe/arch"
	"kprobe/symbol"
)

// Entry is one line of it.
type Entry struct {
	Addr     arch.Addr
	Kind     byte
	Symbol   string
	Module   string
	Gone     bool
	Disabled bool

	Optimized bool
}

// String gives the entry as the kernel's file kprobes/list does.
func (e Entry) String() string {
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

// Row is what is known of one probe.
type Row struct {
	Addr   arch.Addr
	Kind   byte
	Name   string // that it was asked for by, with Offset
	Offset uint64
	Loc    symbol.Loc // in no file, where the probe has no place
	Placed bool
	Rank   int // at its address

	Gone, Disabled, Optimized bool
}

// Entries lists the rows by address, and at one address by rank. Modules are named but for the
// program's own.
func Entries(rows []Row, program *symbol.Module) []Entry {
	slices.SortStableFunc(rows, func(a, b Row) int { return cmp.Or(cmp.Compare(a.Addr, b.Addr), a.Rank-b.Rank) })
	es := make([]Entry, 0, len(rows))
	for _, r := range rows {
		e := Entry{Addr: r.Addr, Kind: r.Kind, Gone: r.Gone, Disabled: r.Disabled}
		switch {
		case r.Placed:
			e.Optimized = r.Optimized && !r.Gone
			e.Symbol = r.Loc.Offset()
			if m := r.Loc.Module; m != nil && m != program {
				e.Module = m.Name
			}
		case r.Name == "":
			e.Symbol = r.Addr.String()
		default:
			e.Symbol = fmt.Sprintf("%s+0x%x", r.Name, r.Offset)
		}
		es = append(es, e)
	}
	return es
}
