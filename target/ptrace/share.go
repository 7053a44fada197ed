//go:build linux && (amd64 || arm64 || ppc64le || riscv64 || s390x)

package ptrace

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"kprobe/arch"
	"kprobe/internal/faults"
	"kprobe/internal/proc"
	"kprobe/internal/tracee"
	"kprobe/target"
)

// Share maps fresh memory that the process and we have in common. The process
// makes it, as a memory file, and we open it through its descriptor, which is
// closed again: so neither of us needs a name that the other can see, and other
// namespaces are no obstacle. Its pages exist once they are written to.
func (p *Process) Share(addr arch.Addr, size int) (ours []byte, err error) {
	return p.ShareSome(addr, size, size)
}

// ShareSome implements target.Grower: the file ends where what is there ends.
func (p *Process) ShareSome(addr arch.Addr, size, there int) (ours []byte, err error) {
	err = p.shared(addr, size, there, unix.MAP_FIXED_NOREPLACE, func(f *os.File) (*byte, error) {
		ours, err = unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_NORESERVE)
		return unsafe.SliceData(ours), os.NewSyscallError("mmap", err)
	})
	if err != nil && ours != nil {
		err = errors.Join(err, p.Unshare(ours))
		ours = nil
	}
	return ours, err
}

// Reshare gives the process, which executes another program, the memory that it shared with us
// before, at the same address. Our side of it stays where it is.
func (p *Process) Reshare(addr arch.Addr, ours []byte) error {
	return p.shared(addr, len(ours), len(ours), unix.MAP_FIXED_NOREPLACE, func(f *os.File) (*byte, error) {
		at := unsafe.SliceData(ours)
		behind, ok := p.files.Load(at)
		if !ok {
			return at, os.ErrClosed
		}
		if st, err := behind.(*os.File).Stat(); err != nil {
			return at, err
		} else if err := f.Truncate(st.Size()); err != nil {
			return at, err
		}
		if err := copyWritten(f, behind.(*os.File), ours); err != nil {
			return at, err
		}
		return at, mapOver(ours, f)
	})
}

// mapOver has a file be behind our side of shared memory.
func mapOver(ours []byte, f *os.File) error {
	e := mmap(uintptr(unsafe.Pointer(unsafe.SliceData(ours))), uintptr(len(ours)),
		unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_NORESERVE|unix.MAP_FIXED, f.Fd(), 0)
	if e != 0 {
		return os.NewSyscallError("mmap", e)
	}
	return nil
}

// Extend implements target.Grower: the part has a file of its own.
func (p *Process) Extend(addr arch.Addr, part []byte, there int) error {
	return p.shared(addr, len(part), there, unix.MAP_FIXED, func(f *os.File) (*byte, error) {
		return unsafe.SliceData(part), mapOver(part, f)
	})
}

// copyWritten writes the pages of shared memory that exist to a file: those that the file behind it
// has (lseek(2), SEEK_DATA). Pages that were never written to are not read either: a read would
// make them. Most of some gigabytes never is, and to ask for each page (mincore(2)) costs more than
// all else that an exec does.
func copyWritten(to, behind *os.File, ours []byte) error {
	for end := int64(0); ; {
		start, err := behind.Seek(end, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil // there are no more
		}
		if err == nil {
			end, err = behind.Seek(start, unix.SEEK_HOLE)
		}
		if err == nil {
			_, err = to.WriteAt(ours[start:end], start)
		}
		if err != nil {
			return err
		}
	}
}

// Resize implements target.Grower: the file behind the memory has that size.
func (p *Process) Resize(ours []byte, there int) error {
	behind, ok := p.files.Load(unsafe.SliceData(ours))
	if !ok {
		return os.ErrClosed
	}
	return behind.(*os.File).Truncate(int64(there))
}

// Written implements target.Grower: it is the size of the file behind the memory.
func (p *Process) Written(ours []byte) int {
	behind, ok := p.files.Load(unsafe.SliceData(ours))
	if !ok {
		return 0
	}
	var st unix.Stat_t
	if unix.Fstat(int(behind.(*os.File).Fd()), &st) != nil {
		return 0
	}
	return int(st.Blocks) * 512
}

// shared has the process make a memory file and map it, and us map it by ours in
// between, which answers where. We keep the file, to know what of it exists.
func (p *Process) shared(addr arch.Addr, size, there, how int, ours func(*os.File) (*byte, error)) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("share %d bytes at %v with process %d: %w", size, addr, p.pid, err)
		}
	}()
	return p.Together(func() error { return p.sharedBy(addr, size, there, how, ours) })
}

