//go:build linux && (amd64 || arm64 || ppc64le || riscv64 || s390x)

package ptrace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"kprobe/arch"
	"kprobe/internal/tracee"
	"kprobe/target"
)

// TrapAction reads the process's action for SIGTRAP, where a handler of ours could
// take its place; the target is frozen.
func (p *Process) TrapAction() (target.Action, error) {
	var a target.Action
	for _, t := range p.threads {
		if t.state == running {
			continue
		}
		none, err := filtersAllow(t.tid, p.abi().ReturnInput())
		if err != nil {
			return a, err // it could not return from the handler
		}
		if err := noDispatch(t.tid); err != nil {
			return a, err // nor here
		}
		t.unfiltered = none && p.frozen
	}
	return p.trapAction(p.volunteer(p.pid))
}

// trapAction has a thread read its process's action.
func (p *Process) trapAction(t *thread) (a target.Action, err error) {
	err = p.withScratch(t, func(at arch.Addr) error {
		if err := p.remote(t, p.abi().Sigaction, uint64(unix.SIGTRAP), 0, uint64(at), 8); err != nil {
			return err
		}
		b := make([]byte, p.abi().ActionSize)
		if err := p.ReadAt(at, b); err != nil {
			return err
		}
		a = p.abi().Unpack(b)
		return nil
	})
	if err != nil {
		return a, fmt.Errorf("read the SIGTRAP action of process %d: %w", p.pid, err)
	}
	return a, nil
}

// SetTrapAction changes it: of a frozen target in all processes that run in its
// memory, else in those that have a thread that is reported.
func (p *Process) SetTrapAction(a target.Action) error {
	return p.replaceTrapAction(a, nil)
}

// ReturnTrapAction implements target.Catcher.
func (p *Process) ReturnTrapAction(ours func(target.Action) bool, old target.Action) error {
	return p.replaceTrapAction(old, func(now target.Action) bool { return ours(now) || p.tookAway(now) })
}

// tookAway tells of an action whether it is the rest that the kernel leaves of the last that was
// set.
func (p *Process) tookAway(now target.Action) bool { return isDefault(now) && sameBut(now, p.action) }

// replaceTrapAction sets it, if may agrees that the action there now may go; a nil may agrees to
// all.
func (p *Process) replaceTrapAction(a target.Action, may func(now target.Action) bool) error {
	if p.frozen {
		p.putAside(trapsOnly)
	}
	for _, pid := range p.groups() {
		t := p.volunteer(pid)
		if may != nil {
			if now, err := p.trapAction(t); err == nil && !may(now) {
				continue
			}
		}
		err := p.withScratch(t, func(at arch.Addr) error {
			if err := p.WriteAt(at, p.abi().Pack(a)); err != nil {
				return err
			}
			return p.remote(t, p.abi().Sigaction, uint64(unix.SIGTRAP), uint64(at), 0, 8)
		})
		if err != nil && (pid == p.pid || !errors.Is(err, target.ErrGone)) {
			return fmt.Errorf("set the SIGTRAP action of process %d: %w", pid, err)
		}
	}
	p.action = a
	return nil
}

// KeepTrapAction puts the action back if the kernel has taken it away. The kernel does that when a
// thread that blocks SIGTRAP, or a process that ignores it, meets a trap, to make sure that the
// process dies of it. The thread blocks the signal again. th is reported for a trap.
//
// It answers the action that the program itself has set meanwhile, if that was taken away: it is
// not put back here. All that is left of it is that it is none of ours, so it is taken for SIG_IGN.
func (p *Process) KeepTrapAction(th target.Thread) (own *target.Action, err error) {
	t := p.threads[int(th)]
	if t == nil || !p.catches() {
		return nil, nil
	}
	lost, blocked := p.trapForced(t)
	if !lost && !blocked {
		p.keepCramped(t)
		return nil, nil
	}
	// Should we die now, the signal would kill. Back at its trap, and without it,
	// the thread is safe: when it goes on, the guardian has taken the trap away. Then it blocks the
	// signal as before, though another may still have to be kept from it.
	s := target.Stop{Thread: th}
	merged, err := p.unmerge(t)
	if err != nil {
		return nil, err
	}
	if !merged && p.setBack(&s) {
		read(t.tid)
	}
	if blocked && !merged {
		err = p.blockTrap(t)
	}
	if !lost || err != nil {
		return nil, err
	}
	now, err := p.trapAction(p.volunteer(t.tgid))
	if err == nil && isDefault(now) && p.tookAway(now) {
		if err := p.SetTrapAction(p.action); err != nil {
			return nil, err
		}
		p.unseen = 0
		p.doubtOthers(t)
		return nil, nil
	}
	if blocked && !merged {
		err = errors.Join(err, p.maskTrap(t, false)) // its action is the program's, which may have ignored the signal
	}
	if err != nil || !isDefault(now) {
		return nil, err
	}
	if t.tgid != p.pid {
		return nil, nil // a vfork child's is its own: the default, after posix_spawn, or what it has lost
	}
	binary.NativeEndian.PutUint64(now[:], sigIgn)
	return &now, nil
}

