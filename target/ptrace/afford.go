//go:build linux && (amd64 || arm64 || ppc64le || riscv64 || s390x)

package ptrace

import (
	"kprobe/arch"
	"kprobe/internal/memcg"
	"kprobe/internal/proc"
	"kprobe/target"
)

// Afford implements target.Limited: a page that is written to for the first time counts in the
// process's control group, also one of its text, of which it has a copy of its own then.
func (p *Process) Afford(n target.Need) error {
	left, ok := memcg.Of(p.pid)
	if !ok {
		return nil
	}
	threads, err := proc.Process(p.pid).Threads()
	if err != nil {
		return nil // it ends, and the next step is told so
	}
	return left.Afford(uint64(n.Bytes+len(threads)*n.Each) + p.firstWritten(n.Written))
}

// tableSpan is the memory that one page of a page table leads to, on all machines with pages of 4
// KiB.
const tableSpan = 2 << 20

// firstWritten is the memory that a write to some ranges takes, with the page tables for it.
func (p *Process) firstWritten(written []arch.Range) uint64 {
	page := arch.Addr(p.PageSize())
	pages := p.pagesOf(written)
	own := p.ownOf(pages, page)
	tables := make(map[arch.Addr]bool)
	n := 0
	for _, at := range pages {
		if !own[at] {
			n++
			tables[at/tableSpan] = true
		}
	}
	return uint64(n+len(tables)) * uint64(page)
}
