package testprog

import (
	"fmt"
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

func dispatchesSyscalls(testing.TB) error {
	if err := unix.Prctl(unix.PR_SET_SYSCALL_USER_DISPATCH, 0, 0, 0, 0); err != nil { // switched off, as it is
		return fmt.Errorf("PR_SET_SYSCALL_USER_DISPATCH: %w", err)
	}
	return nil
}
