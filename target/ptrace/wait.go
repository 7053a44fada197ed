//go:build linux && (amd64 || arm64 || ppc64le || riscv64 || s390x)

package ptrace

import (
	"cmp"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"kprobe/internal/futex"
	"kprobe/internal/proc"
	"kprobe/internal/tracee"
	"kprobe/target"
)

// Wait blocks until a thread stops for a reason that concerns the engine, or until Wake. Stops that
// concern only the bookkeeping of threads are dealt with here.
func (p *Process) Wait() (target.Stop, error) {
	defer p.waiting.Store(busy)
	for {
		how := inWait
		if p.Stands() {
			how = standing
		}
		p.waiting.Store(how)
		if p.woken.CompareAndSwap(1, 0) {
			return target.Stop{Kind: target.StopWoken}, nil
		}
		if p.gone {
			return target.Stop{Kind: target.StopExit, Thread: target.Thread(p.pid), Status: p.exit}, nil
		}
		if len(p.backlog) > 0 {
			s := p.backlog[0]
			p.backlog = p.backlog[1:]
			return s, nil
		}
		p.putAside(allReports)
		options := unix.WEXITED | unix.WSTOPPED | unix.WNOWAIT
		if how == standing && futex.Wait(&p.woken, longestRest) {
			continue
		} else if how == standing {
			options |= unix.WNOHANG
		}
		tid, ws, err := tracee.WaitReportBy(unix.P_ALL, 0, options)
		p.waiting.Store(busy)
		switch err {
		case nil:
			if tid == 0 {
				continue // no process was killed
			}
			if s, ok := p.event(tid, ws); ok {
				return s, nil
			}
		case unix.EINTR:
			if tid, ws, ok := p.stolen(); ok {
				if s, ok := p.event(tid, ws); ok {
					return s, nil
				}
			}
		case unix.ECHILD:
			p.gone = true
			return target.Stop{Kind: target.StopExit, Thread: target.Thread(p.pid), Status: p.exit}, nil
		default:
			return target.Stop{}, os.NewSyscallError("wait4", err)
		}
	}
}

// putAside takes note of the reports whose threads have not gone on: else the kernel would give the
// same ones again.
//
// Until then a report is left with the kernel, for this reason. A thread that is about to be given
// a signal, a trap's for one, is given it if its tracer dies, but only while that stop has not been
// waited for. A trap that has been waited for would be lost with us, and the thread would run on
// behind the breakpoint, in the middle of an instruction. So the owner thread serves a trap first,
// and then waits for the next stop.
//
// A frozen target's reports stay unread until they are served, with one exception: no trap's signal
// may be left when the handler for it goes. Before that, all threads have been moved to where they
// go on without.
func (p *Process) putAside(which reports) {
	p.unread = slices.DeleteFunc(p.unread, func(t *thread) bool {
		if t.state == running {
			return true
		}
		if which == trapsOnly && !t.trapped {
			return false
		}
		read(t.tid)
		if t.trapped {
			t.dealt = p.undeal(t.tid)
		}
		return true
	})
}

type reports bool

const (
	allReports reports = false
	trapsOnly  reports = true
)

// undeal takes off the mark that a trap has been dealt with: its signal is gone,
// and the thread may run into the next trap, or the same, without an instruction
// in between. It answers whether there was one.
func (p *Process) undeal(tid int) bool {
	var r tracee.Registers
	t := p.threads[tid]
	if tracee.GetRegs(tid, &r) != nil || !r.IsDealt(tid, t != nil && t.back) {
		return false
	}
	r.Unmark()
	tracee.Insist(func() error { return tracee.SetRegs(tid, &r) })
	if t != nil {
		t.back = false
	}
	return true
}

// read takes the report of a stop from the kernel. It never takes that of an end: the task may
// have been killed while it was stopped.
func read(tid int) { tracee.WaitReportBy(unix.P_PID, tid, unix.WSTOPPED|unix.WNOHANG) }

// bury takes the report of an end, so that the task's parent gets it. Of a child of this very
// program there is one report only. It is for the code that waits for that child: an os/exec.Cmd,
// say.
func (p *Process) bury(tid int) {
	if tid == p.pid && !p.started && ownChild(tid) {
		return
	}
	reap(tid)
}

func reap(tid int) {
	var ws unix.WaitStatus
	tracee.Wait4(tid, &ws, unix.WALL|unix.WNOHANG)
}