// unmerge parts two signals that the kernel has made one. A thread has blocked SIGTRAP, one waited
// for it, and it met a trap: the kernel queues no second one, so it unblocks the signal and
// delivers the one that waited, as a trap's. The thread is set back to its trap, and blocks the
// signal again, which goes back to where it waited, with all that is known of it. It answers
// whether that was so; the report is over then. The blocking comes first: should we die at any
// moment from then on, nothing is lost.
func (p *Process) unmerge(t *thread) (merged bool, err error) {
	var info tracee.Siginfo
	var r tracee.Registers
	is, err := tracee.ReportedFor(t.tid, &info)
	if err != nil || !is || unix.Signal(info.Signo) != unix.SIGTRAP || info.Raised() {
		return false, err
	}
	if err := tracee.GetRegs(t.tid, &r); err != nil {
		return false, tracee.RegsError(err)
	}
	if r.IsDealt(t.tid, false) || !p.ranIntoTrap(r.PC()) {
		return false, nil // it has executed nothing since it was led there
	}
	if err := p.blockTrap(t); err != nil {
		return false, err
	}
	r.SetPC(r.PC() - uint64(p.arch.BreakPC))
	if err := tracee.Insist(func() error { return tracee.SetRegs(t.tid, &r) }); err != nil {
		return false, tracee.RegsError(err)
	}
	c := call{tid: t.tid, tgid: t.tgid}
	err = c.interrupt(unix.SIGTRAP)
	t.asked, t.trapped, t.signal = false, false, 0
	if c.ended != nil {
		p.ended(t, *c.ended)
	}
	return true, p.volunteered(t, err)
}

// TrapForced implements target.Catcher. The kernel has taken the action away then. It may have done
// so for a trap before, which was not looked at, of a thread that blocked the signal then: that it
// does not since then is seen by its mask.
func (p *Process) TrapForced(th target.Thread) bool {
	t := p.threads[int(th)]
	if t == nil || !p.catches() || p.unseen > 0 && t.maskKnown && t.mask&trapBit == 0 {
		return false
	}
	if p.trapCaught(t.tgid) {
		mask, err := tracee.SignalMask(unix.PTRACE_GETSIGMASK, t.tid, 0)
		return err == nil && t.doubt && t.hadBlocked(mask)
	}
	p.wary = true
	return true
}

// IgnoresTraps tells whether a SIGTRAP that was sent, and that is about to end the process, would
// not have reached it unprobed: its action may have been SIG_IGN until a trap of ours was met.
func (p *Process) IgnoresTraps() bool {
	return p.catches() && p.unseen > 0 && !p.trapCaught(p.pid)
}

// OnTrapTaken implements target.Catcher.
func (p *Process) OnTrapTaken(f func(own *target.Action)) { p.onTrap = f }

// taken tells how far a thread has come with a signal.
type taken uint8

const (
	trapOwed  taken = iota // it is still to be given it
	trapTaken              // it stands where the handler begins
	trapLeft               // it has gone on: a report, or its end, is with the kernel
)

