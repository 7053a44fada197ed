package kprobe

import (
	"fmt"
	"io"
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
	for _, e := range s.e.List() {
		es = append(es, ListEntry(e))
	}
	return es
}

// Pending lists the names of the probes that wait for their code to be mapped, as of
// the last change that is complete.
func (s *Session) Pending() []string { return s.e.Pending() }

// WriteList writes the list, a line each.
func WriteList(w io.Writer, es []ListEntry) error {
	var b strings.Builder
	for _, e := range es {
		fmt.Fprintln(&b, e)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
