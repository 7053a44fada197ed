package kernel

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"kprobe/arch"
	"kprobe/symbol"
	"kprobe/symbol/kernel"
	"kprobe/target"
)

// The kernel's name among the modules of a session, as its own tools have it.
const vmlinux = "vmlinux"

// image is the kernel, or a module, as the engine sees it: as if an ELF file
// were mapped, with the symbols that were found in memory.
type image struct {
	path   string
	bounds symbol.Range
	text   symbol.Range
	table  *kernel.Table
	gone   []symbol.Range // since the kernel has started
}

func kernelImage(t *kernel.Table) image {
	im := image{path: vmlinux, bounds: t.Bounds(), table: t}
	for _, s := range t.Sections() {
		if s.Name == ".text" {
			im.text = s.Range
		}
	}
	for _, r := range [][2]string{{"__init_begin", "__init_end"}, {"__per_cpu_start", "__per_cpu_end"}} {
		start, ok1 := t.Addr(r[0])
		end, ok2 := t.Addr(r[1])
		if ok1 && ok2 {
			im.gone = append(im.gone, symbol.Range{Start: uint64(start), End: uint64(end)})
		}
	}
	return im
}

// cpuImages are the CPUs' own memory, an image for each, with the variables that each CPU has of its own: runqueues.cpu0.
func (t *Target) cpuImages() (images []image) {
	cpus, err := t.perCPU()
	if err != nil {
		return nil
	}
	for _, i := range slices.Sorted(maps.Keys(cpus)) {
		if table, r, ok := t.kernel.Table().PerCPU(i, cpus[i]); ok {
			images = append(images, image{path: fmt.Sprintf("cpu%d", i), bounds: r, text: symbol.Range{Start: r.End, End: r.End}, table: table})
		}
	}
	return images
}

func moduleImage(m *kernel.Module) image {
	return image{path: m.Name, bounds: m.Text, text: m.Text, table: m.Table}
}

// isGone tells whether what a symbol names is not there any more: the kernel gives what only its start needs back, and the pattern
// for the CPUs' own variables with it.
func (im image) isGone(s *kernel.Symbol) bool {
	if s.Code() {
		return false
	}
	for _, r := range im.gone {
		if r.Contains(uint64(s.Addr)) {
			return true
		}
	}
	return false
}

// inode tells one image from another, and from the same loaded elsewhere.
func (im image) inode() uint64 { return im.bounds.Start }

// mappings are the text, and what is around it.
func (im image) mappings() []symbol.Mapping {
	var ms []symbol.Mapping
	add := func(r symbol.Range, exec bool) {
		if r.Start < r.End {
			ms = append(ms, symbol.Mapping{Start: r.Start, End: r.End, Off: r.Start - im.bounds.Start,
				Read: true, Write: !exec, Exec: exec, Data: im.text.Start == im.text.End, Dev: "00:00", Inode: im.inode(), Path: im.path})
		}
	}
	add(symbol.Range{Start: im.bounds.Start, End: im.text.Start}, false)
	add(im.text, true)
	add(symbol.Range{Start: im.text.End, End: im.bounds.End}, false)
	return ms
}

// OpenMapped gives the image behind a mapping, as a file.
func (t *Target) OpenMapped(m symbol.Mapping) (target.File, error) {
	t.mu.Lock()
	im, ok := t.files[m.Path]
	t.mu.Unlock()
	if !ok || im.inode() != m.Inode {
		return nil, os.ErrNotExist
	}
	return memoryFile{bytes.NewReader(im.file(t.Arch()))}, nil
}

// Root, Realpath: a kernel has no files.
func (t *Target) Root() string           { return "" }
func (t *Target) Realpath(string) string { return "" }

// IsProgram tells the kernel itself from its modules.
func (t *Target) IsProgram(m symbol.Mapping) bool { return m.Path == vmlinux }

type memoryFile struct{ io.ReaderAt }

func (memoryFile) Close() error { return nil }

// file writes the image's headers and symbols as an ELF file, whose one segment
// stands for memory: its bytes are not in the file.
func (im image) file(a *arch.Arch) []byte {
	const (
		ehSize, phSize, shSize, symSize = 64, 56, 64, 24
		names                           = "\x00.text\x00.symtab\x00.strtab\x00.data\x00"
		sections                        = 5 // the first is empty, as ELF wants it
		textSection, dataSection        = 1, 4
	)
	var syms, strs bytes.Buffer
	strs.WriteString(names)
	put := func(b *bytes.Buffer, v any) { binary.Write(b, a.Order, v) } // a Buffer has no errors
	put(&syms, elf.Sym64{})
	for _, s := range im.table.Symbols() {
		if !im.bounds.Contains(uint64(s.Addr)) || im.isGone(&s) {
			continue // per-CPU offsets and other numbers
		}
		bind, kind, section := elf.STB_LOCAL, elf.STT_OBJECT, elf.SHN_ABS
		if s.Type >= 'A' && s.Type <= 'Z' {
			bind = elf.STB_GLOBAL
		}
		if s.Code() {
			kind = elf.STT_FUNC
		} else {
			section = dataSection
		}
		if im.text.Contains(uint64(s.Addr)) {
			section = textSection
		}
		put(&syms, elf.Sym64{Name: uint32(strs.Len()), Info: elf.ST_INFO(bind, kind), Shndx: uint16(section),
			Value: uint64(s.Addr), Size: s.Size})
		strs.WriteString(s.Name)
		strs.WriteByte(0)
	}
	symAt := uint64(ehSize + phSize + sections*shSize)
	strAt := symAt + uint64(syms.Len())

	var b bytes.Buffer
	header := elf.Header64{Type: uint16(elf.ET_EXEC), Machine: uint16(elf.EM_NONE), Version: uint32(elf.EV_CURRENT),
		Phoff: ehSize, Shoff: ehSize + phSize, Ehsize: ehSize, Phentsize: phSize, Phnum: 1,
		Shentsize: shSize, Shnum: sections, Shstrndx: 3}
	order := elf.ELFDATA2LSB
	if a.Order.Uint16([]byte{0, 1}) == 1 {
		order = elf.ELFDATA2MSB
	}
	copy(header.Ident[:], elf.ELFMAG)
	header.Ident[elf.EI_CLASS], header.Ident[elf.EI_DATA], header.Ident[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(order), byte(elf.EV_CURRENT)
	put(&b, header)
	size := im.bounds.End - im.bounds.Start
	put(&b, elf.Prog64{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Vaddr: im.bounds.Start, Filesz: size, Memsz: size})
	put(&b, elf.Section64{})
	put(&b, elf.Section64{Name: 1, Type: uint32(elf.SHT_NOBITS), Flags: uint64(elf.SHF_ALLOC | elf.SHF_EXECINSTR),
		Addr: im.text.Start, Size: im.text.End - im.text.Start})
	put(&b, elf.Section64{Name: 7, Type: uint32(elf.SHT_SYMTAB), Off: symAt, Size: uint64(syms.Len()), Link: 3, Info: 1, Entsize: symSize})
	put(&b, elf.Section64{Name: 15, Type: uint32(elf.SHT_STRTAB), Off: strAt, Size: uint64(strs.Len())})
	put(&b, elf.Section64{Name: 23, Type: uint32(elf.SHT_NOBITS), Flags: uint64(elf.SHF_ALLOC | elf.SHF_WRITE),
		Addr: im.text.End, Size: im.bounds.End - im.text.End})
	b.Write(syms.Bytes())
	b.Write(strs.Bytes())
	return b.Bytes()
}
