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
	bounds arch.Range
	text   arch.Range
	table  *kernel.Table
	gone   []arch.Range // where no symbol is a variable: since the kernel has started, or ever

	// callers finds the table of callers; nil where there can be none.
	callers func() (kernel.ORC, bool)
}

func kernelImage(k *kernel.Kernel) image {
	t := k.Table()
	im := image{path: vmlinux, bounds: t.Bounds(), table: t, callers: k.ORC}
	for _, s := range t.Sections() {
		if s.Name == ".text" {
			im.text = s.Range
		}
	}
	if !k.HasData() {
		im.gone = append(im.gone, im.bounds) // a symbol that is not code only marks the end of code (_etext)
	}
	for _, r := range [][2]string{{"__init_begin", "__init_end"}, {"__per_cpu_start", "__per_cpu_end"}} {
		start, ok1 := t.Addr(r[0])
		end, ok2 := t.Addr(r[1])
		if ok1 && ok2 {
			im.gone = append(im.gone, arch.Range{Start: start, End: end})
		}
	}
	return im
}

// cpuImages are the CPUs' own memory, an image for each, with the variables that each CPU has of
// its own: runqueues.cpu0.
func (t *Target) cpuImages() (images []image) {
	cpus, err := t.perCPU()
	if err != nil {
		return nil
	}
	for _, i := range slices.Sorted(maps.Keys(cpus)) {
		if table, r, ok := t.kernel.Table().PerCPU(i, cpus[i]); ok {
			images = append(images, image{path: fmt.Sprintf("cpu%d", i), bounds: r, text: arch.Range{Start: r.End, End: r.End}, table: table})
		}
	}
	return images
}

func (t *Target) moduleImage(m *kernel.Module) image {
	return image{path: m.Name, bounds: m.Text, text: m.Text, table: m.Table,
		callers: func() (kernel.ORC, bool) { return t.kernel.ModuleORC(m) }}
}

// isGone tells whether a symbol is a variable's that is not there, or not any more: the kernel
// gives what only its start needs back, and the pattern for the CPUs' own variables with it.
func (im image) isGone(s *kernel.Symbol) bool {
	if s.Code() {
		return false
	}
	for _, r := range im.gone {
		if r.Contains(s.Addr) {
			return true
		}
	}
	return false
}

// inode tells one image from another, and from the same loaded elsewhere.
func (im image) inode() uint64 { return uint64(im.bounds.Start) }

// mappings are the text, and the memory around it.
func (im image) mappings() []symbol.Mapping {
	var ms []symbol.Mapping
	add := func(r arch.Range, exec bool) {
		if r.Start < r.End {
			ms = append(ms, symbol.Mapping{Start: r.Start, End: r.End, Off: uint64(r.Start - im.bounds.Start),
				Read: true, Write: !exec, Exec: exec, Data: im.text.Start == im.text.End, Dev: "00:00", Inode: im.inode(), Path: im.path})
		}
	}
	add(arch.Range{Start: im.bounds.Start, End: im.text.Start}, false)
	add(im.text, true)
	add(arch.Range{Start: im.text.End, End: im.bounds.End}, false)
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
	f := memoryFile{of: t}
	var orc kernel.ORC
	if im.callers != nil && t.on().ORC {
		orc, _ = im.callers()
	}
	f.head = im.file(t.Arch(), orc)
	at := uint64(len(f.head))
	for _, r := range []arch.Range{orc.Places, orc.Rows} {
		f.parts = append(f.parts, part{at, r})
		at += r.Size()
	}
	return f, nil
}

// Root, Realpath: a kernel has no files.
func (t *Target) Root() string           { return "" }
func (t *Target) Realpath(string) string { return "" }

// IsProgram tells the kernel itself from its modules.
func (t *Target) IsProgram(m symbol.Mapping) bool { return m.Path == vmlinux }

// memoryFile is a file of which the parts behind its head are memory: they are read when they are
// wanted.
type memoryFile struct {
	head  []byte
	parts []part
	of    *Target
}

