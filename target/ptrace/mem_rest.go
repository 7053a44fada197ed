//go:build linux && (amd64 || arm64 || ppc64le || riscv64)

package ptrace

import (
	"os"

	"golang.org/x/sys/unix"
)

// writeMemory writes to a process's memory file.
func writeMemory(f *os.File, b []byte, at int64) (int, error) { return f.WriteAt(b, at) }

// mmap is ours.
func mmap(addr, size uintptr, prot, flags int, fd, offset uintptr) unix.Errno {
	_, _, e := unix.Syscall6(unix.SYS_MMAP, addr, size, uintptr(prot), uintptr(flags), fd, offset)
	return e
}