// giveTrap gives a thread the SIGTRAP that it is to have, and stops it where the handler begins. Where that is
// shows whose the action is: the program may have set one since ours, which nothing tells. While
// the program's own handler runs the kernel blocks the signal, and a trap that is met then takes the
// action away, beyond recall. So the action is taken note of here, ours takes its place again, and
// the signal is blocked no more. The stop costs less than to have a thread ask for the action.
//
// A step that the kernel makes into a handler executes nothing. Where the signal is ignored a step
// would execute an instruction, and none is made. Nor is one made of a thread that has come here by
// steps: x86's kernel would take the flag for them for the program's, and leave it in the frame. In
// a storm of signals such a thread comes from our handler each time, and has to get on.
func (p *Process) giveTrap(t *thread) taken {
	if p.onTrap == nil || !p.catches() || t.tgid != p.pid || t.stepped || !p.trapCaught(t.tgid) || blocksTrap(t.tid, true) ||
		tracee.Insist(func() error { return tracee.Request(unix.PTRACE_SINGLESTEP, t.tid, 0, uint64(unix.SIGTRAP)) }) != nil {
		return trapOwed
	}
	ws, err := await(t.tgid, t.tid)
	var info tracee.Siginfo
	var r tracee.Registers
	if err != nil || !ws.Stopped() || int(ws)>>16 != 0 || ws.StopSignal() != unix.SIGTRAP {
		return trapLeft
	}
	is, err := tracee.ReportedFor(t.tid, &info)
	if err != nil || tracee.GetRegs(t.tid, &r) != nil || is && !info.ForStep(tracee.ByteBefore(p, &r)) {
		return trapLeft
	}
	read(t.tid)
	p.unread = slices.DeleteFunc(p.unread, func(o *thread) bool { return o == t })
	t.trapped, t.dealt, t.back, t.asked, t.fault, t.signal = false, false, false, false, nil, 0
	if is {
		p.wary = true // another thread has had the signal ignored just now, and this one has made a step
		return trapTaken
	}
	if r.PC() == binary.NativeEndian.Uint64(p.action[:]) {
		p.onTrap(nil)
		return trapTaken
	}
	now, err := p.trapAction(p.volunteer(t.tgid))
	if err != nil {
		return trapTaken // the handler is safe as long as it meets no trap
	}
	p.onTrap(&now)
	p.maskTrap(t, false)
	return trapTaken
}

// The values of an Action's first word that are no handler.
const sigDfl, sigIgn = 0, 1

func isDefault(a target.Action) bool { return binary.NativeEndian.Uint64(a[:]) == sigDfl }

// sameBut tells whether two actions differ in their handlers at most: the kernel leaves the rest of
// an action that it takes away.
func sameBut(a, b target.Action) bool { return string(a[8:]) == string(b[8:]) }

// blocksTrap tells whether a stopped thread blocks SIGTRAP. Where that cannot be told it answers unknown.
func blocksTrap(tid int, unknown bool) bool {
	mask, err := tracee.SignalMask(unix.PTRACE_GETSIGMASK, tid, 0)
	return unknown && err != nil || err == nil && mask&trapBit != 0
}

// blockTrap has a thread block SIGTRAP again, which the kernel has unblocked for the trap.
func (p *Process) blockTrap(t *thread) error { return p.maskTrap(t, true) }

// maskTrap has a thread block SIGTRAP, or not.
func (p *Process) maskTrap(t *thread, block bool) error {
	mask, err := tracee.SignalMask(unix.PTRACE_GETSIGMASK, t.tid, 0)
	if err == nil {
		mask &^= 1 << (unix.SIGTRAP - 1)
		if block {
			mask |= 1 << (unix.SIGTRAP - 1)
		}
		t.mask, t.maskSeen, t.maskKnown = mask, true, true
		err = tracee.Block(t.tid, t.mask)
	}
	return tracee.RegsError(err)
}

// trapForced tells of a thread that is reported for a trap whether the action is lost, and whether
// the thread has blocked the signal. The kernel unblocks it then, and takes the action away.
//
// It is asked at every hit, so it looks closer only where it may be so: a thread that
// blocked the signal, and is reported for it nevertheless, has another mask than at its last hit.
// That a mask comes twice is seen nearly everywhere else; but those that block what instructions
// raise are made by libc and Go over and over. A program that ignores the signal shows no sign of
// it, so once in a while a look is taken anyway; and at every hit of a program that has done one of
// both.
//
// Where several threads stand at traps, one lost action is all that there is to see of them. The
// first that is served has it put back. Whether it was that one, and who else, is told by the masks.
func (p *Process) trapForced(t *thread) (lost, blocked bool) {
	mask, err := tracee.SignalMask(unix.PTRACE_GETSIGMASK, t.tid, 0)
	if err != nil {
		return false, false
	}
	now := time.Now()
	if mask == t.mask && t.maskKnown && mask&ownFaults == 0 && !p.wary && now.Sub(p.looked) < lookAgain {
		p.unseen++
		return false, false
	}
	doubt, had, seen := t.doubt, t.hadBlocked(mask), t.maskSeen
	t.mask, t.maskSeen, t.maskKnown, t.doubt, p.looked = mask, true, true, false, now
	if lost = !p.trapCaught(t.tgid); !lost {
		p.unseen = 0
		return false, doubt && had
	}
	p.wary = true
	return true, had || !seen || !p.anotherHadBlocked(t)
}

