package kernel

import (
	"fmt"

	"kprobe/arch"
)

// Over tells of stack slots whether no task comes back to them: the stack has been left as far as
// that, or is no task's any more. While a CPU stands on a stack of another kind than tasks and
// interrupts have, that is not known.
func (t *Target) Over() (func(slot arch.Addr) bool, error) {
	s, err := t.findStacks()
	if err != nil {
		return nil, err
	}
	type stack struct {
		arch.Range
		live arch.Addr
	}
	var all []stack
	find := func(at arch.Addr) *stack {
		for i := range all {
			if at >= all[i].Start && at <= all[i].End {
				return &all[i]
			}
		}
		return nil
	}
	err = s.each(t, func(r arch.Range, live arch.Addr) error {
		all = append(all, stack{r, live})
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, th := range t.Threads() {
		var r arch.Regs
		if err := t.Regs(th, &r); err != nil {
			return nil, err
		}
		if r.Addr(t.Arch().PC) >= kernelHalf && find(r.Addr(t.Arch().SP)) == nil {
			return nil, fmt.Errorf("CPU %d is on a stack that is not known", t.CPU(th))
		}
	}
	return func(slot arch.Addr) bool {
		st := find(slot)
		return st == nil || slot < st.live
	}, nil
}
