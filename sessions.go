package kprobe

import (
	"strings"

	"kprobe/internal/lifeline"
)

// SessionState is a live session of some controller, as `kprobe list` shows it.
type SessionState struct {
	Controller int    // its pid
	List       string // the kernel's format
}

// Sessions finds the sessions on a process: this user's, and for root
// everybody's.
func Sessions(pid int) ([]SessionState, error) { return sessions(lifeline.Process(pid)), nil }

// SessionsAt finds the sessions on what is no process of this host, such as a
// kernel, by its place (target.Placed).
func SessionsAt(place string) []SessionState { return sessions(lifeline.Place(place)) }

func sessions(on lifeline.Subject) (all []SessionState) {
	for _, l := range lifeline.Lists(on) {
		all = append(all, SessionState(l))
	}
	return all
}

// listChanged shows the list as it is now, to other processes too. mu is held.
func (s *Session) listChanged() {
	s.publish()
	if s.state == nil {
		return
	}
	var b strings.Builder
	WriteList(&b, s.List())
	s.state.Save(b.String())
}
