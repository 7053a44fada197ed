package kprobe

import (
	"syscall"

	"kprobe/bpf"
	"kprobe/internal/inside"
	"kprobe/internal/pool"
	"kprobe/target"
)

// Pool is memory for the maps of programs that several sessions load (Session.LoadPooled): one set of maps, on
// which all of these processes work at the same time. Rings, maps of values per thread, and maps that are Apart are
// each session's own all the same, and one more set of these is the controller's (Segment).
type Pool struct{ maps *pool.Maps }

// NewPool makes the memory. Errors: EINVAL; ENOTSUP: the system has none, or gives none; or there are maps that cannot be so.
func NewPool(c *bpf.Collection) (*Pool, error) {
	if c == nil {
		return nil, fail(syscall.EINVAL, "no collection of programs given")
	}
	m, err := pool.NewMaps(c)
	if err != nil {
		return nil, &Error{Errno: syscall.ENOTSUP, Err: err}
	}
	return &Pool{m}, nil
}

// Segment is the memory of all maps as the controller's own programs (bpf.VM) may use it: it has one thread slot.
func (p *Pool) Segment() *bpf.Segment { return p.maps.Segment }

// Close gives up the controller's side. What the sessions have loaded is of no use then.
func (p *Pool) Close() error { return p.maps.Close() }

// share maps the pool in a session's target; nil is none.
func (p *Pool) share(s *Session, ps *Programs) (m inside.Memory, err error) {
	if p == nil {
		return m, nil
	}
	if ps.pooled, err = s.within.SharePool(p.maps); err != nil {
		return m, err
	}
	return ps.pooled.Memory, nil
}

// unlock gives up the locks of a pool's maps that the target held when it ended.
func (ps *Programs) unlock() {
	if ps.pool != nil {
		ps.pool.maps.Unlock(ps.tgid)
	}
}

// Free gives the memory back that a closed session's own maps have in the controller: a Map of Programs must not be used any more.
// One of the Pool can. Errors: EBUSY where the session is not closed; of munmap(2).
func (ps *Programs) Free() error {
	if !ps.s.turns.Closed.Load() {
		return fail(syscall.EBUSY, "the session is not closed")
	}
	if ps.maps == nil {
		return nil
	}
	defer func() { ps.maps = nil }()
	return ps.s.on.T.(target.Sharer).Unshare(ps.maps.Ours)
}
