//go:build linux && (amd64 || arm64 || ppc64le || riscv64 || s390x)

package ptrace

import (
	"bytes"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"kprobe/arch"
	"kprobe/internal/tracee"
	"kprobe/symbol"
)

// gadgets are instructions of the program that a call is made with.
type gadgets struct {
	call arch.Addr // a system call and a return; or only the call
	pops int       // words that are taken off the stack in between
	back arch.Addr // rt_sigreturn; 0 where there is none, or no return leads to it

	callCode, backCode string // the bytes there
}

// within tells whether one of them lies in a range.
func (g gadgets) within(r arch.Range) bool { return r.Contains(g.call) || r.Contains(g.back) }

// in tells whether the instructions are in a memory. A probe may have been placed there since.
func (g *gadgets) in(m arch.Memory) bool {
	return g.call != 0 && holds(m, g.call, g.callCode) && (g.back == 0 || holds(m, g.back, g.backCode))
}

// holds tells whether a memory has some code at an address.
func holds(m arch.Memory, at arch.Addr, code string) bool {
	b := make([]byte, len(code))
	return m.ReadAt(at, b) == nil && string(b) == code
}

// gadgets finds them in executable memory m, which is the process's or its child's, but not in the
// range that is about to be unmapped. Every libc has both, and Go's runtime; for i386 the kernel's
// vDSO. Where all of these have probes, those of our own trap handler serve.
func (p *Process) gadgets(m arch.Memory, unmapped arch.Range) (gadgets, error) {
	if p.found.in(m) && !p.found.within(unmapped) {
		return p.found, nil
	}
	maps, err := p.Maps()
	if err != nil {
		return gadgets{}, err
	}
	maps = slices.DeleteFunc(slices.Clone(maps), func(m symbol.Mapping) bool {
		return m.Start < unmapped.End && unmapped.Start < m.End
	})
	// Memory of no file comes last: it may be ours, or be unmapped by the program.
	files := slices.DeleteFunc(slices.Clone(maps), isFileless)
	s := p.search(m, files, true)
	if !s.serves(p.abi()) {
		s = p.search(m, files, false) // a file may have changed since
	}
	if !s.serves(p.abi()) {
		s = p.search(m, slices.Concat(files, slices.DeleteFunc(maps, func(m symbol.Mapping) bool { return !isFileless(m) })), false)
	}
	if !s.serves(p.abi()) && unmapped != (arch.Range{}) {
		return p.gadgets(m, arch.Range{}) // we must not die before the call has been made, or where there is no way back
	}
	if s.found.call == 0 {
		return gadgets{}, fmt.Errorf("process %d has no system call instruction to borrow: %w", p.pid, unix.ENOEXEC)
	}
	if s.best == len(p.abi().Entries)-1 {
		s.found.back = 0 // that is the bare call
	}
	p.found = s.found
	return p.found, nil
}

func isFileless(m symbol.Mapping) bool { return m.Inode == 0 && m.Path != "[vdso]" }

// search is the result so far; best is the index of one of the ABI's entries, their number for
// none.
type search struct {
	found gadgets
	best  int
}

// serves tells that a call which is made with them leads back by itself.
func (s *search) serves(a *tracee.ABI) bool { return s.best < len(a.Entries)-1 && s.found.back != 0 }

func (p *Process) search(mem arch.Memory, maps []symbol.Mapping, remembered bool) search {
	a := p.abi()
	s := search{best: len(a.Entries)}
	for _, m := range maps {
		if s.best == 0 && s.found.back != 0 {
			break
		}
		if !m.Exec || !m.Read || m.Path == "[vsyscall]" {
			continue
		}
		in, ok := places{}, false
		if remembered {
			in, ok = p.recall(mem, m)
		}
		if !ok {
			in = p.scan(mem, m)
		}
		for n, e := range a.Entries[:s.best] {
			if off := in.entries[n]; off >= 0 {
				s.found.call, s.found.pops, s.best = m.Start+arch.Addr(off), e.Pops, n
				s.found.callCode = e.Code
				break
			}
		}
		if s.found.back == 0 && in.back >= 0 {
			s.found.back, s.found.backCode = m.Start+arch.Addr(in.back), in.backCode
		}
	}
	return s
}

// places are the offsets at which a mapping has the instructions, -1 for not at all.
type places struct {
	entries  [maxEntries]int
	back     int
	backCode string
}

// maxEntries is the largest number of ways to enter the kernel that an ABI has.
const maxEntries = 8

// fileText is a piece of a file that processes have mapped as their text.
type fileText struct {
	abi                 *tracee.ABI
	path                string
	inode, offset, size uint64
}

// scanned are the places in the text of files: the children of a shell have the same libraries. It
// keeps places to look at, and nothing that is believed without a look.
var scanned struct {
	sync.Mutex
	places map[fileText]places
}

// mostScanned bounds them.
const mostScanned = 256

func (p *Process) fileTextOf(m symbol.Mapping) (fileText, bool) {
	return fileText{p.abi(), m.Path, m.Inode, m.Off, uint64(m.End - m.Start)}, m.Inode != 0 && !m.Write
}

// recall answers the remembered places of a mapping, if they are still right.
func (p *Process) recall(mem arch.Memory, m symbol.Mapping) (places, bool) {
	key, ok := p.fileTextOf(m)
	if !ok {
		return places{}, false
	}
	scanned.Lock()
	in, ok := scanned.places[key]
	scanned.Unlock()
	is := func(off int, code string) bool { return off < 0 || holds(mem, m.Start+arch.Addr(off), code) }
	if !ok || !is(in.back, in.backCode) {
		return places{}, false
	}
	for n, e := range p.abi().Entries {
		if !is(in.entries[n], e.Code) {
			return places{}, false
		}
	}
	return in, true
}

// scan looks for the first of each in a mapping, and remembers them; not those of text that has
// probes, which are not the file's.
func (p *Process) scan(mem arch.Memory, m symbol.Mapping) places {
	a := p.abi()
	in := places{back: -1}
	for n := range in.entries {
		in.entries[n] = -1
	}
	buf := make([]byte, min(256<<10, m.End-m.Start))
	for at := m.Start; at < m.End && (in.entries[0] < 0 || in.back < 0); at += arch.Addr(len(buf)) {
		b := buf[:min(arch.Addr(len(buf)), m.End-at)]
		if mem.ReadAt(at, b) != nil {
			continue
		}
		off := int(at - m.Start)
		for n, e := range a.Entries {
			if i := indexAligned(b, e.Code, a.Machine.MinInsn); i >= 0 && in.entries[n] < 0 {
				in.entries[n] = off + i
			}
		}
		for _, code := range a.Back {
			if i := indexAligned(b, code, a.Machine.MinInsn); i >= 0 && in.back < 0 {
				in.back, in.backCode = off+i, code
			}
		}
	}
	if key, ok := p.fileTextOf(m); ok && p.found == (gadgets{}) {
		scanned.Lock()
		defer scanned.Unlock()
		if scanned.places == nil || len(scanned.places) >= mostScanned {
			scanned.places = make(map[fileText]places)
		}
		scanned.places[key] = in
	}
	return in
}

// indexAligned is the offset of code in b at which instructions may begin; -1 for none.
func indexAligned(b []byte, code string, align int) int {
	for from := 0; ; {
		i := bytes.Index(b[from:], []byte(code))
		switch {
		case i < 0:
			return -1
		case (from+i)%align == 0:
			return from + i
		}
		from += i + 1
	}
}
