package kernel

import (
	"slices"

	"kprobe/arch"
)

// carriers are the kernel's functions that take return addresses from their slots to where Kept
// finds them, or back. On the way an address is in a register, or in a variable, where it cannot be
// found. At their first instructions no address is on its way yet: a task that is to return to one
// of the trampolines may sleep before that.
var carriers = []string{
	// return probes of the guest's own, since 5.18
	"rethook_hook", "arch_rethook_prepare", "arch_rethook_trampoline", "arch_rethook_trampoline_callback", "rethook_trampoline_handler",
	// and before
	"pre_handler_kretprobe", "arch_prepare_kretprobe", "kretprobe_trampoline", "__kretprobe_trampoline",
	"trampoline_handler", "kretprobe_trampoline_handler", "__kretprobe_trampoline_handler",
	// the function graph tracer
	"function_graph_enter", "prepare_ftrace_return", "ftrace_graph_caller", "ftrace_graph_func", "return_to_handler", "ftrace_return_to_handler",
}

// trampolines are the addresses to which functions return while the kernel keeps their return
// addresses: one for its own return probes, one for its graph tracer.
func (t *Target) trampolines() (at []arch.Addr) {
	for _, names := range [][]string{
		{"arch_rethook_trampoline", "__kretprobe_trampoline", "kretprobe_trampoline"},
		{"return_to_handler"},
	} {
		for _, name := range names {
			if a, ok := t.kernel.Table().Addr(name); ok {
				at = append(at, a)
				break
			}
		}
	}
	return at
}

// Keeps tells whether an address is one of the trampolines.
func (t *Target) Keeps(word arch.Addr) bool { return slices.Contains(t.trampolines(), word) }

// Carried tells whether one of the carriers is under way: on a CPU, or in a task that was
// interrupted there. Where the kernel's tasks are not known, none is.
func (t *Target) Carried() bool {
	s, err := t.findStacks()
	if err != nil {
		return false
	}
	var code []arch.Range
	for _, name := range carriers {
		for _, f := range t.kernel.Lookup(name) {
			code = append(code, arch.Range{Start: f.Addr + 1, End: f.Addr + arch.Addr(max(1, f.Size))})
		}
	}
	in := func(a arch.Addr) bool {
		return slices.ContainsFunc(code, func(c arch.Range) bool { return c.Contains(a) })
	}
	for _, th := range t.Threads() {
		var r arch.Regs
		if t.Regs(th, &r) != nil || in(r.Addr(t.Arch().PC)) {
			return true
		}
	}
	found := false
	word := t.Arch().PtrSize
	b := make([]byte, s.size)
	err = s.each(t, func(r arch.Range, live arch.Addr) error {
		words := b[:(r.End-live)&^arch.Addr(word-1)]
		if err := t.ReadAt(r.End-arch.Addr(len(words)), words); err != nil {
			return err
		}
		for i := 0; i < len(words); i += word {
			if a := arch.Addr(t.Arch().Order.Uint64(words[i:])); a >= kernelHalf && in(a) {
				found = true
			}
		}
		return nil
	})
	return found || err != nil
}
