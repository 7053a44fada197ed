//go:build linux && (amd64 || arm64 || ppc64le || riscv64 || s390x)

package ptrace

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"kprobe/arch"
	"kprobe/internal/tracee"
	"kprobe/target"
)

// PageSize is the kernel's, which is the process's and ours.
func (p *Process) PageSize() int { return os.Getpagesize() }

// Alloc maps memory in the process: readable and executable, private. A forked child has it too,
// which keeps the child alive if no tracer is there to clean it.
func (p *Process) Alloc(addr arch.Addr, size int) error {
	t := p.volunteer(p.pid)
	if t != nil && !t.unfiltered && !(p.away == t && p.calling.unfiltered) {
		// Nothing is mapped that could not be unmapped.
		none, err := filtersAllow(t.tid, p.abi().UnmapInput(addr, size))
		if err != nil {
			return fmt.Errorf("map %d bytes at %v in process %d: %w", size, addr, p.pid, err)
		}
		t.unfiltered = none && p.frozen
	}
	err := p.remote(t, p.abi().Mmap, uint64(addr), uint64(size), unix.PROT_READ|unix.PROT_EXEC,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_FIXED_NOREPLACE, ^uint64(0), 0)
	var refused refusal
	if err != nil && !errors.As(err, &refused) {
		// The mapping may have been made nevertheless, where nothing was mapped before.
		p.remote(p.volunteer(p.pid), p.abi().Munmap, uint64(addr), uint64(size))
	}
	if err != nil {
		return fmt.Errorf("map %d bytes at %v in process %d: %w", size, addr, p.pid, err)
	}
	p.fresh = append(p.fresh, arch.Range{Start: addr, End: addr + arch.Addr(size)})
	return nil
}

// Free undoes Alloc.
func (p *Process) Free(addr arch.Addr, size int) error {
	unmapped := arch.Range{Start: addr, End: addr + arch.Addr(size)}
	t := p.volunteer(p.pid)
	err := p.keepOff(t, unmapped)
	if err == nil {
		err = p.remote(t, p.abi().Munmap, uint64(addr), uint64(size))
	}
	if err != nil {
		return fmt.Errorf("unmap %v in process %d: %w", addr, p.pid, err)
	}
	return nil
}

// keepOff has a thread make its next call with instructions that are not in the range which that
// call unmaps.
func (p *Process) keepOff(t *thread, unmapped arch.Range) error {
	g, err := p.gadgets(p, unmapped)
	if err != nil || t == nil || p.away != t || p.calling.gadgets == g || !p.calling.gadgets.within(unmapped) {
		return err
	}
	if err := p.called(t, p.calling, nil); err != nil {
		return err
	}
	p.calling, err = p.lead(t)
	return err
}

// refusal is a system call that the target has made and that failed there, or that its program
// does not let it make, unlike one of which only the making failed.
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
	if p.away == t {
		result, err := p.calling.make(nr, args)
		return result, p.volunteered(t, err)
	}
	c, err := p.lead(t)
	if err != nil {
		return 0, err
	}
	result, err := c.make(nr, args)
	return result, p.called(t, c, err)
}

// Together has one thread of the frozen process make all the system calls that f asks for: it is
// led away from where it stands, and back, once for all. Errors: f's; that the thread was not led
// back. It implements target.Caller.
func (p *Process) Together(f func() error) error {
	t := p.volunteer(p.pid)
	if t == nil || p.away != nil || !p.frozen {
		return f()
	}
	c, err := p.lead(t)
	if err != nil {
		return err
	}
	p.away, p.calling = t, c
	defer func() { p.away, p.calling = nil, nil }()
	return p.called(t, c, f())
}

// lead prepares a thread to make calls.
func (p *Process) lead(t *thread) (*call, error) {
	g, err := p.gadgets(p, arch.Range{})
	if err != nil {
		return nil, err
	}
	if err := p.enterGroupStop(t); err != nil {
		return nil, err
	}
	if t.trapped && t.fault == nil {
		// The details of the signal go with the call, if the signal does.
		if f, err := p.Fault(target.Thread(t.tid)); err == nil {
			t.fault = &f
		}
	}
	return &call{abi: p.abi(), tid: t.tid, tgid: t.tgid, dealt: t.dealt, gadgets: g, frame: p.frameAt(), alone: p.frozen, memory: p, unfiltered: t.unfiltered}, nil
}

