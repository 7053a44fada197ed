package symbol

import (
	"debug/elf"
	"slices"
)

// The dynamic section is read the way the loader reads it, from PT_DYNAMIC and
// by address, not by section headers: those may be missing or wrong in a file
// that runs.

// dynamic is the dynamic section: each tag's first value, and the strings.
type dynamic struct {
	tags   map[elf.DynTag]uint64
	strs   string
	needed []string
	soname string
}

// maxDyn bounds the entries of a dynamic section; real ones have some forty.
const maxDyn = 1 << 16

func (f *File) readDynamic() *dynamic {
	d := &dynamic{tags: map[elf.DynTag]uint64{}}
	var raw []byte
	for _, p := range f.elf.Progs {
		if p.Type == elf.PT_DYNAMIC {
			raw, _ = f.read(p.Off, min(p.Filesz, maxDyn*16))
			break
		}
	}
	var needed []uint64
	for step := 2 * f.ptr; len(raw) >= step; raw = raw[step:] {
		tag, val := elf.DynTag(f.word(raw)), f.word(raw[f.ptr:])
		if tag == elf.DT_NULL {
			break
		}
		if tag == elf.DT_NEEDED {
			needed = append(needed, val)
		}
		if _, ok := d.tags[tag]; !ok {
			d.tags[tag] = val
		}
	}
	strs, _ := f.readVaddr(d.tags[elf.DT_STRTAB], d.tags[elf.DT_STRSZ])
	d.strs = string(strs)
	if off, ok := d.tags[elf.DT_SONAME]; ok {
		d.soname = cstring(d.strs, off)
	}
	for _, off := range needed {
		if s := cstring(d.strs, off); s != "" {
			d.needed = append(d.needed, s)
		}
	}
	return d
}

// Needed are the names of the libraries that the loader loads with this file.
func (f *File) Needed() []string { return slices.Clone(f.dynamic().needed) }

// Soname is the name other files know this one by: "libc.so.6"; "" for none.
func (f *File) Soname() string { return f.dynamic().soname }

// dynsyms is the dynamic symbol table.
type dynsyms struct {
	names    []string // by index, as relocations count; imports included
	defined  []Symbol // functions and data that this file defines
	imports  map[string]bool
	versions map[string]bool // every version this file defines or asks for
}

func (f *File) readDynsyms() *dynsyms {
	d := f.dynamic()
	ds := &dynsyms{imports: map[string]bool{}, versions: map[string]bool{}}
	entsize := f.symSize()
	count := f.dynsymCount()
	raw, err := f.readVaddr(d.tags[elf.DT_SYMTAB], count*entsize)
	if err != nil {
		return ds
	}
	defs, uses := f.versionDefs(), f.versionNeeds()
	for _, v := range defs {
		ds.versions[v] = v != ""
	}
	for _, v := range uses {
		ds.versions[v] = v != ""
	}
	var versym []byte
	if addr, ok := d.tags[elf.DT_VERSYM]; ok {
		versym, _ = f.readVaddr(addr, count*2)
	}
	ds.names = make([]string, 0, count)
	for i := uint64(0); i < count; i++ {
		raw := f.decodeSym(raw[i*entsize:])
		name := cstring(d.strs, raw.name)
		ds.names = append(ds.names, name)
		if raw.shndx == elf.SHN_UNDEF {
			if name != "" {
				ds.imports[name] = true
			}
			continue
		}
		sym, ok := f.classify(raw, name)
		if !ok {
			continue
		}
		sym.Source = Dynsym
		if versym != nil {
			// The top bit hides a version from new links: "@", not "@@".
			v := f.elf.ByteOrder.Uint16(versym[i*2:])
			sym.Version = defs[v&0x7fff]
			sym.Default = sym.Version != "" && v&0x8000 == 0
			if sym.Version == "" {
				// A program's copy of a library's variable (COPY relocation)
				// keeps the version it was imported by.
				sym.Version = uses[v&0x7fff]
				sym.copied = sym.Version != ""
			}
		}
		ds.defined = append(ds.defined, sym)
	}
	return ds
}

