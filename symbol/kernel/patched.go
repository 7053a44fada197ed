package kernel

import (
	"errors"
	"fmt"
	"sort"

	"kprobe/arch"
	"kprobe/internal/cpu"
)

// Owner is the part of the kernel that, beside us, writes or knows a piece of its text.
type Owner string

const (
	Ftrace     Owner = "ftrace"     // a call at a function's entry, or the NOP in its place
	JumpLabel  Owner = "jump label" // a jump or a NOP, by the state of a static key
	StaticCall Owner = "static call"
	Dispatcher Owner = "BPF dispatcher"
	SMPLock    Owner = "lock prefix" // taken away while there is one CPU
	Kprobe     Owner = "kprobe"      // a probe of the guest's own
	Bug        Owner = "BUG"         // a trap that the kernel knows by its address; never rewritten

	// Rewritten once, at boot, before anything runs there. They are known only
	// for an image, and for a kernel that is stopped before.
	Alternative Owner = "alternative"
	Paravirt    Owner = "paravirt call"
)

// Site is a piece of text that has an owner: bytes from Addr on that the owner may rewrite at any
// time, all at once, and takes for one instruction.
type Site struct {
	Addr  arch.Addr
	Len   int
	Owner Owner
}

// Fixup is an entry of the exception tables: a fault of the instruction at Insn
// goes on at Fixup.
type Fixup struct{ Insn, Fixup arch.Addr }

// ErrNoData is returned, wrapped, where variables of the kernel are needed, and
// its symbols are of functions only.
var ErrNoData = errors.New("the kernel's symbols are of functions only (CONFIG_KALLSYMS_ALL is off)")

// patched is the content of the tables. Of a jump label Len is 0 until it is asked for.
type patched struct {
	sites   []Site
	fixups  []Fixup
	targets []arch.Addr // of jump labels, jumps now or not
}

// maxSite is longer than any Site.
const maxSite = 256

// Foreign lists the sites that the bytes from start up to end touch: a writer must do there as the
// owner says, or leave them. Errors: ErrNoData, ErrNoTypes, where they cannot be known.
func (k *Kernel) Foreign(start, end arch.Addr) ([]Site, error) {
	p, err := k.readPatched()
	if err != nil {
		return nil, err
	}
	probes, err := k.kprobes()
	if err != nil {
		return nil, err
	}
	var out []Site
	v := k.view()
	from := sort.Search(len(p.sites), func(i int) bool { return p.sites[i].Addr+maxSite > start })
	near := p.sites[from:]
	to := sort.Search(len(near), func(i int) bool { return near[i].Addr >= end })
	for _, s := range append(near[:to:to], probes...) {
		if s = k.sized(v, s); s.Addr < end && start < s.Addr+arch.Addr(s.Len) {
			out = append(out, s)
		}
	}
	byAddr(out, func(s *Site) arch.Addr { return s.Addr })
	return out, v.err
}

// Sites are all sites but the guest's own kprobes, in order of address.
func (k *Kernel) Sites() ([]Site, error) {
	p, err := k.readPatched()
	if err != nil {
		return nil, err
	}
	v := k.view()
	out := make([]Site, len(p.sites))
	for i, s := range p.sites {
		out[i] = k.sized(v, s)
	}
	return out, v.err
}

// Fixups are the exception tables of the kernel and its modules, in order of
// Insn. An instruction with an entry may fault and not come back to the next.
func (k *Kernel) Fixups() ([]Fixup, error) {
	p, err := k.readPatched()
	if err != nil {
		return nil, err
	}
	return p.fixups, nil
}

// FixupsIn are the fixups whose instruction lies from start up to end.
func (k *Kernel) FixupsIn(start, end arch.Addr) ([]Fixup, error) {
	all, err := k.Fixups()
	from := sort.Search(len(all), func(i int) bool { return all[i].Insn >= start })
	to := sort.Search(len(all), func(i int) bool { return all[i].Insn >= end })
	return all[from:max(from, to)], err
}

// sized fills in the length of a jump label: x86 has them with jumps, and NOPs,
// of two bytes and of five.
func (k *Kernel) sized(v *view, s Site) Site {
	if s.Len == 0 {
		s.Len = k.on().Sizes.Jump
		if k.on().ShortJumps {
			switch v.uint(s.Addr, 1) {
			case 0xeb, 0x66: // jmp rel8; nopw
				s.Len = 2
			}
		}
	}
	return s
}

