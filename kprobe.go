package kprobe

import (
	"sync/atomic"

	"kprobe/arch"
	"kprobe/internal/roles"
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

	said  atomic.Bool // that a handler panicked
	probe roles.Probe // the engine's
}

// Hits counts how often the probe's handlers ran since it was registered.
func (p *Kprobe) Hits() uint64 { return p.probe.Hits.Load() + p.probe.Counted().Hits }

// NMissed counts the hits whose handlers could not run (kprobes.txt 5: "the
// kprobe.nmissed member").
func (p *Kprobe) NMissed() uint64 { return p.probe.Missed.Load() + p.probe.Counted().Missed }

// Registered tells whether the probe is registered, pending ones included.
func (p *Kprobe) Registered() bool { return p.probe.Registered() }

// PlacedAt is the address at which the probe is, and 0 while it waits. It may be asked at any time, unlike Addr: the
// session changes that by itself where a library goes, and comes again.
func (p *Kprobe) PlacedAt() arch.Addr { return p.probe.At() }

// IsEnabled tells whether the probe is registered, and neither disabled nor gone. The
// session's switch (Enabled) is not asked.
func (p *Kprobe) IsEnabled() bool { return p.Registered() && p.probe.Active() }

// Refusal is why the batch that it was last registered with went without an Optional
// probe; nil where it did not.
func (p *Kprobe) Refusal() error { return p.probe.Refusal }

// asked is what the caller has filled in, but for the handlers.
func (p *Kprobe) asked() roles.Asked {
	return roles.Asked{Name: p.SymbolName, Offset: p.Offset, Addr: &p.Addr, Loc: &p.Loc, Flags: &p.Flags,
		Patient: p.Patient, Optional: p.Optional, Program: p.Program.role(), Cookie: p.Cookie}
}