type part struct {
	at uint64 // in the file
	in arch.Range
}

// ReadAt implements io.ReaderAt.
func (f memoryFile) ReadAt(p []byte, off int64) (n int, err error) {
	if off >= 0 && off < int64(len(f.head)) {
		n = copy(p, f.head[off:])
	}
	for _, m := range f.parts {
		at := uint64(off) + uint64(n)
		if at < m.at || at-m.at >= m.in.Size() {
			continue
		}
		from := m.in.Start + arch.Addr(at-m.at)
		b := p[n:][:min(uint64(len(p)-n), uint64(m.in.End-from))]
		if err := f.of.ReadAt(from, b); err != nil {
			return n, err
		}
		n += len(b)
	}
	if n < len(p) {
		err = io.EOF
	}
	return n, err
}

func (memoryFile) Close() error { return nil }

// file writes the image's headers and symbols as an ELF file, whose one segment stands for memory:
// its bytes are not in the file. The caller appends the bytes of orc's two arrays, in their order.
func (im image) file(a *arch.Arch, orc kernel.ORC) []byte {
	const (
		ehSize, phSize, shSize, symSize = 64, 56, 64, 24
		names                           = "\x00.text\x00.symtab\x00.strtab\x00.data\x00.orc_unwind_ip\x00.orc_unwind\x00"
		sections                        = 7 // the first is empty, as ELF wants it
		textSection, dataSection        = 1, 4
	)
	var syms, strs bytes.Buffer
	strs.WriteString(names)
	put := func(b *bytes.Buffer, v any) { binary.Write(b, a.Order, v) } // a Buffer has no errors
	put(&syms, elf.Sym64{})
	for _, s := range im.table.Symbols() {
		if !im.bounds.Contains(s.Addr) || im.isGone(&s) {
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
		if im.text.Contains(s.Addr) {
			section = textSection
		}
		// An elf.Sym64 by hand: put takes a fifth of attaching for so many.
		var sym [symSize]byte
		a.Order.PutUint32(sym[0:], uint32(strs.Len()))
		sym[4] = elf.ST_INFO(bind, kind)
		a.Order.PutUint16(sym[6:], uint16(section))
		a.Order.PutUint64(sym[8:], uint64(s.Addr))
		a.Order.PutUint64(sym[16:], s.Size)
		syms.Write(sym[:])
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
	size := im.bounds.Size()
	put(&b, elf.Prog64{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Vaddr: uint64(im.bounds.Start), Filesz: size, Memsz: size})
	put(&b, elf.Section64{})
	put(&b, elf.Section64{Name: 1, Type: uint32(elf.SHT_NOBITS), Flags: uint64(elf.SHF_ALLOC | elf.SHF_EXECINSTR),
		Addr: uint64(im.text.Start), Size: im.text.Size()})
	put(&b, elf.Section64{Name: 7, Type: uint32(elf.SHT_SYMTAB), Off: symAt, Size: uint64(syms.Len()), Link: 3, Info: 1, Entsize: symSize})
	put(&b, elf.Section64{Name: 15, Type: uint32(elf.SHT_STRTAB), Off: strAt, Size: uint64(strs.Len())})
	put(&b, elf.Section64{Name: 23, Type: uint32(elf.SHT_NOBITS), Flags: uint64(elf.SHF_ALLOC | elf.SHF_WRITE),
		Addr: uint64(im.text.End), Size: uint64(im.bounds.End - im.text.End)})
	at := strAt + uint64(strs.Len())
	for i, r := range []arch.Range{orc.Places, orc.Rows} {
		put(&b, elf.Section64{Name: [...]uint32{29, 44}[i], Type: uint32(elf.SHT_PROGBITS), Flags: uint64(elf.SHF_ALLOC),
			Addr: uint64(r.Start), Off: at, Size: r.Size()})
		at += r.Size()
	}
	b.Write(syms.Bytes())
	b.Write(strs.Bytes())
	return b.Bytes()
}
