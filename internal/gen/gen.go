// Package gen turns a definition into a program that captures it inside the
// target: the arguments that event.Compile has compiled, and a filter. The
// records decode to the values that event.Capture would have read at a stop.
package gen

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"kprobe/arch"
	"kprobe/bpf"
	"kprobe/event"
)

// Tracer is a definition's program, and the way from its records to values.
type Tracer struct {
	*Recorder
	capture *event.Capture
	at      []int // of each argument, its index among the record's; -1: it is not in it
	pc      int   // that of the PC; -1: it is not in it
	comm    int   // that of the task's name
}

// Options are what a program does besides capturing.
type Options struct {
	Fields Fields
	Filter string // see ParseFilter; "" records every hit. Also of common_pid, the thread's id
	Ring   int    // bytes of a thread's ring; 0: see Trace
	PC     bool   // records have the PC: at a return, where that leads
	Comm   bool   // records have the task's name
}

// commonPID is the field of every event that filters ask for: the thread's id.
const commonPID = "common_pid"

// Compile makes the program of a capture that was compiled for the machine. What
// cannot be captured in the target is refused with the reason: the probe then stays
// with a handler in the controller.
func Compile(name string, kind bpf.Kind, a *arch.Arch, c *event.Capture, o Options) (*Tracer, error) {
	t := &Tracer{capture: c, pc: -1, comm: -1}
	ctx, err := contextOf(a)
	if err != nil {
		return nil, err
	}
	tr := Trace{Name: name, Kind: kind, Arch: a, Fields: o.Fields, Ring: o.Ring}
	if !ctx.cpu {
		tr.Fields &^= FieldCPU
	}
	names, loads := c.Names(), c.Loads()
	for i := range loads {
		if loads[i].Source == event.LoadText { // nothing to read
			t.at = append(t.at, -1)
			continue
		}
		if err := ctx.reads(&loads[i]); err != nil {
			return nil, fmt.Errorf("argument %s: %w", names[i], err)
		}
		t.at = append(t.at, len(tr.Args))
		tr.Args = append(tr.Args, loads[i])
	}
	if o.Filter != "" {
		at := t.at
		if strings.Contains(o.Filter, commonPID) { // an argument that is nobody's value
			names, at = append(names, commonPID), append(slices.Clone(at), len(tr.Args))
			loads = append(loads, event.Load{Size: 4, Mask: math.MaxUint64})
			tr.Args = append(tr.Args, event.Load{Source: event.LoadThread})
		}
		filter, err := ParseFilter(o.Filter, names, loads, at)
		if err != nil {
			return nil, err
		}
		tr.Filter = filter
	}
	if cond := c.Condition(); cond != nil {
		x := &condition{capture: c, loads: loads, at: t.at, thread: func(shift uint) *Number {
			tr.Args = append(tr.Args, event.Load{Source: event.LoadThread})
			return &Number{Op: NumberArg, Arg: len(tr.Args) - 1, Shift: shift, Mask: math.MaxUint32}
		}}
		f, err := x.filter(cond.Expr)
		if err != nil {
			return nil, err
		}
		if tr.Filter != nil {
			f = &Filter{Op: FilterAnd, Left: tr.Filter, Right: f}
		}
		tr.Filter = f
	}
	if o.PC {
		t.pc = len(tr.Args)
		tr.Args = append(tr.Args, event.Load{Source: event.LoadReg, Reg: a.PC})
	}
	if o.Comm {
		t.comm = len(tr.Args)
		tr.Args = append(tr.Args, event.Load{Source: event.LoadComm})
	}
	if t.Recorder, err = Generate(tr); err == nil {
		t.Program.Results = c.Results()
	}
	return t, err
}

// Format is how the program's records are read. The maps in it are the caller's.
func (t *Tracer) Format() *Format {
	form := t.capture.Form()
	return &Format{Layout: t.layout(), Form: form, At: t.at[:len(form)], PCArg: t.pc, CommArg: t.comm}
}
