//go:build linux && (amd64 || arm64 || ppc64le || riscv64 || s390x)

package ptrace

import (
	"bytes"
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"kprobe/arch"
	"kprobe/internal/faults"
	"kprobe/internal/proc"
	"kprobe/internal/tracee"
	"kprobe/symbol"
	"kprobe/target"
)

// machineOf reads which machine a process's program is for.
func machineOf(pid int) (*arch.Arch, error) {
	f, err := openOf(pid, "exe", os.O_RDONLY)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			if isOver(pid) {
				return nil, errGone(pid)
			}
			return nil, fmt.Errorf("process %d is a kernel thread: %w", pid, unix.EINVAL)
		}
		return nil, fmt.Errorf("process %d: %w", pid, rootErrno(err))
	}
	defer f.Close()
	h, err := elf.NewFile(f)
	if err != nil {
		return nil, fmt.Errorf("the program of process %d: %w", pid, err)
	}
	for _, p := range tracee.Programs {
		if h.Machine == p.Machine && h.Class == p.Class && h.ByteOrder == p.Arch.Order {
			return p.Arch, nil
		}
	}
	return nil, fmt.Errorf("process %d is a %v %v program, only those of %s can be probed: %w", pid, h.Class, h.Machine, tracee.ProgramsOf, unix.ENOTSUP)
}

func listTasks(pid int) ([]int, error) { return listNumbers(proc.Process(pid).ThreadsDir()) }

func listProcesses() ([]int, error) { return listNumbers("/proc") }

// listNumbers lists the tasks in a directory.
func listNumbers(dir string) ([]int, error) {
	d, err := tracee.OpenFile(dir, os.O_RDONLY)
	if err != nil {
		return nil, procError(err)
	}
	defer d.Close()
	tids, err := proc.Numbers(d)
	if err != nil {
		return nil, procError(err)
	}
	return tids, nil
}

// procError gives the want of a process its name, in an error about its files.
func procError(err error) error {
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return unix.ESRCH
	}
	return err
}

// alive tells a task that can still run from one whose end is only to be reported.
func alive(pid, tid int) bool {
	s := taskState(pid, tid)
	return s != 0 && s != 'Z' && s != 'X'
}

// openOf opens a file of a process's.
func openOf(pid int, name string, flag int) (f *os.File, err error) {
	err = proc.Process(pid).Try(name, func(file string) error {
		f.Close() // nil is no harm
		f, err = tracee.OpenFile(file, flag)
		return err
	})
	return f, err
}

// statusOf reads one line of a process's status file, by a thread that has its memory.
func statusOf(pid int, field string) (v string, err error) {
	err = proc.Process(pid).Try("status", func(file string) error {
		b, err := tracee.ReadFile(file)
		if err == nil {
			v, err = proc.Field(b, field)
		}
		return err
	})
	return v, err
}

// The kernel's flags of a task (include/linux/sched.h).
const (
	exiting    = 0x4    // PF_EXITING
	ioWorker   = 0x10   // PF_IO_WORKER since Linux 5.12, and before, of a thread that runs a guest, PF_VCPU
	userWorker = 0x4000 // PF_USER_WORKER since Linux 6.4; something else before
)

// taskFlags are the flags of a task, by its statFields; 0 where they cannot be told.
func taskFlags(stat []string) uint64 {
	if len(stat) < 7 {
		return 0
	}
	flags, _ := strconv.ParseUint(stat[6], 10, 64)
	return flags
}

// isWorker tells, by its statFields, whether a task in a process's list of threads is the kernel's: it runs no program.
func isWorker(pid, tid int, stat []string) bool {
	flags := taskFlags(stat)
	if flags&userWorker != 0 && knowsUserWorkers() {
		return true
	}
	if flags&ioWorker == 0 {
		return false
	}
	name, err := tracee.TaskFile(pid, tid, "comm")
	return err == nil && bytes.HasPrefix(name, []byte("iou-"))
}

// knowsUserWorkers tells whether the kernel is one since Linux 6.4.
var knowsUserWorkers = sync.OnceValue(func() bool {
	var u unix.Utsname
	var major, minor int
	if unix.Uname(&u) != nil {
		return false
	}
	n, _ := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &major, &minor)
	return n == 2 && (major > 6 || major == 6 && minor >= 4)
})

