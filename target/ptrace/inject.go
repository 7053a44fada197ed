//go:build linux && (amd64 || arm64 || riscv64)

package ptrace

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"kprobe/arch"
	"kprobe/internal/faults"
	"kprobe/target"
)

// PageSize is that of the kernel, which is the process's and ours.
func (p *Process) PageSize() int { return os.Getpagesize() }

// Alloc maps memory in the process: readable and executable, private. A forked
// child has it too, which keeps the child alive if nobody is there to clean it.
func (p *Process) Alloc(addr arch.Addr, size int) error {
	if t := p.volunteer(p.pid); t != nil {
		// Nothing is mapped that could not be unmapped.
		if _, err := filtersAllow(t.tid, p.abi().unmapInput(addr, size)); err != nil {
			return fmt.Errorf("map %d bytes at %v in process %d: %w", size, addr, p.pid, err)
		}
	}
	err := p.remote(p.volunteer(p.pid), p.abi().mmap, uint64(addr), uint64(size), unix.PROT_READ|unix.PROT_EXEC,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_FIXED_NOREPLACE, ^uint64(0), 0)
	var refused refusal
	if err != nil && !errors.As(err, &refused) {
		// It may have been made nevertheless, where nothing was mapped before.
		p.remote(p.volunteer(p.pid), p.abi().munmap, uint64(addr), uint64(size))
	}
	if err != nil {
		return fmt.Errorf("map %d bytes at %v in process %d: %w", size, addr, p.pid, err)
	}
	return nil
}

// Free undoes Alloc.
func (p *Process) Free(addr arch.Addr, size int) error {
	p.forgetFileless()
	if err := p.remote(p.volunteer(p.pid), p.abi().munmap, uint64(addr), uint64(size)); err != nil {
		return fmt.Errorf("unmap %v in process %d: %w", addr, p.pid, err)
	}
	return nil
}

// refusal is a system call that the target has made and that failed there, unlike
// one of which only the making failed.
type refusal struct{ unix.Errno }

func (r refusal) Unwrap() error { return r.Errno }

// remote makes a thread of the frozen process perform one system call; nil is no
// thread that could.
func (p *Process) remote(t *thread, nr uint64, args ...uint64) error {
	_, err := p.call(t, nr, args...)
	return err
}

// call is remote with the call's result.
func (p *Process) call(t *thread, nr uint64, args ...uint64) (uint64, error) {
	if t == nil {
		return 0, p.nobody()
	}
	g, err := p.gadgets(p)
	if err != nil {
		return 0, err
	}
	if err := p.enterGroupStop(t); err != nil {
		return 0, err
	}
	if t.trapped && t.fault == nil {
		// What the signal is about goes with the call, if the signal does.
		if f, err := p.Fault(target.Thread(t.tid)); err == nil {
			t.fault = &f
		}
	}
	c := call{abi: p.abi(), tid: t.tid, tgid: t.tgid, dealt: t.dealt, gadgets: g, frame: p.frameAt(), alone: p.frozen, memory: p, nr: nr, args: args, unfiltered: t.unfiltered}
	err = c.make()
	t.unfiltered = c.unfiltered && p.frozen
	if c.interrupted {
		t.asked = false // an interruption that was under way has been taken
	}
	if c.unread {
		p.unread = append(p.unread, t)
	}
	if c.lapsed {
		t.lapsed, t.signal = true, 0
	}
	if c.ended != nil {
		p.ended(t, *c.ended)
		return 0, err
	}
	return c.result, p.volunteered(t, err)
}

// volunteered tells a volunteer that is gone from one that only does not obey: the
// kernel has one error for both, and only the first means that there is nothing
// left to restore.
func (p *Process) volunteered(t *thread, err error) error {
	if errors.Is(err, target.ErrGone) && alive(p.pid, t.tid) {
		return fmt.Errorf("thread %d does not obey: %w", t.tid, unix.EIO)
	}
	return err
}

// call is one system call that a stopped task makes for us. The task runs
// instructions that its program has anyway, so that no byte of text changes:
//
//	syscall; ret               the call, with all signals blocked
//	mov $15, %eax; syscall     rt_sigreturn, where the return leads to
//
// We stop it at both ends of the call and put its registers back, so that the
// return is never executed; unless we die. Then the task goes on by itself: it
// makes the call, returns, and finds on its stack a signal frame with all that it
// had before. That is why registers are changed before the mask of blocked
// signals, and go back after it: between the two the task is already, or still,
// on its way to that frame.
type call struct {
	abi       *abi
	tid, tgid int
	dealt     bool // the task is reported for a trap's signal, and will not get it
	gadgets   gadgets
	frame     arch.Addr // 0: no memory for one
	alone     bool      // nobody else runs meanwhile
	memory    arch.Memory
	nr        uint64
	args      []uint64

	unfiltered  bool // the task is known to have no seccomp filters
	result      uint64
	interrupted bool             // an interruption was swallowed
	lapsed      bool             // the task was reported for a fault, and will have it again
	unread      bool             // the task is reported for a signal, and the report unread
	ended       *unix.WaitStatus // the task's end, if it ended meanwhile
	last        unix.WaitStatus
}