func (p *Process) sharedBy(addr arch.Addr, size, there, how int, ours func(*os.File) (*byte, error)) (err error) {
	fd, err := p.memoryFile()
	if err != nil {
		return err
	}
	defer func() {
		if e := p.remote(p.volunteer(p.pid), p.abi().Close, fd); err == nil && e != nil {
			err = errors.Join(e, p.Free(addr, size))
		}
	}()
	f, err := openOf(p.pid, fmt.Sprintf("fd/%d", fd), os.O_RDWR)
	if err != nil {
		return err
	}
	var at *byte // where we have it
	defer func() {
		if err != nil || at == nil {
			f.Close()
			return
		}
		if before, ok := p.files.Swap(at, f); ok {
			before.(*os.File).Close()
		}
	}()
	if err := f.Truncate(int64(there)); err != nil {
		return err
	}
	if err := faults.At("mmap", 0); err != nil {
		return err
	}
	if at, err = ours(f); err != nil {
		return err
	}
	err = p.remote(p.volunteer(p.pid), p.abi().Mmap, uint64(addr), uint64(size), unix.PROT_READ|unix.PROT_WRITE,
		uint64(unix.MAP_SHARED|unix.MAP_NORESERVE|how), fd, 0)
	return p.mapped(addr, size, err)
}

// mapped sees to memory that the process has in common with us, or of which err tells why it should
// not have.
func (p *Process) mapped(addr arch.Addr, size int, err error) error {
	var refused refusal
	switch {
	case err == nil:
		// Most of it is never written to, and a core file would have it all. It can be
		// without this: then it is large.
		p.remote(p.volunteer(p.pid), p.abi().Madvise, uint64(addr), uint64(size), unix.MADV_DONTDUMP)
	case !errors.As(err, &refused):
		p.Free(addr, size) // it may have been made nevertheless
	}
	return err
}

// SharePool maps memory that other processes have, too. The process attaches it by its number: it
// needs no descriptor, and none is left behind if we die in the middle.
func (p *Process) SharePool(addr arch.Addr, m target.Pool) (err error) {
	size := len(m.Ours())
	defer func() {
		if err != nil {
			err = fmt.Errorf("share %d bytes of several processes at %v with process %d: %w", size, addr, p.pid, err)
		}
	}()
	ours, err := os.Readlink("/proc/self/ns/ipc")
	if err != nil {
		return err
	}
	if its, err := proc.Process(p.pid).Readlink("ns/ipc"); err == nil && its != ours {
		return fmt.Errorf("it is in a container of its own (%s, and we in %s): %w", its, ours, unix.ENOTSUP)
	}
	uid, gid, err := effective(p.pid)
	if err != nil {
		return err
	}
	return m.Lend(uid, gid, func(id int) error {
		return p.mapped(addr, size, p.remote(p.volunteer(p.pid), p.abi().Shmat, uint64(id), uint64(addr), 0))
	})
}

// effective is the user and group that a process acts as.
func effective(pid int) (uid, gid uint32, err error) {
	for field, to := range map[string]*uint32{"Uid": &uid, "Gid": &gid} {
		ids, err := statusOf(pid, field)
		if err == nil {
			_, err = fmt.Sscan(ids, new(uint32), to)
		}
		if err != nil {
			return 0, 0, fmt.Errorf("whose process %d is: %w", pid, err)
		}
	}
	return uid, gid, nil
}

// Unshare gives up our side of a Share. The process's goes by Free.
func (p *Process) Unshare(ours []byte) error {
	if w := uintptr(p.robust.pending); len(ours) > 0 && w >= uintptr(unsafe.Pointer(&ours[0])) && w-uintptr(unsafe.Pointer(&ours[0])) < uintptr(len(ours)) {
		p.robust.pending = nil
	}
	p.files.Range(func(at, f any) bool {
		if o := uintptr(unsafe.Pointer(at.(*byte))) - uintptr(unsafe.Pointer(unsafe.SliceData(ours))); o < uintptr(len(ours)) {
			p.files.Delete(at)
			f.(*os.File).Close()
		}
		return true
	})
	return os.NewSyscallError("munmap", unix.Munmap(ours))
}

// OnBirth has f called for each new thread before it runs.
func (p *Process) OnBirth(f func(born, parent target.Thread)) { p.onBirth = f }

// Population implements target.Nursery.
func (p *Process) Population() int { return len(p.threads) }

// The abilities of a process that programs inside it need.
var _ interface {
	target.Sharer
	target.Grower
	target.Nursery
} = (*Process)(nil)

