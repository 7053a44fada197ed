package kernel

import (
	"fmt"
	"strings"

	"kprobe/arch"
)

// blockedSections are the parts of the text that the kernel blacklists as a
// whole, with the reason.
var blockedSections = map[string]string{
	".kprobes.text":      "it is in .kprobes.text",
	".noinstr.text":      "it is noinstr: it runs where instrumentation may not",
	".entry.text":        "it is entry code: the kernel is not ready to take a trap there",
	".irqentry.text":     "it is entry code: the kernel is not ready to take a trap there",
	".softirqentry.text": "it is entry code: the kernel is not ready to take a trap there",
	".idmap.text":        "it runs under other page tables",
	".hyp.text":          "it runs in the hypervisor",
}

// areas are the sections that every machine blacklists; those of its own come behind them.
var areas = []string{".kprobes.text", ".noinstr.text"}

// Blacklist lists the ranges that must not be probed. A kernel with CONFIG_KPROBES keeps the list
// itself, and this is it, in its order. Of one without, or that has not come so far, it is made as
// the kernel would make it: of the tables and sections it is built with. A kernel without
// CONFIG_KPROBES marks fewer functions.
func (k *Kernel) Blacklist() ([]arch.Blocked, error) {
	v := k.view()
	head, ok := k.table.Addr("kprobe_blacklist")
	if !ok || k.hasInit(v) {
		return k.makeBlacklist(v)
	}
	var out []arch.Blocked
	ptr := k.arch.PtrSize
	var err error
	for range modulesTries { // a module may come or go meanwhile
		out, v = nil, k.view()
		// struct kprobe_blacklist_entry: list, start_addr, end_addr.
		v.list(head, 4*ptr, 1<<16, func(_ arch.Addr, entry []byte) {
			out = append(out, k.blocked(v.addr(entry[2*ptr:]), v.addr(entry[3*ptr:]), "it is marked NOKPROBE_SYMBOL"))
		})
		if err = v.err; err == nil {
			return out, nil
		}
	}
	return nil, fmt.Errorf("reading the kernel's kprobe_blacklist: %w", err)
}

// maxReturnBlacklist bounds the walk over a list that ends with a zero; real ones have one entry.
const maxReturnBlacklist = 64

// ReturnBlacklist lists the functions whose returns the kernel's own probes refuse (struct
// kretprobe_blackpoint): they come back on another stack than they were called on. A kernel without
// such a list gets those that all machines have.
func (k *Kernel) ReturnBlacklist() ([]Symbol, error) {
	at, ok := k.table.Addr("kretprobe_blacklist")
	if !ok {
		return k.table.Lookup("__switch_to"), nil
	}
	v := k.view()
	var out []Symbol
	entry := arch.Addr(2 * k.arch.PtrSize)
	for i := range arch.Addr(maxReturnBlacklist) {
		name := v.ptr(at + i*entry)
		if name == 0 || v.err != nil {
			break
		}
		out = append(out, k.table.Lookup(v.cstring(name, maxName))...)
	}
	if v.err != nil {
		return nil, fmt.Errorf("reading the kernel's kretprobe_blacklist: %w", v.err)
	}
	return out, nil
}

// blocked names a range, and gives it the reason of the section that it is in.
func (k *Kernel) blocked(start, end arch.Addr, reason string) arch.Blocked {
	b := arch.Blocked{Start: start, End: end, Reason: reason}
	if s, _, ok := k.At(start); ok {
		b.Symbol = s.Name
		if s.Module != "" {
			b.Symbol += " [" + s.Module + "]"
		}
	}
	for _, s := range k.table.Sections() {
		if why, ok := blockedSections[s.Name]; ok && s.Contains(start) {
			b.Reason = why
		}
	}
	return b
}

// makeBlacklist makes the list as the kernel does when it comes up.
func (k *Kernel) makeBlacklist(v *view) ([]arch.Blocked, error) {
	var out []arch.Blocked
	if t, ok := k.table.between("__start_kprobe_blacklist", "__stop_kprobe_blacklist"); ok && k.hasInit(v) {
		ptr := k.arch.PtrSize
		for b := v.array(t.Start, t.Size()/uint64(ptr), ptr); len(b) >= ptr; b = b[ptr:] {
			addr := v.addr(b)
			if s, off, ok := k.table.At(addr); ok && off == 0 && s.Size > 0 {
				out = append(out, k.blocked(addr, addr+arch.Addr(s.Size), "it is marked NOKPROBE_SYMBOL"))
			}
		}
	}
	for _, names := range [][]string{areas, k.on().Areas} {
		for _, name := range names {
			for _, s := range k.table.Sections() {
				if s.Name == name {
					out = append(out, k.area(s.Range)...)
				}
			}
		}
	}
	return out, v.err
}

// area lists a section symbol by symbol.
func (k *Kernel) area(r arch.Range) []arch.Blocked {
	var out []arch.Blocked
	for at := r.Start; at < r.End; {
		s, _, ok := k.table.At(at)
		if !ok || s.Size == 0 {
			break
		}
		end := s.Addr + arch.Addr(s.Size)
		out = append(out, k.blocked(s.Addr, end, ""))
		at = end
	}
	return out
}

// Blacklisted tells whether and why an address must not be probed, by a list that Blacklist gave.
// Beyond the list it looks where the kernel looks as well: .kprobes.text, and parts that a compiler
// split off a function that is on the list (foo.constprop.0 of foo).
func (k *Kernel) Blacklisted(list []arch.Blocked, addr arch.Addr) (arch.Blocked, bool) {
	find := func(addr arch.Addr) (arch.Blocked, bool) {
		for _, b := range list {
			if b.Start <= addr && addr < b.End {
				return b, true
			}
		}
		return arch.Blocked{}, false
	}
	if b, ok := find(addr); ok {
		return b, true
	}
	if r, ok := k.table.between("__kprobes_text_start", "__kprobes_text_end"); ok && r.Contains(addr) {
		return k.blocked(addr, addr+1, ""), true
	}
	s, _, ok := k.At(addr)
	if !ok {
		return arch.Blocked{}, false
	}
	if base, _, split := strings.Cut(s.Name, "."); split && base != "" {
		if of := k.Lookup(base); len(of) > 0 {
			if b, ok := find(of[0].Addr); ok {
				return arch.Blocked{Start: s.Addr, End: s.Addr + arch.Addr(s.Size), Symbol: s.Name, Reason: "it is a part of " + base + ": " + b.Reason}, true
			}
		}
	}
	return arch.Blocked{}, false
}
