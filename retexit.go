package kprobe

import (
	"slices"
	"syscall"

	"kprobe/arch"
	"kprobe/internal/calls"
	"kprobe/internal/inside"
	"kprobe/internal/patch"
	"kprobe/internal/probed"
	"kprobe/internal/returns"
	"kprobe/internal/within"
	"kprobe/symbol"
)

// Engine says how a return probe notices returns.
type Engine uint8

const (
	// EngineAuto takes the swap where it is provably right, else the exits.
	EngineAuto = Engine(returns.None)
	// EngineSwap exchanges the return address on the stack, as the kernel does:
	// one trap at the entry and one at the return.
	EngineSwap = Engine(returns.Swap)
	// EngineExits probes each instruction that leaves the function, and leaves
	// the stack alone.
	EngineExits = Engine(returns.Exits)
)

// exit is one probed exit of a function with a return probe: the owner of an
// internal probe, which no list shows and no count counts.
type exit struct {
	rp   *Kretprobe
	kind patch.ExitKind
	pt   *point
}

// asExit is the role of a probe on an exit.
type asExit struct {
	plain
	*exit
}

func (asExit) internal() bool { return true }

func (r asExit) Entry() *probed.Probe { return &r.rp.Kp.probe }

// Trails: the entry may be the exit, too.
func (asExit) Trails() bool { return true }

func (r asExit) work() (program, entry *Program) { return r.rp.Program, nil }

func (r asExit) Want(w *inside.Want, _ arch.Addr) error {
	w.Exits = append(w.Exits, inside.Exit{Owner: r.rp.owner, Again: r.kind == patch.Restart, Programs: use(r.rp.Program, r.rp.plan.Exits.Parts[0].Addr, r.rp.Kp.Cookie)})
	return nil
}

func (asExit) Tally(d *inside.Detour) inside.Tally { return d.Tally() }
func (asExit) Fold(*inside.Detour)                 {}

// chooseEngine decides how the returns of a function are noticed. beside tells that its return address is swapped
// already, for a program of another probe. Errors: ENOTSUP.
func (s *Session) chooseEngine(b *batch, rp *Kretprobe, loc symbol.Loc, beside bool) (err error) {
	rp.plan, err = s.within.PlanReturns(loc, within.Asked{Site: b.Site,
		Engine: returns.Engine(rp.Engine), Program: rp.Program != nil, Overrides: rp.EntryProgram.overrides(), Beside: beside})
	rp.watch.Unwinds = err == nil && rp.plan.Unwinds
	return err
}

// engine tells how returns are noticed, and why so.
func (rp *Kretprobe) engine() string { return rp.plan.Told(len(rp.exits)) }

// Exits tells how many instructions are probed at which the function may be left, where that is
// how its returns are noticed, and at how many of them a jump leads to the probe's program.
func (rp *Kretprobe) Exits() (probed, jumps int) {
	s := rp.Kp.in.Load()
	if s == nil {
		return 0, 0
	}
	return s.shown.Load().Exits(&s.on.View, &rp.Kp.probe)
}

// prepareExits adds the probes on a function's exits to the batch that its
// entry is in.
func (s *Session) prepareExits(b *batch, rp *Kretprobe) error {
	rp.exits = nil
	if rp.plan.Swaps() {
		return nil
	}
	for _, x := range rp.plan.Exits.Sites {
		loc, ok := s.on.Image.Space.At(uint64(x.Addr))
		if !ok {
			return fail(syscall.EINVAL, "the exit at %v is in no code", x.Addr)
		}
		pt, err := b.Point(loc)
		if err == nil && pt.Site.Emulate == nil {
			err = fail(syscall.ENOTSUP, "where the exit at %v leads cannot be told", x.Addr)
		}
		if err != nil {
			return err
		}
		e := &exit{rp, x.Kind, pt}
		p := &Kprobe{Addr: x.Addr, Flags: rp.Kp.Flags}
		p.probe.Role = asExit{plain{p}, e}
		if rp.Program == nil {
			p.PreHandler = e.hit
		}
		rp.exits = append(rp.exits, p)
		b.Add(&p.probe, pt)
	}
	return nil
}

// withExits adds to some probes those on the exits of the return probes among them.
func withExits(ps []*Kprobe) []*Kprobe {
	all := slices.Clone(ps)
	for _, p := range ps {
		if rp := p.as().returns(); rp != nil {
			all = append(all, rp.exits...)
		}
	}
	return all
}

// idleExits are the exits of the return probes among some that have no calls under way.
func (s *Session) idleExits(ps []*Kprobe) (exits []*Kprobe) {
	for _, p := range ps {
		rp := p.as().returns()
		if rp != nil && len(rp.exits) > 0 && s.calls.Blind(&rp.watch) && (!s.within.Some() || s.within.Active(rp.owner) == 0) {
			exits = append(exits, rp.exits...)
		}
	}
	return exits
}

// hit is the pre-handler at an exit.
func (e *exit) hit(p *Kprobe, regs *Regs) int {
	rp, s := e.rp, regs.s
	x := calls.Exit{Spot: regs.spot(), Kind: e.kind}
	after := regs.r
	if e.pt.Site.Emulate(&after, s.on.T) == nil {
		x.Leads, x.Next = true, arch.Addr(after[s.on.Arch.PC])
		x.Again = rp.plan.Exits.Restarts(x.Next)
		x.Stays = rp.plan.Exits.Contains(x.Next) // what follows may be another function
	}
	c, tail, ok := s.calls.Leave(&rp.watch, x)
	if !ok {
		return 0
	}

	// The handler sees what it would see at the caller's: registers after the
	// return. At a tail jump that is still to come.
	pc, sp := regs.r[s.on.Arch.PC], regs.r[s.on.Arch.SP]
	if tail && s.on.Arch.RetAddrOnStack {
		after[s.on.Arch.SP] = sp + uint64(s.on.Arch.PtrSize)
	}
	c.Instance.Tail = tail
	regs.SetPC(c.RetAddr)
	regs.r[s.on.Arch.SP] = after[s.on.Arch.SP]
	rp.returned.Add(1)
	if rp.Handler != nil {
		s.callReturn(rp, c.Instance, regs)
	}
	regs.r[s.on.Arch.PC], regs.r[s.on.Arch.SP] = pc, sp
	s.calls.Done(c)
	return 0
}