// hadBlocked tells whether a thread's mask is what the kernel leaves of one with SIGTRAP: of that
// which the thread had when we last saw it, or of one with all signals, as libc makes it.
func (t *thread) hadBlocked(mask uint64) bool {
	return mask&trapBit == 0 && (t.maskSeen && t.mask == mask|trapBit || mask&mostSignals == mostSignals)
}

const (
	trapBit     = 1 << (unix.SIGTRAP - 1)
	mostSignals = 1<<31 - 1 - trapBit - 1<<(unix.SIGKILL-1) - 1<<(unix.SIGSTOP-1)
)

// anotherHadBlocked tells whether another thread than t is shown by its mask to have blocked the
// signal. It may be on its way to its trap's report yet.
func (p *Process) anotherHadBlocked(t *thread) bool {
	for _, o := range p.threads {
		if o != t && o.tgid == t.tgid && o.hadBlocked(o.maskNow(p.pid)) {
			return true
		}
	}
	return false
}

// doubtOthers takes note of the threads that stand at traps while t has the action put back, or are
// on their way: it is not lost when they are served, though they may have blocked the signal, too.
func (p *Process) doubtOthers(t *thread) {
	for _, o := range p.threads {
		if o == t || o.tgid != t.tgid {
			continue
		}
		doubt := atTrap(o)
		if !doubt && o.hadBlocked(o.maskNow(p.pid)) { // one that was on its way may have arrived meanwhile
			doubt = taskState(p.pid, o.tid) == 'R' || atTrap(o)
		}
		o.doubt = o.doubt || doubt
	}
}

// maskNow reads the signals that a thread blocks, be it stopped or not. Where that cannot be told, it answers all.
func (t *thread) maskNow(pid int) uint64 {
	if mask, err := tracee.SignalMask(unix.PTRACE_GETSIGMASK, t.tid, 0); err == nil {
		return mask
	}
	if mask, err := signalSet(pid, t.tid, "SigBlk"); err == nil {
		return mask
	}
	return ^uint64(0)
}

// atTrap tells whether a thread stands for a trap's signal, be it reported to us yet or not.
func atTrap(t *thread) bool {
	if t.state != running {
		return t.trapped
	}
	tid, ws, err := tracee.WaitReportBy(unix.P_PID, t.tid, unix.WSTOPPED|unix.WNOHANG|unix.WNOWAIT)
	return err == nil && tid != 0 && ws.Stopped() && int(ws)>>16 == 0 && ws.StopSignal() == unix.SIGTRAP
}

// seeMask takes note of the signals that a thread blocks which has stopped at our wish: at its first
// trap that tells whether it had blocked SIGTRAP. With all signals blocked it is within libc, and
// will not have that mask for long.
func (t *thread) seeMask() {
	mask, err := tracee.SignalMask(unix.PTRACE_GETSIGMASK, t.tid, 0)
	if err == nil && mask&mostSignals != mostSignals {
		t.mask, t.maskSeen, t.maskKnown = mask, true, false
	}
}

// ownFaults are the signals that instructions raise.
const ownFaults = trapBit | 1<<(unix.SIGSEGV-1) | 1<<(unix.SIGBUS-1) | 1<<(unix.SIGILL-1) | 1<<(unix.SIGFPE-1)

// lookAgain is the time that an action may be gone unseen. A look takes one to three microseconds.
const lookAgain = 200 * time.Microsecond

// catches tells whether the action that was set is a handler.
func (p *Process) catches() bool { return binary.NativeEndian.Uint64(p.action[:]) > 1 }

// keepFrozen is KeepTrapAction for those that a freeze has found at traps, all
// of them back there already.
func (p *Process) keepFrozen(stops []target.Stop) error {
	isTrap := func(s target.Stop) bool { return s.Kind == target.StopTrap }
	if !slices.ContainsFunc(stops, isTrap) || !p.catches() {
		return nil
	}
	lost, unmerged := !p.trapCaught(p.pid), false
	for i, s := range stops {
		if !isTrap(s) || s.Back || !p.TrapForced(s.Thread) {
			continue
		}
		merged, err := p.unmerge(p.threads[int(s.Thread)])
		if err != nil {
			return err
		}
		if merged {
			unmerged = true
			stops[i].Kind = target.StopWoken
			p.Resume(s.Thread, 0)
		}
	}
	back, told, err := p.blockAgain(stops, lost)
	if !lost || back == nil && !unmerged || err != nil {
		return err
	}
	p.wary = true
	now, err := p.trapAction(p.volunteer(p.pid))
	if err != nil || !p.tookAway(now) {
		return err // the program's own: it is seen when the trap is served
	}
	if err = p.SetTrapAction(p.action); err == nil {
		p.unseen = 0
	}
	if len(back) != 1 || told || err != nil {
		return err // where no mask tells it, it is not known which of several has blocked the signal
	}
	return p.blockTrap(back[0])
}

