package kernel

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"kprobe/arch"
)

// Found is a kernel that was found in memory or in a file.
type Found struct {
	Table *Table

	// Bias leads from a place in the searched memory to a virtual address, where HasBias. The image
	// lies in one piece in RAM, so it holds for all of it.
	Bias    uint64
	HasBias bool

	at       int64 // place of the token table
	encoding encoding
}

const (
	chunk      = 1 << 20
	winBefore  = 16 << 20 // the arrays before the token table are some 5 MB of a large kernel
	winBehind  = 8 << 20
	winTokens  = 64 << 10 // more than a token table and its index
	maxFound   = 8        // kernels in one memory: the boot loader may leave parts of an older copy
	maxSuspect = 32       // token tables without a kernel: each costs a search
)

// Find searches size bytes of r, which may be physical RAM, an uncompressed
// kernel or (see Range) a piece of virtual memory, for kernels of machine a. It
// needs no help of the kernel, and KASLR does not matter: addresses are kept
// relative to a base that the boot code moved along.
//
// Several kernels may be found: RAM may hold a copy that was not moved into its
// place. Running tells which is the one that runs. An error says that there is
// none, or that r cannot be read.
func Find(r io.ReaderAt, size int64, a *arch.Arch) (found []Found, err error) {
	err = search(r, size, a, func(f *Found) bool {
		found = append(found, *f)
		return len(found) < maxFound
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// FindRunning searches as Find does, for the kernel that runs: mem must have it at the addresses of
// its symbols. Memory behind it is not read: that may be most of a large memory, and a stub is
// asked for it piece by piece.
func FindRunning(r io.ReaderAt, size int64, a *arch.Arch, mem arch.Reader) (running *Found, err error) {
	n := 0
	err = search(r, size, a, func(f *Found) bool {
		if n++; f.live(mem) {
			running = f
		}
		return running == nil && n < maxFound
	})
	switch {
	case running != nil:
		return running, nil
	case err == nil:
		err = errNotRunning
	}
	return nil, err
}

// search finds kernels, and asks at each whether to go on. An error says that there is none, or
// that r cannot be read.
func search(r io.ReaderAt, size int64, a *arch.Arch, more func(*Found) bool) error {
	suspects, missing := 0, errNoTables
	buf := make([]byte, chunk+len(digits))
	for pos := int64(0); pos < size && suspects < maxSuspect; pos += chunk {
		b := buf[:min(int64(len(buf)), size-pos)]
		if err := readFull(r, b, pos); err != nil {
			return fmt.Errorf("reading at %#x: %w", pos, err)
		}
		for i := 0; suspects < maxSuspect; i++ {
			z := bytes.Index(b[i:], digits)
			if z < 0 || i+z >= chunk {
				break
			}
			i += z
			f, sure, err := findAt(r, size, pos+int64(i), a)
			switch {
			case err == nil && !more(&f):
				return nil
			case err == nil:
				missing = nil
			case sure:
				suspects++
				if missing != nil {
					missing = err
				}
			}
		}
	}
	return missing
}

// findAt reads the tables around the digits at z. sure tells that there is a
// token table, whatever err says.
func findAt(r io.ReaderAt, size, z int64, a *arch.Arch) (f Found, sure bool, err error) {
	w, base, err := readWindow(r, size, z, winTokens, winTokens, a)
	if err != nil {
		return f, false, err
	}
	if !w.hasTokens(int(z - base)) {
		return f, false, errNoTables
	}
	if w, base, err = readWindow(r, size, z, winBefore, winBehind, a); err != nil {
		return f, true, err
	}
	t, syms, err := w.parse(int(z - base))
	if err != nil {
		return f, true, err
	}
	f = Found{at: base + int64(t.tokenAt), encoding: t.encoding}
	if t.encoding == placeRelative {
		for i := range syms {
			syms[i].Addr += arch.Addr(base)
		}
	}
	f.Table = kernelTable(syms)
	f.findBias(r, size, a)
	return f, true, nil
}

// readWindow reads the memory around z. It begins at a multiple of a page, because the arrays are
// aligned.
func readWindow(r io.ReaderAt, size, z, before, behind int64, a *arch.Arch) (*window, int64, error) {
	base := max(z-before, 0) &^ 0xfff
	b := make([]byte, min(z+behind, size)-base)
	return &window{b: b, order: a.Order, ptr: a.PtrSize}, base, readFull(r, b, base)
}

func readFull(r io.ReaderAt, b []byte, pos int64) error {
	n, err := r.ReadAt(b, pos)
	if n == len(b) {
		return nil
	}
	if err == nil || err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// findBias finds where the image lies, by the kernel's first task: init_task is its own
// real_parent, parent and group_leader, three pointers to itself.
func (f *Found) findBias(r io.ReaderAt, size int64, a *arch.Arch) {
	task, ok := f.Table.Addr("init_task")
	if !ok || a.PtrSize != 8 {
		return
	}
	if f.encoding == placeRelative { // addresses are places, and the pointers tell the bias
		if self, ok := selfPointer(r, int64(task), a, 0); ok {
			f.Bias, f.HasBias = self-uint64(task), true
			f.Table = f.Table.Slide(f.Bias)
		}
		return
	}
	// The address is known and the place is not; the banner tells it. Copies of
	// the banner lie about (the log), but only at one place init_task fits.
	banner, ok := f.Table.Addr("linux_banner")
	if !ok {
		return
	}
	image := int64(f.Table.bounds.End - f.Table.bounds.Start)
	from, to := max(f.at-image, 0), min(f.at+image, size)
	for pos := from &^ 0xfff; pos < to; pos += 0x1000 {
		at := pos + int64(banner&0xfff)
		var b [len(bannerText)]byte
		if readFull(r, b[:], at) != nil || string(b[:]) != bannerText {
			continue
		}
		bias := uint64(banner) - uint64(at)
		if _, ok := selfPointer(r, int64(uint64(task)-bias), a, uint64(task)); ok {
			f.Bias, f.HasBias = bias, true
			return
		}
	}
}

const bannerText = "Linux version "

// selfPointer looks in the task at pos for a pointer to itself, want if that is
// not 0: one that stands there three times, two of them side by side.
func selfPointer(r io.ReaderAt, pos int64, a *arch.Arch, want uint64) (uint64, bool) {
	b := make([]byte, 16<<10) // task_struct is some 10 KB
	if n, _ := r.ReadAt(b, pos); pos < 0 || n < len(b) {
		return 0, false
	}
	count := map[uint64]int{}
	var before uint64
	var pair uint64
	for i := 0; i < len(b); i += 8 {
		v := a.Order.Uint64(b[i:])
		if v != 0 && v&0xfff == uint64(pos)&0xfff && (want == 0 || v == want) {
			if count[v]++; v == before {
				pair = v
			}
		}
		before = v
	}
	return pair, pair != 0 && count[pair] >= 3
}

var errNotRunning = errors.New("the kernel's symbols were found, but its memory is not where they say")

// live tells whether the kernel runs: mem has it at the addresses of its symbols.
func (f *Found) live(mem arch.Reader) bool {
	if banner, ok := f.Table.Addr("linux_banner"); ok {
		var b [len(bannerText)]byte
		return mem.ReadAt(banner, b[:]) == nil && string(b[:]) == bannerText
	}
	// Without the symbols of data, the text must at least be there.
	b := make([]byte, 64)
	text, ok := f.Table.Addr("_stext")
	return ok && mem.ReadAt(text, b) == nil && !bytes.Equal(b, make([]byte, len(b)))
}

// Piece makes a piece of virtual memory searchable by Find: places are offsets
// from Start. Pages that are not there read as zeros.
type Piece struct {
	Mem arch.Reader
	arch.Range
}

// Size is the length of the piece, for Find.
func (r Piece) Size() int64 { return int64(r.End - r.Start) }

// ReadAt implements io.ReaderAt.
func (r Piece) ReadAt(p []byte, off int64) (int, error) {
	const page = 0x1000
	if off < 0 || off >= r.Size() {
		return 0, io.EOF
	}
	n := int(min(int64(len(p)), r.Size()-off))
	at := r.Start + arch.Addr(off)
	if !r.any(at, n) {
		clear(p[:n])
	} else if r.Mem.ReadAt(at, p[:n]) != nil {
		for done := 0; done < n; {
			here := at + arch.Addr(done)
			part := p[done : done+min(n-done, page-int(here%page))]
			if r.Mem.ReadAt(here, part) != nil {
				clear(part)
			}
			done += len(part)
		}
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// any tells whether anything may be mapped between at and n bytes after it: a
// kernel's image is mapped in pieces of 64 KB and more, and a question costs a
// round trip to the guest.
func (r Piece) any(at arch.Addr, n int) bool {
	const piece = 64 << 10
	var b [1]byte
	for end := at + arch.Addr(n); at < end; at = (at + piece) &^ (piece - 1) {
		if r.Mem.ReadAt(at, b[:]) == nil {
			return true
		}
	}
	return false
}
