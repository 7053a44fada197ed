// Package roles has the kinds of probes: what each does at its place, where it differs from the others, and
// what is counted of it. The order in which things happen to a session's probes is package engine's.
//
//	home.go      what the probes of one session have in common
//	view.go      what handlers see of a stopped thread
//	program.go   programs that run inside the target
//	asked.go     what the caller asked for
//	probe.go     a probe, and the role of one that works for itself
//	batch.go     what one registration is going to do
//	jprobe.go    at a function's entry, alone
//	data.go      at data
//	return.go    at a function's entry, for its returns
//	exit.go      where the function is left
//	hidden.go    those of the session's own making
//	dispatch.go  what runs at a stop
package roles

import (
	"kprobe/arch"
	"kprobe/internal/calls"
	"kprobe/internal/ground"
	"kprobe/internal/links"
	"kprobe/internal/watched"
	"kprobe/internal/within"
	"kprobe/target"
)

// Home has the parts that the probes of one session share.
type Home struct {
	On      *ground.Ground
	Within  *within.Within
	Links   *links.Links
	Calls   *calls.UnderWay[*Instance]
	Watches *watched.Registers[*Probe]

	Programs []*Programs          // that are loaded; changed in turns
	alone    map[arch.Addr]*Probe // jprobes, by where they are; changed with Ground.View held
	tasks    target.Tasks         // nil: threads have no names
}

// NewHome has no probes and no programs. Links come when there is what changes are made of.
func NewHome(on *ground.Ground, world within.World) *Home {
	h := &Home{On: on, alone: make(map[arch.Addr]*Probe)}
	h.tasks, _ = on.T.(target.Tasks)
	h.Watches = watched.New(on.T, on.Owner, &on.View, dataRules{h})
	h.Calls = calls.New[*Instance](within.TargetOf(on, func() *within.Within { return h.Within }), on.T.Arch())
	h.Within = within.New(on, h.Calls, world)
	return h
}

// Replaced is for a target that has executed another program: no function is claimed there, and programs have their
// maps anew. It is called in a turn.
func (h *Home) Replaced() {
	h.reload()
	clear(h.alone)
}
