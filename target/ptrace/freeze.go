//go:build linux && (amd64 || arm64 || ppc64le || riscv64 || s390x)

package ptrace

import (
	"bytes"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"kprobe/arch"
	"kprobe/internal/patience"
	"kprobe/internal/tracee"
	"kprobe/target"
)

// slowStop is the time that Freeze waits before it asks why a thread does not stop.
const slowStop = 20 * time.Millisecond

// Freeze stops all threads. It is quick for threads that run or sleep
// interruptibly; a thread in uninterruptible sleep runs no code of the program
// and is left alone.
func (p *Process) Freeze() ([]target.Stop, error) {
	if p.gone {
		return nil, target.ErrGone
	}
	stops, err := p.stopAll()
	if err == nil && !p.gone {
		p.keepFrozen(stops) // a step that fails is tried again when the trap is served
	}
	return stops, err
}

func (p *Process) stopAll() (stops []target.Stop, err error) {
	p.frozen = true
	asking := false
	for {
		t := p.interruptAll()
		if t == nil {
			again, err := p.nowComplete()
			if err != nil || !again {
				return stops, err
			}
			continue
		}
		if !asking {
			asking = true
			defer kickEvery(slowStop, p.kick)()
		}
		// One certain thread, not any: reports stay unread as long as the target
		// is frozen (see putAside), and would be given again.
		tid, ws, err := tracee.WaitReport(unix.P_PID, t.tid)
		switch {
		case err == unix.EINTR:
			if p.onlySleepers() {
				again, err := p.nowComplete()
				if err != nil || !again {
					return stops, err
				}
			}
			continue
		case err != nil && t.tid != p.pid:
			p.vanished(t)
			continue
		case err != nil:
			p.gone = true
			return stops, target.ErrGone
		}
		if s, ok := p.event(tid, ws); ok {
			if s.Kind == target.StopTrap {
				p.setBack(&s)
			}
			stops = append(stops, s)
			if s.Kind == target.StopExit {
				return stops, nil
			}
		}
	}
}

// freezeWholly is Freeze for callers that can go on only when every task has stopped: no other can
// be detached from, or looked at. It tries for a while.
func (p *Process) freezeWholly() ([]target.Stop, error) {
	const longest = 50 * time.Millisecond
	stops, err := p.Freeze()
	pause := time.Millisecond // longer each time: on a busy machine the child must get a turn
	for most := patience.Of(p.pid, tries); err == nil && p.Stuck() > 0 && !most.Spent(); pause = min(2*pause, longest) {
		p.passOn(stops)
		p.Thaw()
		time.Sleep(pause)
		stops, err = p.Freeze()
	}
	return stops, err
}

// kickEvery kicks the owner thread out of its wait, again and again until it is told to stop: a
// kick that comes just before the wait begins is lost.
func kickEvery(pause time.Duration, kick func() error) (stop func()) {
	tick, over := time.NewTicker(pause), make(chan struct{})
	go func() {
		for {
			select {
			case <-tick.C:
				kick()
			case <-over:
				return
			}
		}
	}()
	return func() {
		tick.Stop()
		close(over)
	}
}

// awaitsUs tells whether a thread cannot stop since its vfork child waits for a Resume.
func (p *Process) awaitsUs() bool {
	for _, t := range p.threads {
		if c := p.threads[t.vfork]; c != nil && c.state == reported {
			return true
		}
	}
	return false
}

// nowComplete ends the first freeze only when no thread is missing.
func (p *Process) nowComplete() (again bool, err error) {
	if p.complete || p.newborn {
		return false, nil
	}
	again, err = p.missed()
	p.complete = !again && err == nil
	return again, err
}

// interruptAll asks every thread that runs to stop, and answers one of them, now
// this, now that one; nil where there is none.
func (p *Process) interruptAll() (one *thread) {
	for _, t := range p.threads {
		if t.state != running || t.vfork != 0 {
			continue
		}
		if !t.asked {
			t.blocked.Look(p.pid, t.tid)
			err := tracee.Request(unix.PTRACE_INTERRUPT, t.tid, 0, 0)
			if err == unix.ESRCH && !exists(p.pid, t.tid) {
				p.vanished(t)
				return p.interruptAll() // the thread that waited for it in vfork, too
			}
			t.asked = err == nil // else again, at the next alarm
		}
		one = t
	}
	return one
}

// setBack moves a thread back to the trap that it has executed, so that it does
// the right thing whatever becomes of the trap. Its signal is still there: that is
// dealt with, and if we should die before it is served, the trap happens once more.
func (p *Process) setBack(s *target.Stop) (back bool) {
	var r tracee.Registers
	if tracee.GetRegs(int(s.Thread), &r) != nil || p.dealt(s.Thread, &r) || !p.ranIntoTrap(r.PC()) {
		return false
	}
	if f, err := p.Fault(s.Thread); err != nil || f.Trap != tracee.TrapBreak || !f.Sync {
		return false
	}
	r.SetPC(r.PC() - uint64(p.arch.BreakPC))
	r.MarkDealt()
	s.Back = tracee.SetRegs(int(s.Thread), &r) == nil
	if t := p.threads[int(s.Thread)]; t != nil {
		t.back = s.Back
	}
	return s.Back
}

