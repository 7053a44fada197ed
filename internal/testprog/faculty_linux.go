package testprog

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// holdsPrograms asks to be asked.
func holdsPrograms(t testing.TB) error {
	fd, err := unix.FanotifyInit(unix.FAN_CLASS_CONTENT|unix.FAN_CLOEXEC, unix.O_RDONLY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	name := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(name, nil, 0o755); err != nil {
		return err
	}
	return unix.FanotifyMark(fd, unix.FAN_MARK_ADD, unix.FAN_OPEN_EXEC_PERM, unix.AT_FDCWD, name)
}