// readPatched reads the tables, unless they are known: with each module that
// comes or goes they change.
func (k *Kernel) readPatched() (*patched, error) {
	k.mu.Lock()
	p, modules := k.patched, k.modules
	k.mu.Unlock()
	if p != nil {
		return p, nil
	}
	if k.on().Sizes == (cpu.Sizes{}) {
		return nil, fmt.Errorf("what the kernel patches on %s is not known here", k.arch.Name)
	}
	if !k.HasData() {
		return nil, ErrNoData
	}
	v := k.view()
	r := &tableReader{k: k, v: v}
	r.kernel()
	for _, m := range modules {
		r.module(m)
	}
	if r.err == nil {
		r.err = v.err
	}
	if r.err != nil {
		return nil, fmt.Errorf("reading the tables of patched text: %w", r.err)
	}
	byAddr(r.sites, func(s *Site) arch.Addr { return s.Addr })
	byAddr(r.fixups, func(f *Fixup) arch.Addr { return f.Insn })
	k.mu.Lock()
	defer k.mu.Unlock()
	k.patched = &r.patched
	return k.patched, nil
}

// HasData tells whether the symbols have variables among them.
func (k *Kernel) HasData() bool {
	_, ok := k.table.Addr("__start___ex_table")
	return ok
}

// hasInit tells whether the data of init is still there: it is freed, and used
// for other things, when the kernel has come up. In an image the state is 0.
func (k *Kernel) hasInit(v *view) bool {
	const freeing = 2 // SYSTEM_FREEING_INITMEM, or before 5.8 SYSTEM_RUNNING
	state, ok := k.table.Addr("system_state")
	return ok && v.u32(state) < freeing && v.err == nil
}

// tableReader collects the entries of the tables.
type tableReader struct {
	k *Kernel
	v *view
	patched
	err error
}

// at is one table: n entries of size bytes, each of which begins with where in
// the text it is about, relative to itself.
func (r *tableReader) at(start arch.Addr, n uint64, size int, each func(b []byte, place, text arch.Addr)) {
	b := r.v.array(start, n, size)
	for i := 0; i+size <= len(b); i += size {
		place := start + arch.Addr(i)
		each(b[i:i+size], place, r.relative(b[i:], place))
	}
}

// relative is the address that an offset leads to, of 4 bytes and from its own place.
func (r *tableReader) relative(b []byte, place arch.Addr) arch.Addr {
	return place + arch.Addr(int64(int32(r.v.num(b, 4))))
}

// between is a table that two symbols bound.
func (r *tableReader) between(start, end string, size int, each func(b []byte, place, text arch.Addr)) {
	if t, ok := r.k.table.between(start, end); ok {
		r.at(t.Start, t.Size()/uint64(size), size, each)
	}
}

// add adds a site, unless its text has been freed with the rest of init.
func (r *tableReader) add(at arch.Addr, n int, owner Owner) {
	if r.k.IsText(at) {
		r.sites = append(r.sites, Site{at, n, owner})
	}
}

func (r *tableReader) owned(n int, owner Owner) func([]byte, arch.Addr, arch.Addr) {
	return func(_ []byte, _, text arch.Addr) { r.add(text, n, owner) }
}

func (r *tableReader) fixup(b []byte, place, text arch.Addr) {
	if r.k.IsText(text) {
		r.fixups = append(r.fixups, Fixup{text, r.relative(b[4:], place+4)})
	}
}

func (r *tableReader) jumpLabel(b []byte, place, text arch.Addr) {
	r.add(text, 0, JumpLabel)
	r.targets = append(r.targets, r.relative(b[4:], place+4))
}

// entrySize is sizeof of an entry, or its size in kernels of these years.
func (r *tableReader) entrySize(tag string, usual int) int {
	if s, err := r.k.types.structure(tag); err == nil && s.Size >= 4 {
		return int(s.Size)
	}
	return usual
}

