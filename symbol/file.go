package symbol

import (
	"bytes"
	"cmp"
	"debug/buildinfo"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Options tell how a file is opened. Nil and the zero value are the default.
type Options struct {
	// Path is the path at which the file was found. It is used in error messages and to find the
	// debug file that a debug link names.
	Path string

	// Debug finds the separate debug file of a file without .symtab, by its
	// build ID (nil: none) or its debug link: the name in .gnu_debuglink,
	// joined to the directory of Path ("": none), and the CRC-32 that the
	// debug file has. An error means that there is none. See DebugFinder.
	Debug func(buildID []byte, debuglink string, crc uint32) (io.ReaderAt, error)
}

// Segment is a PT_LOAD program header: a part of the file that the loader maps.
type Segment struct {
	Off, Vaddr, Filesz, Memsz uint64
	Flags                     elf.ProgFlag
}

// File is one ELF file. Its methods read what they need on first use and are
// safe for concurrent use. A source that cannot be read counts as empty: a
// target with a damaged symbol table can still be probed by address.
type File struct {
	opt      Options
	r        io.ReaderAt
	elf      *elf.File
	ptr      int // size of an address: 4 or 8 bytes
	segments []Segment
	text     []Range // sorted

	dynamic  func() *dynamic
	dynsyms  func() *dynsyms
	relocs   func() *relocs
	frames   func() *frames
	table    func() *table
	names    func() *names
	buildID  func() []byte
	goInfo   func() goInfo
	goTable  func() *goTable
	unwinds  func() unwindFact
	pclntab  func() []Symbol
	debugELF func() (symbolFile, Source)

	memos    sync.Map     // by their keys: func() any
	searched atomic.Int32 // names: see mentions
}

// Memo is the result of find, which is called once for each key, whatever the number of callers. It
// lives as long as the file does, and is for all to read.
func (f *File) Memo(key any, find func() any) any {
	once, ok := f.memos.Load(key)
	if !ok {
		once, _ = f.memos.LoadOrStore(key, sync.OnceValue(find))
	}
	return once.(func() any)()
}

// Limits on a file's claims. They are far above real files and far below sizes that would hurt; a
// claim is also checked against the bytes that are there.
const (
	maxRead     = 1 << 30
	maxSections = 1 << 16
)

// Open reads the headers of an ELF executable or shared object. Everything
// else is read later, from r, which must stay readable for the File's life.
//
// Errors: r is not such a file, or its headers make no sense.
func Open(r io.ReaderAt, opt *Options) (*File, error) {
	f := &File{r: r}
	if opt != nil {
		f.opt = *opt
	}
	e, err := elf.NewFile(r)
	if err != nil {
		return nil, f.errorf("%w", err)
	}
	if e.Type != elf.ET_EXEC && e.Type != elf.ET_DYN {
		return nil, f.errorf("%v is neither an executable nor a shared object", e.Type)
	}
	if len(e.Sections) > maxSections {
		return nil, f.errorf("%d sections", len(e.Sections))
	}
	f.elf = e
	f.ptr = 8
	if e.Class == elf.ELFCLASS32 {
		f.ptr = 4
	}
	for _, p := range e.Progs {
		// The loader refuses segments that wrap around; so do all sums here.
		if p.Type == elf.PT_LOAD && p.Filesz <= p.Memsz && p.Vaddr+p.Memsz >= p.Vaddr && p.Off+p.Filesz >= p.Off {
			f.segments = append(f.segments, Segment{p.Off, p.Vaddr, p.Filesz, p.Memsz, p.Flags})
		}
	}
	f.text = f.textRanges()

	f.dynamic = sync.OnceValue(f.readDynamic)
	f.dynsyms = sync.OnceValue(f.readDynsyms)
	f.relocs = sync.OnceValue(f.readRelocs)
	f.frames = sync.OnceValue(f.readBounds)
	f.table = sync.OnceValue(f.readTable)
	f.names = sync.OnceValue(f.readNames)
	f.buildID = sync.OnceValue(f.readBuildID)
	f.goInfo = sync.OnceValue(f.readGoInfo)
	f.goTable = sync.OnceValue(f.readGoTable)
	f.unwinds = sync.OnceValue(f.readUnwinds)
	f.pclntab = sync.OnceValue(f.readPclntab)
	f.debugELF = sync.OnceValues(f.findDebug)
	return f, nil
}

func (f *File) errorf(format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	if f.opt.Path == "" {
		return err
	}
	return fmt.Errorf("%s: %w", f.opt.Path, err)
}

// Path is Options.Path.
func (f *File) Path() string { return f.opt.Path }

// Machine is the instruction set the file is for.
func (f *File) Machine() elf.Machine { return f.elf.Machine }

// Order is the order of the file's bytes, and its machine's.
func (f *File) Order() binary.ByteOrder { return f.elf.ByteOrder }

// Class tells 32 from 64 bits.
func (f *File) Class() elf.Class { return f.elf.Class }

// Type is ET_EXEC for a program that must be mapped at its own addresses, and
// ET_DYN for a shared object or a position-independent program.
func (f *File) Type() elf.Type { return f.elf.Type }

// Entry is the address of the first instruction; 0 for most libraries.
func (f *File) Entry() uint64 { return f.elf.Entry }

// Interp is the path of the dynamic loader the program asks for; "" for none.
func (f *File) Interp() string {
	for _, p := range f.elf.Progs {
		if p.Type == elf.PT_INTERP {
			b, err := f.read(p.Off, min(p.Filesz, 4096))
			if err != nil {
				return ""
			}
			return string(bytes.TrimRight(b, "\x00"))
		}
	}
	return ""
}

// ThreadStorage is the distance, in bytes, of a program's thread-local storage below the thread
// pointer, on machines that have it there (x86). It is false where there is none, and for
// libraries, of which only the loader knows it.
func (f *File) ThreadStorage() (uint64, bool) {
	for _, p := range f.elf.Progs {
		if p.Type == elf.PT_TLS && f.Interp() != "" || p.Type == elf.PT_TLS && f.Type() == elf.ET_EXEC {
			align := max(p.Align, 1)
			return (p.Memsz + align - 1) &^ (align - 1), true
		}
	}
	return 0, false
}

// Segments are the parts of the file that the loader maps, in file order.
func (f *File) Segments() []Segment { return slices.Clone(f.segments) }

// Text are the ranges of code: the executable sections, or, in a file without section headers, the
// executable segments. Sorted by address.
func (f *File) Text() []Range { return slices.Clone(f.text) }

func (f *File) textRanges() []Range {
	var text []Range
	for _, s := range f.elf.Sections {
		const want = elf.SHF_ALLOC | elf.SHF_EXECINSTR
		if s.Flags&want == want && s.Size > 0 && s.Addr+s.Size > s.Addr {
			text = append(text, Range{s.Addr, s.Addr + s.Size})
		}
	}
	if text == nil {
		for _, s := range f.segments {
			if s.Flags&elf.PF_X != 0 && s.Filesz > 0 {
				text = append(text, Range{s.Vaddr, s.Vaddr + s.Filesz})
			}
		}
	}
	slices.SortFunc(text, func(a, b Range) int { return cmp.Compare(a.Start, b.Start) })
	return text
}

// textAt finds the text range that addr is in.
func (f *File) textAt(addr uint64) (Range, bool) {
	i, found := slices.BinarySearchFunc(f.text, addr, func(r Range, a uint64) int { return cmp.Compare(r.Start, a) })
	if !found {
		i--
	}
	if i >= 0 && f.text[i].Contains(addr) {
		return f.text[i], true
	}
	return Range{}, false
}

// IsText tells whether an address of the file is in its code.
func (f *File) IsText(vaddr uint64) bool {
	_, in := f.textAt(vaddr)
	return in
}

// VaddrOf is the virtual address of the byte at an offset in the file, if a
// segment maps it. Where two segments share it, the executable one answers: an
// offset of a uprobe is an offset of code.
func (f *File) VaddrOf(fileoff uint64) (vaddr uint64, ok bool) {
	for _, s := range f.segments {
		if d := fileoff - s.Off; fileoff >= s.Off && d < s.Filesz {
			if exec := s.Flags&elf.PF_X != 0; exec || !ok {
				vaddr, ok = s.Vaddr+d, true
				if exec {
					break
				}
			}
		}
	}
	return vaddr, ok
}

// OffOf is the offset in the file of the byte at a virtual address. There is
// none for .bss.
func (f *File) OffOf(vaddr uint64) (fileoff uint64, ok bool) {
	for _, s := range f.segments {
		if d := vaddr - s.Vaddr; vaddr >= s.Vaddr && d < s.Filesz {
			return s.Off + d, true
		}
	}
	return 0, false
}

// BuildID is the file's GNU build ID; nil for none.
func (f *File) BuildID() []byte { return slices.Clone(f.buildID()) }

// IsGo tells whether the file holds Go code built by the Go toolchain.
func (f *File) IsGo() bool { return f.goInfo().is }

// GoVersion is the Go release that built the file, "go1.26.8"; "" if unknown.
func (f *File) GoVersion() string { return f.goInfo().version }

type goInfo struct {
	is      bool
	version string
}

func (f *File) readGoInfo() goInfo {
	if len(f.elf.Sections) > 0 && f.section(".go.buildinfo") == nil && f.section(".gopclntab") == nil &&
		f.section(".note.go.buildid") == nil {
		return goInfo{}
	}
	info, err := buildinfo.Read(f.r)
	if err != nil {
		// Without section headers nothing but the build info speaks for Go.
		return goInfo{is: len(f.elf.Sections) > 0}
	}
	return goInfo{true, info.GoVersion}
}

// RseqAreas are the arrays of struct rseq_cs (32 bytes each: the descriptors of
// restartable sequences) in section __rseq_cs. The kernel aborts such a
// sequence by moving the PC, so a probe must not move its instructions away.
// The addresses in a descriptor are relocated: read them from the process.
func (f *File) RseqAreas() []Range {
	var areas []Range
	for _, s := range f.elf.Sections {
		if s.Name == "__rseq_cs" && s.Flags&elf.SHF_ALLOC != 0 && s.Addr+s.Size > s.Addr {
			areas = append(areas, Range{s.Addr, s.Addr + s.Size})
		}
	}
	return areas
}

func (f *File) readBuildID() []byte {
	const ntGNUBuildID = 3
	for b, align := range f.notes {
		if id := f.note(b, align, ntGNUBuildID); id != nil {
			return id
		}
	}
	return nil
}

// notes yields the file's ELF notes, those of segments first, and their alignment. A debug file may
// have kept its notes only as a section.
func (f *File) notes(yield func(b []byte, align uint64) bool) {
	for _, p := range f.elf.Progs {
		if p.Type == elf.PT_NOTE {
			if b, err := f.read(p.Off, min(p.Filesz, 1<<20)); err == nil && !yield(b, p.Align) {
				return
			}
		}
	}
	for _, s := range f.elf.Sections {
		if s.Type == elf.SHT_NOTE {
			if b, err := f.sectionData(s); err == nil && !yield(b, s.Addralign) {
				return
			}
		}
	}
}

// note finds GNU's note of a type among ELF notes; nil for none.
func (f *File) note(b []byte, align uint64, want uint32) []byte {
	if align != 8 {
		align = 4 // the meaning of every producer but .note.gnu.property's
	}
	pad := func(n uint64) uint64 { return (n + align - 1) &^ (align - 1) }
	for len(b) >= 12 {
		namesz := uint64(f.elf.ByteOrder.Uint32(b))
		descsz := uint64(f.elf.ByteOrder.Uint32(b[4:]))
		typ := f.elf.ByteOrder.Uint32(b[8:])
		desc := pad(12 + namesz)
		if desc+descsz > uint64(len(b)) {
			return nil
		}
		if typ == want && string(b[12:12+namesz]) == "GNU\x00" && descsz > 0 {
			return slices.Clone(b[desc : desc+descsz])
		}
		b = b[min(pad(desc+descsz), uint64(len(b))):]
	}
	return nil
}

// MayBeGuarded tells whether the file's code of arm64 may be mapped guarded (PROT_BTI), so that an
// indirect branch must lead to a landing pad: it is marked as made for that. It is false for other
// machines' code.
func (f *File) MayBeGuarded() bool {
	const (
		ntGNUPropertyType0 = 5
		aarch64Feature1And = 0xc0000000
		bti                = 1
	)
	if !f.on().guarded {
		return false
	}
	for b, align := range f.notes {
		for p := f.note(b, align, ntGNUPropertyType0); len(p) >= 12; {
			kind, size := f.elf.ByteOrder.Uint32(p), uint64(f.elf.ByteOrder.Uint32(p[4:]))
			if kind == aarch64Feature1And && f.elf.ByteOrder.Uint32(p[8:])&bti != 0 {
				return true
			}
			p = p[min((8+size+7)&^7, uint64(len(p))):]
		}
	}
	return false
}

// section finds a section by name; nil for none.
func (f *File) section(name string) *elf.Section {
	for _, s := range f.elf.Sections {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// sectionData reads a section as it is in the file.
func (f *File) sectionData(s *elf.Section) ([]byte, error) {
	if s == nil || s.Type == elf.SHT_NOBITS || s.Flags&elf.SHF_COMPRESSED != 0 {
		return nil, errNoBytes
	}
	return f.read(s.Offset, s.FileSize)
}

var errNoBytes = errors.New("no such bytes in the file")

// read reads n bytes of the file at off, all or nothing.
func (f *File) read(off, n uint64) ([]byte, error) {
	if n == 0 || n > maxRead || off > 1<<62 {
		return nil, errNoBytes
	}
	// A size is believed, and memory allocated, only once the last byte is
	// known to exist.
	var last [1]byte
	if m, _ := f.r.ReadAt(last[:], int64(off+n-1)); m != 1 {
		return nil, errNoBytes
	}
	b := make([]byte, n)
	if m, err := f.r.ReadAt(b, int64(off)); m != len(b) {
		return nil, f.errorf("reading %d bytes at %#x: %w", n, off, err)
	}
	return b, nil
}

// Bytes are n bytes that the loader maps at a virtual address, as they are in the file. Errors:
// there are no such bytes in one segment of the file.
func (f *File) Bytes(vaddr, n uint64) ([]byte, error) { return f.readVaddr(vaddr, n) }

// readVaddr reads n bytes that the loader maps at vaddr.
func (f *File) readVaddr(vaddr, n uint64) ([]byte, error) {
	for _, s := range f.segments {
		if d := vaddr - s.Vaddr; vaddr >= s.Vaddr && d < s.Filesz && n <= s.Filesz-d {
			return f.read(s.Off+d, n)
		}
	}
	return nil, errNoBytes
}

// restOf reads the bytes that the loader maps from vaddr to the end of its segment, at most limit
// of them.
func (f *File) restOf(vaddr, limit uint64) ([]byte, error) {
	for _, s := range f.segments {
		if d := vaddr - s.Vaddr; vaddr >= s.Vaddr && d < s.Filesz {
			return f.read(s.Off+d, min(s.Filesz-d, limit))
		}
	}
	return nil, errNoBytes
}

// word reads an address-sized word of b, which must be long enough.
func (f *File) word(b []byte) uint64 {
	if f.ptr == 4 {
		return uint64(f.elf.ByteOrder.Uint32(b))
	}
	return f.elf.ByteOrder.Uint64(b)
}

// cstring is the string that starts at off in a string table; "" outside it.
func cstring(strs string, off uint64) string {
	if off >= uint64(len(strs)) {
		return ""
	}
	s := strs[off:]
	if i := strings.IndexByte(s, 0); i >= 0 {
		return s[:i]
	}
	return "" // runs off the table
}
