//go:build linux && s390x

package ptrace

import (
	"bytes"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// isEmulated tells that QEMU carries out the machine's instructions: an emulated machine names its
// maker.
var isEmulated = sync.OnceValue(func() bool {
	b, _ := os.ReadFile("/proc/sysinfo")
	return bytes.Contains(b, []byte("QEMU"))
})

// writeMemory writes to a process's memory file. QEMU (up to 8.1) forgets its translation of the
// first byte of a write of the kernel's, and keeps those of the others. So where code may have been
// before, each halfword is written by itself.
func writeMemory(f *os.File, b []byte, at int64) (int, error) {
	old := make([]byte, len(b))
	if !isEmulated() {
		return f.WriteAt(b, at)
	}
	if n, _ := f.ReadAt(old, at); n < len(b) {
		return f.WriteAt(b, at)
	}
	halfword := func(i int) int { return min(i+2-int(at+int64(i))&1, len(b)) } // its end
	for i := 0; i < len(b); {
		end := halfword(i)
		if bytes.Equal(b[i:end], old[i:end]) {
			i = end
			continue
		}
		for end < len(b) && isZero(old[end:halfword(end)]) {
			end = halfword(end)
		}
		if n, err := f.WriteAt(b[i:end], at+int64(i)); err != nil {
			return i + n, err
		}
		i = end
	}
	return len(b), nil
}

// mmap is ours: the kernel takes its arguments in memory.
func mmap(addr, size uintptr, prot, flags int, fd, offset uintptr) unix.Errno {
	args := [6]uintptr{addr, size, uintptr(prot), uintptr(flags), fd, offset}
	_, _, e := unix.Syscall(unix.SYS_MMAP, uintptr(unsafe.Pointer(&args)), 0, 0)
	return e
}
