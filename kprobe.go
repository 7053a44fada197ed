package kprobe

import (
	"sync/atomic"
	"syscall"

	"kprobe/arch"
	"kprobe/bpf"
	"kprobe/internal/inside"
	"kprobe/internal/probed"
	"kprobe/symbol"
)

// Flags of a Kprobe.
const (
	// FlagDisabled registers a probe that stays silent until it is enabled
	// (KPROBE_FLAG_DISABLED, kprobes.txt 4.1).
	FlagDisabled = 1 << iota
)

// Kprobe is a probe on one instruction (kprobes.txt 1.1, 4.1). The caller
// fills in the exported fields and leaves them alone while it is registered.
type Kprobe struct {
	// SymbolName and Offset, or Addr, or Loc say where; a name and an address, or nothing, is EINVAL.
	// The name is that of a function: "getenv", "libc.so.6:getenv" (the mapped
	// file's path or base name before the colon), "memcpy@GLIBC_2.2.5",
	// "net/http.(*conn).serve", a C++ or Rust name as its source has it.
	// Registration makes Addr the probe's address, Offset included;
	// unregistration makes it again what it was.
	SymbolName string
	Offset     uint64 // bytes
	Addr       arch.Addr

	// Loc is a place that was found: by Symbols, or by Lookup. With a SymbolName it is what that
	// stands for, Offset included, and the name is not looked up again while the file is mapped.
	// Alone it is a third way to say where: of a function that shares its name with others, or in the
	// middle of a file. When the target executes another program, such a probe waits for the
	// same file, and is at the same byte of it then.
	Loc symbol.Loc

	// Patient lets the probe wait for a function that the program does not have,
	// as every probe waits for a file that is not mapped: a program that it
	// executes may have it; and for an indirect function until something in the
	// process is bound to it. It waits again, too, when its file is unmapped,
	// unless Addr says where it is.
	Patient bool

	// Optional lets a batch go without the probe where it cannot be placed: Refusal
	// then says why, and the others are placed. A batch of which nothing can be placed fails.
	Optional bool

	Flags uint32

	// PreHandler runs before the instruction. A result other than 0 means that
	// it moved the PC: the instruction is not executed, no post-handler and no
	// further handler at that address runs.
	PreHandler func(p *Kprobe, regs *Regs) int

	// PostHandler runs after the instruction; flags is always 0.
	PostHandler func(p *Kprobe, regs *Regs, flags uint64)

	// FaultHandler runs when the instruction or a handler faults; trapnr is the
	// machine's trap number (x86: 13 general protection, 14 page fault). A
	// result of 1 means that it has handled the fault: the program is not
	// told, and goes on at the PC that regs have (the probed instruction's,
	// unless changed). A handler that panics counts as a fault in it.
	FaultHandler func(p *Kprobe, regs *Regs, trapnr int) int

	// Program runs inside the target in place of handlers, with no stop: the way
	// of probes that are hit often. CountOnly counts. Cookie is what the program's
	// get_attach_cookie answers. With a program there are no handlers.
	Program *Program
	Cookie  uint64

	// Otherwise is called by a registration that finds that the program cannot run at the place, and is told why: it
	// takes the program out and puts handlers in (of a return probe: the Kretprobe's), with which the
	// probe is then registered. A probe without it is refused. It must not call the session.
	Otherwise func(why error)

	hits, missed atomic.Uint64
	said         atomic.Bool // that a handler panicked

	claimed atomic.Bool             // by a Register or Plan that is under way, or a Register that has succeeded
	in      atomic.Pointer[Session] // that it is registered in

	probe   probed.Probe // the engine's, with its role (role.go)
	last    *Session     // that it was registered in, and which may have counts of it still
	hidden  bool         // of the session's own making: no list shows it
	given   arch.Addr    // Addr as the caller had it
	placed  bool         // Addr is where the probe is
	order   uint64       // of registration
	refusal error        // why the last batch went without it
}

// isFound tells whether a place was given that had been found.
func (p *Kprobe) isFound() bool { return p.Loc.Module != nil }

// lasts tells whether the place means something in another program, too.
func (p *Kprobe) lasts() bool { return p.SymbolName != "" || p.isFound() }

// where is the place in the words that it was given in.
func (p *Kprobe) where() string {
	switch {
	case p.SymbolName != "":
		return p.SymbolName
	case p.isFound():
		return p.Loc.Place()
	}
	return p.Addr.String()
}

