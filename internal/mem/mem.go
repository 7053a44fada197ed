// Package mem reads another program's memory: words, texts, pages that are asked for once, padding
// between functions. The caller brings the reader.
package mem

import (
	"bytes"
	"errors"

	"kprobe/arch"
)

// LeastPage is the smallest page of any machine. Every larger page is some of these. So the bytes
// in one of them are there as a whole or not at all, and memory is read by it. Memory is mapped in
// the target's own pages: see target.Allocator.
const LeastPage = 4096

// Word reads a word as wide as the machine's pointers. Errors: the reader's.
func Word(m arch.Reader, a *arch.Arch, addr arch.Addr) (uint64, error) {
	var b [8]byte
	if err := m.ReadAt(addr, b[:a.PtrSize]); err != nil {
		return 0, err
	}
	return a.Word(b[:]), nil
}

// PutWord writes one. Errors: the writer's.
func PutWord(m arch.Memory, a *arch.Arch, addr arch.Addr, v uint64) error {
	var b [8]byte
	a.PutWord(b[:], v)
	return m.WriteAt(addr, b[:a.PtrSize])
}

// Text reads a text that a zero byte ends, at most max bytes of it; in pieces that end with a page,
// so that text just before an unmapped page is read. Errors: the reader's, with the part that was
// read before.
func Text(m arch.Reader, addr arch.Addr, max int) (string, error) {
	var out []byte
	buf := make([]byte, 256)
	for len(out) < max {
		n := min(len(buf), max-len(out), int(LeastPage-uint64(addr)%LeastPage))
		b := buf[:n]
		if err := m.ReadAt(addr, b); err != nil {
			return string(out), err
		}
		if i := bytes.IndexByte(b, 0); i >= 0 {
			return string(append(out, b[:i]...)), nil
		}
		out = append(out, b...)
		addr += arch.Addr(n)
	}
	return string(out), nil
}

// Pages are the pages of a program as they were when they were first asked for.
type Pages struct {
	from arch.Reader
	seen map[arch.Addr][]byte // nil where there is no memory
}

// NewPages has seen nothing yet.
func NewPages(from arch.Reader) *Pages { return &Pages{from, make(map[arch.Addr][]byte)} }

// ErrAbsent tells that there is no memory, or was none.
var ErrAbsent = errors.New("no memory there")

// ReadAt fills p, whole or with ErrAbsent.
func (ps *Pages) ReadAt(addr arch.Addr, p []byte) error {
	for len(p) > 0 {
		page := addr &^ (LeastPage - 1)
		b, seen := ps.seen[page]
		if !seen {
			b = make([]byte, LeastPage)
			if ps.from.ReadAt(page, b) != nil {
				b = nil
			}
			ps.seen[page] = b
		}
		if b == nil {
			return ErrAbsent
		}
		n := copy(p, b[addr-page:])
		addr, p = addr+arch.Addr(n), p[n:]
	}
	return nil
}

// Padding finds a place that is code and that nothing executes, between two addresses:
// between functions, where there are several trap instructions in a row. One alone
// might be a number that happens to look so.
func Padding(m arch.Reader, a *arch.Arch, start, end arch.Addr) (arch.Addr, bool) {
	const run = 4
	padding := bytes.Repeat(a.Break, run)
	page := make([]byte, LeastPage)
	for at := start &^ (LeastPage - 1); at < end; at += LeastPage {
		if m.ReadAt(at, page) != nil {
			continue
		}
		if i := bytes.Index(page, padding); i >= 0 {
			return at + arch.Addr(i+1), true
		}
	}
	return 0, false
}
