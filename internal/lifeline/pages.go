package lifeline

import (
	"cmp"
	"errors"
	"slices"

	"kprobe/arch"
)

// Pages reads and writes the code of a running process a page at a time: the work has to be done
// soon, and most of its price is system calls.
type Pages struct {
	Memory   arch.Memory
	Constant []arch.Range // memory that is not written by others; in order
	pages    map[arch.Addr][]byte
}

const codePage = 4096

// page is the content of the page with an address, nil where the program might
// write there while we do.
func (c *Pages) page(at arch.Addr) []byte {
	at &^= codePage - 1
	if b, ok := c.pages[at]; ok {
		return b
	}
	i, _ := slices.BinarySearchFunc(c.Constant, at, func(m arch.Range, at arch.Addr) int { return cmp.Compare(m.End, at+1) })
	var b []byte
	if i < len(c.Constant) && c.Constant[i].Start <= at {
		b = make([]byte, codePage)
		if c.Memory.ReadAt(at, b) != nil {
			b = nil
		}
	}
	if c.pages == nil {
		c.pages = make(map[arch.Addr][]byte)
	}
	c.pages[at] = b
	return b
}

// Read reads the bytes that are there, or are going to be.
func (c *Pages) Read(at arch.Addr, b []byte) error {
	page, off := c.page(at), int(at&(codePage-1))
	if page == nil || off+len(b) > len(page) {
		return c.Memory.ReadAt(at, b)
	}
	copy(b, page[off:])
	return nil
}

// Write carries out writes of single bytes, or instructions. Writes on a page that is known go
// together, with the bytes that lie between them: to write a byte that is there already changes
// nothing for threads that run it.
func (c *Pages) Write(ws []Write) error {
	type span struct{ first, end arch.Addr }
	spans := make(map[arch.Addr]span)
	var errs []error
	for _, w := range ws {
		page := c.page(w.Addr)
		if page == nil {
			errs = append(errs, c.Memory.WriteAt(w.Addr, w.New))
			continue
		}
		at := w.Addr &^ (codePage - 1)
		copy(page[w.Addr-at:], w.New)
		s, more := spans[at]
		if !more {
			s = span{w.Addr, w.Addr}
		}
		spans[at] = span{min(s.first, w.Addr), max(s.end, w.Addr+arch.Addr(len(w.New)))}
	}
	for at, s := range spans {
		errs = append(errs, c.Memory.WriteAt(s.first, c.pages[at][s.first-at:s.end-at]))
	}
	return errors.Join(errs...)
}
