package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"kprobe"
	"kprobe/event"
	"kprobe/trace"
)

// waits are the definitions that wait for their files, in all sessions.
type waits struct {
	mu      sync.Mutex
	in      map[*kprobe.Session]waiter
	leftOut func([]trace.LeftOut) []trace.LeftOut // drops the places that need no word; nil drops none
	said    bool                                  // the places that never came
	over    bool                                  // a session has ended
	never   []trace.Awaited                       // places that no session had which has ended
}

// waiter is a session's definitions: a *trace.Tracer or a *trace.Stat.
type waiter interface {
	Remap() ([]trace.LeftOut, error)
	Waiting() []trace.Awaited
}

func (w *waits) add(s *kprobe.Session, of waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.in == nil {
		w.in = make(map[*kprobe.Session]waiter)
	}
	w.in[s] = of
}

// tell says on standard error which places are waited for.
func (w *waits) tell(all []trace.Awaited) {
	for _, a := range all {
		report(errors.New(a.String()))
	}
}

// mapped is for kprobe.Options.Mapped. It places the definitions that have waited for a file that is mapped now.
func (w *waits) mapped(s *kprobe.Session) {
	w.mu.Lock()
	of := w.in[s]
	w.mu.Unlock()
	if of == nil {
		return // its definitions are still being placed, and look themselves
	}
	left, err := of.Remap()
	if w.leftOut != nil {
		left = w.leftOut(left)
	}
	if err := errors.Join(err, warnLeftOut(left)); err != nil {
		report(fmt.Errorf("process %d: %w", s.Target().PID(), err))
	}
}

// past notes which definitions had no place in a session that has ended.
func (w *waits) past(s *kprobe.Session) {
	w.mu.Lock()
	defer w.mu.Unlock()
	of := w.in[s]
	if of == nil {
		return
	}
	delete(w.in, s)
	all := of.Waiting()
	if w.over {
		all = slices.DeleteFunc(all, func(a trace.Awaited) bool { return !slices.Contains(w.never, a) })
	}
	w.over, w.never = true, all
}

// forget drops all sessions: the definitions were refused, so nothing is said of them.
func (w *waits) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.in)
}

// close says which places no session had.
func (w *waits) close() error {
	w.mu.Lock()
	all := make([]*kprobe.Session, 0, len(w.in))
	for s := range w.in {
		all = append(all, s)
	}
	w.mu.Unlock()
	for _, s := range all {
		w.past(s)
	}
	if w.said {
		return nil
	}
	w.said = true
	for _, a := range w.never {
		if _, err := fmt.Fprintf(os.Stderr, "kprobe: %s\n", a.Never()); err != nil {
			return err
		}
	}
	return nil
}

// rows drops the rows of places that waited in one process and came in another.
func (w *waits) rows(counts []event.Count) []event.Count {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(counts, func(c event.Count) bool {
		place, waits := strings.CutSuffix(c.Place, trace.NotMapped)
		return waits && !slices.ContainsFunc(w.never, func(a trace.Awaited) bool { return a.Place == place })
	})
}
