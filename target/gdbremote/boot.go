package gdbremote

import (
	"bytes"
	"time"

	"kprobe/arch"
	"kprobe/target"
)

// A machine may be reset under us. Its stub does not say so, and keeps our breakpoints: then
// another kernel is there, or none yet, and all our knowledge of the old one is wrong. So a caller
// that knows memory which only this boot has gives it here. It is looked at after each stop and
// before each change, and, because a new kernel may never come to an old breakpoint, every now and
// then.

// Fact is memory of a kernel that stays as it is as long as that runs, and that
// the next boot has not.
type Fact struct {
	Addr  arch.Addr
	Bytes []byte
}

// pulse is the time that a machine runs before it is looked at. A stop for that takes about a
// millisecond.
const pulse = time.Second

// Identify makes facts the mark of this boot from now on. Where they do not hold any more the
// machine has been reset: it is let go, without breakpoints, and ErrGone says why. Nothing is
// written into it.
func (t *Target) Identify(facts []Fact) {
	t.c.enter()
	defer t.c.leave()
	t.facts = facts
}

// sameBoot gives the machine up if it is not the one that was identified.
func (t *Target) sameBoot() error {
	if len(t.facts) == 0 || t.over {
		return nil
	}
	if same, err := t.unmoved(); same || err != nil {
		return err
	}
	t.forget()
	return t.recognize()
}

// unmoved tells whether the CPU that has shown the facts still has all the registers that it
// had then: a reset gives it others, and nothing else can happen while the machine stands.
func (t *Target) unmoved() (bool, error) {
	then := t.regs[t.witness]
	if t.witness == 0 || then == nil {
		return false, nil
	}
	now, err := t.ask(t.witness)
	return bytes.Equal(now, then), err
}

// recognize is sameBoot where nothing is known of the CPUs from before.
func (t *Target) recognize() error {
	if len(t.facts) == 0 {
		return nil
	}
	same, err := t.holds()
	if err != nil || same {
		return err
	}
	return t.letReset()
}

// holds tells whether a CPU sees the facts, by the page tables that it has now:
// of the others each may be one that was never started. A stub that goes through the
// tables itself may not see the kernel while a program runs (page-table isolation): that
// says nothing.
func (t *Target) holds() (bool, error) {
	current, unseen := t.current, false
	defer func() { t.current = current }()
	first := []target.Thread{current}
	for _, th := range append(first, t.threads()...) {
		t.current = th
		seen := true
		for _, f := range t.facts {
			have := make([]byte, len(f.Bytes))
			// That nothing is there is no error, but that the stub is gone is.
			if err := t.read(f.Addr, have); t.c.dead() != nil {
				return false, t.c.dead()
			} else if err != nil || !bytes.Equal(have, f.Bytes) {
				seen = false
				unseen = unseen || err != nil && !t.has.physical
				break
			}
		}
		if seen {
			t.witness = th
			return true, nil
		}
	}
	return unseen, nil
}

// letReset takes the breakpoints out, which would stop whatever runs there, and
// lets it go.
func (t *Target) letReset() error {
	for a := range t.breaks {
		t.putBreak('z', a) // a breakpoint that cannot be taken out is the stub's end, or was not there
	}
	clear(t.breaks)
	t.detach()
	return t.giveUp("the machine was reset; nothing of the probes is left in it")
}

// change is still for what writes to the target.
func (t *Target) change(f func() error) error {
	return t.still(func() error {
		if err := t.sameBoot(); err != nil {
			return err
		}
		return f()
	})
}

// due is the time when the running machine is to be looked at; never, for the zero time.
func (t *Target) due() time.Time {
	if at := t.look.Load(); at != 0 {
		return time.Unix(0, at)
	}
	return time.Time{}
}

// isDue tells whether it is time.
func (t *Target) isDue() bool {
	at := t.due()
	return !at.IsZero() && !time.Now().Before(at)
}

// setDue counts from now on.
func (t *Target) setDue() {
	if len(t.facts) > 0 {
		t.look.Store(time.Now().Add(pulse).UnixNano())
	}
}
