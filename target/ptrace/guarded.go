//go:build linux && (amd64 || arm64 || ppc64le || riscv64 || s390x)

package ptrace

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"kprobe/arch"
	"kprobe/internal/faults"
	"kprobe/internal/guardian"
	"kprobe/internal/lifeline"
)

// guarded is the controller's end of it, for one process.
type guarded struct {
	*guardian.Guardian
	journal *lifeline.Journal // nil while there is nothing to restore
	late    bool              // it did not answer in time: later answers are not waited for
}

func (g *guarded) tell(what string, of any) error {
	return g.Tell(fmt.Appendf(nil, "%s %v\n", what, of))
}

// Guard has the process restored if this controller dies: the journal is written and a guardian is
// told of it. It must be called before the first byte changes; the Trap of the session id is going
// to be at base.
func (p *Process) Guard(base arch.Addr, id uint64) error {
	self := os.Getpid()
	program, _ := programID(p.pid) // a tracer of it may ask that
	j := &lifeline.Journal{
		PID: p.pid, Start: lifeline.StartTime(p.pid), BuildID: program,
		Base: base, ID: id, Serial: id,
		Controller: self, ControllerStart: lifeline.StartTime(self),
	}
	if p.guardian == nil {
		if err := p.engageGuardian(); err != nil {
			return err
		}
	}
	if old := p.guardian.journal; old != nil {
		j.Serial = old.Serial // after an exec: the same journal, of a new place
	}
	p.guardian.journal = j
	err := p.guardian.know(j.Path())
	if err == nil {
		err = faults.At("rename", 0)
	}
	if err == nil {
		err = j.Save()
	}
	if err != nil {
		p.Unguard()
		return fmt.Errorf("write the journal: %w", err)
	}
	return nil
}

// know waits until the guardian knows of a journal, so that there is none without one. The guardian
// learns a message when it runs next: on a busy machine the controller may have been killed by
// then, and nothing disarmed.
func (g *guarded) know(journal string) error {
	err := g.tell(tellGuard, strconv.Quote(journal))
	if err != nil || g.late {
		return err
	}
	if err = g.Wait(tries); errors.Is(err, os.ErrDeadlineExceeded) {
		g.late, err = true, nil
	}
	return err
}

// engageGuardian finds the process a guardian that is free, or starts one.
func (p *Process) engageGuardian() error {
	if err := errors.Join(faults.At("pipe2", 0), faults.At("clone", 0)); err != nil {
		return err
	}
	for g := spares.Take(); g != nil; g = spares.Take() {
		if p.holdBy(g) == nil { // else it has been killed
			return nil
		}
	}
	var g *guardian.Guardian
	var err error
	// Not on the owner thread, whose wait would take its end for a thread's.
	done := make(chan struct{})
	go func() {
		g, err = guardian.Start(guardianName, nil)
		close(done)
	}()
	<-done
	if err == nil {
		err = p.holdBy(g)
	}
	return err
}

// holdBy has a guardian hold the owner thread, if it can (see hold). Errors: it has ended; then it
// is let go of.
func (p *Process) holdBy(g *guardian.Guardian) error {
	allowTracing(g.PID())
	of := &guarded{Guardian: g}
	err := of.tell(tellHold, p.owner)
	if err == nil {
		err = g.Wait(tries)
	}
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		p.guardian, of.late = of, err != nil
		return nil
	}
	g.Leave()
	return err
}

// Unguard tells the guardian that everything is back.
func (p *Process) Unguard() {
	if g := p.guardian; g != nil && g.journal != nil {
		os.Remove(g.journal.Path())
		g.journal = nil
		g.tell(tellOver, "")
	}
}

// releaseGuardian lets the guardian go when the owner thread ends: to restore the process, or to
// the next one.
func (p *Process) releaseGuardian() {
	g := p.guardian
	switch {
	case g == nil:
	case g.journal != nil || g.late:
		g.Leave()
	default:
		go func() {
			if g.Wait(tries) == nil { // the owner thread has ended
				spares.Put(g.Guardian)
			} else {
				g.Leave()
			}
		}()
	}
}

// spares are this controller's guardians without a process.
var spares = guardian.Spares{Keep: time.Second}