// called leads a thread back that has made calls, of which err is told.
func (p *Process) called(t *thread, c *call, err error) error {
	if e := c.end(); e != nil {
		err = e
	}
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
		return err
	}
	return p.volunteered(t, err)
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

// call is a system call that a stopped task makes for us, or several. The task runs
// instructions that its program has anyway, so that no byte of text changes:
//
//	syscall; ret               the call, with all signals blocked
//	mov $15, %eax; syscall     rt_sigreturn, where the return leads to
//
// We stop it at both ends of the call, and have it make the next, or put its registers back, so
// that the return is never executed; unless we die. Then the task goes on by itself: it makes the
// call, returns, and finds on its stack a signal frame with all that it had before. That is why
// registers are changed before the mask of blocked signals, and go back after it: between the two
// the task is already, or still, on its way to that frame.
type call struct {
	abi       *tracee.ABI
	tid, tgid int
	dealt     bool // the task is reported for a trap's signal, and will not get it
	gadgets   gadgets
	frame     arch.Addr // 0: no memory for one
	alone     bool      // no other thread runs meanwhile
	memory    arch.Memory

	away     bool // it has been led to where it makes calls
	saved    tracee.Registers
	mask     uint64
	lost     tracee.Lost
	dispatch dispatch
	ready    tracee.Registers // it makes a call with these, and the call's own
	waits    unix.Signal      // the signal it is reported for, and is given again in the end; 0 for none
	info     tracee.Siginfo   // of that
	undo     func()           // takes the frame away
	failed   error            // it makes no further calls

	unfiltered  bool             // the task is known to have no seccomp filters
	interrupted bool             // an interruption was swallowed
	lapsed      bool             // the task was reported for a fault, and will have it again
	unread      bool             // the task is reported for a signal, and the report unread
	ended       *unix.WaitStatus // the task's end, if it ended meanwhile
	last        unix.WaitStatus
	held        bool // it was kept from getting there, and has been interrupted
}

// make makes a call. Errors: the call's own, and target.ErrGone.
func (c *call) make(nr uint64, args []uint64) (result uint64, err error) {
	if c.failed != nil {
		return 0, c.failed
	}
	first, r := !c.away, c.ready
	defer func() {
		if !c.away && c.undo != nil { // it has not got away, and may be led again
			c.undo()
			c.undo = nil
		}
	}()
	if first {
		if r, err = c.look(); err != nil {
			return 0, err
		}
	}
	r.BeginCall(nr)
	regs := c.abi.Args(&r)
	for i, v := range args {
		*regs[i] = c.abi.Word(v)
	}
	if !c.unfiltered {
		if c.unfiltered, err = filtersAllow(c.tid, c.abi.CallInput(&r), c.abi.ReturnInput()); err != nil {
			return 0, err
		}
	}
	if first && c.gadgets.back != 0 {
		if c.undo, err = c.putFrame(&r, c.saved, c.mask); err != nil {
			return 0, err
		}
	}
	c.ready = r
	if c.abi.InMemory != nil && c.abi.InMemory(nr) {
		undo, err := c.putArgs(&r, args)
		if err != nil {
			return 0, err
		}
		defer undo()
	}
	if first {
		err = c.leave(&r)
	} else {
		err = tracee.RegsError(tracee.SetRegs(c.tid, &r))
	}
	if err != nil {
		return 0, err
	}
	waits := c.waits
	if !first {
		waits = 0 // it waits already
	}
	if err := c.through(&r, waits); err != nil {
		var refused refusal
		if !errors.As(err, &refused) && !errors.Is(err, target.ErrNotNow) {
			c.failed = err
		}
		return 0, err
	}
	if r.Result() > tracee.ErrnoResult(4096) {
		return r.Result(), refusal{unix.Errno(-r.Result())}
	}
	return r.Result(), nil
}

