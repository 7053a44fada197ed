package parts

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"syscall"

	"kprobe/arch"
	"kprobe/internal/change"
	"kprobe/internal/errno"
	"kprobe/internal/inside"
	"kprobe/internal/patch"
	"kprobe/internal/probed"
	"kprobe/internal/text"
)

// Detours is a change of what probes run inside the target: planned while it
// runs, carried out while it stands still.
type Detours struct {
	change.Nothing
	Kit   *Kit
	After map[*probed.Point][]*probed.Probe // for each point where they change, which they will be
	Taken func(arch.Addr) bool              // where points will be
	Over  func() error                      // as change.Change has it

	batch *inside.Batch                    // nil: no change, or adopted
	at    map[*probed.Point]*inside.Detour // nil: none any more
	pts   []*probed.Point                  // these, in order: a stop of the target goes through them
	then  []*inside.Detour                 // and what each has then
	lost  []arch.Range                     // planned, and not to be had

	planned []*inside.Detour // in order of their sites
}

func (c *Detours) Plan() error {
	k := c.Kit
	c.batch, c.at, c.lost, c.planned, c.pts, c.then = nil, nil, nil, nil, nil, nil
	if len(c.After) == 0 {
		return nil
	}
	if err := k.checkCounters(c.After); err != nil {
		return err
	}
	c.batch, c.at = k.Within.Begin(), make(map[*probed.Point]*inside.Detour)
	for _, pt := range slices.SortedFunc(maps.Keys(c.After), probed.ByAddr) {
		if c.Over != nil {
			if err := c.Over(); err != nil {
				return err
			}
		}
		ps := c.After[pt]
		if len(ps) == 0 {
			c.set(pt, nil)
			continue
		}
		d, err := c.plan(pt, ps)
		if err != nil {
			return ps[0].Named(&errno.Error{Errno: syscall.EINVAL, Err: err})
		}
		k.Within.Runs(d, ps)
		c.set(pt, d)
		c.planned = append(c.planned, d)
	}
	c.batch.Finish()
	return nil
}

func (c *Detours) set(pt *probed.Point, d *inside.Detour) {
	c.at[pt] = d
	c.pts, c.then = append(c.pts, pt), append(c.then, d)
}

// changes tells whether a point's detour is another one then.
func (c *Detours) changes(pt *probed.Point) bool { _, yes := c.After[pt]; return yes }

// Maps maps what a change needs piece by piece: nothing leads there yet.
func (c *Detours) Maps() (fs []func() error) {
	if c.batch == nil {
		return nil
	}
	for _, r := range c.batch.Map {
		fs = append(fs, func() error {
			if err := c.Kit.On.Room.Map(r); err != nil {
				if errors.Is(err, syscall.EEXIST) {
					c.lost = append(c.lost, r)
				}
				return err
			}
			c.Kit.Within.Mapped(r)
			return nil
		})
	}
	return fs
}

func (c *Detours) Writes() []arch.Range {
	if c.batch == nil {
		return nil
	}
	return ranges(c.batch.Writes)
}

func (c *Detours) Fills() []func() error {
	if c.batch == nil {
		return nil
	}
	return c.Kit.fill(c.batch.Writes)
}

// Commit has the jumps to old detours become traps with the text.
func (c *Detours) Commit() error {
	if c.batch == nil {
		return nil
	}
	if err := c.batch.Commit(c.Kit.On.T); err != nil {
		return err
	}
	for _, pt := range c.pts {
		pt.Unready()
	}
	return nil
}

func (c *Detours) Lines() (ls []string) {
	for _, d := range c.planned {
		jump := "no jump: " + d.Reason
		if d.Optimizable() {
			jump = "jump " + d.Way.Tactic.String()
		}
		ls = append(ls, fmt.Sprintf("detour of %v at %v, %s", d.Site, d.At, jump))
	}
	return ls
}

// checkCounters tells before any work is done that there are too few counters for it. Errors: ENOSPC.
func (k *Kit) checkCounters(after map[*probed.Point][]*probed.Probe) error {
	need := 0
	for pt, ps := range after {
		if pt.Detour != nil {
			continue // which has some, and gives them back
		}
		for _, p := range ps {
			if p.Misses() {
				need++
				break
			}
		}
		need++
	}
	if spare := k.Within.Spare(); need > spare {
		return errno.New(syscall.ENOSPC, "%d counters would be needed, and the target has room for %d more", need, spare)
	}
	return nil
}

