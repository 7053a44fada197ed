package kprobe

import (
	"syscall"

	"kprobe/bpf"
	"kprobe/internal/pool"
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
