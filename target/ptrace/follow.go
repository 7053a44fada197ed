//go:build linux && (amd64 || arm64 || riscv64)

package ptrace

import (
	"os"

	"golang.org/x/sys/unix"

	"kprobe/arch"
	"kprobe/target"
)

// A child is born traced by the thread that traces its parent, and the kernel
// knows no way to hand a tracee over: between the one tracer's detach and the
// other's attach it runs. A signal that stops it would be seen by its parent. So
// it is sent round a small loop of ours meanwhile, in a page of its own.

// loopRounds bounds the loop: several seconds, when an attach takes
// milliseconds. A child that nobody comes for, because its tracer died say, goes
// on by itself, with its registers and flags as they were.
const loopRounds = 1 << 27

// Follow lets the child go into the loop. What it answers attaches to it, on
// another owner thread, and takes it out again.
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
	var real registers
	if err := getRegs(c.pid, &real); err != nil {
		return nil, regsError(err)
	}
	page, err := c.remote(c.parent.abi().mmap, 0, uint64(os.Getpagesize()), unix.PROT_READ|unix.PROT_EXEC,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, ^uint64(0), 0)
	if err != nil {
		return nil, err
	}
	code, r, err := c.whileLooping(page, real)
	if err == nil {
		err = c.WriteAt(arch.Addr(page), code)
	}
	if err == nil {
		err = regsError(setRegs(c.pid, &r))
	}
	if err == nil {
		err = c.Detach()
	}
	if err != nil {
		setRegs(c.pid, &real)
		return nil, err
	}
	return func() (target.Target, error) {
		p, err := Attach(c.pid)
		if err != nil {
			return nil, err
		}
		p.begun, p.newborn = !c.inExec, true
		p.Run(func() { err = p.fetch(arch.Addr(page), len(code), &real) })
		if err != nil {
			p.Close()
			return nil, err
		}
		return p, nil
	}, nil
}

// fetch takes a child out of its loop: it stands at its next instruction, and
// is owed a Resume.
func (p *Process) fetch(page arch.Addr, size int, real *registers) error {
	stops, err := p.Freeze()
	if err != nil {
		return err
	}
	t := p.threads[p.pid]
	var r registers
	if t == nil || t.state == running || getRegs(t.tid, &r) != nil {
		p.frozen, p.newborn = false, false
		return target.ErrGone
	}
	p.frozen, p.newborn = false, false
	if r.pc()-uint64(page) >= uint64(size) {
		// A signal handler runs, or we come late: it finds its way by itself.
		p.backlog = stops
		return p.Thaw()
	}
	p.complete = p.alone()
	if err := setRegs(t.tid, real); err != nil {
		return regsError(err)
	}
	if err := p.Free(page, os.Getpagesize()); err != nil {
		return err
	}
	for _, st := range stops {
		t.signal = st.Signal // a signal came first: it goes with the Resume
	}
	t.state, p.waits = reported, true
	return nil
}

// alone tells that nobody else has the memory of a process that has run nothing but the loop since it
// was born, or executed its program: nothing but a signal handler, which would have made a thread or
// a child. So not all processes need be looked at.
func (p *Process) alone() bool {
	tids, err := listTasks(p.pid)
	if err != nil || len(tids) != 1 {
		return false
	}
	children, err := taskFile(p.pid, p.pid, "children")
	return err == nil && len(children) == 0
}

// finishCall takes a task from a stop inside a system call to one where its
// registers are the program's. It answers how the task ended, if it did.
func finishCall(tid int) *unix.WaitStatus {
	ptraceRequest(unix.PTRACE_INTERRUPT, tid, 0, 0)
	ptraceRequest(unix.PTRACE_CONT, tid, 0, 0)
	for {
		_, ws, err := waitReport(unix.P_PID, tid)
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
			ptraceRequest(unix.PTRACE_CONT, tid, 0, uint64(ws.StopSignal()))
		}
	}
}
