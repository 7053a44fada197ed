package kernel

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"kprobe/arch"
	"kprobe/internal/cpu"
)

// Kernel is a live kernel, or one in an Image, with all that its memory tells. Its methods may be
// called by several goroutines. Answers about modules are those of the last Update.
type Kernel struct {
	arch  *arch.Arch
	mem   arch.Reader
	table *Table
	types *Types // nil without BTF, or without symbols that say where it is

	search sync.Once // for BTF without symbols
	hidden *Types    // the types that it found

	mu      sync.Mutex
	modules []*Module
	patched *patched // nil when it has to be read again
}

// Open reads the types and the modules of the kernel with these symbols. A kernel without type
// information, or whose modules cannot be found, can be opened: a method that needs them says so.
func Open(t *Table, mem arch.Reader, a *arch.Arch) (*Kernel, error) {
	k := &Kernel{arch: a, mem: mem, table: t}
	var err error
	if k.types, err = k.readTypes(); err != nil && !errors.Is(err, ErrNoTypes) {
		return nil, err
	}
	if _, _, err := k.Update(); err != nil && !errors.Is(err, ErrNoModules) {
		return nil, err
	}
	return k, nil
}

// Table is the kernel's own symbols, without modules.
func (k *Kernel) Table() *Table { return k.table }

func (k *Kernel) view() *view { return &view{mem: k.mem, arch: k.arch} }

// Modules are the modules that were loaded at the last Update, in the kernel's order: the last
// loaded first. The slice is shared: do not modify it.
func (k *Kernel) Modules() []*Module {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.modules
}

// Module finds a module by name. "-" and "_" are the same, as for modprobe.
func (k *Kernel) Module(name string) (*Module, bool) {
	name = strings.ReplaceAll(name, "-", "_")
	for _, m := range k.Modules() {
		if m.Name == name {
			return m, true
		}
	}
	return nil, false
}

// Lookup finds the symbols of a name: the kernel's own, then the modules'. A
// name may be MODULE:NAME, as in kprobe_events.
func (k *Kernel) Lookup(name string) []Symbol {
	if module, name, ok := strings.Cut(name, ":"); ok {
		if m, ok := k.Module(module); ok {
			return m.Table.Lookup(name)
		}
		return nil
	}
	out := k.table.Lookup(name)
	for _, m := range k.Modules() {
		out = append(out, m.Table.Lookup(name)...)
	}
	return out
}

// At finds the symbol that an address lies in, and how far.
func (k *Kernel) At(addr arch.Addr) (Symbol, uint64, bool) {
	for _, m := range k.Modules() {
		if m.Contains(addr) {
			return m.Table.At(addr)
		}
	}
	return k.table.At(addr)
}

// Name is an address as the kernel prints it with %pS: "vfs_read+0x9/0x310",
// " [module]" behind it for a module's; "" for one in no symbol.
func (k *Kernel) Name(addr arch.Addr) string {
	s, off, ok := k.At(addr)
	if !ok {
		return ""
	}
	name := fmt.Sprintf("%s+0x%x/0x%x", s.Name, off, s.Size)
	if s.Module != "" {
		name += " [" + s.Module + "]"
	}
	return name
}

// Match finds the code symbols whose names a glob matches: of the kernel and of
// all modules, or with MODULE:GLOB of one.
func (k *Kernel) Match(glob string) []Symbol {
	if module, glob, ok := strings.Cut(glob, ":"); ok {
		if m, ok := k.Module(module); ok {
			return m.Table.Match(glob)
		}
		return nil
	}
	out := k.table.Match(glob)
	for _, m := range k.Modules() {
		out = append(out, m.Table.Match(glob)...)
	}
	return out
}

// Section is a named part of the kernel's text.
type Section struct {
	Name string // as linker scripts have it
	arch.Range
}

// sections are the parts of the text that matter to probes, by the symbols that
// the linker script puts around them.
var sections = []struct{ name, start, end string }{
	{".text", "_stext", "_etext"},
	{".init.text", "_sinittext", "_einittext"},
	{".noinstr.text", "__noinstr_text_start", "__noinstr_text_end"},
	{".kprobes.text", "__kprobes_text_start", "__kprobes_text_end"},
	{".entry.text", "__entry_text_start", "__entry_text_end"},
	{".irqentry.text", "__irqentry_text_start", "__irqentry_text_end"},
	{".softirqentry.text", "__softirqentry_text_start", "__softirqentry_text_end"},
	{".sched.text", "__sched_text_start", "__sched_text_end"},
	{".cpuidle.text", "__cpuidle_text_start", "__cpuidle_text_end"},
	{".spinlock.text", "__lock_text_start", "__lock_text_end"},
	{".idmap.text", "__idmap_text_start", "__idmap_text_end"},
	{".hyp.text", "__hyp_text_start", "__hyp_text_end"},
	{".static_call.text", "__static_call_text_start", "__static_call_text_end"},
}

// Sections are the parts of the kernel's text that its symbols bound. Some lie
// inside others; empty ones are left out.
func (t *Table) Sections() []Section {
	var out []Section
	for _, s := range sections {
		if r, ok := t.between(s.start, s.end); ok {
			out = append(out, Section{s.name, r})
		}
	}
	return out
}

// between is the range that two symbols bound.
func (t *Table) between(start, end string) (arch.Range, bool) {
	a, ok1 := t.Addr(start)
	b, ok2 := t.Addr(end)
	return arch.Range{Start: a, End: b}, ok1 && ok2 && a < b
}

// IsText tells whether an address is in text that can be probed: the kernel's without the part that
// is freed after boot, or a loaded module's.
func (k *Kernel) IsText(addr arch.Addr) bool {
	for _, m := range k.Modules() {
		if m.Text.Contains(addr) {
			return true
		}
	}
	text, ok := k.table.between("_stext", "_etext")
	init, _ := k.table.between("_sinittext", "_einittext")
	return ok && text.Contains(addr) && !init.Contains(addr)
}

// byAddr sorts a list by address.
func byAddr[T any](xs []T, addr func(*T) arch.Addr) {
	slices.SortStableFunc(xs, func(a, b T) int {
		switch x, y := addr(&a), addr(&b); {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	})
}

// on says what kernels of the machine rewrite of their code, and forbid.
func (k *Kernel) on() *cpu.Text { return &cpu.Of(k.arch).Kernel.Text }