// isOver tells whether a process has ended, or no thread of it will run its program any more.
func isOver(pid int) bool {
	tids, err := listTasks(pid)
	if err != nil && err != unix.ESRCH {
		return false // that cannot be told: this process may have too many files open
	}
	return !slices.ContainsFunc(tids, func(tid int) bool {
		f := statFields(pid, tid)
		if len(f) == 1 {
			return true
		}
		return len(f) >= 7 && f[0] != "Z" && f[0] != "X" && taskFlags(f)&exiting == 0 && !isWorker(pid, tid, f)
	})
}

func exists(pid, tid int) bool { return taskState(pid, tid) != 0 }

// statusField reads one line of a task's status file.
func statusField(pid, tid int, field string) (string, error) {
	b, err := tracee.TaskFile(pid, tid, "status")
	if err != nil {
		return "", err
	}
	return proc.Field(b, field)
}

// statFields are the fields of a task's stat file from the state on: none where the task is gone,
// and where that cannot be told, a state that no task has.
func statFields(pid, tid int) []string {
	b, err := tracee.TaskFile(pid, tid, "stat")
	if err != nil && procError(err) != unix.ESRCH {
		return []string{"?"}
	}
	if err != nil {
		return nil
	}
	return proc.Stat(b)
}

// taskState is the letter that ps shows, or 0 where the task is gone.
func taskState(pid, tid int) byte {
	if f := statFields(pid, tid); len(f) > 0 {
		return f[0][0]
	}
	return 0
}

// childrenOf lists the processes that a task has made (proc(5), children). Not
// every kernel tells.
func childrenOf(pid, tid int) []int {
	b, err := tracee.TaskFile(pid, tid, "children")
	if err != nil {
		return nil
	}
	var pids []int
	for _, f := range strings.Fields(string(b)) {
		if child, err := strconv.Atoi(f); err == nil {
			pids = append(pids, child)
		}
	}
	return pids
}

// taskCPU is the CPU that a task ran on last, or -1.
func taskCPU(pid, tid int) int {
	const processor = 39 - 3 // proc(5) counts from 1, and we from the state, its third
	if f := statFields(pid, tid); len(f) > processor {
		if n, err := strconv.Atoi(f[processor]); err == nil {
			return n
		}
	}
	return -1
}

// Ending tells whether a thread is on its way out of the kernel for good: it runs no
// instruction any more, though its end has not been reported yet.
func (p *Process) Ending(th target.Thread) bool {
	const flags, exiting = 9 - 3, 0x4 // proc(5); the kernel's PF_EXITING
	t := p.threads[int(th)]
	if t == nil {
		return true
	}
	f := statFields(t.tgid, t.tid)
	if len(f) <= flags {
		return true
	}
	n, err := strconv.ParseUint(f[flags], 10, 64)
	return err == nil && n&exiting != 0
}

// Borrows tells whether a thread is a child of vfork that has the memory still, and with it the
// thread pointer, of the thread that waits for it: which that is.
func (p *Process) Borrows(th target.Thread) (lender target.Thread, ok bool) {
	t := p.threads[int(th)]
	if t == nil || t.parent == nil || t.parent.vfork != t.tid {
		return 0, false
	}
	return target.Thread(t.parent.tid), true
}

// file is the path at which the kernel tells about the process's memory: of a task that has it.
func (p *Process) file(name string) string { return proc.Process(p.pid).File(name) }

// Maps lists the mappings of the process. The list is shared: callers only read it.
func (p *Process) Maps() ([]symbol.Mapping, error) {
	if err := faults.At("open", 0); err != nil {
		return nil, err
	}
	room := mapsRoom.Get().(*[]byte)
	defer mapsRoom.Put(room)
	err := proc.Process(p.pid).Try("maps", func(file string) error {
		b, err := proc.ReadInto(*room, file)
		if err == nil {
			*room = b
		}
		return err
	})
	if err != nil {
		return nil, tracee.RegsError(procError(err))
	}
	if len(*room) == 0 {
		return nil, target.ErrGone // it has ended, and has no memory any more
	}
	if last := p.listed.Load(); last != nil && string(*room) == last.text {
		return last.maps, nil
	}
	maps, err := symbol.ParseMaps(bytes.NewReader(*room))
	if err == nil {
		p.listed.Store(&listed{string(*room), maps})
	}
	return maps, err
}

