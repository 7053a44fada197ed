// Package proc reads Linux's files about a process below /proc (proc(5)).
//
// A process lives as long as one of its threads does, and its first thread, whose number it has,
// may end before the others. From then on /proc/PID tells of a zombie: it has no program, no
// memory, no open files, and an empty list of mappings, while the process goes on. So files about a
// process are read here, by a thread that has them still, and nowhere else in the project is a name
// below /proc/PID made.
package proc

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Process is a process by its number, or by that of any thread of it.
type Process int

// Thread is a task by its number: a thread of whatever process.
type Thread int

// File is the name of a thread's file.
func (t Thread) File(name string) string { return fmt.Sprintf("/proc/%d/%s", t, name) }

// HasMemory tells a thread that runs a program from one of the kernel's, and from one whose end is
// only to be reported.
func (t Thread) HasMemory() bool {
	// A thread without memory has no program either. This is one call, and to read the file takes
	// four.
	var program [1]byte
	if n, err := syscall.Readlink(t.File("exe"), program[:]); err == nil && n > 0 {
		return true
	}
	b, err := ReadFile(t.File("statm"), 128)
	return err == nil && !bytes.HasPrefix(b, []byte("0 "))
}

// Status reads one line of a thread's status file. Errors: the system's; ErrNoField.
func (t Thread) Status(field string) (string, error) {
	b, err := ReadFile(t.File("status"), 2<<10)
	if err != nil {
		return "", err
	}
	return Field(b, field)
}

// ErrNoField is answered where a file has no such line.
var ErrNoField = errors.New("no such field")

// Field finds a line of a status file by its name.
func Field(status []byte, name string) (string, error) {
	for line := range strings.Lines(string(status)) {
		if v, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(v), nil
		}
	}
	return "", fmt.Errorf("%w: %s", ErrNoField, name)
}

// Stat are the fields of a thread's stat file from the state on, nil where the thread is gone. The
// first is number 3 of proc(5). The name before it may hold anything, so fields are counted from
// the name's end.
func (t Thread) Stat() []string {
	b, err := ReadFile(t.File("stat"), 1<<10)
	if err != nil {
		return nil
	}
	return Stat(b)
}

// Stat splits the text of a stat file (Thread.Stat).
func Stat(b []byte) []string {
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return nil
	}
	return strings.Fields(string(b[i+1:]))
}

// StatField is one field of the text of a stat file, by its number in proc(5), 3 or more; nil where
// it has none. It is for a text that is read very often: nothing is copied.
func StatField(b []byte, n int) []byte {
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return nil
	}
	for b = b[i+1:]; n > 3; n-- {
		b = bytes.TrimLeft(b, " ")
		if i = bytes.IndexByte(b, ' '); i < 0 {
			return nil
		}
		b = b[i:]
	}
	b = bytes.TrimLeft(b, " ")
	if i = bytes.IndexAny(b, " \n"); i >= 0 {
		b = b[:i]
	}
	return b
}

// ended tells whether a thread runs no program any more, by its Stat.
func ended(stat []string) bool { return len(stat) == 0 || stat[0] == "Z" || stat[0] == "X" }

// Threads lists the numbers of a process's threads.
func (p Process) Threads() ([]int, error) {
	d, err := os.Open(p.ThreadsDir())
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return Numbers(d)
}

// Dir is the folder of a process, which is its user's.
func (p Process) Dir() string { return fmt.Sprintf("/proc/%d", p) }

// ThreadsDir is the folder with an entry for each thread.
func (p Process) ThreadsDir() string { return Thread(p).File("task") }

// ThreadFile is the name of a file of a thread of this very process: another process's is not found
// by it, and some are found here only.
func (p Process) ThreadFile(tid int, name string) string {
	return fmt.Sprintf("/proc/%d/task/%d/%s", p, tid, name)
}

// Children lists the processes that a thread of this one has started, and that have not been waited
// for.
func (p Process) Children(tid int) (all []int) {
	list, _ := os.ReadFile(p.ThreadFile(tid, "children"))
	for _, child := range strings.Fields(string(list)) {
		if n, err := strconv.Atoi(child); err == nil {
			all = append(all, n)
		}
	}
	return all
}

// Numbers lists the entries of a folder that are numbers: tasks.
func Numbers(d *os.File) ([]int, error) {
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	all := make([]int, 0, len(names))
	for _, n := range names {
		if n, err := strconv.Atoi(n); err == nil {
			all = append(all, n)
		}
	}
	return all, nil
}

// All lists the processes that there are.
func All() ([]int, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return Numbers(dir)
}

// WithMemory is a thread that has the process's memory: another one, where the first has ended. It
// is 0 where there is none, as of a process that has ended, and of a thread of the kernel.
func (p Process) WithMemory() Thread {
	if Thread(p).HasMemory() {
		return Thread(p)
	}
	tids, _ := p.Threads()
	i := slices.IndexFunc(tids, func(tid int) bool { return Thread(tid).HasMemory() })
	if i < 0 {
		return 0
	}
	return Thread(tids[i])
}

// File is the name of the process's file, of a thread that has it; that thread may have ended when
// the name is used (see Try).
func (p Process) File(name string) string {
	if t := p.WithMemory(); t != 0 {
		return t.File(name)
	}
	return Thread(p).File(name)
}

// Try calls use with the name of the process's file. It calls it again with that of another
// thread's if the first thread had no memory when use was done: then the file may have had no
// content. It answers the last answer of use.
func (p Process) Try(name string, use func(file string) error) error {
	for t := Thread(p); ; {
		err := use(t.File(name))
		if t.HasMemory() {
			return err
		}
		next := p.WithMemory()
		if next == 0 {
			return err
		}
		t = next
	}
}

// Open opens the process's file for reading.
func (p Process) Open(name string) (f *os.File, err error) {
	err = p.Try(name, func(file string) error {
		f.Close() // nil is no harm
		f, err = os.Open(file)
		return err
	})
	return f, err
}

// Read reads the process's file.
func (p Process) Read(name string) (b []byte, err error) {
	err = p.Try(name, func(file string) error { b, err = ReadFile(file, 4<<10); return err })
	return b, err
}

// Readlink reads a link of the process's: exe, cwd, root.
func (p Process) Readlink(name string) (to string, err error) {
	err = p.Try(name, func(file string) error { to, err = os.Readlink(file); return err })
	return to, err
}

// Name is the process's name: its first thread's.
func (p Process) Name() (string, error) {
	b, err := ReadFile(Thread(p).File("comm"), 128)
	return strings.TrimSuffix(string(b), "\n"), err
}

// Start is the time when a process was started, in clock ticks since boot. Together with its number
// it names the process for good. It is 0 if the process is gone, or all its threads have ended.
func (p Process) Start() uint64 {
	const start = 22 - 3
	stat := Thread(p).Stat()
	if len(stat) <= start || ended(stat) && !p.goesOn() {
		return 0
	}
	n, err := strconv.ParseUint(stat[start], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// goesOn tells whether a thread of a process lives whose first one has ended.
func (p Process) goesOn() bool {
	tids, _ := p.Threads()
	return slices.ContainsFunc(tids, func(tid int) bool { return !ended(Thread(tid).Stat()) })
}
