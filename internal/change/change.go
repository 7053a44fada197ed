// Package change carries out changes of what stands in a target as transactions: all of a
// change, or nothing.
//
//	phase   target   what happens                                         if it fails
//	plan    runs     each part decides on bytes and addresses             plans are dropped
//	afford  runs     is there memory for all of it?                       plans are dropped
//	map     stands   memory is mapped, a few pieces at a stop             plans are dropped
//	fill    runs     what no thread comes to yet is written there         plans are dropped
//	ahead   runs     the text's rewriting is planned, and what it needs   plans are dropped
//	commit  stands   the parts in order, the text last                    undone, the text last
//	adopt   stands   plans become true                                    (cannot)
//
// The package knows no probes and no processes: a part is what says what it does in each
// phase, and Target is all that is asked of what is changed.
package change

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"kprobe/arch"
	"kprobe/target"
)

// Target is what is changed.
type Target interface {
	// Frozen runs a function while every thread stands still. Errors: f's; its own, f not
	// having run.
	Frozen(f func() error) error
	// Meanwhile runs a function that may write where no thread is, while threads run.
	Meanwhile(f func() error) error
	// Insist tries again, for a while, what cannot be done just now.
	Insist(try func(last bool) error) error
}

// Rester is a Target that may stand anyway.
type Rester interface {
	// AtRest runs a function if the target stands, where Frozen and Meanwhile cost nothing. It answers
	// false where it does not, and the function has not run.
	AtRest(f func()) (ran bool)
}

// Together is a Target to which pieces of memory come quicker when they are mapped in one go.
type Together interface {
	Together(f func() error) error
}

// Limited is a Target that may have only so much memory.
type Limited interface {
	// Afford tells whether it can have what is needed. Errors: why not.
	Afford(target.Need) error
}

// Part is one thing that a change is made of: slots, detours, links ... It begins with
// Nothing and says what it does.
type Part interface {
	// Plan decides on everything, and changes nothing. It begins afresh each time.
	Plan() error
	// Maps are the pieces of memory to be mapped, each by a call in a stop. It is asked when all
	// parts are planned, as Fills is.
	Maps() []func() error
	// Writes are where the part writes, or has the target write. It is asked when all parts are planned, as Maps is.
	Writes() []arch.Range
	// Fills write what no thread comes to yet, while threads run.
	Fills() []func() error
	// Commit does the part in the stop, all or nothing.
	Commit() error
	// Undo takes it back, in the same stop: something after it could not be done.
	Undo()
	// Adopt makes the plan true, in the stop, when nothing can fail any more.
	Adopt()
	// Drop gives up a plan that came to nothing, while threads run. Plan may have failed half
	// way.
	Drop()
	// Lines say what is planned, a line each; nil for nothing.
	Lines() []string
}

// Nothing is a part that does nothing.
type Nothing struct{}

func (Nothing) Plan() error           { return nil }
func (Nothing) Maps() []func() error  { return nil }
func (Nothing) Writes() []arch.Range  { return nil }
func (Nothing) Fills() []func() error { return nil }
func (Nothing) Commit() error         { return nil }
func (Nothing) Undo()                 {}
func (Nothing) Adopt()                {}
func (Nothing) Drop()                 {}
func (Nothing) Lines() []string       { return nil }

// Text is what threads run into. It follows from the rest, and so comes last: when it is
// committed, and when that is undone.
type Text interface {
	// Writes is as a Part's.
	Writes() []arch.Range
	// Ahead plans the rewriting, and writes what no thread comes to yet.
	Ahead(Target) error
	// Commit rewrites, all or nothing.
	Commit() error
	// Undo has the text be what it should be when the parts are as they were.
	Undo()
	Lines() []string
}

// Change is one transaction.
type Change struct {
	What  string // "register"
	Parts []Part
	Text  Text // nil: no text changes

	// Frees tells of a change that takes more out of the target than it brings: it is not refused for want of memory.
	Frees bool

	// Later tells, in the stop, that the commit had better wait for another one, a moment later. nil: never. It is asked a
	// few times, and then the commit is as good as it can be.
	Later func() bool

	// Over tells, at every step before the commit, that the change is no longer wanted: it is given up with that error. nil: it
	// is wanted. Errors: any.
	Over func() error
}

// stops is how many there are for a commit that had better wait.
const stops = 5

