// Package optimize makes what stands at points quicker (kprobes.txt 1.4). A point whose probes all run inside the
// target, and where registration could write no jump yet, has a trap that leads its threads to a detour. The trap becomes
// a jump there, if nothing speaks against it; in a kernel, where a trap is a stop, else one that is led. The detour is the same, so nobody can
// tell but by the clock.
//
//	optimize.go  which points, and the change
//	gate.go      how a kernel's traps are led to detours
package optimize

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"kprobe/internal/change"
	"kprobe/internal/inside"
	"kprobe/internal/parts"
	"kprobe/internal/patch"
	"kprobe/internal/planned"
	"kprobe/internal/probed"
	"kprobe/internal/text"
	"kprobe/internal/within"
	"kprobe/symbol"
	"kprobe/target"
)

// delay is a point's wait for its jump: the kernel's five ticks.
const delay = 20 * time.Millisecond

// giveWayDelay is how long it takes until jumps, and traps in a kernel's text, are tried again that had
// to go.
const giveWayDelay = time.Second

// longestPause is how long it takes at most until jumps are tried again that a thread stands in the way of which cannot
// be looked at.
const longestPause = time.Minute

// Optimizer is that of one session.
type Optimizer struct {
	kit    *parts.Kit
	gate   gate
	turn   func(f func())
	tried  func()
	coming bool // a run, soon
	stuck  bool // a thread that cannot be looked at has kept all jumps from being made

	pause   time.Duration // until they are tried again
	waiting atomic.Bool   // that has begun
}

// New has no gate yet. turn calls a function in a turn of its own, unless the target must not be changed any more.
// tried is called there after each attempt to make jumps.
func New(kit *parts.Kit, turn func(f func()), tried func()) *Optimizer {
	return &Optimizer{kit: kit, gate: gate{kit: kit}, turn: turn, tried: tried}
}

// Soon has jumps made in a little while, so that many are made at once. It is called in a turn.
func (o *Optimizer) Soon() {
	if !o.coming && o.kit.Within.Some() {
		o.coming = true
		time.AfterFunc(delay, o.Now)
	}
}

// Now makes jumps of the traps that can be.
func (o *Optimizer) Now() { o.turn(o.run) }

// Wait makes jumps until no point waits for its own: each has it, or keeps the trap. A thread that cannot be looked at,
// since it sleeps uninterruptibly or waits in vfork, is waited for, but not for long.
func (o *Optimizer) Wait() {
	for look := 1; ; look++ {
		stuck := false
		if o.turn(func() { o.run(); stuck = o.stuck }); !stuck || look == 5 {
			return
		}
		time.Sleep(delay)
	}
}

// Forget is for a target that has executed another program, or was let go: nothing of ours is there.
func (o *Optimizer) Forget() { o.gate.place, o.gate.found = nil, nil }

// run makes jumps of the traps that can be, as the target is now.
func (o *Optimizer) run() {
	o.coming, o.stuck = false, false
	if !o.kit.Within.Some() {
		return
	}
	o.report(o.kit.Within.Reconsider())
	pts, after := o.kit.Crowded()
	if len(pts) > 0 {
		err := o.kit.Redetour(pts, after)
		for _, pt := range pts {
			pt.Crowded = pt.Crowded != (err == nil)
		}
		o.report(err)
	}
	tried := o.jumps()
	if len(pts) > 0 { // detours are others by now
		o.Soon()
	}
	if tried {
		o.tried()
	}
}

// jumps makes jumps, and traps that are led, of what stands at points. It answers whether anything was tried.
func (o *Optimizer) jumps() bool {
	on := o.kit.On
	soon := on.Points.Present()
	soon.Hope = func(*probed.Point) bool { return true }
	var pts probed.List
	gated := false
	for _, pt := range on.Points.List {
		have, want := on.Standing(pt), soon.Wanted(pt)
		if have != text.Trap && have != text.Beside || want != text.Trap && want != text.Jump || want == have {
			continue
		}
		pts = append(pts, pt)
		gated = gated || soon.Leadable(pt) && (want == text.Trap || pt.Refused)
	}
	if gated {
		if err := o.gate.plan(); err != nil {
			o.gate.refuse(err)
			on.Report(fmt.Errorf("traps in the kernel stay stops: %w", err))
		}
	}
	for piece := range slices.Chunk(pts, change.AtOnce) {
		o.report(o.vacate(piece, soon))
	}
	return len(pts) > 0
}

// report has an error be told, unless the target has ended, or code has been unmapped, which the next look at the mappings finds.
func (o *Optimizer) report(err error) {
	if !errors.Is(err, syscall.ESRCH) && !errors.Is(err, syscall.EFAULT) {
		o.kit.On.Report(err)
	}
}

