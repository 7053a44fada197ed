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
	*bpf.Recorder
	capture *event.Capture
	at      []int // of each argument, its index among the record's; -1: it is not in it
	pc      int   // that of the PC; -1: it is not in it
	comm    int   // that of the task's name
}

// Options are what a program does besides capturing.
type Options struct {
	Fields bpf.Fields
	Filter string // see ParseFilter; "" records every hit. Also of common_pid, the thread's id
	Ring   int    // bytes of a thread's ring; 0: see bpf.Trace
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
	tr := bpf.Trace{Name: name, Kind: kind, Context: bpf.AMD64, Pointer: a.PtrSize, Fields: o.Fields, Ring: o.Ring}
	if a != arch.AMD64 && a != arch.I386 {
		return nil, fmt.Errorf("programs are not made for %s", a.Name)
	}
	names, loads := c.Names(), c.Loads()
	for i, l := range loads {
		f := bpf.Fetch{N: l.N, Hops: l.Hops, Off: l.Off, Size: l.Size, Count: l.Count,
			As: map[event.LoadAs]bpf.As{event.LoadWord: bpf.AsWord, event.LoadNumber: bpf.AsNumber, event.LoadTextAt: bpf.AsText, event.LoadTextPtr: bpf.AsTextAt}[l.As]}
		switch l.Source {
		case event.LoadText: // nothing to read
			t.at = append(t.at, -1)
			continue
		case event.LoadComm:
			f = bpf.Fetch{From: bpf.FromComm}
		case event.LoadReg, event.LoadEntry:
			if l.Source == event.LoadEntry && kind == bpf.Kretprobe {
				return nil, fmt.Errorf("argument %s: registers of the function's entry are not known to a program at its return", names[i])
			}
			reg := arch.AMD64.RegNames[l.Reg] // i386's have the same numbers, and places in the context
			word := slices.Index(tr.Context.Regs, reg)
			if word < 0 {
				return nil, fmt.Errorf("argument %s: register %s is not in a program's context", names[i], reg)
			}
			f.From, f.N = bpf.FromReg, uint64(word)
		case event.LoadConst:
		default:
			return nil, fmt.Errorf("argument %s: a watchpoint's data address is not known to a program", names[i])
		}
		t.at = append(t.at, len(tr.Args))
		tr.Args = append(tr.Args, f)
	}
	if o.Filter != "" {
		at := t.at
		if strings.Contains(o.Filter, commonPID) { // an argument that is nobody's value
			names, at = append(names, commonPID), append(slices.Clone(at), len(tr.Args))
			loads = append(loads, event.Load{Size: 4, Mask: math.MaxUint64})
			tr.Args = append(tr.Args, bpf.Fetch{From: bpf.FromThread})
		}
		filter, err := ParseFilter(o.Filter, names, loads, at)
		if err != nil {
			return nil, err
		}
		tr.Filter = filter
	}
	if o.PC {
		t.pc = len(tr.Args)
		tr.Args = append(tr.Args, bpf.Fetch{From: bpf.FromReg, N: uint64(tr.Context.PC)})
	}
	if o.Comm {
		t.comm = len(tr.Args)
		tr.Args = append(tr.Args, bpf.Fetch{From: bpf.FromComm})
	}
	var err error
	t.Recorder, err = bpf.Generate(tr)
	return t, err
}

// PC is the program counter of a decoded record, 0 if it was not asked for.
func (t *Tracer) PC(h bpf.Hit) arch.Addr {
	if t.pc < 0 {
		return 0
	}
	return arch.Addr(h.Args[t.pc].Bits)
}

// Comm is the task's name in a decoded record; false if it was not asked for.
func (t *Tracer) Comm(h bpf.Hit) (string, bool) {
	if t.comm < 0 {
		return "", false
	}
	return string(h.Args[t.comm].Text), true
}

// Values are the event's arguments of a decoded record.
func (t *Tracer) Values(h bpf.Hit) []event.Value {
	raw := make([]event.Raw, len(t.at))
	for i, k := range t.at {
		if k >= 0 {
			raw[i] = convert(h.Args[k])
		}
	}
	return t.capture.Values(raw)
}

func convert(r bpf.Raw) event.Raw {
	e := event.Raw{Fault: r.Fault, Bits: r.Bits, Text: r.Text}
	for _, x := range r.Elems {
		e.Elems = append(e.Elems, convert(x))
	}
	return e
}
