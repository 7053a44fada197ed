//go:build linux && (amd64 || arm64 || ppc64le || riscv64 || s390x)

package ptrace

import (
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"kprobe/internal/futex"
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

// A waiting is how the owner thread waits.
const (
	busy     int32 = iota // not at all: it looks at woken before it does
	inWait                // in wait4, or on its way there
	standing              // for woken alone: see Stands
)

// Wake makes Wait return StopWoken. If the signal lands between Wait's check
// and its system call, it is lost: who waits for an answer calls Wake again, unless it is sure.
// An owner thread that is not about to wait, or there already, finds out by itself: a signal
// costs it a stop, since its guardian traces it.
func (p *Process) Wake() (sure bool) {
	p.woken.Store(1)
	switch p.waiting.Load() {
	case inWait:
		p.kick()
		return false
	case standing:
		futex.Wake(&p.woken)
	}
	return true
}

// MayStand implements target.Stander.
func (p *Process) MayStand() bool { return p.waiting.Load() != inWait }

// Stands tells whether no thread of the process can report anything but that it was killed: all wait for us. A child that is
// followed stands so while its probes are placed.
func (p *Process) Stands() bool {
	for _, t := range p.threads {
		if t.state == running {
			return false
		}
	}
	return len(p.threads) > 0 && len(p.early) == 0 && len(p.backlog) == 0 && !p.gone
}

// longestRest is how soon it is noticed that a process which stands was killed.
const longestRest = 20 * time.Millisecond

func (p *Process) kick() { unix.Tgkill(unix.Getpid(), p.owner, wakeSignal) }