// vacate makes jumps, and traps that are led, of what stands at some points, in one stop. Errors: as of change.Change.
func (o *Optimizer) vacate(pts probed.List, soon *probed.Outlook) error {
	v := &vacating{o: o, soon: soon, pts: pts, text: o.kit.Rewriting(func() probed.List { return pts })}
	for _, pt := range pts {
		if soon.Wanted(pt) == text.Jump {
			v.jumps, v.detours = append(v.jumps, pt), append(v.detours, pt.Detour)
		}
	}
	v.text.As = func() *probed.Outlook { return soon }
	c := &change.Change{What: "optimize", Parts: []change.Part{v}, Text: v.text, Over: o.kit.On.Ended}
	return c.Do(o.kit.On.Owner)
}

// JumpAt says how a jump could stand at a point. It is not known where the target has nothing inside.
func (o *Optimizer) JumpAt(pt *probed.Point) planned.Means {
	if !o.kit.Within.Can() {
		return planned.Means{}
	}
	how, why := o.kit.Tactic(pt)
	if why != "" {
		return planned.None(why)
	}
	return planned.Means{How: how.String()}
}

// JumpAtReturns is JumpAt for a function's return in a kernel: a program would run there if all of them can be. site
// has a place analysed, unless it was.
func (o *Optimizer) JumpAtReturns(entry *probed.Point, site func(symbol.Loc) (*patch.Site, error)) planned.Means {
	on := o.kit.On
	plan, err := o.kit.Within.PlanReturns(entry.Loc, within.Asked{Program: true, Site: site})
	if err != nil {
		return planned.None(err.Error())
	}
	j := o.JumpAt(entry)
	for _, x := range plan.Exits.Sites {
		loc, ok := on.Image.Space.At(x.Addr)
		if !ok || j.Why != "" {
			break
		}
		at, err := site(loc)
		if err != nil {
			return planned.None(err.Error())
		}
		exit := o.JumpAt(&probed.Point{Place: text.Place{Addr: x.Addr, Site: at}, Loc: loc})
		if exit.Why != "" {
			return planned.None(fmt.Sprintf("%s, at %v, where it returns", exit.Why, x.Addr))
		}
	}
	return j
}

// vacating finds out which of the traps can become jumps, or traps that are led, now: nobody is in what a
// jump would displace.
type vacating struct {
	change.Nothing
	o          *Optimizer
	soon       *probed.Outlook
	pts, jumps probed.List
	detours    []*inside.Detour // the jumps'
	text       *probed.Rewriting
}

func (v *vacating) Commit() error {
	on := v.o.kit.On
	trapped := make(map[target.Thread]bool)
	for _, st := range on.Owner.Stops {
		trapped[st.Thread] = st.Kind == target.StopTrap && !st.Back
	}
	room, err := inside.Vacate(on.T, on.Read, v.detours, trapped)
	if err != nil {
		return err
	}
	for _, pt := range v.jumps {
		pt.Optimized.Store(!room.Busy[pt.Detour])
		pt.Refused = room.Busy[pt.Detour]
	}
	trapping := slices.DeleteFunc(slices.Clone(v.pts), func(pt *probed.Point) bool {
		return pt.Optimized.Load() || !v.soon.Leadable(pt)
	})
	led, later := v.o.gate.leads(trapping)
	for _, pt := range trapping {
		pt.Led.Store(led[pt])
	}
	if v.o.stuck = v.o.stuck || room.Stuck; room.Stuck {
		v.o.wait()
	} else if v.o.pause = 0; room.Again || later {
		time.AfterFunc(giveWayDelay, v.o.Now)
	}
	switch {
	case on.Kind.OnCPUs() && (len(v.jumps) < len(v.pts) || len(room.Busy) > 0):
		v.text.Anew(on.Points.Present()) // not all that was hoped for
	case len(room.Busy) > 0:
		v.text.Refuse(room.Busy)
	}
	return nil
}

// wait has jumps tried again later. A look stops the target, so there are fewer of them by and by; a look that is asked
// for meanwhile changes nothing about it.
func (o *Optimizer) wait() {
	if o.waiting.Swap(true) {
		return
	}
	o.pause = min(max(2*o.pause, giveWayDelay), longestPause)
	time.AfterFunc(o.pause, func() {
		o.waiting.Store(false)
		o.Now()
	})
}

func (v *vacating) Undo() {
	for _, pt := range v.pts {
		pt.Unready()
	}
}

// GiveWay puts the text back for a thread that is about to rewrite it. Later the
// points have their jumps again, unless it has left something there. It is called by the owner thread.
func (o *Optimizer) GiveWay(th target.Thread) {
	on := o.kit.On
	var pts []*probed.Point
	for _, pt := range on.Points.List {
		if pt.Text == text.Jump || pt.Text == text.Trap {
			pt.Unready()
			pts = append(pts, pt)
		}
	}
	on.Report(on.Points.Rearm(pts))
	time.AfterFunc(giveWayDelay, o.Now)
	on.Report(on.T.Resume(th, 0))
}
