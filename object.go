package kprobe

import (
	"errors"
	"fmt"
	"syscall"

	"kprobe/bpf"
	"kprobe/symbol"
)

// Attach places a probe for each program whose section names a place, as
// "uprobe/libc.so.6:malloc" or "uretprobe/malloc" do, in one stop of the target. If
// one fails, none stays, and the error names the program. Errors: EINVAL for a place
// that is none; those of Register.
func (ps *Programs) Attach() ([]Probe, error) {
	if ps.s.inHandler() {
		return nil, errInHandler
	}
	var all []Probe
	var names []string
	for _, p := range ps.set.All() {
		if p.Spec.Attach == "" {
			continue
		}
		names = append(names, p.Spec.Name)
		name, offset, err := symbol.SplitOffset(p.Spec.Attach)
		if err != nil {
			return nil, &Error{Errno: syscall.EINVAL, Err: err}
		}
		program := &Program{ps.s, ps, p}
		if p.Spec.Kind == bpf.Kretprobe {
			rp := &Kretprobe{Program: program}
			rp.Kp.SymbolName, rp.Kp.Offset = name, offset
			all = append(all, rp)
		} else {
			all = append(all, &Kprobe{SymbolName: name, Offset: offset, Program: program})
		}
	}
	if len(all) == 0 {
		return nil, fail(syscall.EINVAL, `no program's section names a place, as SEC("uprobe/libc.so.6:malloc") does`)
	}
	err := ps.s.Register(all...)
	if b := (*BatchError)(nil); errors.As(err, &b) {
		err = fmt.Errorf("program %q: %w", names[b.Index], b.Err)
	}
	return all, err
}

// Printed takes what programs have printed by trace_printk since it was last asked
// for. Not from a handler (EDEADLK). Errors: the target has written over the ring that it
// was in.
func (s *Session) Printed() (lines []bpf.Printk, err error) {
	if err := s.begin(); err != nil {
		return nil, err
	}
	defer s.unlock()
	if s.inside == nil {
		return nil, nil
	}
	return s.inside.ReadPrinted()
}
