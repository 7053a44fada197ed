//go:build linux && (arm64 || riscv64)

package tracee

import "golang.org/x/sys/unix"

// generic completes the record of a machine whose kernel came late, and so has the calls of all such
// machines. Each is made by an instruction of four bytes.
func generic(a ABI) *ABI {
	a.callLen = 4
	a.Mmap, a.Munmap, a.Madvise, a.Sigaction = unix.SYS_MMAP, unix.SYS_MUNMAP, unix.SYS_MADVISE, unix.SYS_RT_SIGACTION
	a.MemfdCreate, a.Close, a.Shmat, a.sigreturn = unix.SYS_MEMFD_CREATE, unix.SYS_CLOSE, unix.SYS_SHMAT, unix.SYS_RT_SIGRETURN
	a.Args = func(r *Registers) (args [6]*uint64) {
		for i := range args {
			args[i] = &r[regResult+i]
		}
		return args
	}
	a.interrupted = interruptedBut((*Registers).number, unix.SYS_SEMOP, unix.SYS_ACCEPT)
	a.restart = unix.SYS_RESTART_SYSCALL
	a.restarts = []uint64{unix.SYS_FUTEX, unix.SYS_NANOSLEEP, unix.SYS_CLOCK_NANOSLEEP}
	a.Note, a.top = 0, 0 // in a siginfo, which no kernel reads
	return &a
}

// frameForm is empty: a signal frame is the same for all programs.
type frameForm struct{}
