package ptrace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"kprobe/internal/tracee"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
)

// programsHere is tracee.ProgramsOf without those that this system does not run: a kernel may have
// been built, or told, to run no 32-bit programs.
func programsHere() string {
	if err := runs32(); err != nil {
		return fmt.Sprintf("x86-64 (none of i386 runs here: %v)", err)
	}
	return tracee.ProgramsOf
}

func watchesHere() error { return debugRegistersWork() }

// runs32 executes a 32-bit program. Errors: why there is none.
func runs32() error {
	fd, err := unix.MemfdCreate("kprobe-runs32", unix.MFD_CLOEXEC)
	if err != nil {
		return nil // nothing is known against them
	}
	file := os.NewFile(uintptr(fd), "")
	defer file.Close()
	if _, err := file.Write(exits32()); err != nil {
		return nil
	}
	err = exec.Command(fmt.Sprintf("/proc/self/fd/%d", fd)).Run()
	if path, ok := errors.AsType[*os.PathError](err); ok {
		return path.Err
	}
	return err
}

// exits32 is a 32-bit program that ends at once (System V ABI, 4.1 and 5.1).
func exits32() []byte {
	const at, head, segment = 0x8048000, 52, 32
	code := []byte{0xb8, 1, 0, 0, 0, 0x31, 0xdb, 0xcd, 0x80} // mov $1, %eax; xor %ebx, %ebx; int $0x80: exit(0)
	size := uint32(head + segment + len(code))
	b := append([]byte("\x7fELF\x01\x01\x01"), make([]byte, 9)...)
	for _, field := range []any{
		uint16(2), uint16(3), uint32(1), uint32(at + head + segment), uint32(head), uint32(0), uint32(0), // executable, 386
		uint16(head), uint16(segment), uint16(1), uint16(0), uint16(0), uint16(0),
		uint32(1), uint32(0), uint32(at), uint32(at), size, size, uint32(5), uint32(0x1000), // loads all of the file
	} {
		b, _ = binary.Append(b, binary.LittleEndian, field)
	}
	return append(b, code...)
}