// make makes the call. Errors: the call's own, and target.ErrGone.
func (c *call) make() error {
	var saved registers
	if err := getRegs(c.tid, &saved); err != nil {
		return regsError(err)
	}
	mask, err := signalMask(unix.PTRACE_GETSIGMASK, c.tid, 0)
	if err != nil {
		return regsError(err)
	}
	var info siginfo
	signalled, err := reportedFor(c.tid, &info)
	if err != nil {
		return err
	}
	// A thread that is reported for a signal is still to be given it, unless it
	// was a trap's and that has been dealt with, or needs nothing but the report. A
	// trap's signal goes with the call, and the mark that it shall do nothing then is
	// on the call's registers only.
	lost, err := lostInCalls(c.tid)
	if err != nil {
		return regsError(err)
	}
	r := saved
	if signalled && info.trapIsOver(c.dealt || saved.isDealt(c.tid, false)) {
		signalled = false
		r.markDealt()
		saved.unmark()
	}
	r.setPC(uint64(c.gadgets.call))
	r.beginCall(c.nr)
	regs := c.abi.args(&r)
	for i, v := range c.args {
		*regs[i] = c.abi.word(v)
	}
	if !c.unfiltered {
		if c.unfiltered, err = filtersAllow(c.tid, c.abi.callInput(&r), c.abi.returnInput()); err != nil {
			return err
		}
	}
	if c.gadgets.back != 0 {
		undo, err := c.putFrame(&r, saved, mask)
		if err != nil {
			return err
		}
		defer undo()
	}
	if signalled && info.happensAgain(&saved, c.memory) {
		// Its signal goes with the report. Whoever goes on with the thread, we or nobody,
		// goes on with the instruction that faults.
		read(c.tid)
		signalled, c.lapsed = false, true
	}
	if err := setRegs(c.tid, &r); err != nil {
		return regsError(err)
	}
	if _, err := signalMask(unix.PTRACE_SETSIGMASK, c.tid, ^uint64(0)); err != nil {
		insist(func() error { return setRegs(c.tid, &saved) })
		return regsError(err)
	}
	// A signal that is given to a thread which blocks it goes back to where it waited,
	// with all that is known of it (ptrace(2), of signal-delivery-stops).
	waits := unix.Signal(0)
	if signalled {
		waits = unix.Signal(info.signo)
	}
	err = c.through(&r, waits)
	if err == nil {
		err = c.stopAgain(waits, &info)
	}
	if c.ended != nil {
		return target.ErrGone
	}
	if e := insist(func() error { _, e := signalMask(unix.PTRACE_SETSIGMASK, c.tid, mask); return e }); e != nil {
		return regsError(e)
	}
	if e := insist(func() error { return lost.putBack(c.tid) }); e != nil {
		return regsError(e)
	}
	if e := insist(func() error { return setRegs(c.tid, &saved) }); e != nil {
		return regsError(e)
	}
	c.result = r.result()
	if err == nil && r.result() > errnoResult(4096) {
		err = refusal{unix.Errno(-r.result())}
	}
	return err
}

// putFrame writes the frame, and sets the stack pointer of the call's registers r to
// it. Where there is no memory for it, it goes below the task's own stack, as a
// signal's would. Only a program whose handlers have a stack of their own can keep something
// there: it would lose that if we die in the call. Without a frame it would lose its life. If
// others run, there is no such place, and we must not die.
func (c *call) putFrame(r *registers, saved registers, mask uint64) (undo func(), err error) {
	at := c.frame
	if at == 0 && c.alone {
		at = scratchBelow(saved.sp(), c.abi.machine) // what the call is told of may lie there (withScratch)
		f, err := c.abi.frameFor(c.tid, at, c.gadgets.back, saved, mask)
		if err != nil {
			return nil, err
		}
		at = (at - arch.Addr(len(f)) - frameAlign) &^ (frameAlign - 1)
	}
	if at == 0 {
		return func() {}, nil
	}
	f, err := c.abi.frameFor(c.tid, at, c.gadgets.back, saved, mask)
	if err != nil {
		return nil, err
	}
	before := make([]byte, len(f))
	if c.frame == 0 && c.memory.ReadAt(at, before) != nil {
		return func() {}, nil // the stack ends there
	}
	if err := c.memory.WriteAt(at, f); err != nil {
		return nil, err
	}
	r.returnTo(c.abi, at, c.gadgets.back, c.gadgets.pops)
	return func() { c.memory.WriteAt(at, before) }, nil
}

