package kprobe

import (
	"kprobe/arch"
	"kprobe/internal/listing"
)

// PlanEntry is what registering a probe would do.
type PlanEntry struct {
	Place   string    // MODULE:SYMBOL+OFFSET
	Addr    arch.Addr // 0 while its file is not mapped
	Bytes   []byte    // of the instruction
	Verdict string    // "copy", "emulate", "watch", "pending" or "refuse"
	Engine  string    // "trap" or "stop", and for returns by which means and why
	Reason  string    // why so

	// Jump is how a jump can take the trap's place, if the probe's work is done in
	// the target: "whole", "guarded", "pun", or in a kernel "moved" (docs/RATIONALE.md); or "none: " and why
	// not. "" where that was not looked at.
	Jump string

	// Trap is how the trap is served that there is while there is no jump, in a kernel and if the probe's work is done
	// there: "inside"; or "none: " and why not, and then each hit is a stop. "" elsewhere.
	Trap string

	// Err is what registering it would answer, where the verdict is "refuse".
	Err error
}

// String prints the entry on one line.
func (e PlanEntry) String() string {
	return listing.Planned(e.Place, e.Addr, e.Bytes, e.Verdict, e.Engine, e.Jump, e.Trap, e.Reason)
}

// Plan tells what registering a probe would do. Nothing is changed, the probe
// neither; a probe that would be refused has the reason in its entry. From a handler
// that is EDEADLK.
func (s *Session) Plan(p Probe) PlanEntry {
	role := roleOf(p)
	if role == nil {
		return PlanEntry{Verdict: "refuse", Reason: errNoProbe.Error(), Err: errNoProbe}
	}
	return PlanEntry(s.e.Plan(role, p.kprobe().asked(), func() error { return p.prepare(s) }))
}