// event takes one report of the kernel. It answers the stop that the engine
// must see, if there is one; else the thread was resumed, or is held.
func (p *Process) event(tid int, ws unix.WaitStatus) (target.Stop, bool) {
	t := p.threads[tid]
	if t == nil && tid == p.pid && int(ws)>>16 == unix.PTRACE_EVENT_EXEC {
		t = p.takesNumber()
	}
	if t == nil {
		// The first stop of a task whose parent's report is still on its way,
		// or the end of one that we let go.
		if ws.Stopped() {
			read(tid)
			p.early[tid] = ws
		} else {
			p.bury(tid)
		}
		return target.Stop{}, false
	}
	if !ws.Stopped() {
		return p.ended(t, ws)
	}
	if t.state == running {
		t.state = held // stopped, and not yet handed out
	}
	t.fault, t.lapsed, t.sp = nil, false, 0
	t.asked = false // whatever the stop is for, the kernel takes an interruption for served
	sig := ws.StopSignal()
	ev := int(ws) >> 16
	if t.watch != p.version && ev != unix.PTRACE_EVENT_EXEC {
		p.setDebugRegisters(t)
	}
	if ev != 0 {
		read(tid)
	}
	switch ev {
	case 0:
		t.state, t.group = reported, false
		t.trapped, t.dealt, t.back = sig == unix.SIGTRAP, false, false
		p.unread = append(p.unread, t)
		s := target.Stop{Kind: target.StopSignal, Thread: target.Thread(tid), Signal: int(sig)}
		var r tracee.Registers
		if t.trapped {
			s.Kind = target.StopTrap
			p.askAccess(&s)
		} else if tracee.GetRegs(tid, &r) == nil {
			p.sleepOn(t, &r)
		}
		return s, true
	case unix.PTRACE_EVENT_CLONE, unix.PTRACE_EVENT_FORK, unix.PTRACE_EVENT_VFORK:
		return p.born(t, ev)
	case unix.PTRACE_EVENT_EXEC:
		return p.execed(t)
	case unix.PTRACE_EVENT_STOP:
		t.group = sig != unix.SIGTRAP
		p.stopped = t.group
		if !p.settle(t) {
			return target.Stop{}, false
		}
	}
	p.release(t)
	return target.Stop{}, false
}

// release lets a thread go on whose stop does not concern the engine, or holds it.
func (p *Process) release(t *thread) {
	switch {
	case t.owed:
		t.owed, t.state = false, reported
	case p.frozen:
		t.state = held
	default:
		p.cont(t, 0)
	}
}

// passEvent gets a thread out of a stop inside a system call. There its
// registers are not yet the program's (the call's result is still to be
// written), so a frozen thread goes on as far as the next clean stop.
func (p *Process) passEvent(t *thread) {
	if p.frozen && !t.asked {
		tracee.Request(unix.PTRACE_INTERRUPT, t.tid, 0, 0)
		t.asked = true
	}
	p.cont(t, 0)
}

func (p *Process) cont(t *thread, signal int) {
	if signal == int(unix.SIGTRAP) {
		switch p.giveTrap(t) {
		case trapTaken:
			signal = 0
		case trapLeft:
			t.state, t.signal, t.back, t.unfiltered = running, 0, false, false
			return
		}
	}
	req := unix.PTRACE_CONT
	if t.group && signal == 0 {
		req = unix.PTRACE_LISTEN
	} else if p.stopped && signal == 0 && !t.asked {
		// The others are in a group stop, and this one was called out of it for
		// a trap: it shall go no further than back into it.
		t.asked = tracee.Request(unix.PTRACE_INTERRUPT, t.tid, 0, 0) == nil
	}
	t.state, t.signal, t.back, t.unfiltered, t.stepped, t.doubt = running, 0, false, false, false, false
	// ESRCH: the thread was killed meanwhile; its end is reported by wait4.
	tracee.Insist(func() error { return tracee.Request(req, t.tid, 0, uint64(signal)) })
}

// ended takes the end of a thread.
func (p *Process) ended(t *thread, ws unix.WaitStatus) (target.Stop, bool) {
	p.bury(t.tid)
	p.forget(t)
	if t.tid == p.pid || p.wasLast(t) {
		// The leader's end is reported after that of all the others.
		p.gone, p.exit = true, exitOf(ws)
		return target.Stop{Kind: target.StopExit, Thread: target.Thread(t.tid), Status: p.exit}, true
	}
	return target.Stop{Kind: target.StopThreadExit, Thread: target.Thread(t.tid)}, true
}

// wasLast tells of a thread that has ended whether it was the last one of a process whose leader
// had ended before we came: that one's end is not told to us.
func (p *Process) wasLast(ended *thread) bool {
	if ended.tgid != p.pid {
		return false
	}
	for _, t := range p.threads {
		if t.tgid == p.pid {
			return false
		}
	}
	return isOver(p.pid)
}

// takesNumber notes that another thread has the process's number now: a thread of a process whose
// leader had ended before we came has executed a program.
func (p *Process) takesNumber() *thread {
	t := &thread{tid: p.pid, tgid: p.pid}
	p.threads[p.pid] = t
	return t
}

// vanished forgets a thread that is gone without a word. It may have become the process's first.
func (p *Process) vanished(t *thread) {
	p.forget(t)
	if p.threads[p.pid] == nil && p.bornSeized(p.pid) {
		p.takesNumber()
	}
}

// forget drops a task that has ended, or has left the memory that it shared: the thread that waited
// for it in vfork, if there is one, runs again. Until all are let go (detachAll), no task leaves
// p.threads by another way.
func (p *Process) forget(t *thread) {
	delete(p.threads, t.tid)
	p.comms.Delete(t.tid)
	if t.parent != nil && t.parent.vfork == t.tid {
		t.parent.vfork = 0
	}
}

