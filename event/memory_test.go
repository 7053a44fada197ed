package event

import (
	"errors"
	"fmt"

	"kprobe/arch"
)

const pageSize = 4096

// pages is memory of which single pages are there.
type pages map[arch.Addr]*[pageSize]byte

func (m pages) put(addr arch.Addr, b ...byte) {
	for i, c := range b {
		at := addr + arch.Addr(i)
		p := m[at&^(pageSize-1)]
		if p == nil {
			p = new([pageSize]byte)
			m[at&^(pageSize-1)] = p
		}
		p[at%pageSize] = c
	}
}

func (m pages) byteAt(addr arch.Addr) (byte, bool) {
	p := m[addr&^(pageSize-1)]
	if p == nil {
		return 0, false
	}
	return p[addr%pageSize], true
}

var errUnmapped = errors.New("not mapped")

func (m pages) ReadAt(addr arch.Addr, p []byte) error {
	for len(p) > 0 {
		page := m[addr&^(pageSize-1)]
		if page == nil {
			return errUnmapped
		}
		n := copy(p, page[addr%pageSize:])
		p, addr = p[n:], addr+arch.Addr(n)
	}
	return nil
}

// names resolves symbols of 16 bytes each, and file offsets at 0x400000.
type names map[string]arch.Addr

func (n names) Symbol(name string) (arch.Addr, error) {
	if a, ok := n[name]; ok {
		return a, nil
	}
	return 0, errUnknown
}

var errUnknown = errors.New("no such symbol")

func (n names) FileOffset(off int64) (arch.Addr, error) { return 0x400000 + arch.Addr(off), nil }

func (n names) Name(addr arch.Addr) string {
	for name, at := range n {
		if addr-at < 16 {
			return fmt.Sprintf("%s+0x%x/0x10", name, uint64(addr-at))
		}
	}
	return ""
}
