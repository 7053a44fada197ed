package kernel

import (
	"bytes"
	"cmp"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"strings"

	"kprobe/arch"
)

// Image is a kernel in a file: a vmlinux, or a file for a boot loader, bzImage or Image, compressed
// or not. It has the addresses it was linked for; a relocatable kernel of arm64 is linked for 0.
// Variables have the values that they have before the kernel runs.
type Image struct {
	Table *Table
	r     io.ReaderAt
	parts []part
}

// part is a piece of an image: size bytes at addr, of which file are at off and
// the rest is zeros.
type part struct {
	addr, size, file uint64
	off              int64
}

// OpenImage reads the kernel of machine a in size bytes of r.
func OpenImage(r io.ReaderAt, size int64, a *arch.Arch) (*Image, error) {
	im, err := openPlain(r, size, a)
	if err == nil {
		return im, nil
	}
	// A boot image is a small program with the kernel compressed inside. The
	// header that tells where is another for each machine, but what decompresses
	// into a kernel is the kernel.
	if size > maxImage {
		return nil, fmt.Errorf("no kernel: %w", err)
	}
	b := make([]byte, size)
	if err := readFull(r, b, 0); err != nil {
		return nil, err
	}
	for _, at := range packed(b) {
		plain, method, perr := unpack(b[at:])
		if len(plain) < minImage {
			if perr != nil {
				err = fmt.Errorf("%s data at %#x: %w", method, at, perr)
			}
			continue
		}
		if im, err = openPlain(bytes.NewReader(plain), int64(len(plain)), a); err == nil {
			return im, nil
		}
	}
	return nil, fmt.Errorf("no kernel: %w", err)
}

// openPlain reads a kernel that is not compressed: ELF, or just its bytes.
func openPlain(r io.ReaderAt, size int64, a *arch.Arch) (*Image, error) {
	im := &Image{r: r}
	if f, err := elf.NewFile(r); err == nil {
		if f.ByteOrder != a.Order || (f.Class == elf.ELFCLASS64) != (a.PtrSize == 8) {
			return nil, fmt.Errorf("the ELF file is of another machine, %v", f.Machine)
		}
		for _, p := range f.Progs {
			if p.Type == elf.PT_LOAD && p.Off < 1<<62 {
				im.parts = append(im.parts, part{p.Vaddr, p.Memsz, min(p.Filesz, p.Memsz), int64(p.Off)})
			}
		}
		slices.SortFunc(im.parts, func(a, b part) int { return cmp.Compare(a.addr, b.addr) })
		if syms := elfSymbols(f); len(syms) >= minSymbols {
			im.Table = kernelTable(syms)
			return im, nil
		}
	}
	found, err := Find(r, size, a)
	if err != nil {
		return nil, err
	}
	f := found[0]
	im.Table = f.Table
	if im.parts == nil {
		start := f.Bias
		if !f.HasBias {
			start = uint64(f.Table.bounds.Start) - textOffset(r)
		}
		im.parts = []part{{start, uint64(size), uint64(size), 0}}
	}
	return im, nil
}

// textOffset is the offset of the text in a kernel that is just its bytes: at the beginning, or
// where the header says that makes an EFI program of it.
func textOffset(r io.ReaderAt) uint64 {
	var b [4]byte
	if readFull(r, b[:], 0x3c) != nil {
		return 0
	}
	pe := int64(binary.LittleEndian.Uint32(b[:]))
	var head [48]byte // signature, COFF header, and the optional header up to BaseOfCode
	if readFull(r, head[:], pe) != nil || string(head[:4]) != "PE\x00\x00" {
		return 0
	}
	return uint64(binary.LittleEndian.Uint32(head[44:]))
}

// ReadAt implements arch.Reader.
func (im *Image) ReadAt(addr arch.Addr, p []byte) error {
	for _, s := range im.parts {
		off := uint64(addr) - s.addr // a relocatable image may begin below 0
		if off > s.size || uint64(len(p)) > s.size-off {
			continue
		}
		n := min(uint64(len(p)), s.file-min(off, s.file))
		clear(p[n:])
		return readFull(im.r, p[:n], s.off+int64(off))
	}
	return fmt.Errorf("nothing of the kernel's file is at %v", addr)
}

// elfSymbols are the symbols of a .symtab, as nm and System.map have them.
func elfSymbols(f *elf.File) []Symbol {
	all, err := f.Symbols()
	if err != nil || len(all) > maxSymbols {
		return nil
	}
	var syms []Symbol
	for _, s := range all {
		letter := nmType(f, s)
		// Mapping symbols of ARM and RISC-V, and the assembler's own labels.
		if letter == 0 || s.Name == "" || s.Name[0] == '$' || strings.HasPrefix(s.Name, ".L") {
			continue
		}
		syms = append(syms, Symbol{Name: s.Name, Addr: arch.Addr(s.Value), Type: letter})
	}
	return syms
}

// nmType is the letter that nm prints for a symbol; 0 for a symbol without an address.
func nmType(f *elf.File, s elf.Symbol) byte {
	if t := elf.ST_TYPE(s.Info); t == elf.STT_FILE || t == elf.STT_SECTION {
		return 0
	}
	var letter byte
	switch i := s.Section; {
	case i == elf.SHN_UNDEF:
		return 0
	case i == elf.SHN_ABS:
		letter = 'a'
	case elf.ST_BIND(s.Info) == elf.STB_WEAK:
		if elf.ST_TYPE(s.Info) == elf.STT_OBJECT {
			return 'V'
		}
		return 'W'
	case int(i) >= len(f.Sections):
		return 0
	default:
		switch sec := f.Sections[i]; {
		case sec.Flags&elf.SHF_ALLOC == 0:
			return 0
		case sec.Flags&elf.SHF_EXECINSTR != 0:
			letter = 't'
		case sec.Type == elf.SHT_NOBITS:
			letter = 'b'
		case sec.Flags&elf.SHF_WRITE != 0:
			letter = 'd'
		default:
			letter = 'r'
		}
	}
	if elf.ST_BIND(s.Info) != elf.STB_LOCAL {
		letter -= 'a' - 'A'
	}
	return letter
}
