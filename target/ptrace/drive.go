//go:build linux && (amd64 || arm64 || ppc64le || riscv64 || s390x)

package ptrace

import (
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"kprobe/arch"
	"kprobe/internal/lifeline"
	"kprobe/internal/tracee"
	"kprobe/target"
)

// unblockable are the signals that the kernel takes out of a mask.
const unblockable = 1<<(unix.SIGKILL-1) | 1<<(unix.SIGSTOP-1)

// Drive leads a reported thread on. A signal that it is given while it blocks it goes back to where
// it waited, with all that is known of it (ptrace(2), of signal-delivery-stops): so that the thread
// gets it when it is let go. A real-time signal would come behind those of its number that were
// sent until the thread runs: it is queued ahead of them, or kept by us.
//
// Should we die meanwhile, the lifeline gives the thread its mask back as soon as it traps. That it
// soon does: a report which is unread becomes its signal, a thread in a program has a trap where
// that ends, and any other has the flag for single steps in its registers, on x86. Elsewhere the
// guardian gives it its mask back.
func (p *Process) Drive(th target.Thread, signal int, next func(*arch.Regs, int) target.Move) (err error) {
	t := p.threads[int(th)]
	if t == nil {
		return target.ErrGone
	}
	mask, err := tracee.SignalMask(unix.PTRACE_GETSIGMASK, t.tid, 0)
	if err != nil {
		return tracee.RegsError(err)
	}
	held := ^uint64(ownFaults | unblockable)
	if signal != 0 && signal != int(unix.SIGTRAP) {
		held |= 1 << (signal - 1) &^ unblockable
	}
	if err := p.noteDriven(lifeline.Driven{TID: uint64(t.tid), Held: held, Mask: mask}); err != nil {
		return err
	}
	defer p.noteDriven(lifeline.Driven{})
	var r arch.Regs
	if err := p.Regs(th, &r); err != nil {
		return err
	}
	own := r[p.arch.Flags] & tracee.TrapFlag
	if _, err := tracee.SignalMask(unix.PTRACE_SETSIGMASK, t.tid, held); err != nil {
		return tracee.RegsError(err)
	}
	defer func() {
		if err != nil {
			tracee.Unstep(t.tid)
		}
		if e := tracee.Block(t.tid, mask); err == nil {
			err = tracee.RegsError(e)
		}
	}()
	r[p.arch.Flags] |= tracee.TrapFlag // 0 where no register has such a flag. Not before: no handler of the program shall see it
	if err := p.SetRegs(th, &r); err != nil {
		return err
	}
	give, fault := signal, 0
	// One SIGTRAP that was sent is kept until the end, for the same signal reports the steps, too.
	// No more than one would wait.
	var trap *tracee.Siginfo
	if give == int(unix.SIGTRAP) {
		give, trap = 0, new(tracee.Siginfo)
		if _, err := tracee.ReportedFor(t.tid, trap); err != nil {
			return err
		}
	}
	var info tracee.Siginfo
	kept := false
	defer func() {
		switch {
		case trap == nil || p.threads[t.tid] == nil:
		case kept || fault != 0 || tracee.TransferSiginfo(unix.PTRACE_SETSIGINFO, t.tid, trap) != nil:
			unix.Tgkill(t.tgid, t.tid, unix.SIGTRAP) // by us, then: another signal comes first
		default:
			t.signal = int(unix.SIGTRAP)
			r[p.arch.Flags] &^= p.abi().Lifeline.Mark() // this one has not been dealt with
			p.SetRegs(th, &r)
		}
		switch {
		case !kept:
		case fault != 0: // which comes first
			unix.RawSyscall6(unix.SYS_RT_TGSIGQUEUEINFO, uintptr(t.tgid), uintptr(t.tid), uintptr(signal), uintptr(unsafe.Pointer(&info)), 0, 0)
		default:
			tracee.Insist(func() error { return tracee.TransferSiginfo(unix.PTRACE_SETSIGINFO, t.tid, &info) })
			t.signal = signal
		}
	}()
	for {
		if err := p.Regs(th, &r); err != nil {
			return err
		}
		r[p.arch.Flags] = r[p.arch.Flags]&^tracee.TrapFlag | own
		move := next(&r, fault)
		r[p.arch.Flags] |= p.abi().Lifeline.Mark()
		if move == target.MoveStep {
			r[p.arch.Flags] |= tracee.TrapFlag
		}
		if err := p.SetRegs(th, &r); err != nil {
			return err
		}
		if move == target.MoveDone {
			t.signal = give // 0, if it has gone on
			return nil
		}
		how := unix.PTRACE_SINGLESTEP
		if move == target.MoveRun {
			how = unix.PTRACE_CONT
		}
		t.stepped = move != target.MoveRun
		if give >= tracee.FirstRealTime {
			if _, err := tracee.ReportedFor(t.tid, &info); err != nil {
				return err
			}
			kept, give = !ahead(t, give, &info), 0
		}
		if fault, err = p.drive(t, how, give); err != nil {
			return err
		}
		var info tracee.Siginfo
		if is, err := tracee.ReportedFor(t.tid, &info); trap == nil && fault == 0 && is && err == nil && !info.Raised() {
			trap = &info
		}
		give = 0
	}
}

// noteDriven tells the lifeline, where there is one.
func (p *Process) noteDriven(d lifeline.Driven) error {
	if p.guardian == nil {
		return nil
	}
	w := lifeline.Drive(p.arch, p.guardian.journal.Base, d)
	return p.WriteAt(w.Addr, w.New)
}

// drive lets the thread go on to its next stop for a signal, which it leaves unread.
func (p *Process) drive(t *thread, how, signal int) (fault int, err error) {
	for {
		if err := tracee.Insist(func() error { return tracee.Request(how, t.tid, 0, uint64(signal)) }); err != nil {
			return 0, tracee.RegsError(err)
		}
		signal = 0
		ws, err := await(t.tgid, t.tid)
		switch {
		case err != nil:
			return 0, err
		case !ws.Stopped():
			return 0, target.ErrGone // its end is still to be reported
		case int(ws)>>16 == 0:
			if sig := ws.StopSignal(); sig != unix.SIGTRAP {
				fault = int(sig)
			}
			p.leaveUnread(t)
			return fault, nil
		}
		read(t.tid) // an interruption, or an event of a call that it cannot be in
		t.asked = false
	}
}

// leaveUnread takes note of a report that Drive leaves with the kernel. The one before may have
// been put aside, by a Wait while its handlers ran: were this one not known, the next Wait would
// take it for the thread's next stop. The registers have the mark of a trap that has been dealt
// with, whatever the report is for.
func (p *Process) leaveUnread(t *thread) {
	t.trapped, t.dealt = true, false
	if !slices.Contains(p.unread, t) {
		p.unread = append(p.unread, t)
	}
}
