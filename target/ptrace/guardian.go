//go:build linux && amd64

package ptrace

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"kprobe/arch"
	"kprobe/internal/faults"
	"kprobe/internal/lifeline"
)

// guardianName is how a guardian is called: the controller's own program,
// started once more, knows itself by it before its main does anything.
const guardianName = "kprobe-guardian"

func init() {
	if len(os.Args) == 3 && os.Args[0] == guardianName {
		guard(os.Args[1], os.Args[2])
		os.Exit(0)
	}
}

// guard waits, in the guardian, for the controller to end. Its standard input
// is a pipe that only the controller can write to: a byte means that all was
// put back, an end without one that the controller died.
func guard(journal, owner string) {
	over := make(chan struct{})
	go func() {
		if n, _ := io.ReadFull(os.Stdin, make([]byte, 1)); n == 1 {
			os.Exit(0) // which lets the owner thread go, too
		}
		close(over)
	}()
	hold(owner, func() { disarmLeft(journal) })
	<-over
	j, err := lifeline.Load(journal)
	if errors.Is(err, fs.ErrNotExist) {
		return // it died before it had one
	}
	if err == nil {
		// For as long as it lives: another tracer may be there meanwhile.
		err = recoverJournal(j, j.Current)
	}
	if err != nil && !errors.Is(err, lifeline.ErrNothing) {
		fmt.Fprintf(os.Stderr, "kprobe: not restored, %s: %v\n", filepath.Base(journal), err)
	}
}

// guardian is the controller's end of it.
type guardian struct {
	journal *lifeline.Journal
	pipe    io.WriteCloser
}

// Guard has the process restored if this controller dies: the journal is
// written and a guardian process started. It must be called before the first
// byte changes; base is where the Trap of the session id is going to be.
func (p *Process) Guard(base arch.Addr, id uint64) error {
	self := os.Getpid()
	program, _ := programID(p.pid) // who may trace it may ask that
	j := &lifeline.Journal{
		PID: p.pid, Start: lifeline.StartTime(p.pid), BuildID: program,
		Base: base, ID: id, Serial: id,
		Controller: self, ControllerStart: lifeline.StartTime(self),
	}
	if p.guardian == nil {
		// First, so that there is no journal without one.
		if err := p.startGuardian(j.Path()); err != nil {
			return err
		}
	}
	if old := p.guardian.journal; old != nil {
		j.Serial = old.Serial // after an exec: the same guardian, a new place
	}
	p.guardian.journal = j
	err := faults.At("rename", 0)
	if err == nil {
		err = j.Save()
	}
	if err != nil {
		p.Unguard()
		return fmt.Errorf("write the journal: %w", err)
	}
	return nil
}

func (p *Process) startGuardian(journal string) error {
	g := new(guardian)
	cmd := &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{guardianName, journal, fmt.Sprint(p.owner)},
		Stderr: os.Stderr,
		// Of a session of its own: what is sent to the controller's process
		// group, ^C and kill alike, is not meant for it.
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	// Not on the owner thread, whose wait would take its end for a thread's.
	started := make(chan error)
	go func() {
		started <- g.start(cmd)
		cmd.Wait()
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start the guardian: %w", err)
	}
	p.guardian = g
	return nil
}

func (g *guardian) start(cmd *exec.Cmd) (err error) {
	if err = faults.At("pipe2", 0); err != nil {
		return err
	}
	if g.pipe, err = cmd.StdinPipe(); err != nil {
		return err
	}
	ready, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	cmd.Err = faults.At("clone", 0)
	if err = cmd.Start(); err != nil {
		return err
	}
	allowTracing(cmd.Process.Pid)
	if f, ok := ready.(*os.File); ok {
		f.SetReadDeadline(time.Now().Add(patience))
	}
	io.ReadFull(ready, make([]byte, 1)) // whether it holds us or cannot: see hold
	return nil
}

// Unguard tells the guardian that everything is back.
func (p *Process) Unguard() {
	if g := p.guardian; g != nil {
		p.guardian = nil
		os.Remove(g.journal.Path())
		g.pipe.Write([]byte{0})
		g.pipe.Close()
	}
}

// programID tells one program from another that the same process may have
// executed: exec keeps the pid and the start time. Errors: EACCES, the process has
// become one that this user may not look into (prctl PR_SET_DUMPABLE).
func programID(pid int) (string, error) {
	var st syscall.Stat_t
	if err := syscall.Stat(fmt.Sprintf("/proc/%d/exe", pid), &st); err != nil {
		return "", err
	}
	return fmt.Sprintf("%x:%x:%x:%x", st.Dev, st.Ino, st.Size, st.Mtim.Nano()), nil
}

// concerns tells whether the process that a journal is about is still there, and
// executes the program that it did. Errors: those of programID.
func concerns(j *lifeline.Journal) (bool, error) {
	if !j.Current() {
		return false, nil
	}
	id, err := programID(j.PID)
	if !j.Current() || errors.Is(err, fs.ErrNotExist) {
		return false, nil // it has ended meanwhile, or is about to: its memory is gone
	}
	return err == nil && id == j.BuildID, err
}

// patience is how long is tried what does not depend on us alone: the kernel may still
// be busy with the end of the tracer before.
const patience = 10 * time.Second
