package pool

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// New makes size bytes of zeros. Pages exist once they are written to. Errors: of shmget(2) and shmat(2).
func New(size int) (m *Memory, err error) {
	const noReserve = 0o10000 // SHM_NORESERVE
	id, err := unix.SysvShmGet(unix.IPC_PRIVATE, size, unix.IPC_CREAT|unix.IPC_EXCL|noReserve|0o600)
	if err != nil {
		return nil, fmt.Errorf("memory for several processes, %d bytes: %w", size, os.NewSyscallError("shmget", err))
	}
	m = &Memory{id: id}
	m.ours, err = unix.SysvShmAttach(id, 0, 0)
	_, e := unix.SysvShmCtl(id, unix.IPC_RMID, nil) // it is there as long as somebody has it
	if err = errors.Join(os.NewSyscallError("shmat", err), os.NewSyscallError("shmctl", e)); err != nil {
		return nil, fmt.Errorf("memory for several processes, %d bytes: %w", size, err)
	}
	return m, nil
}

// Lend calls use with the segment's number while a user may attach it. Errors: EPERM, where it is another
// user's process and the controller has no right to give things away; of use.
func (m *Memory) Lend(uid, gid uint32, use func(id int) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var d unix.SysvShmDesc
	if _, err := unix.SysvShmCtl(m.id, unix.IPC_STAT, &d); err != nil {
		return os.NewSyscallError("shmctl", err)
	}
	if d.Perm.Uid != uid || d.Perm.Gid != gid {
		d.Perm.Uid, d.Perm.Gid = uid, gid
		if _, err := unix.SysvShmCtl(m.id, unix.IPC_SET, &d); err != nil {
			return os.NewSyscallError("shmctl", err)
		}
	}
	return use(m.id)
}

// Close gives up our side.
func (m *Memory) Close() error {
	return os.NewSyscallError("shmdt", unix.SysvShmDetach(m.ours))
}
