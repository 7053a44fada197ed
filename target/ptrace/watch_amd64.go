//go:build linux && amd64

package ptrace

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"kprobe/internal/faults"
	"kprobe/internal/tracee"
	"kprobe/target"
)

// The debug registers of x86-64 watch data (Intel SDM vol. 3, 19.2): a thread that
// has accessed it traps behind the instruction. Each thread has its own, in the
// kernel's keeping. New threads and children are born without; exec clears them;
// but neither a detach nor our death does, and a thread that traps then is killed
// by the signal, unless a handler is there (see lifeline).

// debugRegisters are DR0 to DR3 and DR7 of a thread.
type debugRegisters struct {
	addr    [4]uint64
	control uint64
}

const (
	drStatus  = 6 // DR6: bit i for DRi
	drControl = 7

	// In DR7: bit 2*i enables DRi; four bits from 16+4*i on are kind and length.
	drWrite, drReadWrite = 1, 3

	userDebugRegisters = 848 // offset of u_debugreg in the kernel's struct user
)

func setDebugRegister(tid, n int, v uint64) error {
	return tracee.Request(unix.PTRACE_POKEUSR, tid, userDebugRegisters+8*uint64(n), v)
}

var _ target.Watcher = (*Process)(nil) // on the other machines it is none

// Watches is the number of data that the processor can watch at a time. Errors: ENOTSUP, its debug
// registers do not work.
func (p *Process) Watches() (int, error) { return len(p.watch.addr), debugRegistersWork() }

// WatchesReads: x86-64 has writes, and both.
func (p *Process) WatchesReads() bool { return false }

// Watch watches data. A thread that does not stop, because it waits for a vfork
// child, is given the new registers before it can run any code.
func (p *Process) Watch(ws []target.Watch) error {
	new, err := debugRegistersFor(ws)
	if err != nil {
		return err
	}
	old := p.watch
	p.watch, p.watched = new, true
	p.version++
	for _, t := range p.threads {
		if t.state == running {
			t.asked = tracee.Request(unix.PTRACE_INTERRUPT, t.tid, 0, 0) == nil || t.asked
			continue
		}
		if err := p.setDebugRegisters(t); err != nil {
			p.watch = old
			p.version++
			for _, t := range p.threads {
				if t.state != running {
					p.setDebugRegisters(t)
				}
			}
			return fmt.Errorf("set the debug registers of thread %d: %w", t.tid, err)
		}
	}
	return nil
}

func debugRegistersFor(ws []target.Watch) (r debugRegisters, err error) {
	if len(ws) > len(r.addr) {
		return r, unix.ENOSPC
	}
	for i, w := range ws {
		if w.Len == 0 {
			continue
		}
		length, ok := map[int]uint64{1: 0, 2: 1, 4: 3, 8: 2}[w.Len]
		if !ok || uint64(w.Addr)%uint64(w.Len) != 0 {
			return r, unix.EINVAL
		}
		kind := uint64(drReadWrite)
		if w.Write {
			kind = drWrite
		}
		r.addr[i] = uint64(w.Addr)
		r.control |= 1<<(2*i) | (length<<2|kind)<<(16+4*i)
	}
	return r, nil
}

// setDebugRegisters brings a stopped thread's registers up to date. A register that cannot be set
// is tried again at its next stop. Errors: not for a thread that is gone.
func (p *Process) setDebugRegisters(t *thread) error {
	if t.watch == p.version {
		return nil
	}
	// While one is in use, the kernel checks its length against the address.
	err := tracee.Insist(func() error { return setDebugRegister(t.tid, drControl, 0) })
	if err == nil && p.watch.control != 0 {
		for i, a := range p.watch.addr {
			if err == nil && a != 0 {
				err = setDebugRegister(t.tid, i, a)
			}
		}
		if err == nil {
			err = setDebugRegister(t.tid, drControl, p.watch.control)
		}
	}
	if err == nil {
		t.watch = p.version
	}
	if err == unix.ESRCH {
		err = nil
	}
	return err
}

// askAccess makes the report of a trap that of an access, if it is one. It costs two system calls
// and more, so no thread is asked before something is watched.
func (p *Process) askAccess(s *target.Stop) {
	if !p.watched {
		return
	}
	var info tracee.Siginfo
	tid := int(s.Thread)
	if tracee.TransferSiginfo(unix.PTRACE_GETSIGINFO, tid, &info) != nil || !info.ForAccess(tid, p) {
		return
	}
	s.Kind, s.Signal = target.StopAccess, 0
	status, err := debugRegister(tid, drStatus)
	if err != nil {
		return
	}
	s.Accessed, s.Among = p.watch.accessed(status, info.Code == tracee.TrapHWBkpt)
	// Accesses by the kernel set bits too, and raise no signal.
	setDebugRegister(tid, drStatus, 0)
}

// accessed reads out of DR6 which data were accessed. Where the processor did not own up to the
// access (see tracee.ForStep), it is the watched data if there is one, else one of them.
func (r *debugRegisters) accessed(status uint64, owned bool) (these, among uint) {
	var on uint
	for i := range r.addr {
		on |= uint(r.control>>(2*i)&1) << i
	}
	switch {
	case owned:
		return on & uint(status), 0
	case on&(on-1) == 0:
		return on, 0
	}
	return 0, on
}

// accessPending tells whether a thread that has stopped at our wish has accessed watched data and
// not reported it yet. That signal must not outlast the watching, or the handler for it.
func (p *Process) accessPending(t *thread) bool {
	if !p.frozen || !p.watched || !signalPending(p.pid, t.tid, unix.SIGTRAP) {
		return false
	}
	mask, err := tracee.SignalMask(unix.PTRACE_GETSIGMASK, t.tid, 0)
	return err == nil && mask&(1<<(unix.SIGTRAP-1)) == 0 // else the signal was sent
}

// unwatch clears the registers of all threads that we let go.
func (p *Process) unwatch() {
	if p.version == 0 {
		return
	}
	p.watch = debugRegisters{}
	p.version++
	for _, t := range p.threads {
		p.setDebugRegisters(t)
	}
}

// unwatchLeft clears the registers that a dead controller has left set. Where a thread cannot be
// stopped, and its registers are set, the handler that its traps need must stay.
func (p *Process) unwatchLeft() error {
	left := false
	for _, t := range p.threads {
		if t.state == running {
			continue
		}
		control, err := debugRegister(t.tid, drControl)
		if err == nil && control == 0 {
			continue
		}
		left = true
		err = tracee.Insist(func() error { return setDebugRegister(t.tid, drControl, 0) })
		if err != nil && err != unix.ESRCH {
			return fmt.Errorf("clear the debug registers of thread %d: %w", t.tid, err)
		}
	}
	if left && p.Stuck() > 0 {
		return errors.New("a thread does not stop, and its debug registers may be set")
	}
	return nil
}

// debugRegister reads a register of a stopped thread: at the address, since the
// kernel's call, other than libc's, has no other way to answer.
func debugRegister(tid, n int) (v uint64, err error) {
	if err := faults.At("ptrace", unix.PTRACE_PEEKUSR); err != nil {
		return 0, err
	}
	_, _, e := unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_PEEKUSR, uintptr(tid), uintptr(userDebugRegisters+8*n), uintptr(unsafe.Pointer(&v)), 0, 0)
	if e != 0 {
		return 0, e
	}
	return v, nil
}