// unplace forgets where a probe was.
func (p *Kprobe) unplace() {
	p.probe.Point = nil
	if p.placed {
		p.Addr, p.placed = p.given, false
	}
}

// Hits counts how often the probe's handlers ran since it was registered.
func (p *Kprobe) Hits() uint64 {
	return p.hits.Load() + p.counted().Hits
}

// counted is what was counted inside the target.
func (p *Kprobe) counted() (t inside.Tally) {
	s := p.in.Load()
	if _, own := p.as().(plain); s == nil && own {
		s = p.last
	}
	if s != nil && p.runsInside() {
		return s.within.Counted(&p.probe)
	}
	return t
}

// NMissed counts the hits whose handlers could not run (kprobes.txt 5: "the
// kprobe.nmissed member").
func (p *Kprobe) NMissed() uint64 {
	return p.missed.Load() + p.counted().Missed
}

// Registered tells whether the probe is registered, pending ones included.
func (p *Kprobe) Registered() bool { return p.in.Load() != nil }

// Refusal is why the batch that it was last registered with went without an Optional
// probe; nil where it did not.
func (p *Kprobe) Refusal() error { return p.refusal }

// RegisterKprobe places one probe (kprobes.txt 4.1). It is effective when the
// call returns; the target is stopped for some microseconds. A name in a file
// that is not mapped yet ("libfoo.so:bar") is accepted, and the probe is armed
// as soon as the file is. Errors: EINVAL, ENOENT, EADDRNOTAVAIL, EILSEQ,
// EBUSY, EDEADLK, ESRCH; see Error.
func (s *Session) RegisterKprobe(p *Kprobe) error {
	return unbatch(s.RegisterKprobes([]*Kprobe{p}))
}

// RegisterKprobes places several probes as Register does
// (kprobes.txt 4.5). If one fails, none stays. Errors: *BatchError; EINVAL
// for an empty array.
func (s *Session) RegisterKprobes(ps []*Kprobe) error { return s.Register(probes(ps)...) }

func (p *Kprobe) kprobe() *Kprobe { return p }

func (p *Kprobe) prepare(s *Session) error {
	if p.probe.Role == nil {
		p.probe.Role = plain{p}
	}
	switch {
	case p.Program == nil:
		return nil
	case p.PreHandler != nil || p.PostHandler != nil || p.FaultHandler != nil:
		return fail(syscall.EINVAL, "a probe has a program or handlers, not both")
	}
	return p.Program.fits(s, bpf.Kprobe, 0)
}

func (p *Kprobe) release(*Session) {}

// UnregisterKprobe removes a probe (kprobes.txt 4.4). When the call returns,
// none of its handlers runs, and none begins. A probe that is not registered is left
// with Addr 0; another session's is left alone (EINVAL).
func (s *Session) UnregisterKprobe(p *Kprobe) error { return s.UnregisterKprobes([]*Kprobe{p}) }

// UnregisterKprobes removes several probes as Unregister does
// (kprobes.txt 4.6). Entries that are not registered anywhere get Addr 0; the others
// are removed all the same. The error, if any, tells that the target could
// not be restored in full.
func (s *Session) UnregisterKprobes(ps []*Kprobe) error { return s.Unregister(probes(ps)...) }

// EnableKprobe lets a disabled probe's handlers run again (kprobes.txt 4.8).
// Errors: EINVAL where it is not registered or gone.
func (s *Session) EnableKprobe(p *Kprobe) error { return s.setDisabled([]*Kprobe{p}, false) }

// DisableKprobe silences a probe (kprobes.txt 4.7). Disabling twice is fine.
// Errors: EINVAL where it is not registered.
func (s *Session) DisableKprobe(p *Kprobe) error { return s.setDisabled([]*Kprobe{p}, true) }

// EnableKprobes and DisableKprobes do it for several in one stop.
func (s *Session) EnableKprobes(ps []*Kprobe) error { return s.setDisabled(ps, false) }

// DisableKprobes silences several probes in one stop.
func (s *Session) DisableKprobes(ps []*Kprobe) error { return s.setDisabled(ps, true) }

// unbatch takes the index off the error of a batch of one.
func unbatch(err error) error {
	if b, ok := err.(*BatchError); ok {
		return b.Err
	}
	return err
}
