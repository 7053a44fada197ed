package roles

import (
	"kprobe/arch"
	"kprobe/internal/calls"
	"kprobe/internal/inside"
	"kprobe/internal/patch"
	"kprobe/internal/probed"
)

// exit is one probed exit of a function with a return probe: a probe of the session's own, which no list shows
// and no count counts.
type exit struct {
	probe Probe
	rt    *Return
	kind  patch.ExitKind
	pt    *probed.Point

	caller // there is none: what it would have
}

func newExit(rt *Return, x patch.Exit, pt *probed.Point) *Probe {
	e := &exit{rt: rt, kind: x.Kind, pt: pt, caller: caller{addr: x.Addr, flags: *rt.entry.Flags}}
	e.probe.Prepare(rt.entry.home, e.asked())
	e.probe.Role = asExit{plain{&e.probe}, e}
	return &e.probe
}

// asExit is the role of a probe on an exit.
type asExit struct {
	plain
	x *exit
}

func (asExit) Internal() bool { return true }

func (r asExit) Entry() *probed.Probe { return &r.x.rt.entry.Probe }

// Trails is true: where a function's first instruction is its exit, too, the probe of the entry is served first.
func (asExit) Trails() bool { return true }

func (r asExit) work() (program, entry *Program) { return r.x.rt.Program, nil }

func (r asExit) Want(w *inside.Want, _ arch.Addr) error {
	rt := r.x.rt
	w.Exits = append(w.Exits, inside.Exit{Owner: rt.account, Again: r.x.kind == patch.Restart,
		Programs: use(rt.Program, rt.plan.Exits.Parts[0].Addr, rt.entry.Cookie)})
	return nil
}

func (asExit) Tally(d *inside.Detour) inside.Tally { return d.Tally() }
func (asExit) Fold(*inside.Detour)                 {}

func (r asExit) before(v *View) (moved bool) {
	if r.x.rt.Program == nil {
		r.x.left(v)
	}
	return false
}

// left is told of a thread at the exit.
func (e *exit) left(v *View) {
	rt, h, a := e.rt, e.probe.home, e.probe.home.On.Arch
	x := calls.Exit{Spot: v.Spot(), Kind: e.kind}
	after := v.R
	if e.pt.Site.Emulate(&after, h.On.T) == nil {
		x.Leads, x.Next = true, after.Addr(a.PC)
		x.Again = rt.plan.Exits.Restarts(x.Next)
		x.Stays = rt.plan.Exits.Contains(x.Next) // what follows may be another function
	}
	c, tail, ok := h.Calls.Leave(&rt.watch, x)
	if !ok {
		return
	}

	// The handler sees what it would see at the caller's: registers after the
	// return. At a tail jump that is still to come.
	pc, sp := v.R[a.PC], v.R[a.SP]
	if tail && a.RetAddrOnStack {
		after[a.SP] = sp + uint64(a.PtrSize)
	}
	c.Instance.Tail = tail
	v.R[a.PC], v.R[a.SP] = uint64(c.RetAddr), after[a.SP]
	rt.Hits.Add(1)
	rt.Handlers.Returned(c.Instance, v)
	v.R[a.PC], v.R[a.SP] = pc, sp
	h.Calls.Done(c)
}
