// Package watched has the debug registers of a target: which watchpoint has which of them, and what
// the target watches by them.
//
//	watched.go  the registers
//	change.go   how they change, as part of a change
package watched

import (
	"errors"
	"slices"
	"sync"
	"syscall"

	"kprobe/arch"
	"kprobe/internal/errno"
	"kprobe/internal/owner"
	"kprobe/target"
)

// Rules are what the registers must know of what is watched.
type Rules[W any] interface {
	// Data is what the target is to watch of it, and whether it is to do so now.
	Data(W) (w target.Watch, now bool)
	// Placed is told of one that has got a register, Unplaced of one that has none after all.
	Placed(W)
	Unplaced(W)
}

// Registers are those of one target, and W is what has one. What they have is changed by the owner
// thread with view held.
type Registers[W comparable] struct {
	t     target.Watcher // nil: data cannot be watched
	none  error          // why
	owner *owner.Owner
	view  *sync.RWMutex
	rules Rules[W]
	of    []W            // by register; zero: free
	now   []target.Watch // what the target watches
}

// New has all registers free.
func New[W comparable](t target.Target, o *owner.Owner, view *sync.RWMutex, rules Rules[W]) *Registers[W] {
	r := &Registers[W]{owner: o, view: view, rules: rules}
	w, can := t.(target.Watcher)
	if !can {
		r.none = errors.New("the target cannot watch data")
		return r
	}
	var n int
	if n, r.none = w.Watches(); r.none == nil {
		r.t, r.of, r.now = w, make([]W, n), make([]target.Watch, n)
	}
	return r
}

// Can tells why the target cannot watch data; nil where it can.
func (r *Registers[W]) Can() error { return r.none }

// Reads tells whether it can watch for reads only.
func (r *Registers[W]) Reads() bool { return r.t != nil && r.t.WatchesReads() }

// Len is how many registers there are.
func (r *Registers[W]) Len() int { return len(r.of) }

// Spare tells whether there is a register for one more, beside what is planned.
func (r *Registers[W]) Spare(planned int) bool {
	r.view.RLock()
	defer r.view.RUnlock()
	return planned+len(r.All()) < r.Len()
}

// All is what has registers.
func (r *Registers[W]) All() []W {
	var none W
	return slices.DeleteFunc(slices.Clone(r.of), func(p W) bool { return p == none })
}

// In is what is to be watched now by the registers whose bits are set.
func (r *Registers[W]) In(set uint) (ps []W) {
	var none W
	for i, p := range r.of {
		if p == none || set>>i&1 == 0 {
			continue
		}
		if _, now := r.rules.Data(p); now {
			ps = append(ps, p)
		}
	}
	return ps
}

// Renew has the frozen target watch what it is to watch now. It answers what it watched before, for
// Set. Errors: the target's.
func (r *Registers[W]) Renew() (was []target.Watch, err error) {
	var none W
	set := make([]target.Watch, len(r.of))
	for i, p := range r.of {
		if p == none {
			continue
		}
		if w, now := r.rules.Data(p); now {
			set[i] = w
		}
	}
	was = r.now
	return was, r.Set(set)
}

// Set has the frozen target watch a set, one for each register. Errors: the target's.
func (r *Registers[W]) Set(set []target.Watch) error {
	if slices.Equal(set, r.now) {
		return nil
	}
	if err := r.t.Watch(set); err != nil {
		var no syscall.Errno
		if errors.As(err, &no) {
			err = &errno.Error{Errno: no, Err: err}
		}
		return err
	}
	r.now = set
	return nil
}

// Forget is for a target that has executed another program: it watches nothing.
func (r *Registers[W]) Forget() {
	clear(r.of)
	clear(r.now)
}

// Touched are the registers that an access concerns which the processor does not see, as bits.
func (r *Registers[W]) Touched(a arch.Addr, n int, write bool) (set uint) {
	for i, w := range r.now {
		if w.Len > 0 && a < w.Addr+arch.Addr(w.Len) && w.Addr < a+arch.Addr(n) && (write || !w.Write) && !(write && w.Read) {
			set |= 1 << i
		}
	}
	return set
}
