//go:build linux && (amd64 || arm64 || ppc64le || riscv64 || s390x)

package ptrace

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"kprobe/internal/guardian"
	"kprobe/internal/lifeline"
	"kprobe/internal/tracee"
)

// A controller that is killed does not die at once: the guardian traces its owner thread, and the
// kernel stops a traced thread at the gate of its end (PTRACE_EVENT_EXIT), SIGKILL or not, before
// it lets go of the threads that it traces. While it is held there, the target's threads are still
// traced: each that meets a trap waits. So the traps can be taken away before any thread runs into
// one that is not served. Only then is the owner thread let die.

// hold attends the controller's owner thread until that has ended, and calls last when it is about
// to. It says that it is ready when it has begun, and also when it could not: a debugger may have
// been there first. Then the target has its trap handler alone, until the controller's end is
// noticed.
func hold(tid int, last func()) {
	err := seizeOwner(tid)
	guardian.Ready()
	if err != nil {
		return
	}
	armWakeSignal() // no SIGCHLD for each of its stops
	// Little is asked of a guardian, but then at once. An ordinary user's waits its turn.
	unix.Setpriority(unix.PRIO_PROCESS, 0, -20)
	for {
		// Unread, so that a signal is not lost if we go just now.
		_, ws, err := tracee.WaitReport(unix.P_PID, tid)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return
		case !ws.Stopped():
			reap(tid)
			return
		}
		how, signal := unix.PTRACE_CONT, ws.StopSignal()
		switch int(ws) >> 16 {
		case 0: // a signal, which is the controller's
		case unix.PTRACE_EVENT_EXIT:
			last()
			signal = 0
		case unix.PTRACE_EVENT_STOP:
			if signal != unix.SIGTRAP {
				how = unix.PTRACE_LISTEN // it was stopped, by ^Z for one
			}
			signal = 0
		default:
			signal = 0
		}
		if err := tracee.Request(how, tid, 0, uint64(signal)); err != nil && err != unix.ESRCH {
			return
		}
	}
}

// seizeOwner waits a moment for the permission that allowTracing gives.
func seizeOwner(tid int) error {
	for try := 0; ; try++ {
		err := tracee.Request(unix.PTRACE_SEIZE, tid, 0, unix.PTRACE_O_TRACEEXIT)
		if err != unix.EPERM || try == 20 {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

// allowTracing lets a child of ours trace us where Yama's ptrace_scope does not.
// Elsewhere the kernel knows no such call.
func allowTracing(pid int) { unix.Prctl(unix.PR_SET_PTRACER, uintptr(pid), 0, 0, 0) }

// disarmLeft takes the traps away that a controller leaves which is about to end. Traps that cannot
// be taken away here are left for the recovery that follows.
func disarmLeft(journal string) error {
	j, err := lifeline.Load(journal)
	if err != nil {
		return err
	}
	if is, err := concerns(j); !is || err != nil {
		return lifeline.ErrNothing
	}
	a, err := machineOf(j.PID)
	if err != nil {
		return err
	}
	p := &Process{pid: j.PID, arch: a} // its memory alone: to start an owner thread takes time
	if err := p.openMemFor(os.O_RDWR); err != nil {
		return err
	}
	defer p.closeMem()
	found, err := lifeline.Read(p.arch, j.Base, p.ReadAt)
	if err != nil {
		return err
	}
	if found.ID != j.ID {
		return fmt.Errorf("%w: another session's memory", lifeline.ErrNothing)
	}
	text := lifeline.Pages{Memory: p}
	maps, err := p.Maps()
	for _, m := range maps {
		if m.Inode != 0 && m.Exec && !m.Write {
			text.Constant = append(text.Constant, m.Range())
		}
	}
	return errors.Join(err, text.Write(found.Disarm(p.abi().Lifeline, j.Base, text.Read)))
}
