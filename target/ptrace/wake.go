//go:build linux && (amd64 || arm64 || riscv64)

package ptrace

import (
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// wakeSignal interrupts the owner thread's wait4. It is one of the real-time
// signals, which the Go runtime catches and ignores where nobody asked for
// them. The runtime's handlers restart system calls, so that flag is taken
// off for this one signal.
const wakeSignal = 60

// sigaction is the kernel's, for rt_sigaction.
type sigaction struct {
	handler, flags, restorer, mask uint64
}

const (
	saNoCldStop = 0x1
	saRestart   = 0x10000000
)

// armWakeSignal also takes SIGCHLD for mere stops off the controller: the
// kernel would send one for each hit, some microseconds of signal handling
// that nobody asked for. wait4 needs none.
var armWakeSignal = sync.OnceFunc(func() {
	changeFlags(wakeSignal, func(f uint64) uint64 { return f &^ saRestart })
	changeFlags(int(unix.SIGCHLD), func(f uint64) uint64 { return f | saNoCldStop })
})

func changeFlags(sig int, change func(uint64) uint64) {
	var sa sigaction
	if _, _, e := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), 0, uintptr(unsafe.Pointer(&sa)), 8, 0, 0); e != 0 || sa.handler <= 1 {
		return // default or ignored: not the runtime's, so not ours to touch
	}
	sa.flags = change(sa.flags)
	unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&sa)), 0, 8, 0, 0)
}

// Wake makes Wait return StopWoken. If the signal lands between Wait's check
// and its system call, it is lost: who waits for an answer calls Wake again.
// An owner thread that is not about to wait, or there already, finds out by itself: a signal
// costs it a stop, since its guardian traces it.
func (p *Process) Wake() {
	p.woken.Store(true)
	if p.waiting.Load() {
		p.kick()
	}
}

func (p *Process) kick() { unix.Tgkill(unix.Getpid(), p.owner, wakeSignal) }
