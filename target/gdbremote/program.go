package gdbremote

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"kprobe/arch"
	"kprobe/internal/cpu"
	"kprobe/internal/proc"
	"kprobe/symbol"
	"kprobe/target"
)

// The mappings of a program are known to the system that it runs on. gdbserver reads that system's
// files for us. QEMU's user mode does not, but tells the program's auxiliary vector, and thereby
// where the program's own file lies; that file is one of this host. Libraries are not seen there.

// programMaps lists the mappings of a program. Errors: the stub tells neither.
func (t *Target) programMaps() (maps []symbol.Mapping, err error) {
	err = t.still(func() error {
		text, err := t.file(fmt.Sprintf("/proc/%d/maps", t.process))
		switch {
		case err == nil && len(text) == 0:
			err = target.ErrGone // it has ended, and has no memory any more
		case err == nil:
			maps, err = symbol.ParseMaps(bytes.NewReader(text))
		case lacks(err):
			maps, err = t.started()
		}
		return err
	})
	return maps, err
}

// started is the program's own file, by the auxiliary vector.
func (t *Target) started() ([]symbol.Mapping, error) {
	if t.has.listener == 0 {
		return nil, errors.New("it does not tell what is mapped (no vFile)")
	}
	vector, err := t.xfer("auxv", "")
	if err != nil {
		return nil, fmt.Errorf("it does not tell what is mapped (no vFile, no qXfer:auxv:read): %w", err)
	}
	aux := t.auxiliary(vector)
	name, err := t.text(aux[auxExecFn])
	if err != nil {
		return nil, fmt.Errorf("the name of the program: %w", err)
	}
	if !path.IsAbs(name) {
		name = proc.Process(t.has.listener).File("cwd/" + name)
	}
	if name, err = filepath.EvalSymlinks(name); err != nil {
		return nil, err
	}
	f, err := elf.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return t.segments(name, f, aux)
}

// checkWords compares the machine with the program's own words: a description does not tell in
// which order a machine has its bytes, and some have either.
func (t *Target) checkWords() error {
	if !t.program {
		return nil
	}
	vector, err := t.xfer("auxv", "")
	if err != nil {
		return err
	}
	if page := t.auxiliary(vector)[auxPageSize]; page < 1<<10 || page > 1<<20 || page&(page-1) != 0 {
		return fmt.Errorf("its program is none of %s: its words are in another order, or of another size", t.arch.Name)
	}
	return nil
}

// Fresh tells whether the program has not run yet, as gdbserver and QEMU hold one that they start;
// its thread is owed a Resume then. It stands before the first instruction of its dynamic linker,
// or of its own where it has none.
func (t *Target) Fresh() (th target.Thread, begun, ok bool) {
	t.c.enter()
	defer t.c.leave()
	if !t.program || t.running || t.over {
		return 0, false, false
	}
	vector, err := t.xfer("auxv", "")
	if err != nil {
		return 0, false, false
	}
	entry, err := t.begins(t.auxiliary(vector))
	if err != nil {
		return 0, false, false
	}
	if pc, err := t.pc(t.current); err != nil || pc != entry {
		return 0, false, false
	}
	t.owed[t.current] = true
	return t.current, false, true
}

// begins is the address of the program's first instruction. A linker's is told by its ELF header,
// which is mapped.
func (t *Target) begins(aux map[uint64]uint64) (arch.Addr, error) {
	linker := aux[auxBase]
	if linker == 0 {
		return arch.Addr(aux[auxEntry]), nil
	}
	b := make([]byte, t.arch.PtrSize)
	if err := t.read(arch.Addr(linker+elfEntry), b); err != nil {
		return 0, err
	}
	return arch.Addr(linker + t.arch.Word(b)), nil
}

// elfEntry is the offset in an ELF header of the address of the file's first instruction (e_entry).
const elfEntry = 24

// The entries of an auxiliary vector that are of use here (Linux's uapi/linux/auxvec.h).
const (
	auxPageSize = 6
	auxBase     = 7 // of the dynamic linker, 0 for none
	auxEntry    = 9 // where the program begins, which its file tells too: the two make the bias
	auxExecFn   = 31
)

// auxiliary reads a vector of pairs of words: the kind of an entry, and its value.
func (t *Target) auxiliary(vector string) map[uint64]uint64 {
	word := func(b []byte) uint64 {
		if t.arch.PtrSize == 4 {
			return uint64(t.arch.Order.Uint32(b))
		}
		return t.arch.Order.Uint64(b)
	}
	aux := make(map[uint64]uint64)
	size := t.arch.PtrSize
	for b := []byte(vector); len(b) >= 2*size; b = b[2*size:] {
		aux[word(b)] = word(b[size:])
	}
	return aux
}

