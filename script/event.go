package script

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"kprobe/script/point"
)

// eventful is a kernel that switches its trace events on and off when it is asked to.
type eventful interface {
	SetEvent(ctx context.Context, system, name string, on bool) error
}

// switching is how long a kernel may take for that: until some task begins something that it can do it for.
const switching = 20 * time.Second

// switchOn has the kernel make records of the script's trace events. One that somebody else has switched on stays as it is.
func (t *target) switchOn() error {
	for _, p := range t.r.s.plan.Probes {
		for _, pt := range p.Points {
			e := pt.Event
			if e == nil || e.On || slices.Contains(t.events, e) {
				continue
			}
			if err := t.set(e, true); err != nil {
				return err
			}
			t.events = append(t.events, e)
		}
	}
	return nil
}

// switchOff takes that back.
func (t *target) switchOff() (err error) {
	for len(t.events) > 0 && !t.over() {
		err = errors.Join(err, t.set(t.events[0], false))
		t.events = t.events[1:]
	}
	return err
}

func (t *target) set(e *point.Event, on bool) error {
	k, ok := t.session.Target().(eventful)
	if !ok {
		return fmt.Errorf("%s: this kernel's trace events cannot be switched on", e)
	}
	ctx, cancel := context.WithTimeout(context.Background(), switching)
	defer cancel()
	return k.SetEvent(ctx, e.System, e.Name, on)
}
