// Package planned has the words for what registering a probe would do.
package planned

import (
	"fmt"

	"kprobe/arch"
)

// Verdict says what becomes of the instruction at a place.
type Verdict uint8

const (
	Unknown Verdict = iota
	Copy            // a copy of it runs, in a slot
	Emulate         // the engine does its work on the registers
	Step            // it runs where it stands, by a step
	Skip            // it does nothing, and is passed over
	Watch           // it has no probe: a debug register watches data
	Pending         // its file is not mapped yet
	Leave           // it is left out, since what stands there is in doubt
	Refuse          // it cannot be probed
)

var verdicts = [...]string{"", "copy", "emulate", "step", "skip", "watch", "pending", "not probed", "refuse"}

func (v Verdict) String() string { return verdicts[v] }

// Means is a way to serve a hit inside the target. The zero Means says that it was not looked for.
type Means struct {
	How string // "" where there is none
	Why string // there is none
}

// None is no means, for a reason.
func None(why string) Means { return Means{Why: why} }

// Can tells whether there is one.
func (m Means) Can() bool { return m.How != "" }

// Known tells whether it was looked for.
func (m Means) Known() bool { return m != Means{} }

// String gives the way, or "none: " and why there is none; "" where it was not looked for.
func (m Means) String() string {
	if m.Why != "" {
		return "none: " + m.Why
	}
	return m.How
}

// Entry tells of one place.
type Entry struct {
	Place   string
	Addr    arch.Addr // 0 while its file is not mapped
	Bytes   []byte    // of the instruction
	Verdict Verdict
	Engine  string
	Reason  string
	Jump    Means
	Trap    Means
	Err     error // what registering would answer, where the verdict is Refuse
}

// String gives the entry as a line. What is not known is left out.
func (e Entry) String() string {
	line := e.Place
	add := func(known bool, format string, v any) {
		if known {
			line += fmt.Sprintf("  "+format, v)
		}
	}
	add(e.Addr != 0, "%v", e.Addr)
	add(len(e.Bytes) != 0, "% x", e.Bytes)
	add(true, "%s", e.Verdict)
	add(e.Engine != "", "%s", e.Engine)
	add(e.Jump.Known(), "jump %s", e.Jump)
	add(e.Trap.Known(), "trap %s", e.Trap)
	add(e.Reason != "", "(%s)", e.Reason)
	return line
}
