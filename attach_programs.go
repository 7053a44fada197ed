package kprobe

import (
	"errors"
	"fmt"

	"kprobe/arch"
	"kprobe/bpf"
	"kprobe/internal/placing"
	"kprobe/internal/turns"
)

// Placement says where a program goes, in place of what its section names: a place as
// bpf.Program's Attach is.
type Placement = placing.Placement

// Unplaced names the programs that Attach leaves alone: neither their sections nor told says
// where they go, and no tail call leads to them.
func (ps *Programs) Unplaced(told ...Placement) []string {
	return placing.Unplaced(ps.ps.Specs(), told)
}

// Attach places a probe for each program whose section names a place, as
// "uprobe/libc.so.6:malloc" or "uretprobe/malloc" do, or that is told where to go, in one stop of
// the target. If one fails, none stays, and the error names the program. Those without a place stay
// as they are: see Unplaced. Errors: EINVAL for a place that is none; ENOENT for what told names and is
// not there, and for a static probe (USDT) that no mapped file has; those of Register. A program at a function
// that is named waits for the function's file, whenever that is not mapped.
func (ps *Programs) Attach(told ...Placement) ([]Probe, error) {
	if ps.s.e.On.Owner.InHandler() {
		return nil, turns.ErrInHandler
	}
	find := &placing.Finder{Space: ps.s.Symbols(), Specs: ps.ps.Map(placing.UsdtSpecs), Warn: ps.s.e.Turns.Report}
	spots, err := find.All(ps.ps.Specs(), told)
	if err != nil {
		return nil, err
	}
	var all []Probe
	for _, at := range spots {
		all = append(all, ps.probe(at))
	}
	err = ps.s.Register(all...)
	if b := (*BatchError)(nil); errors.As(err, &b) {
		err = fmt.Errorf("program %q: %w", spots[b.Index].Program.Name, b.Err)
	}
	if err == nil && len(find.Semaphores) > 0 {
		err = ps.s.RaiseSemaphores(find.Semaphores...)
	}
	return all, err
}

// probe is one of a program's kind.
func (ps *Programs) probe(at placing.Spot) Probe {
	program := ps.program(at.Program.Name)
	kp, rp := &Kprobe{}, &Kretprobe{Program: program, DataSize: program.p.CallData()}
	if entry := at.Program.Entry; entry != "" {
		rp.EntryProgram = ps.program(entry)
		rp.DataSize = max(rp.DataSize, rp.EntryProgram.p.CallData())
	}
	var p Probe = rp
	if at.Program.Kind == bpf.Kretprobe {
		kp = &rp.Kp
	} else {
		kp.Program, p = program, kp
	}
	kp.SymbolName, kp.Offset, kp.Addr, kp.Cookie = at.Name, at.Offset, at.Addr, at.Cookie
	kp.Patient = at.Addr == 0 && ps.s.e.MayCome(at.Name)
	return p
}

// Printed takes what programs have printed by trace_printk since it was last asked
// for. Not from a handler (EDEADLK). Errors: the target has written over the ring that it
// was in.
func (s *Session) Printed() (lines []bpf.Printk, err error) {
	if err := s.e.Turns.Begin(); err != nil {
		return nil, err
	}
	defer s.e.Turns.Unlock()
	if !s.e.Within.Some() {
		return nil, nil
	}
	return s.e.Within.ReadPrinted()
}

// RaiseSemaphores tells the target's static probes whose semaphores are at these addresses that somebody wants them: there it
// makes their arguments only then. Close takes it back. Not from a handler (EDEADLK). Errors: EFAULT; ESRCH.
func (s *Session) RaiseSemaphores(at ...arch.Addr) (err error) { return s.e.Raise(at...) }
