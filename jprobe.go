package kprobe

import (
	"reflect"
	"syscall"

	"kprobe/internal/args"
	"kprobe/internal/machine"
	"kprobe/internal/roles"
	"kprobe/symbol"
)

// Jprobe is a probe on a function's entry with convenient access to its
// arguments (kprobes.txt 1.2, 4.2). The caller fills in the exported fields
// and leaves them alone while it is registered.
//
// Entry is a Go function whose parameters stand for those of the probed
// function; its return stands for the seed's jprobe_return. It runs before the
// function does and sees copies: changing them changes nothing. Parameters
// may be
//
//	bool, int8 ... int64, uint8 ... uint64              C integers of that size
//	int, uint                                           long, unsigned long
//	float32, float64                                    float, double
//	arch.Addr                                           any pointer
//	kprobe.CString                                      char *: read when asked
//	kprobe.Ptr[T]                                       struct T *: read when asked
//	struct                                              a struct by value
//
// and, before all others, a *Regs. There may be fewer than the function has.
// Arguments are found by the System V ABI: integer and pointer, floating-point
// and memory class; on i386 all are on the stack (cdecl).
//
// On a Go function they are found by Go's (ABIInternal; ABI0 for the assembly
// functions that are named so), a method's receiver first, and parameters may
// also be strings, slices of numbers and structs of them, and complex numbers:
// up to 64 KiB of what they refer to is read. Maps, channels, functions and
// pointers are arch.Addr, interfaces a struct of two.
type Jprobe struct {
	Kp    Kprobe
	Entry any
}

// RegisterJprobe places one jprobe. Errors: as RegisterKprobe; EINVAL where
// the place is not a function's entry or Entry is not a function of the kind
// described, EEXIST where the function has a jprobe.
func (s *Session) RegisterJprobe(j *Jprobe) error {
	return unbatch(s.RegisterJprobes([]*Jprobe{j}))
}

// RegisterJprobes places several in one stop of the target; if one fails, none
// stays. Errors: *BatchError.
func (s *Session) RegisterJprobes(js []*Jprobe) error { return s.Register(probes(js)...) }

func (j *Jprobe) kprobe() *Kprobe {
	if j == nil {
		return nil
	}
	return &j.Kp
}

func (j *Jprobe) prepare(s *Session) error {
	m := s.e.On.Machine
	// Whose function it is, C's or Go's, is known when it has been found.
	if _, err := compileEntry(m, j.Entry, args.C); err != nil {
		if _, goErr := compileEntry(m, j.Entry, args.Go); goErr != nil {
			return err
		}
	}
	j.Kp.PreHandler, j.Kp.PostHandler, j.Kp.FaultHandler = nil, nil, nil
	h := &jprobeHandlers{handlers: handlers{&j.Kp}}
	asked := j.Kp.asked()
	asked.Handlers = h
	j.Kp.probe.PrepareJprobe(s.e.Home, asked, func(loc symbol.Loc) error {
		convention, err := args.ConventionOf(loc.Passing())
		if err == nil {
			h.entry, err = compileEntry(m, j.Entry, convention)
		}
		return err
	})
	return nil
}

// jprobeHandlers runs a jprobe's Entry, when that has been fitted to the function.
type jprobeHandlers struct {
	handlers
	entry func(*Regs)
}

func (h *jprobeHandlers) Before(v *roles.View) (moved bool) {
	r := regsOf(v)
	defer h.recovered(r)
	h.entry(r)
	return false
}

// UnregisterJprobe removes a jprobe.
func (s *Session) UnregisterJprobe(j *Jprobe) error { return s.UnregisterJprobes([]*Jprobe{j}) }

// UnregisterJprobes removes several in one stop; see UnregisterKprobes.
func (s *Session) UnregisterJprobes(js []*Jprobe) error { return s.Unregister(probes(js)...) }

// EnableJprobe lets a disabled jprobe run again (kprobes.txt 4.8).
func (s *Session) EnableJprobe(j *Jprobe) error { return s.setDisabled(probes([]*Jprobe{j}), false) }

// DisableJprobe silences a jprobe (kprobes.txt 4.7).
func (s *Session) DisableJprobe(j *Jprobe) error { return s.setDisabled(probes([]*Jprobe{j}), true) }

// compileEntry turns a Go function into one that fetches its arguments, found by
// a convention.
func compileEntry(m *machine.Machine, entry any, c args.Convention) (func(*Regs), error) {
	f, err := c.Function(m, entry, reflect.TypeFor[*Regs](), args.Pointers{Is: isPointer})
	if err != nil {
		return nil, &Error{Errno: syscall.EINVAL, Reason: "a jprobe's Entry", Err: err}
	}
	return func(regs *Regs) { f.Call(regs, regs, regs.pointers()) }, nil
}
