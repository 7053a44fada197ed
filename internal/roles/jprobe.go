package roles

import (
	"maps"
	"slices"
	"syscall"

	"kprobe/arch"
	"kprobe/internal/errno"
	"kprobe/internal/probed"
	"kprobe/symbol"
)

// asJprobe is the role of a probe at a function's entry that is the only one of its kind there.
type asJprobe struct {
	plain
	at func(symbol.Loc) error
}

// PrepareJprobe has a probe be a jprobe; at fits it to the function that it is on.
func (p *Probe) PrepareJprobe(h *Home, asked Asked, at func(symbol.Loc) error) {
	p.Prepare(h, asked)
	p.Role = asJprobe{plain{p}, at}
}

func (asJprobe) Letter() byte { return 'j' }
func (asJprobe) Trails() bool { return true }
func (r asJprobe) Release()   { r.p.Role = r.plain }

// Linked claims the function.
func (r asJprobe) Linked() {
	r.plain.Linked()
	r.p.home.alone[*r.p.Addr] = r.p
}

// Unlinked gives up the claim.
func (r asJprobe) Unlinked() {
	r.plain.Unlinked()
	maps.DeleteFunc(r.p.home.alone, func(_ arch.Addr, o *Probe) bool { return o == r.p })
}

func (r asJprobe) Fits(b *Batch, loc symbol.Loc) error {
	h := r.p.home
	if !h.On.Image.IsEntry(loc) {
		return errno.New(syscall.EINVAL, "a jprobe must be at a function's entry, and %s is not", loc)
	}
	at := loc.Addr
	isOne := func(q *probed.Probe) bool { _, j := q.Role.(asJprobe); return j }
	if h.alone[at] != nil || slices.ContainsFunc(b.Others(at), isOne) {
		return errno.New(syscall.EEXIST, "%s has a jprobe already", loc)
	}
	return r.at(loc)
}