// blockAgain has those threads that a freeze has set back to their traps block SIGTRAP which are
// shown by their masks to have blocked it. Until then none of them may be made to call anything: a
// signal that waits would come to it. lost tells that the action is. It answers all that were set
// back, and whether a mask told it of any.
func (p *Process) blockAgain(stops []target.Stop, lost bool) (back []*thread, told bool, err error) {
	for _, s := range stops {
		t := p.threads[int(s.Thread)]
		if !s.Back || t == nil || t.tgid != p.pid {
			continue
		}
		back = append(back, t)
		t.doubt = t.doubt || lost
		mask, e := tracee.SignalMask(unix.PTRACE_GETSIGMASK, t.tid, 0)
		switch {
		case e != nil:
			err = errors.Join(err, tracee.RegsError(e))
		case t.doubt && t.hadBlocked(mask):
			told = true
			read(t.tid) // blocked, it would wait for the thread if we died now
			err = errors.Join(err, p.blockTrap(t))
		}
	}
	return back, told, err
}

// TrapHandler makes the action that runs code in the target on SIGTRAP: on the alternate stack
// where the thread has one, since small stacks (Go's) have no room for a signal frame. The signal
// is not blocked while the code runs: another signal's handler may come in between, and a thread
// that meets a trap with SIGTRAP blocked is lost without a tracer. The code calls the program's own
// handler, which may still run when our memory goes; so it returns to the program's own code, where
// that is to be had.
func (p *Process) TrapHandler(handler, restorer arch.Addr, old target.Action) target.Action {
	const saSiginfo, saRestorer, saOnstack, saRestart, saNodefer = 0x4, 0x04000000, 0x08000000, 0x10000000, 0x40000000
	order := binary.NativeEndian
	flags := uint64(saSiginfo | saRestorer | saOnstack | saNodefer)
	var blocked uint64
	if order.Uint64(old[0:]) > 1 { // it has a handler, neither SIG_DFL nor SIG_IGN
		flags |= order.Uint64(old[8:]) & saRestart
		blocked = order.Uint64(old[24:]) &^ (1 << (unix.SIGTRAP - 1))
	}
	if g, err := p.gadgets(p, arch.Range{}); err == nil && g.back != 0 {
		restorer = g.back
	}
	var a target.Action
	order.PutUint64(a[0:], uint64(handler))
	order.PutUint64(a[8:], flags)
	order.PutUint64(a[16:], uint64(restorer))
	order.PutUint64(a[24:], blocked)
	return a
}

// withScratch lends some writable memory of the frozen target for a call: on a thread's stack, past
// its red zone, put back afterwards. Where that ends there, which only the call tells, another
// thread's that stands has some.
func (p *Process) withScratch(t *thread, f func(at arch.Addr) error) error {
	if t == nil {
		return p.nobody()
	}
	var r tracee.Registers
	if p.away == t && p.calling.away {
		r = p.calling.saved
	} else if err := tracee.GetRegs(t.tid, &r); err != nil {
		return p.volunteered(t, tracee.RegsError(err))
	}
	err := p.lendBelow(r.SP(), f)
	for _, o := range p.threads {
		if !errors.Is(err, unix.EFAULT) {
			break
		}
		if o != t && o.tgid == t.tgid && o.state != running && tracee.GetRegs(o.tid, &r) == nil {
			err = p.lendBelow(r.SP(), f)
		}
	}
	return err
}

// lendBelow is withScratch below a stack pointer.
func (p *Process) lendBelow(sp uint64, f func(at arch.Addr) error) error {
	at := scratchBelow(sp, p.arch)
	var saved target.Action
	if err := p.ReadAt(at, saved[:]); err != nil {
		return err
	}
	err := f(at)
	if e := p.WriteAt(at, saved[:]); err == nil {
		err = e
	}
	return err
}

// scratchBelow is room for an Action below a stack pointer and its red zone.
func scratchBelow(sp uint64, a *arch.Arch) arch.Addr {
	return (arch.Addr(sp) - arch.Addr(a.RedZone) - 64) &^ 15
}
