package pool

import (
	"errors"

	"kprobe/bpf"
)

// Maps are those of programs that several targets load.
type Maps struct {
	*Memory
	Of      *bpf.Collection
	Segment *bpf.Segment // as the controller's own programs have them: with one thread slot
}

// NewMaps makes memory for them. Errors: ErrNone; of shmget(2); maps that cannot be so.
func NewMaps(c *bpf.Collection) (*Maps, error) {
	l, err := bpf.ArrangePooled(c.Maps, 1)
	if err != nil {
		return nil, err
	}
	mem, err := New(int(max(l.Pool, 1)))
	if err != nil {
		return nil, err
	}
	const ownAt, poolAt = 1 << 40, 1 << 41 // addresses of none but programs of the controller's
	seg, err := l.BindPool(bpf.Words(l.Size), ownAt, mem.Ours(), poolAt)
	if err == nil {
		err = errors.Join(seg.Init(), seg.InitPool())
	}
	if err != nil {
		return nil, errors.Join(err, mem.Close())
	}
	return &Maps{mem, c, seg}, nil
}

// Unlock gives up the locks of maps that a process held when it ended.
func (m *Maps) Unlock(pid int) {
	for i := range m.Segment.Maps {
		m.Segment.Map(i).Unlock(pid)
	}
}
