package kprobe

import "kprobe/internal/lifeline"

// SessionState is a live session of some controller, as `kprobe list` shows it.
// Its Controller is that one's pid, its List is in the kernel's format.
type SessionState = lifeline.Listed

// Sessions finds the sessions on a process: this user's, and for root
// everybody's.
func Sessions(pid int) ([]SessionState, error) { return lifeline.Lists(lifeline.Process(pid)), nil }

// SessionsAt finds the sessions on what is no process of this host, such as a
// kernel, by its place (target.Placed).
func SessionsAt(place string) []SessionState { return lifeline.Lists(lifeline.Place(place)) }
