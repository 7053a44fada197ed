//go:build linux && (ppc64le || s390x)

package tracee

import (
	"golang.org/x/sys/unix"

	"kprobe/internal/seccomp"
)

// What machines have in common whose kernels show a call that a stop interrupts.

// BlockedCall is what has to be known of a call before it is interrupted: here the kernel tells all
// afterwards.
type BlockedCall struct{}

// Look is called before a task is asked to stop.
func (*BlockedCall) Look(pid, tid int) {}

// HideInterruption hides that a stop of ours interrupted a system call. Its
// result is changed to the kernel's own code for "restart, unless a handler
// runs first": the kernel then does what it does for every other call. It answers
// whether the thread is in a call.
func (*BlockedCall) HideInterruption(tid int, a *ABI, r *Registers) bool {
	if !r.InCall(nil) {
		return false
	}
	if r.Result() == ErrnoResult(unix.EINTR) && a.interrupted(r) {
		r.fail(erestartnohand)
		Insist(func() error { return SetRegs(tid, r) })
	}
	return true
}

// RestartInput is the input for restart_syscall(2), by which the kernel goes on with a call with a time limit that a stop has
// interrupted; nil where it does not. MakeAnew has it made anew instead, unless a handler runs first, with its time limit anew.
func (a *ABI) RestartInput(r Registers) *seccomp.Input {
	if !r.InCall(nil) || r.Result() != ErrnoResult(erestartblock) {
		return nil
	}
	r.SetPC(r.PC() - a.callLen)
	in := a.CallInput(&r)
	in.Word[seccomp.Call] = unix.SYS_RESTART_SYSCALL
	return in
}

// MakeAnew: see RestartInput.
func (*ABI) MakeAnew(tid int, r *Registers) {
	r.fail(erestartnohand)
	Insist(func() error { return SetRegs(tid, r) })
}

// The kernel's own results of calls that a stop has interrupted: those that are made anew unless a handler runs first, and
// those that go on by restart_syscall.
const (
	erestartnohand = 514
	erestartblock  = 516
)

// restarts makes a call that was interrupted, and that the kernel would restart, be made anew by those who go
// on with these registers: it knows nothing of it any more once it has run another. What has a time limit gets it anew.
func (r *Registers) restarts(a *ABI) {
	if r.InCall(nil) && interruptedCall(r.Result()) {
		r.SetPC(r.PC() - a.callLen)
		r.gpr[regResult] = r.first
	}
}