// dynsymCount finds how long the dynamic symbol table is: nothing in the
// dynamic section says so, but the hash tables must cover it.
func (f *File) dynsymCount() uint64 {
	d := f.dynamic()
	entsize := f.symSize()
	for _, s := range f.elf.Sections {
		if s.Type == elf.SHT_DYNSYM && s.Addr == d.tags[elf.DT_SYMTAB] {
			return s.FileSize / entsize
		}
	}
	if hash, ok := d.tags[elf.DT_HASH]; ok {
		if b, err := f.readVaddr(hash, 8); err == nil {
			return uint64(f.elf.ByteOrder.Uint32(b[4:])) // nchain
		}
	}
	if hash, ok := d.tags[elf.DT_GNU_HASH]; ok {
		if n, ok := f.gnuHashCount(hash); ok {
			return n
		}
	}
	// Every linker puts the strings behind the symbols.
	if symtab, strtab := d.tags[elf.DT_SYMTAB], d.tags[elf.DT_STRTAB]; strtab > symtab {
		return (strtab - symtab) / entsize
	}
	return 0
}

// gnuHashCount is the number of symbols that a GNU hash table at addr covers:
// one more than the highest index that a chain reaches.
func (f *File) gnuHashCount(addr uint64) (uint64, bool) {
	b, err := f.restOf(addr, maxRead)
	if err != nil || len(b) < 16 {
		return 0, false
	}
	u32 := f.elf.ByteOrder.Uint32
	nbuckets, first, bloom := uint64(u32(b)), uint64(u32(b[4:])), uint64(u32(b[8:]))
	buckets := 16 + bloom*uint64(f.ptr)
	chains := buckets + nbuckets*4
	if chains > uint64(len(b)) {
		return 0, false
	}
	last := uint64(0)
	for i := range nbuckets {
		last = max(last, uint64(u32(b[buckets+i*4:])))
	}
	if last < first {
		return first, true // no symbol is hashed, those before are imports
	}
	for {
		at := chains + (last-first)*4
		if at+4 > uint64(len(b)) {
			return 0, false
		}
		last++
		if u32(b[at:])&1 != 0 { // end of the chain
			return last, true
		}
	}
}

// versionDefs are the names of the versions this file defines, by index. The
// base entry, which holds the file's own name, is no version.
func (f *File) versionDefs() map[uint16]string {
	d := f.dynamic()
	defs := map[uint16]string{}
	addr, ok := d.tags[elf.DT_VERDEF]
	if !ok {
		return defs
	}
	const (
		verdefSize = 20
		flagBase   = 1
	)
	for range min(d.tags[elf.DT_VERDEFNUM], maxDyn) {
		b, err := f.readVaddr(addr, verdefSize)
		if err != nil {
			break
		}
		bo := f.elf.ByteOrder
		flags, index := bo.Uint16(b[2:]), bo.Uint16(b[4:])
		aux, next := uint64(bo.Uint32(b[12:])), uint64(bo.Uint32(b[16:]))
		if a, err := f.readVaddr(addr+aux, 8); err == nil && flags&flagBase == 0 {
			defs[index&0x7fff] = cstring(d.strs, uint64(bo.Uint32(a)))
		}
		if next == 0 {
			break
		}
		addr += next
	}
	return defs
}