// exception is the size of an entry of the exception table. Without type
// information the order tells: it is sorted by instruction.
func (r *tableReader) exception() int {
	if s, err := r.k.types.structure("exception_table_entry"); err == nil && s.Size >= 8 {
		return int(s.Size)
	}
	for _, size := range []int{12, 8} {
		sorted, before := true, arch.Addr(0)
		r.between("__start___ex_table", "__stop___ex_table", size, func(_ []byte, _, text arch.Addr) {
			sorted = sorted && before <= text
			before = text
		})
		if sorted {
			return size
		}
	}
	r.err = errors.New("the exception table is of no known form")
	return 12
}

func (r *tableReader) kernel() {
	n := r.k.on().Sizes
	r.between("__start___ex_table", "__stop___ex_table", r.exception(), r.fixup)
	r.between("__start___jump_table", "__stop___jump_table", r.entrySize("jump_entry", 8+r.k.arch.PtrSize), r.jumpLabel)
	r.between("__start_static_call_sites", "__stop_static_call_sites", 8, r.owned(n.Call, StaticCall))
	r.trampolines(r.k.table)
	r.between("__start___bug_table", "__stop___bug_table", r.entrySize("bug_entry", 12), r.owned(n.Bug, Bug))
	init := r.k.hasInit(r.v)
	if init {
		r.bootOnly()
	}
	if uni, ok := r.k.table.Addr("uniproc_patched"); init || ok && r.v.uint(uni, 1) != 0 {
		r.between("__smp_locks", "__smp_locks_end", 4, r.owned(1, SMPLock))
	}
	r.ftrace(init)
}

// trampolines adds the jumps that are patched themselves: those of static calls
// by pointer, or from code that is not patched, and those to XDP programs.
func (r *tableReader) trampolines(t *Table) {
	n := r.k.on().Sizes
	for _, s := range t.Match("__SCT__*") {
		r.add(s.Addr, n.Call, StaticCall)
	}
	for _, s := range t.Match("bpf_dispatcher_*_func") {
		if s.Name != "bpf_dispatcher_nop_func" { // an ordinary function, for callers without a dispatcher
			r.add(s.Addr, n.Call, Dispatcher)
		}
	}
}

// bootOnly reads the tables that are freed after boot.
func (r *tableReader) bootOnly() {
	if s, err := r.k.types.structure("alt_instr"); err == nil {
		length, _, err := r.k.types.field("alt_instr", "instrlen")
		if err != nil { // arm64 calls it otherwise
			length, _, err = r.k.types.field("alt_instr", "orig_len")
		}
		if err == nil && length < int(s.Size) {
			r.between("__alt_instructions", "__alt_instructions_end", int(s.Size), func(b []byte, _, text arch.Addr) {
				r.add(text, int(b[length]), Alternative)
			})
		}
	}
	// struct paravirt_patch_site: a pointer, a kind, a length.
	ptr := r.k.arch.PtrSize
	r.between("__parainstructions", "__parainstructions_end", 2*ptr, func(b []byte, _, _ arch.Addr) {
		r.add(r.v.addr(b), int(b[ptr+1]), Paravirt)
	})
}

// ftrace reads the records of function entries that ftrace keeps of the kernel and its modules.
// Before it has made them, it reads the table that ftrace makes them of.
func (r *tableReader) ftrace(init bool) {
	first, ok := r.k.table.Addr("ftrace_pages_start")
	if !ok {
		return // no dynamic ftrace
	}
	page := r.v.ptr(first)
	if page == 0 && init {
		t, _ := r.k.table.between("__start_mcount_loc", "__stop_mcount_loc")
		ptr := r.k.arch.PtrSize
		b := r.v.array(t.Start, t.Size()/uint64(ptr), ptr)
		for ; len(b) >= ptr; b = b[ptr:] {
			r.addFtrace(r.v.addr(b))
		}
		return
	}
	var next, records, index, ip int
	err := r.k.types.offsets("ftrace_page", map[string]*int{"next": &next, "records": &records, "index": &index})
	if err == nil {
		err = r.k.types.offsets("dyn_ftrace", map[string]*int{"ip": &ip})
	}
	record := r.entrySize("dyn_ftrace", 2*r.k.arch.PtrSize)
	if err == nil && ip+r.k.arch.PtrSize > record {
		err = errors.New("the type information of struct dyn_ftrace has no sense")
	}
	if err != nil {
		r.err = err
		return
	}
	for range 1 << 16 { // pages; a kernel has some hundred
		if page == 0 || r.v.err != nil {
			return
		}
		b := r.v.array(r.v.ptr(page+arch.Addr(records)), uint64(r.v.u32(page+arch.Addr(index))), record)
		for ; len(b) >= record; b = b[record:] {
			r.addFtrace(r.v.addr(b[ip:]))
		}
		page = r.v.ptr(page + arch.Addr(next))
	}
	r.err = fmt.Errorf("ftrace's pages: %w", errChanged)
}

