package kernel

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"slices"
	"strings"

	"kprobe/arch"
)

// ErrNoModules is returned, wrapped, where a kernel's list of modules is not to
// be found: it has none (CONFIG_MODULES), or it hides them (CONFIG_KALLSYMS_ALL).
var ErrNoModules = errors.New("the kernel's list of modules cannot be found")

// State is a module's stage of loading or unloading.
type State uint32

// As enum module_state has them.
const (
	Live   State = 0
	Coming State = 1 // its init function runs
	Going  State = 2 // it is being unloaded
	raw    State = 3 // nothing of it is valid yet
)

// String is the state as /proc/modules has it.
func (s State) String() string {
	switch s {
	case Live:
		return "Live"
	case Coming:
		return "Loading"
	case Going:
		return "Unloading"
	}
	return fmt.Sprintf("State(%d)", uint32(s))
}

// Module is a loaded module.
type Module struct {
	Name  string
	State State
	Addr  arch.Addr // where it is loaded, as /proc/modules says
	Size  uint64    // bytes of all its parts
	Text  arch.Range
	Table *Table

	parts []arch.Range // of its memory
	at    arch.Addr    // of its struct module
}

// Struct is the address of its struct module: the kernel's functions know it by that.
func (m *Module) Struct() arch.Addr { return m.at }