func exitOf(ws unix.WaitStatus) target.Exit {
	if ws.Signaled() {
		return target.Exit{Code: -1, Signal: int(ws.Signal())}
	}
	return target.Exit{Code: ws.ExitStatus()}
}

// born takes the report that t made a new task, which is traced and stops
// before its first instruction.
func (p *Process) born(t *thread, ev int) (target.Stop, bool) {
	tid, err := tracee.EventMessage(t.tid)
	if err != nil {
		p.passEvent(t)
		return target.Stop{}, false
	}
	if p.threads[tid] != nil {
		p.passEvent(t) // seizeAll has met it already
		return target.Stop{}, false
	}
	ws, seen := p.early[tid]
	delete(p.early, tid)
	if !seen {
		for {
			if _, err = tracee.Wait4(tid, &ws, unix.WALL); err != unix.EINTR {
				break
			}
		}
		if err != nil || !ws.Stopped() {
			p.passEvent(t) // killed at birth
			return target.Stop{}, false
		}
	}
	n := &thread{tid: tid, tgid: tid, state: held, parent: t}
	if t.mask&mostSignals != mostSignals {
		n.mask, n.maskSeen = t.mask, t.maskSeen // libc blocks all signals around a birth, and then what the parent does
	}
	if tgid, err := statusField(p.pid, tid, "Tgid"); err == nil && tgid == fmt.Sprint(p.pid) {
		n.tgid = p.pid
	}
	if n.tgid != p.pid && !p.sharesMemory(tid, ev) {
		t.state = reported
		if p.frozen {
			// Its registers must not be touched here, and a frozen thread's may be.
			t.owed = true
			p.passEvent(t)
		}
		return target.Stop{Kind: target.StopFork, Thread: target.Thread(t.tid), Child: &child{pid: tid, parent: p}}, true
	}
	p.threads[tid] = n
	p.setDebugRegisters(n)
	if p.onBirth != nil && ev != unix.PTRACE_EVENT_VFORK {
		p.onBirth(target.Thread(tid), target.Thread(t.tid))
	}
	if ev == unix.PTRACE_EVENT_VFORK {
		t.vfork = tid
	}
	p.release(n)
	p.passEvent(t)
	return target.Stop{}, false
}

// sharesMemory tells whether a new process runs in the target's own memory, as vfork children do
// until they exec. Such a one is served like a thread. A first thread that has ended has no memory,
// and would be found alike with all tasks that have none: the kernel's threads, and others that
// have ended.
func (p *Process) sharesMemory(tid, ev int) bool {
	const kcmpVM = 1
	r, _, errno := unix.RawSyscall6(unix.SYS_KCMP, uintptr(proc.Process(p.pid).WithMemory()), uintptr(tid), kcmpVM, 0, 0, 0)
	if errno != 0 {
		return ev == unix.PTRACE_EVENT_VFORK
	}
	if own := int(proc.Process(tid).WithMemory()); r != 0 && own != tid && own != 0 {
		return p.sharesMemory(own, ev)
	}
	return r == 0 && proc.Thread(tid).HasMemory()
}

// execed takes an exec: of the process itself, all of whose other threads are
// gone then, or of a vfork child, which thereby leaves our memory.
func (p *Process) execed(t *thread) (target.Stop, bool) {
	if t.tgid != p.pid {
		p.forget(t)
		c := &child{pid: t.tid, parent: &Process{pid: t.tid}, inExec: true}
		c.parent.arch, _ = machineOf(t.tid)
		c.parent.openMem()
		return target.Stop{Kind: target.StopSpawn, Thread: target.Thread(t.tid), Child: c, Withheld: withheld(t.tid)}, true
	}
	for _, o := range p.threads {
		if o != t && o.tgid == p.pid {
			p.forget(o)
		}
	}
	p.found, p.dead, p.action = gadgets{}, 0, target.Action{}
	p.watch, p.version, t.watch = debugRegisters{}, 0, 0 // the kernel has cleared them
	p.comms.Delete(t.tid)
	if a, err := machineOf(p.pid); err == nil {
		p.arch = a
	}
	p.openMem()
	if ended := finishCall(t.tid); ended != nil {
		return p.ended(t, *ended)
	}
	t.state = reported
	return target.Stop{Kind: target.StopExec, Thread: target.Thread(t.tid), Withheld: withheld(p.pid)}, true
}

// Resume lets a reported thread go on.
func (p *Process) Resume(th target.Thread, signal int) error {
	t := p.threads[int(th)]
	if t == nil {
		return target.ErrGone
	}
	if t.lapsed {
		t.lapsed, signal = false, 0
	}
	if p.frozen {
		t.state, t.signal = held, cmp.Or(signal, t.signal)
		return nil
	}
	p.pin.served(p, t)
	p.cont(t, cmp.Or(signal, t.signal))
	return nil
}
