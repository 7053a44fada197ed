//go:build linux && (amd64 || arm64 || ppc64le || riscv64 || s390x)

package ptrace

import (
	"bytes"
	"errors"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"kprobe/arch"
	"kprobe/internal/proc"
	"kprobe/symbol"
)

// mostReverted is the number of pages that are compared, 64 MiB at least: the process stands
// meanwhile, for some tens of milliseconds.
const mostReverted = 1 << 14

// Revert implements target.Reverter. A page of text that probes were in is the process's alone, and
// counts in its control group, until it is given up. Then the kernel has it read the file's, which
// is the same, byte for byte.
func (p *Process) Revert(written []arch.Range) error {
	maps, err := p.Maps()
	if err != nil {
		return err
	}
	pages := p.pagesOf(written)
	pages = pages[:min(len(pages), mostReverted)]
	err = p.Together(func() (err error) {
		for _, m := range maps {
			if m.Inode == 0 || m.Shared || m.Write {
				continue // memory of no file, or which others may write to at this moment
			}
			from, _ := slices.BinarySearch(pages, m.Start)
			to, _ := slices.BinarySearch(pages, m.End)
			if from < to {
				err = errors.Join(err, p.revert(m, pages[from:to]))
			}
		}
		return err
	})
	var refused refusal
	if errors.As(err, &refused) || errors.Is(err, unix.EACCES) || errors.Is(err, os.ErrNotExist) {
		return nil // the program keeps its memory locked, its filter does not allow the call, or the file cannot be opened any more
	}
	return err
}

// revert does it for pages of one mapping.
func (p *Process) revert(m symbol.Mapping, pages []arch.Addr) error {
	page := arch.Addr(os.Getpagesize())
	own := p.ownOf(pages, page)
	pages = slices.DeleteFunc(slices.Clone(pages), func(at arch.Addr) bool { return !own[at] })
	if len(pages) == 0 {
		return nil
	}
	f, err := p.OpenMapped(m)
	if err != nil {
		return err
	}
	defer f.Close()
	have, want := make([]byte, page), make([]byte, page)
	same := func(at arch.Addr) bool {
		if p.ReadAt(at, have) != nil {
			return false
		}
		n, _ := f.ReadAt(want, int64(m.Off+uint64(at-m.Start))) // the kernel has zeros behind the file's end
		clear(want[n:])
		return n > 0 && bytes.Equal(have, want)
	}
	for len(pages) > 0 {
		n := 0
		for n < len(pages) && pages[n] == pages[0]+arch.Addr(n)*page && same(pages[n]) {
			n++
		}
		if n > 0 {
			if err := p.remote(p.volunteer(p.pid), p.abi().Madvise, uint64(pages[0]), uint64(n)*uint64(page), unix.MADV_DONTNEED); err != nil {
				return err
			}
		}
		pages = pages[max(n, 1):]
	}
	return nil
}

// pagesOf are the pages that some ranges are in, each once, in order.
func (p *Process) pagesOf(rs []arch.Range) (pages []arch.Addr) {
	page := arch.Addr(p.PageSize())
	for _, r := range rs {
		for at := r.Start &^ (page - 1); at < r.End; at += page {
			pages = append(pages, at)
		}
	}
	slices.Sort(pages)
	return slices.Compact(pages)
}

// ownOf are the pages that are there and the process's alone, of some pages and those between them.
// Pages that are close to each other are looked at together.
func (p *Process) ownOf(pages []arch.Addr, page arch.Addr) map[arch.Addr]bool {
	own := make(map[arch.Addr]bool)
	for len(pages) > 0 {
		n := 1
		for n < len(pages) && pages[n]-pages[n-1] < tableSpan {
			n++
		}
		proc.Process(p.pid).Present(uint64(pages[0]), uint64(pages[n-1]+page), true, func(from, to uint64) error {
			for at := arch.Addr(from); at < arch.Addr(to); at += page {
				own[at] = true
			}
			return nil
		})
		pages = pages[n:]
	}
	return own
}