// dealt tells whether the trap that a thread with registers r is reported for has been dealt with.
func (p *Process) dealt(th target.Thread, r *tracee.Registers) bool {
	t := p.threads[int(th)]
	return r.IsDealt(int(th), t != nil && t.back)
}

// setForth undoes setBack: the trap's signal is going to be delivered.
func (p *Process) setForth(tid int) {
	var r tracee.Registers
	if t := p.threads[tid]; t != nil {
		t.back = false
	}
	if tracee.GetRegs(tid, &r) == nil {
		r.SetPC(r.PC() + uint64(p.arch.BreakPC))
		r.Unmark()
		tracee.Insist(func() error { return tracee.SetRegs(tid, &r) })
	}
}

// onlySleepers tells whether every thread that has not stopped yet sleeps
// where no signal wakes it.
func (p *Process) onlySleepers() bool {
	for _, t := range p.threads {
		if t.state == running && t.vfork == 0 {
			switch taskState(p.pid, t.tid) {
			case 'D', 'Z', 'X', 0: // a leader that has ended is reported when its threads have, too
			default:
				return false
			}
		}
	}
	return true
}

// Thaw lets the held threads go on.
func (p *Process) Thaw() error {
	p.frozen = false
	for _, t := range p.threads {
		t.unfiltered = t.unfiltered && t.state != held && p.complete && len(p.threads) == 1 // else another thread may give it filters
		if t.state == held {
			p.cont(t, t.signal)
		}
	}
	return nil
}

// Stuck counts the threads that Freeze could not stop.
func (p *Process) Stuck() int {
	n := 0
	for _, t := range p.threads {
		if t.state == running {
			n++
		}
	}
	return n
}

// Threads lists the stopped threads in order of their ids.
func (p *Process) Threads() []target.Thread {
	var ths []target.Thread
	for tid, t := range p.threads {
		if t.state != running {
			ths = append(ths, target.Thread(tid))
		}
	}
	slices.Sort(ths)
	return ths
}

// settle looks at a thread that has stopped at our wish and not for a reason of
// its own. It answers false if the thread goes on to a stop that it owes.
func (p *Process) settle(t *thread) bool {
	var r tracee.Registers
	if tracee.GetRegs(t.tid, &r) != nil {
		return true
	}
	p.sleepOn(t, &r)
	if p.accessPending(t) {
		return p.reportFirst(t)
	}
	if t.blocked.HideInterruption(t.tid, p.abi(), &r) {
		t.seeMask()
		return true
	}
	// Our wish may have overtaken a trap that the thread has executed already. A frozen target must
	// not keep one back: the engine could remove the probe, and the signal would then kill the
	// program. One that the thread blocks was sent to it, and is not reported. The bytes under a jump
	// trap by a fault. Others' faults come by this a little earlier than they would.
	owes := p.ranIntoTrap(r.PC()) && signalPending(p.pid, t.tid, unix.SIGTRAP) && !blocksTrap(t.tid, false)
	if p.frozen && (owes || faultPending(p.pid, t.tid)) {
		return p.reportFirst(t)
	}
	if !owes { // for a trap, the kernel has unblocked its signal
		t.seeMask()
	}
	return true
}

// faultPending tells whether a thread is about to get a signal of those that the bytes
// under jumps raise. One that it blocks was sent to it, or the kernel would have unblocked it.
func faultPending(pid, tid int) bool {
	const faults = 1<<(unix.SIGILL-1) | 1<<(unix.SIGSEGV-1)
	pending, err := signalSet(pid, tid, "SigPnd")
	if err != nil || pending&faults == 0 {
		return false
	}
	blocked, err := signalSet(pid, tid, "SigBlk")
	return err == nil && pending&faults&^blocked != 0
}

// reportFirst lets a thread report a trap: even out of a group stop, for just as
// long as the report takes; see cont.
//
// It is not asked to stop once more: where it shares its CPU with us, it would do that
// first, and never come to report anything.
func (p *Process) reportFirst(t *thread) (settled bool) {
	t.group, t.state, t.asked = false, running, true
	tracee.Insist(func() error { return tracee.Request(unix.PTRACE_CONT, t.tid, 0, 0) })
	return false
}

func (p *Process) ranIntoTrap(pc uint64) bool {
	at := arch.Addr(pc) - arch.Addr(p.arch.BreakPC)
	b := make([]byte, len(p.arch.Break))
	return p.disarmed[at] || p.ReadAt(at, b) == nil && bytes.Equal(b, p.arch.Break)
}

func signalPending(pid, tid int, sig unix.Signal) bool {
	pending, err := signalSet(pid, tid, "SigPnd")
	return err == nil && pending&(1<<(sig-1)) != 0
}

func signalSet(pid, tid int, name string) (uint64, error) {
	field, err := statusField(pid, tid, name)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(field, 16, 64)
}