// text reads a name, as long as paths may be.
func (t *Target) text(addr uint64) (string, error) {
	var name []byte
	for at := arch.Addr(addr); len(name) < 4096; at++ {
		var b [1]byte
		if err := t.read(at, b[:]); err != nil {
			return "", err
		}
		if b[0] == 0 {
			return string(name), nil
		}
		name = append(name, b[0])
	}
	return "", errors.New("it has no end")
}

// segments are a file's as they are mapped, if it is the one that is.
func (t *Target) segments(name string, f *elf.File, aux map[uint64]uint64) ([]symbol.Mapping, error) {
	var st unix.Stat_t
	if err := unix.Stat(name, &st); err != nil {
		return nil, &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	bias := aux[auxEntry] - f.Entry
	if f.ByteOrder != t.arch.Order || bias%cpu.PageSize != 0 || f.Type == elf.ET_EXEC && bias != 0 {
		return nil, fmt.Errorf("%s is not the program that runs there", name)
	}
	var maps []symbol.Mapping
	for _, p := range f.Progs {
		if p.Type != elf.PT_LOAD || p.Filesz == 0 {
			continue
		}
		start, end := p.Vaddr&^(cpu.PageSize-1), (p.Vaddr+p.Filesz+cpu.PageSize-1)&^(cpu.PageSize-1)
		m := symbol.Mapping{Start: arch.Addr(start + bias), End: arch.Addr(end + bias), Off: p.Off &^ (cpu.PageSize - 1),
			Read: p.Flags&elf.PF_R != 0, Write: p.Flags&elf.PF_W != 0, Exec: p.Flags&elf.PF_X != 0,
			Dev: fmt.Sprintf("%02x:%02x", unix.Major(uint64(st.Dev)), unix.Minor(uint64(st.Dev))), Inode: st.Ino, Path: name}
		if m.Exec {
			have, want := make([]byte, min(p.Filesz, cpu.PageSize)), make([]byte, min(p.Filesz, cpu.PageSize))
			_, err := p.ReadAt(want, 0)
			if err == nil {
				err = t.read(arch.Addr(p.Vaddr+bias), have)
			}
			if err != nil || !bytes.Equal(have, want) {
				return nil, fmt.Errorf("%s is not the program that runs there (%v)", name, err)
			}
		}
		maps = append(maps, m)
	}
	return maps, nil
}

// OpenMapped opens the file behind a mapping: where the stub runs, or here for a
// program that QEMU runs here.
func (t *Target) OpenMapped(m symbol.Mapping) (f target.File, err error) {
	if !t.program {
		return nil, fs.ErrNotExist
	}
	if t.has.listener != 0 {
		return os.Open(m.Path)
	}
	err = t.still(func() error {
		b, err := t.file(m.Path)
		f = opened{bytes.NewReader(b)}
		return err
	})
	return f, err
}

// opened is a file that has been read.
type opened struct{ *bytes.Reader }

func (opened) Close() error { return nil }

// Root is "": paths are those of the system where the stub runs. Debug files are looked for here;
// they are the right ones if their build ids are.
func (t *Target) Root() string { return "" }

// Realpath follows the symbolic links of a path.
func (t *Target) Realpath(name string) (real string) {
	if t.has.listener != 0 {
		real, _ = filepath.EvalSymlinks(name)
		return real
	}
	t.still(func() error {
		real = t.realpath(name)
		return nil
	})
	return real
}

// IsProgram tells the program's own file from a library.
func (t *Target) IsProgram(m symbol.Mapping) (is bool) {
	if t.has.listener != 0 {
		return true
	}
	t.still(func() error {
		exe, err := t.readlink(fmt.Sprintf("/proc/%d/exe", t.process))
		is = err == nil && exe == m.Path
		return nil
	})
	return is
}

// Comm is the name of a program's thread, "" where the stub does not tell.
func (t *Target) Comm(th target.Thread) (name string) {
	t.still(func() error {
		b, err := t.file(fmt.Sprintf("/proc/%d/task/%d/comm", t.process, int(th)))
		if err == nil {
			name = strings.TrimSuffix(string(b), "\n")
		}
		return nil
	})
	return name
}

// CPU is -1: the CPU of a program's thread is not known.
func (t *Target) CPU(target.Thread) int { return -1 }

// ThreadPID is the program's process.
func (t *Target) ThreadPID(target.Thread) int { return t.process }
