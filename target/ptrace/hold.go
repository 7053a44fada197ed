//go:build linux && (amd64 || arm64 || riscv64)

package ptrace

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"kprobe/arch"
	"kprobe/internal/guardian"
	"kprobe/internal/lifeline"
	"kprobe/internal/tracee"
	"kprobe/symbol"
)

// A controller that is killed does not die at once: the guardian traces its owner
// thread, and the kernel stops a traced thread at the gate of its end
// (PTRACE_EVENT_EXIT), SIGKILL or not, before it lets go of those that it traces.
// While it is held there, the target's threads are still traced: each that meets a
// trap waits. So the traps can be taken away before anybody runs into one that
// nobody serves. Only then is the thread let die.

// hold attends the controller's owner thread until that has ended, and calls last
// when it is about to. It is ready when it has begun, and when it: a debugger may have been there first. Then what the
// target has is its trap handler alone, until the controller's end is noticed.
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

// disarmLeft takes the traps away that a controller leaves which is about to end.
// What cannot be done here is left for the recovery that follows.
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
	found, err := lifeline.Read(j.Base, p.ReadAt)
	if err != nil {
		return err
	}
	if found.ID != j.ID {
		return fmt.Errorf("%w: another session's memory", lifeline.ErrNothing)
	}
	text := codePages{p: p}
	maps, err := p.Maps()
	for _, m := range maps {
		if m.Inode != 0 && m.Exec && !m.Write {
			text.constant = append(text.constant, m)
		}
	}
	return errors.Join(err, text.write(found.Disarm(p.arch, j.Base, text.read)))
}

// codePages reads and writes the code of a running process a page at a time: what
// there is to do has to be done soon, and most of its price is that of system calls.
type codePages struct {
	p        *Process
	constant []symbol.Mapping // what nobody else writes; in order
	pages    map[arch.Addr][]byte
}

const codePage = 4096

// page is the content of the page with an address, nil where the program might
// write there while we do.
func (c *codePages) page(at arch.Addr) []byte {
	at &^= codePage - 1
	if b, ok := c.pages[at]; ok {
		return b
	}
	i, _ := slices.BinarySearchFunc(c.constant, uint64(at), func(m symbol.Mapping, at uint64) int { return cmp.Compare(m.End, at+1) })
	var b []byte
	if i < len(c.constant) && c.constant[i].Start <= uint64(at) {
		b = make([]byte, codePage)
		if c.p.ReadAt(at, b) != nil {
			b = nil
		}
	}
	if c.pages == nil {
		c.pages = make(map[arch.Addr][]byte)
	}
	c.pages[at] = b
	return b
}

func (c *codePages) read(at arch.Addr, b []byte) error {
	page, off := c.page(at), int(at&(codePage-1))
	if page == nil || off+len(b) > len(page) {
		return c.p.ReadAt(at, b)
	}
	copy(b, page[off:])
	return nil
}

// write carries out writes of single bytes, or instructions. Those on a page that is known go
// together, with what lies between them: to write what is there already changes
// nothing for whoever runs it.
func (c *codePages) write(ws []lifeline.Write) error {
	type span struct{ first, end arch.Addr }
	spans := make(map[arch.Addr]span)
	var errs []error
	for _, w := range ws {
		page := c.page(w.Addr)
		if page == nil {
			errs = append(errs, c.p.WriteAt(w.Addr, w.New))
			continue
		}
		at := w.Addr &^ (codePage - 1)
		copy(page[w.Addr-at:], w.New)
		s, more := spans[at]
		if !more {
			s = span{w.Addr, w.Addr}
		}
		spans[at] = span{min(s.first, w.Addr), max(s.end, w.Addr+arch.Addr(len(w.New)))}
	}
	for at, s := range spans {
		errs = append(errs, c.p.WriteAt(s.first, c.pages[at][s.first-at:s.end-at]))
	}
	return errors.Join(errs...)
}
