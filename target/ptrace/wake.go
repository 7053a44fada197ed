//go:build linux && (amd64 || arm64 || ppc64le || riscv64 || s390x)

package ptrace

import (
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"kprobe/internal/futex"
)

// wakeSignal interrupts the owner thread's wait4. It is one of the real-time signals, which the Go
// runtime catches and ignores where the program did not ask for them. The runtime's handlers
// restart system calls, so that flag is taken off for this one signal.
const wakeSignal = 60

// sigaction is the kernel's, for rt_sigaction.
type sigaction struct {
	handler, flags, restorer, mask uint64
}

const (
	saNoCldStop = 0x1
	saRestart   = 0x10000000
)

// armWakeSignal also takes SIGCHLD for mere stops off the controller: the kernel would send one for
// each hit, some microseconds of signal handling for nothing. wait4 needs none.
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

// Wake makes Wait return StopWoken. An owner thread that is not about to wait, or there already,
// finds out by itself: a signal costs it a stop, since its guardian traces it. A second Wake before
// it has heard of the first does nothing.
func (p *Process) Wake() {
	if p.woken.Swap(1) != 0 {
		return
	}
	n := p.wakes.Add(1)
	switch p.waiting.Load() {
	case inWait:
		p.kick()
		p.insist(n, soonest)
	case standing:
		futex.Wake(&p.woken)
	}
}

// How long a signal may take to end the owner thread's wait, at first and at last. Each costs a
// stop, so on a busy machine there must not be more of them than its guardian can serve.
const soonest, latest = time.Millisecond, 20 * time.Millisecond

// insist sends another signal after a while, unless the n-th Wake has been heard by then: one that
// lands between Wait's check and its system call is lost.
func (p *Process) insist(n uint32, after time.Duration) {
	time.AfterFunc(after, func() {
		if p.wakes.Load() == n && p.woken.Load() != 0 && p.waiting.Load() == inWait && p.kick() == nil {
			p.insist(n, min(2*after, latest))
		}
	})
}

// MayStand implements target.Stander.
func (p *Process) MayStand() bool { return p.waiting.Load() != inWait }

// Stands tells whether no thread of the process can report anything but that it was killed: all
// wait for us. A child that is followed stands so while its probes are placed.
func (p *Process) Stands() bool {
	for _, t := range p.threads {
		if t.state == running {
			return false
		}
	}
	return len(p.threads) > 0 && len(p.early) == 0 && len(p.backlog) == 0 && !p.gone
}

// longestRest is the time in which it is noticed that a process which stands was killed.
const longestRest = 20 * time.Millisecond

func (p *Process) kick() error { return unix.Tgkill(unix.Getpid(), p.owner, wakeSignal) }