// through lets the task make the call, and reads the registers that it has then. The
// signal that it is reported for waits meanwhile.
func (c *call) through(r *registers, waits unix.Signal) error {
	for ends := 0; ends < 2; waits = 0 {
		if err := c.next(unix.PTRACE_SYSCALL, waits, 0); err != nil {
			return err
		}
		if err := insist(func() error { return getRegs(c.tid, r) }); err != nil {
			return regsError(err)
		}
		switch sig := c.last.StopSignal(); {
		case sig == callStop:
			ends++
		case int(c.last)>>16 == 0 && sig < 64 && ownFaults>>(sig-1)&1 != 0:
			return fmt.Errorf("thread %d got %v where it was to make a call, at %#x: %w", c.tid, sig, r.pc(), unix.EIO)
		}
	}
	return nil
}

// stopAgain brings the task from the end of the call to a stop like the one that
// it was in. There the kernel still looks at the registers, and restarts the
// call that our first stop interrupted. If it was about to be given a signal, it
// is about to be given that again, and the report stays unread, so that it is not lost
// with us.
func (c *call) stopAgain(waits unix.Signal, info *siginfo) error {
	if waits == 0 {
		return c.interrupt(0)
	}
	const most = 1 << 16 // real-time signals wait in a queue, and the one that went back is at its end
	for range most {
		if err := insist(func() error { _, e := signalMask(unix.PTRACE_SETSIGMASK, c.tid, ^uint64(1<<(waits-1))); return e }); err != nil {
			return regsError(err)
		}
		for c.unread = false; !c.unread; {
			if err := c.next(unix.PTRACE_SYSCALL, 0, waits); err != nil {
				return err
			}
			if c.last.StopSignal() == callStop {
				c.lapsed = true // somebody else has had it, and the thread is on its way to the frame
				return c.skip()
			}
		}
		var first siginfo
		if waits < firstRealTime || transferSiginfo(unix.PTRACE_GETSIGINFO, c.tid, &first) != nil || first == *info {
			break
		}
		if err := insist(func() error { _, e := signalMask(unix.PTRACE_SETSIGMASK, c.tid, ^uint64(0)); return e }); err != nil {
			return regsError(err)
		}
		if err := c.interrupt(waits); err != nil {
			return err
		}
	}
	// Of other signals only one waits at a time: what was sent meanwhile is the same.
	return insist(func() error { return transferSiginfo(unix.PTRACE_SETSIGINFO, c.tid, info) })
}

// callStop is the report of a system call's beginning or end (PTRACE_O_TRACESYSGOOD).
const callStop = unix.SIGTRAP | 0x80

// skip keeps the task from the call that it is about to make.
func (c *call) skip() error {
	if err := skipCall(c.tid); err != nil {
		return regsError(err)
	}
	return c.interrupt(0)
}

// interrupt lets the task go on, and stops it before it executes anything. The signal
// that it is reported for goes back to where it waited.
func (c *call) interrupt(waits unix.Signal) error {
	if err := insist(func() error { return ptraceRequest(unix.PTRACE_INTERRUPT, c.tid, 0, 0) }); err != nil {
		return regsError(err)
	}
	for ; ; waits = 0 {
		if err := c.next(unix.PTRACE_CONT, waits, 0); err != nil {
			return err
		}
		if int(c.last)>>16 == unix.PTRACE_EVENT_STOP {
			return nil
		}
	}
}

// next lets the task go on to its next stop, and gives it a signal. It leaves the report
// of a signal unread, of the one that is awaited.
func (c *call) next(how int, give, awaited unix.Signal) error {
	if err := insist(func() error { return ptraceRequest(how, c.tid, 0, uint64(give)) }); err != nil {
		return regsError(err)
	}
	for {
		_, ws, err := waitReport(unix.P_PID, c.tid)
		if err == nil {
			c.last = ws
			break
		}
		if err != unix.EINTR {
			return target.ErrGone
		}
	}
	c.unread = awaited != 0 && int(c.last)>>16 == 0 && c.last.StopSignal() == awaited
	if !c.unread {
		read(c.tid)
	}
	if !c.last.Stopped() {
		c.ended = &c.last
		return target.ErrGone
	}
	c.interrupted = c.interrupted || int(c.last)>>16 == unix.PTRACE_EVENT_STOP
	return nil
}

// groups are the processes that run in the target's memory and have a thread that
// can make a system call for us: children, and itself, if frozen in any case.
func (p *Process) groups() (pids []int) {
	if p.frozen {
		pids = append(pids, p.pid)
	}
	for _, t := range p.threads {
		if t.state != running && !slices.Contains(pids, t.tgid) {
			pids = append(pids, t.tgid)
		}
	}
	return pids
}

// signalMask reads or writes the mask of blocked signals.
func signalMask(req, tid int, mask uint64) (uint64, error) {
	if err := faults.At("ptrace", req); err != nil {
		return 0, err
	}
	_, _, e := unix.RawSyscall6(unix.SYS_PTRACE, uintptr(req), uintptr(tid), 8, uintptr(unsafe.Pointer(&mask)), 0, 0)
	if e != 0 {
		return 0, e
	}
	return mask, nil
}
