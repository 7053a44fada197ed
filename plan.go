package kprobe

import (
	"kprobe/arch"
	"kprobe/internal/planned"
)

// Verdict says what becomes of the instruction at a place.
type Verdict = planned.Verdict

// The verdicts.
const (
	VerdictCopy    = planned.Copy    // a copy of it runs, in a slot
	VerdictEmulate = planned.Emulate // the engine does its work on the registers
	VerdictStep    = planned.Step    // behind a stub: it runs where it stands, by a step
	VerdictSkip    = planned.Skip    // behind a stub: it does nothing, and is passed over
	VerdictWatch   = planned.Watch   // a debug register watches data
	VerdictPending = planned.Pending // its file is not mapped yet
	VerdictLeave   = planned.Leave   // it is left out, since what stands there is in doubt
	VerdictRefuse  = planned.Refuse  // it cannot be probed
)

// Means is a way to serve a hit inside the target: how, or why there is none. The zero Means was not looked for.
type Means = planned.Means

// PlanEntry is what registering a probe would do.
type PlanEntry struct {
	Place   string    // MODULE:SYMBOL+OFFSET
	Addr    arch.Addr // 0 while its file is not mapped
	Bytes   []byte    // of the instruction
	Verdict Verdict
	Engine  string // "trap" or "stop", and for returns by which means and why
	Reason  string // why so

	// Jump is how a jump can take the trap's place, if the probe's work is done in
	// the target: "whole", "guarded", "pun", or in a kernel "moved" (docs/RATIONALE.md).
	Jump Means

	// Trap is how the trap is served that there is while there is no jump, in a kernel and if the probe's work is done
	// there: "inside". Where there is none, each hit is a stop. It is not looked for elsewhere.
	Trap Means

	// Err is what registering it would answer, where the verdict is "refuse".
	Err error
}

// String prints the entry on one line.
func (e PlanEntry) String() string { return planned.Entry(e).String() }

// Plan tells what registering a probe would do. Nothing is changed, the probe
// neither; a probe that would be refused has the reason in its entry. From a handler
// that is EDEADLK.
func (s *Session) Plan(p Probe) PlanEntry {
	role := roleOf(p)
	if role == nil {
		return PlanEntry{Verdict: VerdictRefuse, Reason: errNoProbe.Error(), Err: errNoProbe}
	}
	return PlanEntry(s.e.Plan(role, p.kprobe().asked(), func() error { return p.prepare(s) }))
}
