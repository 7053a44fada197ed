package roles

import (
	"syscall"

	"kprobe/internal/errno"
	"kprobe/internal/watched"
	"kprobe/symbol"
	"kprobe/target"
)

// Data has a watchpoint watch a place.
type Data struct {
	Len         int
	Write, Read bool // these only; neither: both
	Later       bool // something may be mapped at the address later
	Fired       func(*View)

	loc symbol.Loc // since it has been found; in no file, perhaps
}

// Access names the accesses that count, as definitions have them.
func (d *Data) Access() string {
	switch {
	case d.Write:
		return "w"
	case d.Read:
		return "r"
	}
	return "rw"
}

// PrepareData has a probe be on data. Errors: ENOTSUP, where the target does not watch such data; EINVAL.
func (p *Probe) PrepareData(h *Home, asked Asked, d *Data) error {
	none := h.Watches.Can()
	switch {
	case none != nil:
		return errno.New(syscall.ENOTSUP, "%v", none)
	case asked.Program != nil:
		return errno.New(syscall.EINVAL, "an access stops its thread, so no program can serve it")
	case d.Read && !h.Watches.Reads():
		return errno.New(syscall.ENOTSUP, "%s cannot watch for reads only; watch for both", h.On.Arch.Name)
	}
	p.Prepare(h, asked)
	p.Role = asData{plain{p}, d}
	return nil
}

// asData is the role of a probe on data.
type asData struct {
	plain
	d *Data
}

func (asData) Letter() byte  { return 'w' }
func (r asData) Data() *Data { return r.d }
func (r asData) Release()    { r.p.Role = r.plain }

func (r asData) Find() (symbol.Loc, error) {
	p := r.p
	return p.home.On.Image.Data(p.Name, *p.Addr, p.Offset, r.d.Len, r.d.Later)
}

func (r asData) Place() (symbol.Loc, bool) { return r.d.loc, r.p.at.Load() != nil }

// Join plans that one of the processor's is going to be the watchpoint's.
func (r asData) Join(b *Batch, loc symbol.Loc) error {
	ws := r.p.home.Watches
	if !ws.Spare(len(b.Watches)) {
		return errno.New(syscall.ENOSPC, "all %d debug registers are in use", ws.Len())
	}
	r.d.loc = loc
	b.Watches = append(b.Watches, r.p)
	return nil
}

func (r asData) Linked() { r.p.place(r.d.loc.Addr) }

// Watching is a part of a change: the processor watches what is registered now, and more.
func (h *Home) Watching(more ...*Probe) *watched.Change[*Probe] {
	return &watched.Change[*Probe]{Of: h.Watches, Add: more, Fail: h.On.Report}
}

// dataRules tell the debug registers of probes on data.
type dataRules struct{ h *Home }

func (r dataRules) Data(p *Probe) (target.Watch, bool) {
	d := p.As().Data()
	return target.Watch{Addr: d.loc.Addr, Len: d.Len, Write: d.Write, Read: d.Read}, !r.h.On.Points.Disarmed && p.Active()
}

func (dataRules) Placed(p *Probe)   { p.As().Linked() }
func (dataRules) Unplaced(p *Probe) { p.As().Unlinked() }

// OnData are those among probes that are on data.
func OnData(ps []*Probe) []*Probe {
	var ws []*Probe
	for _, p := range ps {
		if p.As().Data() != nil {
			ws = append(ws, p)
		}
	}
	return ws
}