// Contains tells whether an address is in the module's memory.
func (m *Module) Contains(addr arch.Addr) bool {
	for _, p := range m.parts {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// String is the module's line in /proc/modules, without its users.
func (m *Module) String() string {
	return fmt.Sprintf("%s %d %v %v", m.Name, m.Size, m.State, m.Addr)
}

// layout has the offsets in struct module, in bytes; none for a member that is not known. All but
// the first three differ from release to release.
type layout struct {
	state, list, name int
	parts             []partLayout
	kallsyms          int // pointer to struct mod_kallsyms
	syms, numSyms     int // exported symbols, structs kernel_symbol of export bytes
	export            int
	size              int // of the whole
}

// partLayout has the offsets at which a struct module describes a part of it. text tells that the
// part begins with text.
type partLayout struct {
	base, size, textSize int
	text, init           bool
}

const (
	none         = -1
	nameSize     = 64 - 8 // MODULE_NAME_LEN on 64 bits
	maxModules   = 8192
	modulesTries = 4
)

var errLayout = errors.New("the type information of struct module has no sense")

// readLayout takes struct module apart by its type information.
func (k *Kernel) readLayout() (layout, error) {
	l, err := k.typedLayout()
	if err != nil {
		return l, err
	}
	offsets := []int{l.state, l.list, l.name + nameSize - 8, l.kallsyms, l.syms, l.numSyms}
	for _, p := range l.parts {
		offsets = append(offsets, p.base, p.size, p.textSize)
	}
	if slices.Max(offsets)+8 > l.size || l.syms != none && l.export < 4 {
		return l, errLayout // damaged: nothing may be looked for behind the struct
	}
	return l, nil
}

func (k *Kernel) typedLayout() (layout, error) {
	l := layout{}
	err := k.types.offsets("module", map[string]*int{
		"state": &l.state, "list": &l.list, "name": &l.name, "kallsyms": &l.kallsyms, "syms": &l.syms, "num_syms": &l.numSyms})
	if err != nil {
		return l, err
	}
	if s, err := k.types.structure("module"); err == nil {
		l.size = int(s.Size)
	}
	if s, err := k.types.structure("kernel_symbol"); err == nil {
		l.export = int(s.Size)
	}
	if off, _, err := k.types.field("kernel_symbol", "value_offset"); err != nil || off != 0 {
		l.syms = none // the values are not relative: nothing that has BTF is so
	}
	// Up to 6.3 a module had two parts, each beginning with its text.
	for _, name := range []string{"core_layout", "init_layout"} {
		p := partLayout{text: true, init: name == "init_layout"}
		if k.types.offsets("module", map[string]*int{name + ".base": &p.base, name + ".size": &p.size, name + ".text_size": &p.textSize}) == nil {
			l.parts = append(l.parts, p)
		}
	}
	if len(l.parts) == 2 {
		return l, nil
	}
	// Since 6.4 it has one for each kind of memory, in the order of enum
	// mod_mem_type: text, data, read-only data, data read-only after init, and the
	// same three of init.
	at, whole, err := k.types.field("module", "mem")
	if err != nil {
		return l, err
	}
	memory, err := k.types.structure("module_memory")
	if err != nil {
		return l, err
	}
	step := int(memory.Size)
	p := partLayout{textSize: none}
	if err := k.types.offsets("module_memory", map[string]*int{"base": &p.base, "size": &p.size}); err != nil {
		return l, err
	}
	const most = 16 // kinds of memory; there are 7
	if step < p.size+4 || whole/step > most {
		return l, errLayout
	}
	l.parts = nil
	for i := range whole / step {
		l.parts = append(l.parts, partLayout{base: at + i*step + p.base, size: at + i*step + p.size,
			textSize: none, text: i == 0, init: i >= 4})
	}
	return l, nil
}

// guessLayout takes struct module apart without type information. Its beginning does not change:
// the state, the list, the name. The rest is searched in the module that head leads to, and proved
// by itself: its symbols must have __this_module, and it must be at the struct; and this lies in
// the core part. The layout is the one up to 6.3; of later kernels it is not known.
func (k *Kernel) guessLayout(head arch.Addr) (layout, error) {
	ptr := k.arch.PtrSize
	l := layout{list: ptr, name: 3 * ptr, syms: none, kallsyms: none}
	v := k.view()
	at := v.ptr(head) - arch.Addr(l.list)
	if v.err == nil && at+arch.Addr(l.list) == head {
		l.size = l.name + nameSize // no module is loaded, so nothing can be looked at, and nothing need be
		l.kallsyms = 0
		return l, nil
	}
	const most = 0x800 // bytes; the structs of 6.1 have 0x400 to 0x500
	b := v.array(at, most, 1)
	if v.err != nil {
		return l, v.err
	}
	for off := l.name + nameSize; off+2*ptr <= most; off += ptr {
		base, size, textSize := v.addr(b[off:]), v.num(b[off+ptr:], 4), v.num(b[off+ptr+4:], 4)
		switch inside := at >= base && at-base < arch.Addr(size); {
		case l.parts == nil && inside && base%0x1000 == 0 && 0 < textSize && textSize <= size:
			l.parts = []partLayout{{base: off, size: off + ptr, textSize: off + ptr + 4, text: true}}
		case l.kallsyms == none && base != 0:
			try := &view{mem: k.mem, arch: k.arch}
			t := (&Module{}).symbols(try, base, nil)
			if this, ok := t.Addr("__this_module"); ok && try.err == nil && this == at {
				l.kallsyms, l.size = off, off+ptr
			}
		}
	}
	if l.parts == nil || l.kallsyms == none {
		return l, errors.New("no type information, and struct module is not laid out as up to 6.3")
	}
	l.size = max(l.size, l.parts[0].textSize+4)
	return l, nil
}

// Update looks which modules are loaded now, and tells which are new and which have gone. One that
// was loaded again elsewhere is both. Errors: ErrNoModules.
func (k *Kernel) Update() (loaded, gone []*Module, err error) {
	now, err := k.readModules()
	if err != nil {
		return nil, nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, m := range now {
		if old := sameModule(k.modules, m); old == nil {
			loaded = append(loaded, m)
		} else if old.State == m.State {
			now[i] = old // with the facts known of it
		}
	}
	for _, m := range k.modules {
		if sameModule(now, m) == nil {
			gone = append(gone, m)
		}
	}
	if len(loaded) > 0 || len(gone) > 0 {
		k.patched = nil
	}
	k.modules = now
	return loaded, gone, nil
}

func sameModule(ms []*Module, m *Module) *Module {
	for _, o := range ms {
		if o.at == m.at && o.Name == m.Name && o.Addr == m.Addr && len(o.Table.syms) == len(m.Table.syms) {
			return o
		}
	}
	return nil
}

// readModules reads the list of modules. The guest may run and change it
// meanwhile; then it is read again.
func (k *Kernel) readModules() ([]*Module, error) {
	head, ok := k.table.Addr("modules")
	if !ok {
		return nil, ErrNoModules
	}
	var err error
	for range modulesTries {
		v := k.view()
		if v.ptr(head) == 0 && v.err == nil { // the list of an image: nothing has made it yet
			return nil, nil
		}
		var l layout
		if k.types != nil {
			l, err = k.readLayout()
		} else {
			l, err = k.guessLayout(head)
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNoModules, err)
		}
		var ms []*Module
		v.list(head, 2*k.arch.PtrSize, maxModules, func(entry arch.Addr, _ []byte) {
			if m := l.module(v, entry-arch.Addr(l.list)); m != nil {
				ms = append(ms, m)
			}
		})
		if err = v.err; err == nil {
			return ms, nil
		}
	}
	return nil, fmt.Errorf("reading the list of modules: %w", err)
}

// module reads one struct module; nil for one that has nothing to tell yet.
func (l layout) module(v *view, at arch.Addr) *Module {
	b := v.array(at, uint64(l.size), 1)
	if b == nil {
		return nil
	}
	m := &Module{at: at, State: State(v.num(b[l.state:], 4)), Name: text(b[l.name : l.name+nameSize])}
	if m.State == raw {
		return nil
	}
	if m.Name == "" || m.State > raw || strings.ContainsAny(m.Name, " \n[]") {
		v.err = fmt.Errorf("struct module at %v: %w", at, errChanged)
		return nil
	}
	for _, p := range l.parts {
		base, size := v.addr(b[p.base:]), v.num(b[p.size:], 4)
		m.Size += size
		if size == 0 || base == 0 {
			continue
		}
		m.parts = append(m.parts, arch.Range{Start: base, End: base + arch.Addr(size)})
		if p.text && !p.init {
			if p.textSize != none {
				size = v.num(b[p.textSize:], 4)
			}
			m.Addr, m.Text = base, arch.Range{Start: base, End: base + arch.Addr(size)}
		}
	}
	exported := map[arch.Addr]bool{}
	if l.syms != none {
		// Offsets of 4 bytes, each relative to its own place. The first is the value's.
		base, n := v.addr(b[l.syms:]), v.num(b[l.numSyms:], 4)
		for i, e := 0, v.array(base, n, l.export); i < len(e); i += l.export {
			exported[base+arch.Addr(i)+arch.Addr(int64(int32(v.num(e[i:], 4))))] = true
		}
	}
	m.Table = m.symbols(v, v.addr(b[l.kallsyms:]), exported)
	return m
}

// text is the text before the first NUL, if it is printable; else "".
func text(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
		if c < ' ' || c > '~' {
			break
		}
	}
	return ""
}

// symbols reads the module's symbols: struct mod_kallsyms is a pointer to ELF
// symbols, their number, and pointers to their names and their types.
func (m *Module) symbols(v *view, at arch.Addr, exported map[arch.Addr]bool) *Table {
	ptr := arch.Addr(v.arch.PtrSize)
	symtab, n := v.ptr(at), uint64(v.u32(at+ptr))
	strtab, typetab := v.ptr(at+2*ptr), v.ptr(at+3*ptr)
	entries := v.array(symtab, n, elf.Sym64Size)
	types := v.array(typetab, n, 1)
	if v.err != nil || len(entries) == 0 {
		return newTable(nil, 0)
	}
	names := m.strings(v, strtab, entries)
	var syms []Symbol
	for i := range int(n) {
		e := entries[i*elf.Sym64Size:]
		name := int(v.num(e, 4))
		if v.num(e[6:], 2) == uint64(elf.SHN_UNDEF) || name >= len(names) || names[name] == 0 {
			continue
		}
		s := Symbol{Name: text(names[name:min(name+maxName, len(names))]), Addr: arch.Addr(v.num(e[8:], 8)), Type: types[i], Module: m.Name}
		if letter := s.Type | 0x20; letter < 'a' || letter > 'z' || s.Name == "" {
			continue
		}
		// Only exported symbols have a capital, whatever the symbol's binding.
		s.Type |= 0x20
		if exported[s.Addr] {
			s.Type &^= 0x20
		}
		syms = append(syms, s)
	}
	t := newTable(syms, m.Text.End)
	m.bound(t)
	return t
}

// bound ends symbols where their part of the module ends: the next symbol may be
// in another one.
func (m *Module) bound(t *Table) {
	ranges := append([]arch.Range{m.Text}, m.parts...)
	for i := range t.syms {
		s := &t.syms[i]
		for _, r := range ranges {
			if r.Contains(s.Addr) {
				if s.Size == 0 || s.Addr+arch.Addr(s.Size) > r.End {
					s.Size = uint64(r.End - s.Addr)
				}
				break
			}
		}
	}
	t.bounds = arch.Range{Start: 0, End: ^arch.Addr(0)} // Contains has been asked before
}

// strings reads the names: as far as the last symbol's, which ends where it ends.
func (m *Module) strings(v *view, strtab arch.Addr, entries []byte) []byte {
	const page = 0x1000
	last := uint64(0)
	for i := 0; i < len(entries); i += elf.Sym64Size {
		last = max(last, v.num(entries[i:], 4))
	}
	for size := last + 1; ; {
		size += page - uint64(strtab+arch.Addr(size))%page
		names := v.array(strtab, size, 1)
		if v.err != nil || bytes.IndexByte(names[last:], 0) >= 0 || size > last+maxName {
			return names
		}
	}
}
