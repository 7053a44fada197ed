package kprobe

import (
	"maps"
	"reflect"
	"slices"
	"syscall"

	"kprobe/arch"
	"kprobe/internal/args"
	"kprobe/internal/cabi"
	"kprobe/internal/machine"
	"kprobe/internal/mem"
	"kprobe/internal/probed"
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

// CString is a pointer to zero-terminated text in the target.
type CString struct {
	Addr arch.Addr
	s    *Session
}

// Read reads the text, at most max bytes of it. Errors: EFAULT.
func (c CString) Read(max int) (string, error) { return mem.Text(c.s.on.Own(), c.Addr, max) }

// String reads up to 4096 bytes; it gives "(fault)" for a bad pointer, as
// event lines do.
func (c CString) String() string {
	t, err := c.Read(4096)
	if err != nil {
		return "(fault)"
	}
	return t
}

// Ptr is a pointer to a T in the target. T holds fixed-size values only, laid
// out as C would (give padding as blank fields).
type Ptr[T any] struct {
	Addr arch.Addr
	s    *Session
}

// At is the pointer at an address that was itself read from the target: a
// list's next element, say.
func At[T any](s *Session, addr arch.Addr) Ptr[T] { return Ptr[T]{addr, s} }

// Load reads what the pointer points to. Errors: EFAULT; EINVAL for a T that
// has no fixed size.
func (p Ptr[T]) Load() (v T, err error) {
	err = cabi.Load(p.s.on.Arch, p.s.ReadMem, p.Addr, reflect.ValueOf(&v).Elem())
	return v, err
}

// pointer is what parameters that read on demand have in common.
type pointer interface{ bind(*Session, arch.Addr) }

func (c *CString) bind(s *Session, a arch.Addr) { c.s, c.Addr = s, a }
func (p *Ptr[T]) bind(s *Session, a arch.Addr)  { p.s, p.Addr = s, a }

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
	// Whose function it is, C's or Go's, is known when it has been found.
	if _, err := compileEntry(s.on.Machine, j.Entry, args.C); err != nil {
		if _, goErr := compileEntry(s.on.Machine, j.Entry, args.Go); goErr != nil {
			return err
		}
	}
	j.Kp.probe.Role = asJprobe{plain{&j.Kp}, j, s}
	j.Kp.PostHandler, j.Kp.FaultHandler = nil, nil
	return nil
}

func (j *Jprobe) release(s *Session) {
	j.Kp.probe.Role, j.Kp.PreHandler = plain{&j.Kp}, nil
}

// asJprobe is the role of a Kprobe that a jprobe is made of.
type asJprobe struct {
	plain
	j *Jprobe
	s *Session
}

func (asJprobe) letter() byte         { return 'j' }
func (asJprobe) Trails() bool         { return true }
func (r asJprobe) release(s *Session) { r.j.release(s) }

// Linked claims the function.
func (r asJprobe) Linked() {
	r.plain.Linked()
	r.s.jprobes[r.p.Addr] = r.j
}

// Unlinked gives up the claim.
func (r asJprobe) Unlinked() {
	r.plain.Unlinked()
	maps.DeleteFunc(r.s.jprobes, func(_ arch.Addr, o *Jprobe) bool { return o == r.j })
}

func (r asJprobe) fits(s *Session, b *batch, loc symbol.Loc) error {
	if !s.on.Image.IsEntry(loc) {
		return fail(syscall.EINVAL, "a jprobe must be at a function's entry, and %s is not", loc)
	}
	at := arch.Addr(loc.Addr)
	isOne := func(q *probed.Probe) bool { _, j := q.Role.(asJprobe); return j }
	if s.jprobes[at] != nil || slices.ContainsFunc(b.Others(at), isOne) {
		return fail(syscall.EEXIST, "%s has a jprobe already", loc)
	}
	return r.j.compile(s.on.Machine, loc)
}

// compile fits the jprobe to the function that it is on.
func (j *Jprobe) compile(m *machine.Machine, loc symbol.Loc) error {
	call, err := compileEntry(m, j.Entry, conventionOf(loc))
	if err != nil {
		return err
	}
	j.Kp.PreHandler = func(p *Kprobe, regs *Regs) int {
		call(regs)
		return 0
	}
	return nil
}

// UnregisterJprobe removes a jprobe.
func (s *Session) UnregisterJprobe(j *Jprobe) error { return s.UnregisterJprobes([]*Jprobe{j}) }

// UnregisterJprobes removes several in one stop; see UnregisterKprobes.
func (s *Session) UnregisterJprobes(js []*Jprobe) error { return s.Unregister(probes(js)...) }

// EnableJprobe lets a disabled jprobe run again (kprobes.txt 4.8).
func (s *Session) EnableJprobe(j *Jprobe) error { return s.setDisabled([]*Kprobe{j.kprobe()}, false) }

// DisableJprobe silences a jprobe (kprobes.txt 4.7).
func (s *Session) DisableJprobe(j *Jprobe) error { return s.setDisabled([]*Kprobe{j.kprobe()}, true) }

// compileEntry turns a Go function into one that fetches its arguments, found by
// a convention.
func compileEntry(m *machine.Machine, entry any, c args.Convention) (func(*Regs), error) {
	f, err := c.Function(m, entry, reflect.TypeFor[*Regs](), args.Pointers{Is: isPointer})
	if err != nil {
		return nil, &Error{Errno: syscall.EINVAL, Reason: "a jprobe's Entry", Err: err}
	}
	return func(regs *Regs) { f.Call(regs, regs, regs.pointers()) }, nil
}
