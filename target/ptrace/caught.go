//go:build linux && (amd64 || arm64 || ppc64le || riscv64 || s390x)

package ptrace

import (
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"

	"kprobe/internal/proc"
	"kprobe/internal/tracee"
)

// statFile is the stat file of a process's first thread, which is read over and over. It is kept
// open: to open it costs several times what a read does, and a hit is dear enough. It is the owner
// thread's.
type statFile struct {
	fd   int // and 1; 0 as long as it is not open
	text [1 << 10]byte
}

// caught tells which of the signals 1 to 31 have a handler: field 34 of proc(5). The first thread has
// the file as long as the process lives, even if it has ended itself. The Go runtime is not told of
// the call, as of no other that is made at each hit: that doubles its cost.
func (s *statFile) caught(pid int) (uint64, error) {
	if s.fd == 0 {
		fd, err := tracee.Open(proc.Process(pid).ThreadFile(pid, "stat"))
		if err != nil {
			return 0, err
		}
		s.fd = fd + 1
	}
	n, _, e := unix.RawSyscall6(unix.SYS_PREAD64, uintptr(s.fd-1), uintptr(unsafe.Pointer(&s.text[0])), uintptr(len(s.text)), 0, 0, 0)
	if e != 0 {
		return 0, e
	}
	return strconv.ParseUint(string(proc.StatField(s.text[:n], 34)), 10, 64)
}

func (s *statFile) close() {
	if s.fd != 0 {
		unix.Close(s.fd - 1)
		s.fd = 0
	}
}

// trapCaught tells whether a process, this one or a vfork child, still has a handler for SIGTRAP.
// The kernel takes it away when a thread that blocks the signal meets a trap. Where that cannot be
// told it has.
func (p *Process) trapCaught(pid int) bool {
	var set uint64
	err := error(unix.ESRCH)
	if pid == p.pid {
		set, err = p.stat.caught(pid)
	}
	if err != nil {
		set, err = signalSet(pid, pid, "SigCgt")
	}
	return err != nil || set&trapBit != 0
}