// addFtrace adds the site of a record. Where that is known to be inside of the site, one at a
// function's first instruction is of a kernel that keeps its records in another way.
func (r *tableReader) addFtrace(ip arch.Addr) {
	n := r.k.on().Sizes
	if _, off, ok := r.k.table.At(ip); ok && off == 0 && n.FtraceAt != 0 {
		r.err = fmt.Errorf("ftrace's records of this kernel of %s are of a form that is not known here", r.k.arch.Name)
		return
	}
	r.add(ip+arch.Addr(n.FtraceAt), n.Ftrace, Ftrace)
}

// module reads the tables of a module, which its struct points to.
func (r *tableReader) module(m *Module) {
	n := r.k.on().Sizes
	r.trampolines(m.Table)
	for _, t := range []struct {
		start, count string
		size         int
		each         func([]byte, arch.Addr, arch.Addr)
	}{
		{"extable", "num_exentries", r.exception(), r.fixup},
		{"jump_entries", "num_jump_entries", r.entrySize("jump_entry", 8+r.k.arch.PtrSize), r.jumpLabel},
		{"static_call_sites", "num_static_call_sites", 8, r.owned(n.Call, StaticCall)},
		{"bug_table", "num_bugs", r.entrySize("bug_entry", 12), r.owned(n.Bug, Bug)},
	} {
		if r.k.types == nil {
			r.err = fmt.Errorf("module %s: %w", m.Name, ErrNoTypes)
			return
		}
		start, _, err := r.k.types.field("module", t.start)
		count, _, err2 := r.k.types.field("module", t.count)
		if err != nil || err2 != nil {
			continue // the kernel was built without such
		}
		r.at(r.v.ptr(m.at+arch.Addr(start)), uint64(r.v.u32(m.at+arch.Addr(count))), t.size, t.each)
	}
}

// kprobes are the guest's own probes, from its table: read each time, they come
// and go as it pleases. A disabled one counts: it may be armed at any time. One
// that is a client of ftrace writes nothing itself.
func (k *Kernel) kprobes() ([]Site, error) {
	table, size, ok := k.table.Lookup("kprobe_table"), uint64(0), false
	if len(table) > 0 {
		size, ok = table[0].Size, true
	}
	if !ok {
		return nil, nil // CONFIG_KPROBES is off
	}
	v := k.view()
	const buckets = 64 // KPROBE_TABLE_SIZE; the symbol's size may have padding in it
	heads := v.array(table[0].Addr, min(buckets, size/uint64(k.arch.PtrSize)), k.arch.PtrSize)
	var hlist, addr, flags int
	var out []Site
	for ; len(heads) > 0; heads = heads[k.arch.PtrSize:] {
		node := v.addr(heads)
		if node != 0 && addr == 0 {
			if err := k.types.offsets("kprobe", map[string]*int{"hlist": &hlist, "addr": &addr, "flags": &flags}); err != nil {
				return nil, err
			}
		}
		for n := 0; node != 0 && v.err == nil; n++ {
			if n == 1<<16 {
				return nil, fmt.Errorf("the guest's kprobes: %w", errChanged)
			}
			p := node - arch.Addr(hlist)
			site := Site{v.ptr(p + arch.Addr(addr)), len(k.arch.Break), Kprobe}
			const optimized, ftrace = 4, 8 // KPROBE_FLAG_OPTIMIZED, KPROBE_FLAG_FTRACE
			state := v.u32(p + arch.Addr(flags))
			if state&optimized != 0 {
				site.Len = k.on().Sizes.Jump
			}
			if state&ftrace == 0 {
				out = append(out, site)
			}
			node = v.ptr(node)
		}
	}
	if v.err != nil {
		return nil, fmt.Errorf("reading the guest's kprobes: %w", v.err)
	}
	return out, nil
}
