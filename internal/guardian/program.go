//go:build linux

package guardian

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// program is the program that a guardian executes: a copy of this program, in memory, in which the
// initialisation of every package that a guardian does not need is marked as done. None of the
// program's own code runs then: its packages are not initialised, and the main function is never
// reached (Role). The copy is made once, and all guardians share it. The path needs the files: they
// have to be the first of the process's ExtraFiles. Errors: EOPNOTSUPP where it is not known how to
// (the program is no Go program, but has one for a library; or it was built by a Go whose runtime
// is laid out otherwise); and the system's.
func program() (path string, files []*os.File, err error) {
	image, err := copied()
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d", firstFile), []*os.File{image}, nil
}

// imageFiles is the number of files that program answers.
const imageFiles = 1

var copied = sync.OnceValues(func() (*os.File, error) {
	exe, err := os.Open("/proc/self/exe")
	if err != nil {
		return nil, err
	}
	defer exe.Close()
	f, err := elf.NewFile(exe)
	if err != nil {
		return nil, err
	}
	tasks, err := tasksOf(f)
	if err != nil {
		return nil, err
	}
	image, err := inMemory("kprobe-guardian")
	if err != nil {
		return nil, err
	}
	if err = load(image, exe, f); err == nil {
		err = strike(image, f, tasks)
	}
	if err != nil {
		image.Close()
		return nil, err
	}
	return image, nil
})

// inMemory makes an empty file in memory that can be executed (memfd_create(2)).
func inMemory(name string) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_EXEC)
	if err == unix.EINVAL { // before Linux 6.3 all can be, and the flag is not known
		fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	}
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// load copies the parts of a program that are executed. Symbols and debug information stay out: the
// file has a hole there.
func load(image, exe *os.File, f *elf.File) error {
	fi, err := exe.Stat()
	if err == nil {
		err = image.Truncate(fi.Size())
	}
	if err != nil {
		return err
	}
	const headers = 4096 // the program's headers are in a segment, but for odd linkers
	parts := []elf.ProgHeader{{Off: 0, Filesz: min(headers, uint64(fi.Size()))}}
	for _, p := range f.Progs {
		parts = append(parts, p.ProgHeader)
	}
	for _, p := range parts {
		if err := copyPart(image, exe, int64(p.Off), int64(p.Filesz)); err != nil {
			return err
		}
	}
	return nil
}

// copyPart copies n bytes of a file to the same place of another, within the kernel where that can: it
// is some 20 MB at each start.
func copyPart(to, from *os.File, at, n int64) error {
	if _, err := to.Seek(at, io.SeekStart); err != nil {
		return err
	}
	for n > 0 {
		k, err := unix.Sendfile(int(to.Fd()), int(from.Fd()), &at, int(n))
		if err != nil || k <= 0 {
			break
		}
		n -= int64(k)
	}
	_, err := io.Copy(io.NewOffsetWriter(to, at), io.NewSectionReader(from, at, n))
	return err
}

// strike marks the tasks of packages that a guardian does without as done.
func strike(image *os.File, f *elf.File, tasks []task) error {
	for _, t := range tasks {
		if needed(t.pkg) {
			continue
		}
		off, ok := offset(f, t.at)
		if !ok {
			return unknown("its data are in no file")
		}
		var have, done [headSize]byte
		t.head().put(have[:])
		if _, err := image.ReadAt(done[:], off); err != nil {
			return err
		}
		if done != have {
			return unknown("its file has other data than its memory")
		}
		(head{state: taskDone, functions: t.functions}).put(done[:])
		if _, err := image.WriteAt(done[:], off); err != nil {
			return err
		}
	}
	return nil
}

// offset is the offset in the file of a linked address.
func offset(f *elf.File, at uint64) (int64, bool) {
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && at >= p.Vaddr && at+headSize <= p.Vaddr+p.Filesz {
			return int64(at - p.Vaddr + p.Off), true
		}
	}
	return 0, false
}

func unknown(why string) error {
	return fmt.Errorf("%w: this program cannot be copied: %s", unix.EOPNOTSUPP, why)
}

// named gives the process a name to be known by, and each of its threads: that of the file which it
// executes is a number.
func named(role string) {
	threads, _ := os.ReadDir("/proc/self/task")
	for _, t := range threads {
		os.WriteFile("/proc/self/task/"+t.Name()+"/comm", []byte(role), 0)
	}
}

// unnumbered is an error of a guardian's start without the number, which tells a reader nothing.
func unnumbered(err error) error {
	if e := (*os.PathError)(nil); errors.As(err, &e) {
		return e.Err
	}
	return err
}

// modules are the modules whose packages a guardian needs, as far as they are in the program. A
// test holds that it needs no others.
var modules = []string{
	"kprobe",
	"github.com/cilium/ebpf",
	"github.com/ianlancetaylor/demangle",
	"github.com/klauspost/compress",
	"github.com/ulikunitz/xz",
	"golang.org/x/sys",
}

// needed tells whether a package has to be initialised: one of the modules that the guardian is made of, or of the standard library,
// which they all use.
func needed(pkg string) bool {
	for _, m := range modules {
		if within(pkg, m) {
			return true
		}
	}
	return standard(pkg)
}

// standard tells whether a package is of the standard library: its path begins with a name that can
// be of no host, and no module of this program has it.
func standard(pkg string) bool {
	first, _, _ := strings.Cut(pkg, "/")
	if strings.Contains(first, ".") || first == "main" || first == "command-line-arguments" {
		return false
	}
	for _, m := range foreignModules() {
		if within(pkg, m) {
			return false
		}
	}
	return true
}

func within(pkg, module string) bool {
	rest, ok := strings.CutPrefix(pkg, module)
	return ok && (rest == "" || rest[0] == '/')
}
