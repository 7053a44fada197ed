package source

import (
	"debug/elf"
	"io"
	"iter"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// The debug data of a large program is larger than all else that a controller has. What is large stays in a file,
// mapped, and its pages are given back when a pass over it is done (forget).

// mappedFrom is the size from which on a section is mapped. Tests have smaller ones.
var mappedFrom uint64 = 4 << 20

// maxSection bounds what a compressed section may claim to be.
const maxSection = 4 << 30

// readSections reads sections of debug data side by side, since unpacking takes most of the time. r is what e is of.
func readSections(e *elf.File, r io.ReaderAt, names ...string) map[string][]byte {
	held := make([][]byte, len(names))
	var wg sync.WaitGroup
	for i, name := range names {
		wg.Go(func() { held[i] = sectionOf(e, r, name) })
	}
	wg.Wait()
	sections := map[string][]byte{}
	for i, name := range names {
		sections[name] = held[i]
	}
	return sections
}

// sectionOf returns the content of a section of debug data, unpacked; nil where there is none. e was read from r.
func sectionOf(e *elf.File, r io.ReaderAt, name string) []byte {
	s := e.Section(".debug_" + name)
	if s == nil {
		s = e.Section(".zdebug_" + name)
	}
	return content(s, r)
}

func content(s *elf.Section, r io.ReaderAt) []byte {
	if s == nil || s.Type == elf.SHT_NOBITS || s.Size > maxSection {
		return nil
	}
	if f, ok := r.(*os.File); ok && s.Size >= mappedFrom {
		if s.Flags&elf.SHF_COMPRESSED != 0 {
			if b := unpacked(s); b != nil {
				return b
			}
		} else if b := mapped(f, s.Offset, s.Size, unix.MAP_PRIVATE); b != nil {
			return b
		}
	}
	b, err := s.Data() // which unpacks zlib's and zstd's
	if err != nil {
		return nil
	}
	return b
}

// nameless is a file that has no name, and that goes with us; nil where that is not possible.
func nameless() *os.File {
	f, err := os.CreateTemp("", "kprobe-debug-")
	if err != nil {
		return nil
	}
	os.Remove(f.Name())
	return f
}

// unpacked unpacks a section into a file without a name; nil where that is not possible.
func unpacked(s *elf.Section) []byte {
	f := nameless()
	if f == nil {
		return nil
	}
	defer f.Close()
	if n, err := io.Copy(f, s.Open()); err != nil || uint64(n) != s.Size {
		return nil
	}
	return mapped(f, 0, s.Size, unix.MAP_PRIVATE)
}

// scratch is memory to put debug data together in: in a file without a name, if it is large, so that its pages can be
// given back.
func scratch(size int) []byte {
	if uint64(size) >= mappedFrom {
		if f := nameless(); f != nil {
			defer f.Close()
			if f.Truncate(int64(size)) == nil {
				if b := mapped(f, 0, uint64(size), unix.MAP_SHARED); b != nil {
					return b
				}
			}
		}
	}
	return make([]byte, size)
}

// piece is a part of a file as it was at a time.
type piece struct {
	dev, inode, offset, size uint64
	changed                  int64 // ns
}

// pieces are what has been mapped, each once, and for good: what has been read from it may still be in use.
var pieces struct {
	sync.Mutex
	of map[piece]*mapping
}

// mapping is a piece in memory.
type mapping struct {
	pages []byte // whole pages
	from  int    // where the piece begins in them
	b     []byte // the piece
}

// mapped is a part of a file in memory, which may be written to; nil where that is not possible. If it is private, what was
// written (unicodeAsNumber) is lost when the pages are given back.
func mapped(f *os.File, offset, size uint64, how int) []byte {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || offset+size > uint64(st.Size) {
		return nil
	}
	of := piece{uint64(st.Dev), st.Ino, offset, size, st.Mtim.Nano()}
	pieces.Lock()
	defer pieces.Unlock()
	if m := pieces.of[of]; m != nil {
		return m.b
	}
	from := offset % uint64(os.Getpagesize())
	pages, err := unix.Mmap(int(f.Fd()), int64(offset-from), int(from+size), unix.PROT_READ|unix.PROT_WRITE, how|unix.MAP_NORESERVE)
	if err != nil {
		return nil
	}
	m := &mapping{pages, int(from), pages[from : from+size : from+size]}
	if pieces.of == nil {
		pieces.of = map[piece]*mapping{}
	}
	pieces.of[of] = m
	return m.b
}

// each passes over all units. What is read of each is little, and may bring megabytes with it, which are given back.
func (f *File) each() iter.Seq[*unit] {
	return func(yield func(*unit) bool) {
		defer f.forget()
		for i, u := range f.units {
			if i%unitsAtOnce == unitsAtOnce-1 {
				f.forget()
			}
			if !yield(u) {
				return
			}
		}
	}
}

const unitsAtOnce = 32

// forget gives back what has been read.
func (f *File) forget() {
	for _, b := range [][]byte{f.sec.info, f.sec.str, f.sec.line, f.sec.lineStr, f.sec.rnglists, f.sec.loclists} {
		forget(b)
	}
}

// forget gives back the pages of what is mapped, which may be used all the same: they are read again then.
func forget(b []byte) {
	pieces.Lock()
	defer pieces.Unlock()
	for _, m := range pieces.of {
		at := cap(m.b) - cap(b)
		if len(b) == 0 || at < 0 || at >= len(m.b) || &m.b[at] != &b[0] {
			continue
		}
		page := os.Getpagesize()
		first, end := (m.from+at+page-1)&^(page-1), (m.from+at+len(b))&^(page-1)
		if first < end {
			unix.Madvise(m.pages[first:end], unix.MADV_DONTNEED)
		}
		return
	}
}