// look notes the task's registers and state, and answers the registers that it is to make a call
// with, but for the call's own.
func (c *call) look() (r tracee.Registers, err error) {
	if err = tracee.GetRegs(c.tid, &c.saved); err != nil {
		return r, tracee.RegsError(err)
	}
	if err = tracee.AbortSequence(c.tid, c.memory, &c.saved); err != nil {
		return r, err
	}
	if c.mask, err = tracee.SignalMask(unix.PTRACE_GETSIGMASK, c.tid, 0); err != nil {
		return r, tracee.RegsError(err)
	}
	signalled, err := tracee.ReportedFor(c.tid, &c.info)
	if err != nil {
		return r, err
	}
	if c.lost, err = tracee.LostInCalls(c.tid); err != nil {
		return r, tracee.RegsError(err)
	}
	if err = c.dispatch.look(c.tid); err != nil {
		return r, tracee.RegsError(err)
	}
	// A thread that is reported for a signal is still to be given it, unless it
	// was a trap's and that has been dealt with, or needs nothing but the report. That one's
	// signal goes with the report, before the thread blocks it: if we die, it would come when the
	// thread has its mask again, and no mark any more.
	r, c.waits = c.saved, 0
	if signalled && c.info.TrapIsOver(c.tid, c.memory, c.dealt || c.saved.IsDealt(c.tid, false)) {
		read(c.tid)
		signalled = false
		r.Unmark()
		c.saved.Unmark()
	}
	if signalled {
		c.waits = unix.Signal(c.info.Signo)
	}
	r.SetPC(uint64(c.gadgets.call))
	return r, nil
}

// leave leads the task away. A signal that is given to a thread which blocks it goes back to where
// it waited, with all that is known of it (ptrace(2), of signal-delivery-stops).
func (c *call) leave(r *tracee.Registers) error {
	if c.waits != 0 && c.info.HappensAgain(&c.saved, c.memory) {
		// Its signal goes with the report. The thread goes on with the instruction that faults,
		// whether we are there or not.
		read(c.tid)
		c.waits, c.lapsed = 0, true
	}
	if err := c.dispatch.spare(c.tid, c.gadgets); err != nil {
		return tracee.RegsError(err)
	}
	if err := tracee.SetRegs(c.tid, r); err != nil {
		c.dispatch.putBack(c.tid)
		return tracee.RegsError(err)
	}
	if _, err := tracee.SignalMask(unix.PTRACE_SETSIGMASK, c.tid, c.dispatch.held()); err != nil {
		tracee.Insist(func() error { return tracee.SetRegs(c.tid, &c.saved) })
		c.dispatch.putBack(c.tid)
		return tracee.RegsError(err)
	}
	c.away = true
	return nil
}

// end leads the task back. Errors: target.ErrGone; those of a part that could not be put back.
func (c *call) end() (err error) {
	if c.undo != nil {
		defer c.undo()
	}
	if !c.away {
		return nil
	}
	if c.failed == nil {
		err = c.stopAgain(c.waits, &c.info)
	}
	if c.ended != nil {
		return target.ErrGone
	}
	if e := tracee.Block(c.tid, c.mask); e != nil {
		return tracee.RegsError(e)
	}
	if e := tracee.Insist(func() error { return c.lost.PutBack(c.tid) }); e != nil {
		return tracee.RegsError(e)
	}
	if e := tracee.Insist(func() error { return tracee.SetRegs(c.tid, &c.saved) }); e != nil {
		return tracee.RegsError(e)
	}
	if e := c.dispatch.putBack(c.tid); e != nil {
		return tracee.RegsError(e)
	}
	return err
}

// putArgs writes the call's arguments to memory: to the frame, where the call's registers r lead to
// one, else below the task's own stack.
func (c *call) putArgs(r *tracee.Registers, args []uint64) (undo func(), err error) {
	at := scratchBelow(c.saved.SP(), c.abi.Machine) - argsRoom
	if r.SP() != c.saved.SP() {
		at = arch.Addr(r.SP()) + tracee.FrameArgs
	}
	before, b := make([]byte, argsRoom), make([]byte, argsRoom)
	for i, v := range args {
		c.abi.Machine.PutWord(b[c.abi.Machine.PtrSize*i:], v)
	}
	if err := c.memory.ReadAt(at, before); err != nil {
		return nil, err
	}
	*c.abi.Args(r)[0] = uint64(at)
	return func() { c.memory.WriteAt(at, before) }, c.memory.WriteAt(at, b)
}

// argsRoom is the number of bytes that six arguments take.
const argsRoom = 6 * 8

// putFrame writes the frame, and sets the stack pointer of the call's registers r to
// it. Where there is no memory for it, it goes below the task's own stack, as a
// signal's would. Only a program whose handlers have a stack of their own can keep something
// there: it would lose that if we die in the call. Without a frame it would lose its life. If
// others run, there is no such place, and we must not die.
func (c *call) putFrame(r *tracee.Registers, saved tracee.Registers, mask uint64) (undo func(), err error) {
	at := c.frame
	if at == 0 && c.alone {
		at = scratchBelow(saved.SP(), c.abi.Machine) // the call's arguments may lie there (withScratch)
		f, err := c.abi.FrameFor(c.tid, at, c.gadgets.back, saved, mask)
		if err != nil {
			return nil, err
		}
		at = (at - arch.Addr(len(f)) - tracee.FrameAlign) &^ (tracee.FrameAlign - 1)
	}
	if at == 0 {
		return func() {}, nil
	}
	f, err := c.abi.FrameFor(c.tid, at, c.gadgets.back, saved, mask)
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
	r.ReturnTo(c.abi, at, c.gadgets.back, c.gadgets.pops)
	return func() { c.memory.WriteAt(at, before) }, nil
}

