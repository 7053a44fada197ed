package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"kprobe/arch"
)

// Paged is the memory of an x86-64 kernel as its own page tables map it, read
// from physical RAM: no CPU of the guest is asked, so it does not matter whether
// one is in user mode, where page-table isolation hides the kernel.
type Paged struct {
	ram    io.ReaderAt
	root   uint64 // physical address of the top table
	levels int    // 4 or 5
}

// NewPaged finds the page tables of a kernel that Find found in ram, whose
// places are physical addresses.
func NewPaged(f *Found, ram io.ReaderAt) (*Paged, error) {
	root, ok := f.Table.Addr("init_top_pgt")
	image, ok2 := f.Table.Addr("_stext")
	if !f.HasBias || !ok || !ok2 {
		return nil, errors.New("no page tables to start from: the kernel's place in RAM, or init_top_pgt, is not known")
	}
	// Whether there are five levels was decided at boot. Only the right number of
	// them leads to the image.
	for _, levels := range []int{4, 5} {
		p := &Paged{ram, uint64(root) - f.Bias, levels}
		if at, _, err := p.translate(uint64(image)); err == nil && at == uint64(image)-f.Bias {
			return p, nil
		}
	}
	return nil, errors.New("init_top_pgt does not map the kernel")
}

const (
	pagePresent = 1 << 0
	pageLarge   = 1 << 7
	pageFrame   = 1<<52 - 1<<12
)

// translate gives the physical address of a virtual one, and how many bytes
// follow in the same page.
func (p *Paged) translate(addr uint64) (at, left uint64, err error) {
	table := p.root
	for level := p.levels - 1; level >= 0; level-- {
		shift := 12 + 9*level
		var b [8]byte
		if err := readFull(p.ram, b[:], int64(table+addr>>shift&0x1ff*8)); err != nil {
			return 0, 0, fmt.Errorf("page tables for %#x: %w", addr, err)
		}
		entry := binary.LittleEndian.Uint64(b[:])
		if entry&pagePresent == 0 {
			return 0, 0, fmt.Errorf("nothing is mapped at %#x", addr)
		}
		table = entry & pageFrame
		if level == 0 || level <= 2 && entry&pageLarge != 0 {
			size := uint64(1) << shift
			table &^= size - 1 // of a large page the lowest bit of the frame is a flag
			return table | addr&(size-1), size - addr&(size-1), nil
		}
	}
	panic("unreachable: level 0 returns")
}

// ReadAt implements arch.Reader.
func (p *Paged) ReadAt(addr arch.Addr, b []byte) error {
	for len(b) > 0 {
		at, left, err := p.translate(uint64(addr))
		if err != nil {
			return err
		}
		n := min(uint64(len(b)), left)
		if err := readFull(p.ram, b[:n], int64(at)); err != nil {
			return fmt.Errorf("memory at %v: %w", addr, err)
		}
		b, addr = b[n:], addr+arch.Addr(n)
	}
	return nil
}