// mapsRoom keeps buffers to read such lists in: most programs' fit.
var mapsRoom = sync.Pool{New: func() any { b := make([]byte, 0, 12<<10); return &b }}

// listed is the kernel's last list of mappings, as text and parsed. Many callers look, and most of
// them find the list that the one before has seen.
type listed struct {
	text string
	maps []symbol.Mapping
}

// Root is the target's root directory as we can reach it: under one path it may see another file
// than we do (mount namespaces, chroot).
func (p *Process) Root() string { return p.file("root") }

// Realpath resolves a path in the target's file system. Links are followed by
// hand: an absolute one must stay below the target's root.
func (p *Process) Realpath(name string) string {
	root, done, rest := p.Root(), "/", strings.Split(name, "/")
	for links := 0; len(rest) > 0; {
		part := rest[0]
		rest = rest[1:]
		if part == "" || part == "." {
			continue
		}
		if done == "/proc" { // the kernel would take it for ours
			switch part {
			case "self":
				part = p.ownPID()
			case "thread-self":
				part = p.ownPID() + "/task/" + p.ownPID()
			}
		}
		next := path.Join(done, part)
		link, err := os.Readlink(root + next)
		if err != nil {
			done = next
			continue
		}
		if links++; links > 40 {
			return ""
		}
		if path.IsAbs(link) {
			done = "/"
		}
		rest = append(strings.Split(link, "/"), rest...)
	}
	if _, err := os.Lstat(root + done); err != nil {
		return ""
	}
	return done
}

// ownPID is the process's id as it sees it itself, in its pid namespace.
func (p *Process) ownPID() string {
	ids, _ := statusField(p.pid, p.pid, "NSpid")
	if f := strings.Fields(ids); len(f) > 0 {
		return f[len(f)-1]
	}
	return strconv.Itoa(p.pid)
}

// OpenMapped opens the file behind a mapping: by its path in the target's own file system where
// that is still the same file, else through the kernel's links to the mapped files.
func (p *Process) OpenMapped(m symbol.Mapping) (target.File, error) {
	of := cmp.Or(proc.Process(p.pid).WithMemory(), proc.Thread(p.pid)) // asked once: a family's files are opened again and again
	tries := []string{
		of.File("root") + m.Path,
		of.File(fmt.Sprintf("map_files/%x-%x", m.Start, m.End)),
		of.File("exe"),
	}
	var first error
	for _, name := range tries {
		f, err := tracee.OpenFile(name, os.O_RDONLY)
		if err == nil {
			if sameFile(f, m) {
				return f, nil
			}
			f.Close()
			err = fmt.Errorf("%s is not the file that is mapped any more", m.Path)
		}
		if first == nil {
			first = err
		}
	}
	return nil, first
}

// IsProgram tells whether a mapping is of the program that was executed.
func (p *Process) IsProgram(m symbol.Mapping) bool {
	var st unix.Stat_t
	return unix.Stat(p.file("exe"), &st) == nil && st.Ino == m.Inode
}

func sameFile(f *os.File, m symbol.Mapping) bool {
	var st unix.Stat_t
	return unix.Fstat(int(f.Fd()), &st) == nil && st.Ino == m.Inode
}

// commEntry is a thread's name and when it was read: names change rarely, and
// reading one costs several microseconds.
type commEntry struct {
	name string
	at   time.Time
}

const commAge = 100 * time.Millisecond

// Comm is the name of a thread, at most a tenth of a second old.
func (p *Process) Comm(th target.Thread) string {
	if e, ok := p.comms.Load(int(th)); ok {
		if e := e.(*commEntry); time.Since(e.at) < commAge {
			return e.name
		}
	}
	b, err := tracee.TaskFile(p.pid, int(th), "comm")
	if err != nil {
		return "<...>"
	}
	name := strings.TrimSuffix(string(b), "\n")
	p.comms.Store(int(th), &commEntry{name, time.Now()})
	return name
}

// ThreadPID is the process that a thread belongs to: the target, or a vfork
// child of its.
func (p *Process) ThreadPID(th target.Thread) int {
	if t := p.threads[int(th)]; t != nil {
		return t.tgid
	}
	return p.pid
}