// through lets the task make the call, and reads the registers that it has then. The
// signal that it is reported for waits meanwhile.
func (c *call) through(r *tracee.Registers, waits unix.Signal) error {
	for ends := 0; ends < 2; {
		if err := c.next(unix.PTRACE_SYSCALL, waits, 0); err != nil {
			return err
		}
		waits = 0
		if err := tracee.Insist(func() error { return tracee.GetRegs(c.tid, r) }); err != nil {
			return tracee.RegsError(err)
		}
		switch sig := c.last.StopSignal(); {
		case c.held && ends == 0:
			return heldError(c.tid)
		case sig == callStop:
			ends++
		case int(c.last)>>16 == 0 && sig < 64 && ownFaults>>(sig-1)&1 != 0:
			return fmt.Errorf("thread %d got %v where it was to make a call, at %#x: %w", c.tid, sig, r.PC(), unix.EIO)
		case int(c.last)>>16 == 0 && sig == unix.SIGSYS:
			if err := dispatched(c.tid); err != nil {
				return err
			}
			// It was sent, and was not held.
			if err := tracee.Block(c.tid, ^uint64(0)); err != nil {
				return tracee.RegsError(err)
			}
			waits = sig
		}
	}
	return nil
}

// stopAgain brings the task from the end of the call to a stop like the one that
// it was in. There the kernel still looks at the registers, and restarts the
// call that our first stop interrupted. If it was about to be given a signal, it
// is about to be given that again, and the report stays unread, so that it is not lost
// with us.
func (c *call) stopAgain(waits unix.Signal, info *tracee.Siginfo) error {
	if waits == 0 {
		return c.interrupt(0)
	}
	const most = 1 << 16 // real-time signals wait in a queue, and the one that went back is at its end
	for range most {
		if err := tracee.Block(c.tid, ^uint64(1<<(waits-1))); err != nil {
			return tracee.RegsError(err)
		}
		for c.unread = false; !c.unread; {
			if err := c.next(unix.PTRACE_SYSCALL, 0, waits); err != nil {
				return err
			}
			if c.held {
				c.lapsed = true // it comes by itself
				return nil
			}
			if c.last.StopSignal() == callStop {
				c.lapsed = true // another thread has had it, and this one is on its way to the frame
				return c.skip()
			}
		}
		var first tracee.Siginfo
		if waits < tracee.FirstRealTime || tracee.TransferSiginfo(unix.PTRACE_GETSIGINFO, c.tid, &first) != nil || first == *info {
			break
		}
		if err := tracee.Block(c.tid, ^uint64(0)); err != nil {
			return tracee.RegsError(err)
		}
		if err := c.interrupt(waits); err != nil {
			return err
		}
	}
	// Of other signals only one waits at a time: one that was sent meanwhile is the same.
	return tracee.Insist(func() error { return tracee.TransferSiginfo(unix.PTRACE_SETSIGINFO, c.tid, info) })
}

// callStop is the report of a system call's beginning or end (PTRACE_O_TRACESYSGOOD).
const callStop = unix.SIGTRAP | 0x80

// skip keeps the task from the call that it is about to make.
func (c *call) skip() error {
	if err := tracee.SkipCall(c.tid); err != nil {
		return tracee.RegsError(err)
	}
	return c.interrupt(0)
}

// interrupt lets the task go on, and stops it before it executes anything. The signal
// that it is reported for goes back to where it waited.
func (c *call) interrupt(waits unix.Signal) error {
	if err := tracee.Insist(func() error { return tracee.Request(unix.PTRACE_INTERRUPT, c.tid, 0, 0) }); err != nil {
		return tracee.RegsError(err)
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
	if err := tracee.Insist(func() error { return tracee.Request(how, c.tid, 0, uint64(give)) }); err != nil {
		return tracee.RegsError(err)
	}
	ws, held, err := awaitAct(c.tgid, c.tid)
	if err != nil {
		return err
	}
	c.last, c.held = ws, held
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