// robustList is the kernel's struct robust_list_head (set_robust_list(2)).
type robustList struct {
	next    unsafe.Pointer
	offset  int64 // from an element to its futex
	pending unsafe.Pointer
}

// Living has the kernel mark a word of shared memory when this controller dies,
// before it lets the process go: the word, at an offset in ours, is made a robust
// futex that the owner thread holds. There is one such word.
func (p *Process) Living(ours []byte, offset int) error {
	word := (*uint32)(unsafe.Pointer(&ours[offset]))
	p.robust.next = unsafe.Pointer(&p.robust) // an empty list, but for the pending entry
	p.robust.pending = unsafe.Pointer(word)
	if err := faults.At("set_robust_list", 0); err != nil {
		return err
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SET_ROBUST_LIST, uintptr(unsafe.Pointer(&p.robust)), unsafe.Sizeof(p.robust), 0); e != 0 {
		return os.NewSyscallError("set_robust_list", e)
	}
	atomic.StoreUint32(word, uint32(unix.Gettid()))
	return nil
}

// Owner is whose process it is; 0 and 0 where that cannot be read.
func (p *Process) Owner() (uid, gid uint32) {
	var st unix.Stat_t
	if unix.Stat(proc.Process(p.pid).Dir(), &st) != nil {
		return 0, 0
	}
	return st.Uid, st.Gid
}

// LocksMemory tells whether the process keeps memory from being swapped out (mlockall(2)), or may, and may so keep only a
// part of its addresses (RLIMIT_MEMLOCK): those of mappings count, be there memory behind them or not.
func (p *Process) LocksMemory() bool {
	const little = 64 << 20 // of ours, that it may lock with its own
	var most unix.Rlimit
	if unix.Prlimit(p.pid, unix.RLIMIT_MEMLOCK, nil, &most) == nil && most.Cur == unix.RLIM_INFINITY {
		return false
	}
	var may, locks, size uint64
	for field, to := range map[string]*uint64{"CapEff": &may, "VmLck": &locks, "VmSize": &size} {
		format := "%d"
		if to == &may {
			format = "%x"
		}
		is, err := statusOf(p.pid, field)
		if err == nil {
			_, err = fmt.Sscanf(is, format, to)
		}
		if err != nil {
			return false
		}
	}
	return may>>unix.CAP_IPC_LOCK&1 == 0 && (locks > 0 || size<<10+little <= most.Cur)
}

// UserFSBase tells whether programs may read their fs base (rdfsbase): the kernel
// says so in the second word of hardware capabilities.
func (p *Process) UserFSBase() bool {
	var b []byte
	err := proc.Process(p.pid).Try("auxv", func(file string) (err error) {
		b, err = tracee.ReadFile(file)
		return err
	})
	const hwcap2, fsgsbase = 26, 1 << 1
	for ; err == nil && len(b) >= 16; b = b[16:] {
		if p.arch.Order.Uint64(b) == hwcap2 {
			return p.arch.Order.Uint64(b[8:])&fsgsbase != 0
		}
	}
	return false
}

// memoryFile has the process make one, and answers its descriptor.
func (p *Process) memoryFile() (fd uint64, err error) {
	t := p.volunteer(p.pid)
	var session uint64
	if g := p.guardian; g != nil && g.journal != nil {
		session = g.journal.ID
	}
	err = p.withScratch(t, func(at arch.Addr) error {
		if err := p.WriteAt(at, []byte(memoryName(session)+"\x00")); err != nil {
			return err
		}
		fd, err = p.call(t, p.abi().MemfdCreate, uint64(at), unix.MFD_CLOEXEC)
		return err
	})
	return fd, err
}

// memoryName is the name of a session's shared memory: a descriptor of it shows which session it
// belongs to.
func memoryName(session uint64) string { return fmt.Sprintf("kprobe-%x", session) }

// closeMemoryFile closes the descriptor that a process was given for a moment, by a controller that
// died in that.
func (p *Process) closeMemoryFile(session uint64) error {
	dir, err := openOf(p.pid, "fd", os.O_RDONLY)
	if procError(err) == unix.ESRCH {
		return nil // it has ended
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	fds, err := proc.Numbers(dir)
	for _, fd := range fds {
		if to, _ := os.Readlink(fmt.Sprintf("%s/%d", dir.Name(), fd)); to == "/memfd:"+memoryName(session)+" (deleted)" {
			err = errors.Join(err, p.remote(p.volunteer(p.pid), p.abi().Close, uint64(fd)))
		}
	}
	return err
}