// versionNeeds are the names of the versions this file imports, by index.
func (f *File) versionNeeds() map[uint16]string {
	d := f.dynamic()
	uses := map[uint16]string{}
	addr, ok := d.tags[elf.DT_VERNEED]
	if !ok {
		return uses
	}
	const entrySize = 16 // of a library's entry, and of each version's
	bo := f.elf.ByteOrder
	budget := maxDyn // entries of all chains together
	for range d.tags[elf.DT_VERNEEDNUM] {
		b, err := f.readVaddr(addr, entrySize)
		if err != nil {
			break
		}
		at := addr + uint64(bo.Uint32(b[8:]))
		for range bo.Uint16(b[2:]) {
			a, err := f.readVaddr(at, entrySize)
			if budget--; err != nil || budget < 0 {
				return uses
			}
			uses[bo.Uint16(a[6:])&0x7fff] = cstring(d.strs, uint64(bo.Uint32(a[8:])))
			next := uint64(bo.Uint32(a[12:]))
			if next == 0 {
				break
			}
			at += next
		}
		next := uint64(bo.Uint32(b[12:]))
		if budget--; next == 0 || budget < 0 {
			break
		}
		addr += next
	}
	return uses
}

// rawSym is a symbol table entry of either class.
type rawSym struct {
	name        uint64
	bind, typ   byte
	other       byte
	shndx       elf.SectionIndex
	value, size uint64
}

func (f *File) symSize() uint64 {
	if f.ptr == 4 {
		return elf.Sym32Size
	}
	return elf.Sym64Size
}

// decodeSym decodes the entry that b begins with.
func (f *File) decodeSym(b []byte) rawSym {
	bo := f.elf.ByteOrder
	var s rawSym
	var info byte
	s.name = uint64(bo.Uint32(b))
	if f.ptr == 4 {
		s.value, s.size = uint64(bo.Uint32(b[4:])), uint64(bo.Uint32(b[8:]))
		info, s.other, s.shndx = b[12], b[13], elf.SectionIndex(bo.Uint16(b[14:]))
	} else {
		info, s.other, s.shndx = b[4], b[5], elf.SectionIndex(bo.Uint16(b[6:]))
		s.value, s.size = bo.Uint64(b[8:]), bo.Uint64(b[16:])
	}
	s.bind, s.typ = info>>4, info&0xf
	return s
}

// classify makes a Symbol of a defined entry, if it names code or data.
// Thread-local variables are left out: they have no address.
func (f *File) classify(raw rawSym, name string) (Symbol, bool) {
	sym := Symbol{
		Name: name, Addr: raw.value, Size: raw.size,
		Global: elf.SymBind(raw.bind) != elf.STB_LOCAL,
		weak:   elf.SymBind(raw.bind) == elf.STB_WEAK,
	}
	if name == "" || raw.shndx == elf.SHN_UNDEF || raw.shndx == elf.SHN_ABS || raw.shndx == elf.SHN_COMMON {
		return sym, false
	}
	text, inText := f.textAt(raw.value)
	switch elf.SymType(raw.typ) {
	case elf.STT_FUNC:
		sym.Kind = Func
	case elf.STT_GNU_IFUNC:
		sym.Kind = IFunc
	case elf.STT_OBJECT:
		sym.Kind = Data
	case elf.STT_NOTYPE:
		// Labels of assembly and marks of the linker. '.' begins the
		// assembler's own, '$' the marks of code and data on ARM and RISC-V.
		if name[0] == '.' || name[0] == '$' {
			return sym, false
		}
		sym.notype = true
		if !inText {
			sym.Kind = Data
			return sym, sym.Global
		}
	default:
		return sym, false
	}
	if sym.Kind != Data {
		if !inText {
			return sym, false // cannot be executed, so is no function
		}
		sym.Size = min(sym.Size, text.End-sym.Addr)
		if own := f.localEntry(raw.other); sym.Addr+own < text.End {
			sym.Addr += own
			sym.Size -= min(sym.Size, own)
		}
	}
	return sym, true
}

// localEntry is the distance from a function's symbol to the instruction that every call of it
// comes to. On ppc64le callers of the same file leave out the first ones, which set the register
// for its data: the symbol says how many (ELFv2 ABI, section 3.4.1, "Symbol Values"). A probe at
// the symbol itself would miss them.
func (f *File) localEntry(other byte) uint64 {
	if n := other >> 5; f.on().localEntries && n >= 2 && n < 7 {
		return 1 << n
	}
	return 0
}
