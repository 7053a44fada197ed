package rights

import (
	"fmt"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"kprobe/internal/proc"
)

// Given tells whether a process that this one traces gets them all the same.
func Given() bool {
	var has [2]unix.CapUserData // of capabilities 0 to 31, and of the rest
	err := unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3, Pid: int32(os.Getpid())}, &has[0])
	return err == nil && has[0].Effective>>unix.CAP_SYS_PTRACE&1 != 0
}

// Look looks at a file by its name. Errors: the system's.
func Look(name string) (*File, error) {
	fd, err := unix.Open(name, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(fd)
	return look(fd)
}

// LookAs looks at the file that a name is of for a process, in its root and its folder.
func LookAs(pid int, name string) (*File, error) {
	if !path.IsAbs(name) {
		return Look(path.Join(proc.Thread(pid).File("cwd"), name))
	}
	root, err := unix.Open(proc.Thread(pid).File("root"), unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("open", err)
	}
	defer unix.Close(root)
	fd, err := unix.Openat2(root, name, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT})
	if err != nil {
		return Look(proc.Thread(pid).File("root") + name) // a kernel before 5.6, or there is none
	}
	defer unix.Close(fd)
	return look(fd)
}

func look(fd int) (*File, error) {
	var st unix.Stat_t
	var on unix.Statfs_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, os.NewSyscallError("fstat", err)
	}
	if err := unix.Fstatfs(fd, &on); err != nil {
		return nil, os.NewSyscallError("fstatfs", err)
	}
	caps := make([]byte, 64)
	n, err := unix.Getxattr(proc.Thread(os.Getpid()).File(fmt.Sprintf("fd/%d", fd)), "security.capability", caps)
	if err != nil {
		n = 0 // it has none
	}
	mode := fs.FileMode(st.Mode & 0o777)
	for bit, is := range map[uint32]fs.FileMode{unix.S_ISUID: fs.ModeSetuid, unix.S_ISGID: fs.ModeSetgid} {
		if st.Mode&bit != 0 {
			mode |= is
		}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		mode |= fs.ModeIrregular
	}
	return &File{Mode: mode, UID: uint64(st.Uid), GID: uint64(st.Gid), NoSuid: on.Flags&unix.ST_NOSUID != 0, Caps: caps[:n]}, nil
}
