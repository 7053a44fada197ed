package symbol

import (
	"cmp"
	"debug/elf"
	"slices"
)

// IRelative is a slot that the loader fills with a resolver's result: the address of the
// implementation that an IFUNC chose on this CPU.
type IRelative struct {
	Slot     uint64 // vaddr of the address-sized word
	Resolver uint64 // vaddr of the function that chooses
}

// relocs are the relocations of use here.
type relocs struct {
	imports    map[string][]uint64 // GOT and PLT slots by imported name
	names      map[uint64]string   // any symbol's name by the slot it is put in
	irelative  []IRelative
	relative   map[uint64]uint64 // slot -> vaddr, for Go files alone
	iresolvers map[uint64]uint64 // slot -> resolver
}

func (f *File) readRelocs() *relocs {
	rs := &relocs{
		imports: map[string][]uint64{}, names: map[uint64]string{},
		relative: map[uint64]uint64{}, iresolvers: map[uint64]uint64{},
	}
	types, ok := f.on().relocs, f.on().relocs != relocTypes{}
	if !ok {
		return rs
	}
	tags := f.dynamic().tags
	f.readRelocTable(rs, types, tags[elf.DT_RELA], tags[elf.DT_RELASZ], true)
	f.readRelocTable(rs, types, tags[elf.DT_REL], tags[elf.DT_RELSZ], false)
	rela := elf.DynTag(tags[elf.DT_PLTREL]) == elf.DT_RELA
	f.readRelocTable(rs, types, tags[elf.DT_JMPREL], tags[elf.DT_PLTRELSZ], rela)
	if f.Type() == elf.ET_EXEC && len(tags) == 0 {
		// A static program relocates itself, from a table that only two
		// symbols and its section name.
		for _, s := range f.elf.Sections {
			if (s.Type == elf.SHT_RELA || s.Type == elf.SHT_REL) && s.Flags&elf.SHF_ALLOC != 0 {
				f.readRelocTable(rs, types, s.Addr, s.FileSize, s.Type == elf.SHT_RELA)
			}
		}
	}
	slices.SortFunc(rs.irelative, func(a, b IRelative) int { return cmp.Compare(a.Slot, b.Slot) })
	return rs
}

// DataPointers are the addresses in the file's code that the dynamic linker puts into its data, as they stand in the
// table: those of functions in tables, in structs and of virtual ones. They are of files that it relocates, by relocations
// with addends.
func (f *File) DataPointers() (all []uint64) {
	types, tags := f.on().relocs, f.dynamic().tags
	raw, err := f.readVaddr(tags[elf.DT_RELA], tags[elf.DT_RELASZ])
	if err != nil || f.ptr != 8 {
		return nil
	}
	const size = 3 * 8
	for ; len(raw) >= size; raw = raw[size:] {
		if to := f.word(raw[16:]); uint32(f.word(raw[8:])) == types.relative && f.IsText(to) {
			all = append(all, to)
		}
	}
	return all
}

// readRelocTable reads one table of size bytes at addr. A REL entry has its
// addend in the slot itself.
func (f *File) readRelocTable(rs *relocs, types relocTypes, addr, size uint64, rela bool) {
	raw, err := f.readVaddr(addr, size)
	if err != nil {
		return
	}
	names := f.dynsyms().names
	isGo := f.IsGo()
	step := 2 * f.ptr
	if rela {
		step = 3 * f.ptr
	}
	for ; len(raw) >= step; raw = raw[step:] {
		slot, info := f.word(raw), f.word(raw[f.ptr:])
		sym, typ := info>>32, uint32(info)
		if f.ptr == 4 {
			sym, typ = info>>8, uint32(info&0xff)
		}
		addend := func() uint64 {
			if rela {
				return f.word(raw[2*f.ptr:])
			}
			b, err := f.readVaddr(slot, uint64(f.ptr))
			if err != nil {
				return 0
			}
			return f.word(b)
		}
		if sym > 0 && sym < uint64(len(names)) && names[sym] != "" {
			name := names[sym]
			rs.names[slot] = name
			if typ == types.globDat || typ == types.jumpSlot {
				rs.imports[name] = append(rs.imports[name], slot)
			}
		}
		switch {
		case typ == types.irelative:
			resolver := addend()
			rs.irelative = append(rs.irelative, IRelative{slot, resolver})
			rs.iresolvers[slot] = resolver
		case typ == types.relative && isGo:
			rs.relative[slot] = addend()
		}
	}
}

// ImportSlots are the virtual addresses of the words in which the loader puts
// the address of the function called name, for calls from this file: its
// GLOB_DAT and JUMP_SLOT relocations. A slot of a lazily bound function holds
// the address of its stub until the first call.
func (f *File) ImportSlots(name string) []uint64 {
	return slices.Clone(f.relocs().imports[name])
}

// IRelatives are the slots that IFUNC resolvers of this file fill, sorted by slot.
func (f *File) IRelatives() []IRelative { return slices.Clone(f.relocs().irelative) }