// AtOnce bounds the probes of one change: its stop takes some 4 microseconds for each, and three times
// that on a busy machine. Changes of more are several, one after the other.
const AtOnce = 4096

// mapsAtATime is how many pieces of memory are mapped in one stop.
const mapsAtATime = 16

// Insist is Do that tries again for a while where the target is not ready, or something is
// mapped by now where the plan had its memory: neither lasts.
func (c *Change) Insist(t Target) error {
	return t.Insist(func(bool) (err error) {
		if r, ok := t.(Rester); !ok || c.Later != nil || !r.AtRest(func() { err = c.Do(t) }) {
			err = c.Do(t)
		}
		return err
	})
}

// Do carries the change out, all or nothing. Errors: those of the part that failed; the
// target's. Where the target fails after the commit, the change stays.
func (c *Change) Do(t Target) error {
	planned, err := c.plan()
	if err == nil {
		err = c.prepare(t)
	}
	done := false
	pause := time.Millisecond
	for left, later := stops, true; err == nil && later; left-- {
		if err = c.over(); err != nil {
			break
		}
		err = t.Frozen(func() error {
			if later = left > 1 && c.Later != nil && c.Later(); later {
				return nil
			}
			if err := c.commit(); err != nil {
				return err
			}
			done = true
			for _, p := range c.Parts {
				p.Adopt()
			}
			return nil
		})
		if later && err == nil {
			time.Sleep(pause)
			pause *= 2
		}
	}
	if !done {
		for _, p := range slices.Backward(c.Parts[:planned]) {
			p.Drop()
		}
	}
	return err
}

// plan has every part plan. It answers how many have begun to.
func (c *Change) plan() (begun int, err error) {
	for _, p := range c.Parts {
		begun++
		if err := p.Plan(); err != nil {
			return begun, err
		}
		if err := c.over(); err != nil {
			return begun, err
		}
	}
	return begun, nil
}

func (c *Change) over() error {
	if c.Over == nil {
		return nil
	}
	return c.Over()
}

// prepare does what can be done before the stop.
func (c *Change) prepare(t Target) error {
	if err := c.afford(t); err != nil {
		return err
	}
	var maps, fills []func() error
	for _, p := range c.Parts {
		maps = append(maps, p.Maps()...)
	}
	for some := range slices.Chunk(maps, mapsAtATime) {
		if err := t.Frozen(func() error { return together(t, func() error { return each(some) }) }); err != nil {
			return err
		}
		if err := c.over(); err != nil {
			return err
		}
	}
	for _, p := range c.Parts {
		fills = append(fills, p.Fills()...)
	}
	for _, f := range fills {
		if err := t.Meanwhile(f); err != nil {
			return err
		}
		if err := c.over(); err != nil {
			return err
		}
	}
	if c.Text == nil {
		return nil
	}
	return c.Text.Ahead(t)
}

// afford tells whether the target can have the memory that the change takes.
func (c *Change) afford(t Target) error {
	l, ok := t.(Limited)
	if !ok || c.Frees {
		return nil
	}
	var need target.Need
	for _, p := range c.Parts {
		need.Written = append(need.Written, p.Writes()...)
	}
	if c.Text != nil {
		need.Written = append(need.Written, c.Text.Writes()...)
	}
	return l.Afford(need)
}

func together(t Target, f func() error) error {
	if t, ok := t.(Together); ok {
		return t.Together(f)
	}
	return f()
}

func each(fs []func() error) error {
	for _, f := range fs {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

// commit is the stop's work.
func (c *Change) commit() (err error) {
	done := 0
	for ; done < len(c.Parts) && err == nil; done++ {
		if err = c.Parts[done].Commit(); err != nil {
			break
		}
	}
	text := err == nil && c.Text != nil
	if text {
		err = c.Text.Commit()
	}
	if err == nil {
		return nil
	}
	for _, p := range slices.Backward(c.Parts[:done]) {
		p.Undo()
	}
	if text {
		c.Text.Undo()
	}
	return err
}

// String prints the change as far as it is planned, a line for each thing.
func (c *Change) String() string {
	var b strings.Builder
	fmt.Fprintln(&b, c.What)
	lines := func(phase string, ls []string) {
		for _, l := range ls {
			fmt.Fprintf(&b, "  %-6s  %s\n", phase, l)
		}
	}
	for _, p := range c.Parts {
		lines("part", p.Lines())
	}
	if c.Text != nil {
		lines("text", c.Text.Lines())
	}
	return b.String()
}