// want gives the parts that all detours of a point have in common.
func (k *Kit) want(pt *probed.Point) inside.Want {
	return inside.Want{Site: pt.Addr, Near: k.On.Near(pt), Code: pt.Site.Original, Go: pt.Loc.Go(), Jump: k.On.JumpAt(pt)}
}

func (c *Detours) plan(pt *probed.Point, ps []*probed.Probe) (*inside.Detour, error) {
	k := c.Kit
	w := k.want(pt)
	w.Jump = w.Jump.Beside(func(a arch.Addr) bool { return c.Taken(a) || k.On.Points.Ahead(a, c.changes) })
	if k.On.Kind.Shared() { // the detour would have what is others' to rewrite, jump or not
		w.Jump = w.Jump.Without(func(span arch.Range) string { return k.On.Kind.Owned(span.Start, span.End) })
	}
	if w.Jump != nil {
		w.Ahead = func() *patch.Jump {
			j := k.On.Image.Ahead(pt.Loc, c.Taken)
			if k.On.Points.Reaches(pt.Addr, j.Addr, c.planned, c.changes) {
				return &patch.Jump{Addr: pt.Addr}
			}
			return j
		}
	}
	entry := pt.Addr - arch.Addr(pt.Loc.Off)
	for _, p := range ps {
		if err := p.Want(&w, entry); err != nil {
			return nil, err
		}
	}
	return c.batch.Detour(w)
}

// Around adds to a change the points whose detours run the instructions of points that
// come or go: with a probe on these the detours must not, without they may.
func (k *Kit) Around(pts []*probed.Point, after map[*probed.Point][]*probed.Probe) {
	for _, pt := range pts {
		for _, n := range k.On.Points.Hiding(pt.Addr) {
			if _, planned := after[n]; !planned {
				after[n] = k.On.Points.Inside(n.Probes)
			}
		}
	}
}

// Entries counts what the lifeline may have to know for a change's detours.
func (c *Detours) Entries() (n int) {
	for pt, d := range c.at {
		n += probed.Entries(&text.Place{Addr: pt.Addr, Site: pt.Site, Detour: d})
	}
	if c.batch != nil {
		n += c.batch.Areas()
	}
	return n
}

// First is the detour that a point gets which has none; nil for none.
func (c *Detours) First(pt *probed.Point) *inside.Detour {
	if pt.Detour != nil {
		return nil
	}
	return c.at[pt]
}

// With are points, and those that change with a change, in order.
func (c *Detours) With(pts probed.List) probed.List {
	return pts.With(slices.Collect(maps.Keys(c.at))...)
}

// Drop gives a plan up of which nothing came.
func (c *Detours) Drop() {
	if c.batch == nil {
		return
	}
	c.batch.Undo()
	for _, d := range c.planned {
		c.Kit.Within.Gone(d)
	}
	for _, r := range c.lost {
		c.Kit.Within.Avoid(r)
	}
}

// Stays tells whether a point keeps its jump, or the trap that is led: to an old detour nothing leads any more.
func (c *Detours) Stays(pt *probed.Point) bool {
	_, changes := c.at[pt]
	return !changes
}

// Adopt makes a change's detours those of their points, when no jump leads
// to the old ones any more.
func (c *Detours) Adopt() {
	k := c.Kit
	if c.batch == nil {
		return
	}
	k.On.View.Lock()
	c.batch.Adopt()
	c.batch = nil
	k.On.Text.Unnoted()
	for i, pt := range c.pts {
		d := c.then[i]
		if pt.Detour != nil && pt.Detour != d { // a first one may have come with the jump to it
			k.Within.Retire(pt.Detour)
		}
		pt.Detour = d
	}
	k.On.View.Unlock()
	k.Within.Collect()
	k.On.Owner.After(k.Within.Drop)
}

// Alone is a detour that no point has, and to which nothing leads yet: the gate's.
type Alone struct {
	Detours
	Point   *probed.Point // is in no table
	Adopted func()        // is called with Ground.View held
}

func (g *Alone) Plan() error {
	k, pt := g.Kit, g.Point
	g.batch, g.planned = k.Within.Begin(), nil
	w := k.want(pt)
	w.Gate = true
	d, err := g.batch.Detour(w)
	if err == nil && !d.Optimizable() {
		err = errors.New(d.Reason)
	}
	if err != nil {
		return err
	}
	pt.Detour, g.planned = d, append(g.planned, d)
	g.batch.Finish()
	return nil
}

func (g *Alone) Adopt() {
	g.Kit.On.View.Lock()
	defer g.Kit.On.View.Unlock()
	g.batch.Adopt()
	g.Adopted()
}
