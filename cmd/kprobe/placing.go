package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"

	"kprobe"
	"kprobe/target"
)

// placing hears signals while sessions are opened and probes are placed, which takes long where there are many. The first signal ends
// it: the sessions are closed, and so a registration that is being planned is given up. As a context it is over then.
type placing struct {
	context.Context
	cancel context.CancelFunc
	ended  chan struct{} // closed: it hears nothing any more

	mu       sync.Mutex
	sessions []*kprobe.Session
	program  *os.Process // that was started, and must not run before its probes are there
	heard    os.Signal
	failed   error // of the sessions that were closed

	until string // what is so when it is done, for the sentence of one that was interrupted
}

// placingUntil hears what comes on a channel, until done.
func placingUntil(signals <-chan os.Signal) *placing {
	p := &placing{ended: make(chan struct{}), until: "the probes were in place"}
	p.Context, p.cancel = context.WithCancel(context.Background())
	go p.hear(signals)
	return p
}

func (p *placing) hear(signals <-chan os.Signal) {
	defer close(p.ended)
	select {
	case <-p.Done():
	case sig := <-signals:
		p.end(sig)
	}
}

// end ends the placing. The session that was opened last may be the one that probes are being planned for.
func (p *placing) end(sig os.Signal) {
	p.mu.Lock()
	p.heard = sig
	program, sessions := p.program, slices.Clone(p.sessions)
	p.mu.Unlock()
	if program != nil {
		_ = program.Kill() // before anything lets it go
	}
	p.cancel()
	for _, s := range slices.Backward(sessions) {
		p.close(s)
	}
}

func (p *placing) close(s *kprobe.Session) {
	if err := s.Close(); err != nil && !p.killed() {
		p.mu.Lock()
		p.failed = errors.Join(p.failed, ignoreClosed(fmt.Errorf("%v: %w", subject{pid: s.Target().PID()}, err)))
		p.mu.Unlock()
	}
}

// killed tells whether there is a program that was killed.
func (p *placing) killed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.program != nil && p.heard != nil
}

// started takes in a program that was started.
func (p *placing) started(program *os.Process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.program = program
	if p.heard != nil {
		_ = program.Kill()
	}
}

// open opens a session on a target. Of a program that was killed meanwhile nothing is told.
func (p *placing) open(t target.Target, o *kprobe.Options) (*kprobe.Session, error) {
	own, tell := *o, o.Report
	own.Report = func(err error) {
		if !p.killed() {
			tell(err)
		}
	}
	s, err := kprobe.OpenContext(p, t, &own)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.sessions = append(p.sessions, s)
	late := p.heard != nil
	p.mu.Unlock()
	if late {
		p.close(s)
	}
	return s, nil
}

// done ends it: from now on signals are for others to hear. Errors: that of the placing; *interruptedError.
func (p *placing) done(err error) error {
	p.cancel()
	<-p.ended
	if p.heard == nil {
		return err
	}
	return errors.Join(&interruptedError{p.heard, p.until}, p.failed)
}

// interruptedError is a verb's that a signal has ended before it began.
type interruptedError struct {
	by    os.Signal
	until string
}

func (e *interruptedError) Error() string { return "interrupted before " + e.until }

// status is a shell's of a process that the signal has ended.
func (e *interruptedError) status() int {
	sig, _ := e.by.(syscall.Signal)
	return 128 + int(sig)
}
