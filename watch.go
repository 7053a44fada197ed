package kprobe

import (
	"syscall"

	"kprobe/internal/roles"
)

// Access is what a program does to data.
type Access uint8

const (
	ReadWrite Access = iota // reads and writes
	Write                   // writes only
	Read                    // reads only: no processor served so far can tell, but an emulator can
)

// String gives the access as definitions have it.
func (a Access) String() string { return [...]string{"rw", "w", "r"}[a] }

// Watchpoint is a probe on data (kprobes.txt's TODO: "watchpoint probes, which
// fire on data references"; the kernel's wprobe events): it fires when a thread
// has read or written it. The caller fills in the exported fields and leaves them
// alone while it is registered.
//
// The processor watches, by debug registers, of which there are few, and tells
// the thread, not the instruction: when it stops, that has been executed. What
// was there before is not known.
//
// Not seen are accesses that the program's own instructions do not make: by the
// kernel (read(2) into the variable), by handlers, by other processes, by the
// target's children. A repeated string instruction fires for each element, or
// for a few together.
type Watchpoint struct {
	// Kp says where: SymbolName is that of a variable, with Offset added, or Addr
	// the address. Its handlers are not used.
	Kp Kprobe

	Len    int // bytes that are watched: 1, 2, 4 or 8; the address is a multiple
	Access Access
	Later  bool // something may be mapped at the address later: nothing need be there now

	// Handler runs after the access. The PC of regs is that of the instruction
	// behind the one that made it, or where that jumped to; what the handler
	// changes in regs is what the thread goes on with.
	Handler func(w *Watchpoint, regs *Regs)
}

// Hits counts the accesses that the handler was called for.
func (w *Watchpoint) Hits() uint64 { return w.Kp.Hits() }

// NMissed counts the accesses that the handler panicked at, and, where several data are watched, those of which the
// processor did not say whose they were: under some hypervisors, one of some million.
func (w *Watchpoint) NMissed() uint64 { return w.Kp.NMissed() }

// RegisterWatchpoint places one watchpoint; see Register. Errors: EINVAL for a
// length or an address that the processor cannot watch, or where nothing is mapped, unless that may come Later;
// ENOENT, EADDRNOTAVAIL for its symbol; ENOSPC where all of the processor's are in
// use; ENOTSUP where there are none, or none for reads only.
func (s *Session) RegisterWatchpoint(w *Watchpoint) error { return unbatch(s.Register(w)) }

// UnregisterWatchpoint removes a watchpoint; see Unregister.
func (s *Session) UnregisterWatchpoint(w *Watchpoint) error { return s.Unregister(w) }

// EnableWatchpoint lets a disabled watchpoint fire again.
func (s *Session) EnableWatchpoint(w *Watchpoint) error {
	return s.setDisabled(probes([]*Watchpoint{w}), false)
}

// DisableWatchpoint silences a watchpoint. Its debug register stays taken.
func (s *Session) DisableWatchpoint(w *Watchpoint) error {
	return s.setDisabled(probes([]*Watchpoint{w}), true)
}

func (w *Watchpoint) kprobe() *Kprobe {
	if w == nil {
		return nil
	}
	return &w.Kp
}

func (w *Watchpoint) prepare(s *Session) error {
	switch {
	case w.Len != 1 && w.Len != 2 && w.Len != 4 && w.Len != 8:
		return fail(syscall.EINVAL, "%d bytes cannot be watched, only 1, 2, 4 or 8", w.Len)
	case w.Access > Read:
		return fail(syscall.EINVAL, "no such access")
	}
	err := w.Kp.probe.PrepareData(s.e.Home, w.Kp.asked(), &roles.Data{
		Len: w.Len, Write: w.Access == Write, Read: w.Access == Read, Later: w.Later, Fired: w.fired})
	if err == nil {
		w.Kp.PreHandler, w.Kp.PostHandler, w.Kp.FaultHandler = nil, nil, nil
	}
	return err
}

func (w *Watchpoint) fired(v *roles.View) {
	r := regsOf(v)
	defer func() {
		if e := recover(); e != nil {
			w.Kp.probe.Missed.Add(1)
			r.s.panicked(&w.Kp, "handler", e)
		}
	}()
	w.Kp.probe.Hits.Add(1)
	if w.Handler != nil {
		w.Handler(w, r)
	}
}
