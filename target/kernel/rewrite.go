package kernel

import (
	"fmt"
	"slices"

	"kprobe/arch"
	"kprobe/symbol/kernel"
	"kprobe/target"
)

// rewriters are the functions by which the kernel begins to rewrite, or to look at, text that we
// may have jumps on: ftrace's calls at functions' entries, and its own kprobes. The stub's
// breakpoints on them give us the time to put the text back first. Text that others rewrite (jump
// labels, static calls, lock prefixes) is never covered by a jump.
var rewriters = []string{"ftrace_modify_all_code", "register_kprobe"}

// rewriting are the functions that a rewriter works in, or that it is a part of.
var rewriting = append([]string{"ftrace_run_update_code", "arch_ftrace_update_code", "ftrace_replace_code"}, rewriters...)

func (t *Target) watchRewriters() error {
	for _, name := range rewriters {
		if err := t.notice(name, target.StopRewrite); err != nil {
			return err
		}
	}
	return nil
}

// Owned says why bytes of the kernel's text cannot be overwritten.
func (t *Target) Owned(start, end arch.Addr) string {
	if err := t.windowless(); err != nil {
		return err.Error()
	}
	if !t.kernel.Table().Bounds().Contains(start) {
		if why := t.settled(start); why != "" {
			return why
		}
	}
	sites, err := t.kernel.Foreign(start, end)
	if err != nil {
		return err.Error()
	}
	for _, s := range sites {
		switch {
		case s.Owner == kernel.Kprobe:
			return "the guest has a probe of its own there"
		case s.Owner == kernel.Bug: // see Pinned
		case s.Owner != kernel.Ftrace:
			return fmt.Sprintf("the kernel has a %s there", s.Owner)
		case s.Addr < start || s.Addr+arch.Addr(s.Len) > end:
			return "a part of it is ftrace's"
		}
	}
	return t.Pinned(start, end)
}

// Pinned says why instructions must run where they stand.
func (t *Target) Pinned(start, end arch.Addr) string {
	fixups, err := t.kernel.FixupsIn(start, end)
	if err != nil {
		return err.Error()
	}
	if len(fixups) > 0 {
		return "a fault there is mended by its address"
	}
	sites, err := t.kernel.Foreign(start, end)
	if err != nil {
		return err.Error()
	}
	if slices.ContainsFunc(sites, func(s kernel.Site) bool { return s.Owner == kernel.Bug }) {
		return "the kernel knows a trap there by its address"
	}
	return ""
}

// Leads are from the kernel's tables, and any word that may be an address.
func (t *Target) Leads(into arch.Addr) ([]arch.Range, []arch.Addr, error) {
	return t.kernel.Leads(into)
}

// Traced tells whether ftrace has the instruction at an address.
func (t *Target) Traced(addr arch.Addr) bool {
	sites, err := t.kernel.Foreign(addr, addr+1)
	return err == nil && slices.ContainsFunc(sites, func(s kernel.Site) bool { return s.Owner == kernel.Ftrace && s.Addr == addr })
}

// isRewriting tells whether an address is inside one of these functions.
func (t *Target) isRewriting(a arch.Addr) bool {
	if t.rewriting == nil {
		for _, name := range rewriting {
			for _, s := range t.kernel.Lookup(name) {
				t.rewriting = append(t.rewriting, arch.Range{Start: s.Addr + 1, End: s.Addr + arch.Addr(s.Size)})
			}
		}
	}
	return slices.ContainsFunc(t.rewriting, func(r arch.Range) bool { return r.Contains(a) })
}
