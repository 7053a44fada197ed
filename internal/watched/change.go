package watched

import (
	"fmt"
	"slices"
	"syscall"

	"kprobe/internal/change"
	"kprobe/internal/errno"
	"kprobe/target"
)

// Change is part of a change: the target watches what is to be watched then, and more.
type Change[W comparable] struct {
	change.Nothing
	Of   *Registers[W]
	Add  []W
	Fail func(error) // what cannot be undone is told to it

	was []target.Watch
}

func (c *Change[W]) Commit() (err error) {
	if len(c.Add) == 0 {
		c.was, err = c.Of.Renew()
		return err
	}
	if err = c.Of.give(c.Add); err == nil {
		_, err = c.Of.Renew()
	}
	if err != nil {
		c.takeBack()
	}
	return err
}

func (c *Change[W]) Undo() {
	if len(c.Add) > 0 {
		c.takeBack()
		return
	}
	c.fail(c.Of.Set(c.was))
}

func (c *Change[W]) Lines() (ls []string) {
	for _, p := range c.Add {
		w, _ := c.Of.rules.Data(p)
		ls = append(ls, fmt.Sprintf("watch %d bytes at %#x", w.Len, uint64(w.Addr)))
	}
	return ls
}

func (c *Change[W]) takeBack() {
	c.fail(c.Of.Remove(c.Add))
	for _, p := range c.Add {
		c.Of.rules.Unplaced(p)
	}
}

func (c *Change[W]) fail(err error) {
	if err != nil {
		c.Fail(err)
	}
}

// give gives each a register. Errors: ENOSPC.
func (r *Registers[W]) give(ps []W) (err error) {
	r.view.Lock()
	defer r.view.Unlock()
	var none W
	for _, p := range ps {
		i := slices.Index(r.of, none)
		if i < 0 {
			return errno.New(syscall.ENOSPC, "all %d debug registers are in use", r.Len())
		}
		r.of[i] = p
		r.rules.Placed(p)
	}
	return nil
}

// Remove takes the registers of some away, in the frozen target. Accesses that were
// reported and not served yet are nobody's now. Errors: the target's.
func (r *Registers[W]) Remove(ps []W) error {
	r.view.Lock()
	var none W
	for i, p := range r.of {
		if p == none || !slices.Contains(ps, p) {
			continue
		}
		r.of[i] = none
		for j := range r.owner.Stops {
			r.owner.Stops[j].Accessed &^= 1 << i
			r.owner.Stops[j].Among &^= 1 << i
		}
	}
	r.view.Unlock()
	_, err := r.Renew()
	return err
}
