package symbol

import (
	"debug/elf"
	"slices"
	"strings"
)

// searches is the number of names that are searched for before the symbols are read for all that come.
const searches = 8

// mentions tells whether the file's tables may define a symbol of a name. Most files of a process are
// asked in vain, and to search a table costs much less than to make symbols of it.
func (f *File) mentions(name string) bool {
	if strings.Contains(name, "@") || strings.HasPrefix(name, subPrefix) {
		return true // made of more than one string, or of none
	}
	if f.searched.Add(1) > searches || f.defines(f.dynamicTable(), name) {
		return true
	}
	from := f
	if f.elf.SectionByType(elf.SHT_SYMTAB) == nil {
		if f.IsGo() {
			return true
		}
		debug, _ := f.debugELF()
		if from = debug.from; from == nil {
			return false
		}
	}
	table, err := from.staticTable()
	return err != nil || from.defines(table, name)
}

// rawTable is a table of symbols as a file has it.
type rawTable struct {
	symbols []byte
	names   string
}

// defines tells whether a symbol that the file defines has the name, with or without a version. Symbols
// of one ending share a string, so that the table's entries have to tell where theirs begins.
func (f *File) defines(t rawTable, name string) bool {
	var at []uint64 // ascending
	for from := 0; ; {
		i := strings.Index(t.names[from:], name)
		if i < 0 {
			break
		}
		if end := from + i + len(name); end < len(t.names) && (t.names[end] == 0 || t.names[end] == '@') {
			at = append(at, uint64(from+i))
		}
		from += i + 1
	}
	if len(at) == 0 {
		return false
	}
	step := int(f.symSize())
	for b := t.symbols; len(b) >= step; b = b[step:] {
		if s := f.decodeSym(b); s.shndx != elf.SHN_UNDEF {
			if _, found := slices.BinarySearch(at, s.name); found {
				return true
			}
		}
	}
	return false
}

// dynamicTable is the table that the loader uses, empty where the file has none.
func (f *File) dynamicTable() rawTable {
	d := f.dynamic()
	symbols, _ := f.readVaddr(d.tags[elf.DT_SYMTAB], f.dynsymCount()*f.symSize())
	return rawTable{symbols, d.strs}
}

// staticTable reads the section .symtab.
func (f *File) staticTable() (rawTable, error) {
	table := f.elf.SectionByType(elf.SHT_SYMTAB)
	symbols, err := f.sectionData(table)
	if err != nil || uint64(table.Link) >= uint64(len(f.elf.Sections)) {
		return rawTable{}, errNoBytes
	}
	names, err := f.sectionData(f.elf.Sections[table.Link])
	return rawTable{symbols, string(names)}, err
}
