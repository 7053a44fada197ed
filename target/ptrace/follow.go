//go:build linux && (amd64 || arm64 || ppc64le || riscv64 || s390x)

package ptrace

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"kprobe/arch"
	"kprobe/internal/tracee"
	"kprobe/target"
)

// A child is born traced by the thread that traces its parent, and the kernel knows no way to hand
// a tracee over: between the one tracer's detach and the other's attach it runs. A signal that
// stops it would be seen by its parent. So it is sent round a small loop of ours meanwhile, in
// memory of its own. It blocks all signals there: a handler would run before the first probe, and
// come back to the loop when no tracer takes the child out any more.

// Follow lets the child go into the loop. The function that it answers attaches to it, on another
// owner thread, and takes it out again.
func (c *child) Follow() (func() (target.Target, error), error) {
	if c.inExec {
		if c.parent.arch == nil { // its program is of no machine that we know
			_, err := machineOf(c.pid)
			return nil, err
		}
		if ended := finishCall(c.pid); ended != nil {
			return nil, target.ErrGone
		}
	}
	l, err := c.looping()
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	if err := c.Detach(); err != nil {
		l.Leave(c.pid)
		return nil, err
	}
	return func() (target.Target, error) {
		p, err := Attach(c.pid)
		if err != nil {
			if time.Since(begun) >= tracee.LoopSleep {
				err = fmt.Errorf("it was not attached to within %v: %v", tracee.LoopSleep, err) // it has run unseen, so its end is no excuse
			}
			return nil, err
		}
		p.begun, p.newborn = !c.inExec, true
		p.Run(func() { err = p.fetch(l) })
		if err != nil {
			p.Close()
			return nil, err
		}
		return p, nil
	}, nil
}

// Late implements target.Latecomer.
func (p *Process) Late() bool { return p.late }

// looping sends the stopped child into a loop.
func (c *child) looping() (l *tracee.Loop, err error) {
	l = &tracee.Loop{Size: tracee.LoopSize()}
	l.Page, err = c.remote(c.parent.abi().Mmap, 0, uint64(l.Size), unix.PROT_READ|unix.PROT_EXEC,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, ^uint64(0), 0)
	if err != nil {
		return nil, err
	}
	l.MayCall = c.calling.unfiltered
	if err := c.back(); err != nil {
		return nil, err
	}
	if err := tracee.GetRegs(c.pid, &l.Real); err != nil {
		return nil, tracee.RegsError(err)
	}
	if l.Mask, err = tracee.SignalMask(unix.PTRACE_GETSIGMASK, c.pid, 0); err != nil {
		return nil, tracee.RegsError(err)
	}
	code, r, err := l.Enter(c.pid, c.parent.abi())
	if err == nil {
		err = c.WriteAt(arch.Addr(l.Page), code)
	}
	if err == nil {
		err = tracee.RegsError(tracee.SetRegs(c.pid, &r))
	}
	if err == nil {
		_, err = tracee.SignalMask(unix.PTRACE_SETSIGMASK, c.pid, ^uint64(0))
		err = tracee.RegsError(err)
	}
	if err != nil {
		l.Leave(c.pid)
		return nil, err
	}
	return l, nil
}

// fetch takes a child out of its loop: it stands at its next instruction, and
// is owed a Resume.
func (p *Process) fetch(l *tracee.Loop) error {
	stops, err := p.Freeze()
	if err != nil {
		return err
	}
	t := p.threads[p.pid]
	var r tracee.Registers
	p.newborn = false
	defer func() { p.frozen = false }() // not before: a task that is led away in a frozen process comes back if we die
	if t == nil || t.state == running || tracee.GetRegs(t.tid, &r) != nil {
		return target.ErrGone
	}
	if r.PC()-l.Page >= uint64(l.Size) {
		// It has found its way by itself.
		p.backlog, p.late = stops, true
		return p.Thaw()
	}
	p.complete = p.alone()
	if err := l.Leave(t.tid); err != nil {
		return err
	}
	if err := p.Free(arch.Addr(l.Page), l.Size); err != nil {
		return err
	}
	for _, st := range stops {
		t.signal = st.Signal // a signal came first: it goes with the Resume
	}
	t.state, t.unfiltered, p.waits = reported, false, true
	return nil
}

// alone tells that no other process has the memory of a process that has run nothing but the loop
// since it was born, or executed its program. If that was late, it may have run a signal handler,
// which would have had to make a thread or a child. So not all processes need be looked at.
func (p *Process) alone() bool {
	tids, err := listTasks(p.pid)
	if err != nil || len(tids) != 1 {
		return false
	}
	children, err := tracee.TaskFile(p.pid, p.pid, "children")
	return err == nil && len(children) == 0
}

// finishCall takes a task from a stop inside a system call to one where its
// registers are the program's. It answers how the task ended, if it did.
func finishCall(tid int) *unix.WaitStatus {
	tracee.Request(unix.PTRACE_INTERRUPT, tid, 0, 0)
	tracee.Request(unix.PTRACE_CONT, tid, 0, 0)
	for {
		_, ws, err := tracee.WaitReport(unix.P_PID, tid)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil || !ws.Stopped():
			return &ws // the report of the end is still to be taken
		}
		read(tid)
		switch int(ws) >> 16 {
		case unix.PTRACE_EVENT_STOP:
			return nil
		default:
			tracee.Request(unix.PTRACE_CONT, tid, 0, uint64(ws.StopSignal()))
		}
	}
}
