package kernel

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"kprobe/arch"
)

// File is a kernel's symbols as its builder, or another boot of it, has them:
// System.map, vmlinux, bzImage, or a copy of /proc/kallsyms.
type File struct {
	Table *Table // at the addresses that the file says
	name  string
	image *Image // nil for a list of symbols, which has no memory
}

// OpenFile reads one, of machine a.
func OpenFile(name string, a *arch.Arch) (f *File, err error) {
	r, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err = errors.Join(err, r.Close()); err != nil {
		return nil, err
	}
	f = &File{name: name}
	if len(b) > maxFile {
		err = fmt.Errorf("more than %d MiB", maxFile>>20)
	} else if isText(b) {
		f.Table, _, err = ReadText(bytes.NewReader(b))
	} else if f.image, err = OpenImage(bytes.NewReader(b), int64(len(b)), a); err == nil {
		f.Table = f.image.Table
	}
	if err != nil {
		return nil, fmt.Errorf("symbols of %s: %w", name, err)
	}
	return f, nil
}

// maxFile is more than a vmlinux with all its debug information.
const maxFile = 1 << 30

// isText tells a list of symbols by its first line.
func isText(b []byte) bool {
	line, _, _ := strings.Cut(string(b[:min(maxLine, len(b))]), "\n")
	_, err := parseLine(line)
	return err == nil
}

// Place finds where the file's kernel runs in mem, among the addresses that kernels of its machine
// may be moved to, and proves it. Of an image, the banner and the build's notes must be there to
// the byte. Of a list, each entry of the kernel's own table of exported symbols must agree with the
// list. where is nil for a machine of which it is not known: then the kernel must be where the file
// says. Errors: it is the file of another kernel; nothing proves that it is not.
func (f *File) Place(mem arch.Reader, a *arch.Arch, where *Moves) (*Table, error) {
	if a.PtrSize != 8 {
		return nil, fmt.Errorf("symbols of %s: of kernels of %s no place can be proved", f.name, a.Name)
	}
	banner, ok := f.Table.Addr("linux_banner")
	if !ok {
		return nil, fmt.Errorf("symbols of %s: there is no linux_banner among them, so it cannot be told whether they are this kernel's", f.name)
	}
	var wrong error
	for _, slide := range where.slides(banner) {
		b := make([]byte, len(bannerText))
		if mem.ReadAt(banner+arch.Addr(slide), b) != nil || string(b) != bannerText {
			continue
		}
		table := f.Table
		if slide != 0 {
			table = f.Table.Slide(slide)
		}
		if wrong = f.prove(mem, a, table, slide); wrong == nil {
			return table, nil
		}
	}
	if wrong == nil {
		wrong = errors.New("no kernel that runs there has its banner where they say")
	}
	return nil, fmt.Errorf("symbols of %s: they are not this kernel's: %w", f.name, wrong)
}

// Moves are the addresses that a machine's kernels may be moved to, and by which
// steps.
type Moves struct {
	Start, End arch.Addr
	Step       uint64
}

// slides are the distances by which a symbol can have been moved.
func (m *Moves) slides(addr arch.Addr) (all []uint64) {
	all = []uint64{0}
	if m == nil {
		return all
	}
	first := m.Start + arch.Addr((uint64(addr)-uint64(m.Start))%m.Step)
	for at := first; at >= m.Start && at < m.End; at += arch.Addr(m.Step) {
		if at != addr {
			all = append(all, uint64(at)-uint64(addr))
		}
	}
	return all
}

func (f *File) prove(mem arch.Reader, a *arch.Arch, table *Table, slide uint64) error {
	if f.image == nil {
		return proveExports(mem, a, table)
	}
	banner, _ := f.Table.Addr("linux_banner")
	said := (&view{mem: f.image, arch: a}).cstring(banner, 512)
	have := (&view{mem: mem, arch: a}).cstring(banner+arch.Addr(slide), 512)
	if said == "" || said != have {
		return fmt.Errorf("the file is of %q, and %q runs there", strings.TrimSpace(said), strings.TrimSpace(have))
	}
	notes, ok := f.Table.between("__start_notes", "__stop_notes")
	if !ok {
		return nil
	}
	of, in := make([]byte, notes.Size()), make([]byte, notes.Size())
	if err := errors.Join(f.image.ReadAt(notes.Start, of), mem.ReadAt(notes.Start+arch.Addr(slide), in)); err != nil {
		return err
	}
	if !bytes.Equal(of, in) {
		return errors.New("the build id is another")
	}
	return nil
}

// proveExports compares a list with the table by which modules find the kernel's
// symbols (struct kernel_symbol): each entry begins with its symbol's address, since
// 4.19 as a distance from itself.
func proveExports(mem arch.Reader, a *arch.Arch, table *Table) error {
	const prefix, least, most = "__ksymtab_", 64, 16 << 20
	type entry struct{ at, of arch.Addr }
	var entries []entry
	var low, high arch.Addr
	for _, i := range table.from(prefix) {
		s := table.syms[i]
		name, ok := strings.CutPrefix(s.Name, prefix)
		if !ok {
			break
		}
		of := table.Lookup(name)
		if len(of) != 1 || !table.bounds.Contains(of[0].Addr) || !table.bounds.Contains(s.Addr) {
			continue // a CPU's own, or one of several
		}
		if low == 0 || s.Addr < low {
			low = s.Addr
		}
		high = max(high, s.Addr)
		entries = append(entries, entry{s.Addr, of[0].Addr})
	}
	if len(entries) < least || high-low > most {
		return errors.New("nothing proves that they are: the list has no exported symbols (" + prefix + "...)")
	}
	b := make([]byte, int(high-low)+8)
	if err := mem.ReadAt(low, b); err != nil {
		return err
	}
	for _, e := range entries {
		here := b[e.at-low:]
		near := e.at + arch.Addr(int32(a.Order.Uint32(here)))
		if near != e.of && arch.Addr(a.Order.Uint64(here)) != e.of {
			s, _, _ := table.At(e.of)
			return fmt.Errorf("%s is elsewhere", s.Name)
		}
	}
	return nil
}
