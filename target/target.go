// Package target is the one small interface between the engine and the things it probes: a Linux
// process (target/ptrace) or a machine behind a GDB stub. A backend moves bytes, registers and
// stops; it never learns what a probe or a handler is. An ability that only some backends have is a
// separate small interface, asked for once when a session opens.
//
// # Threads of control
//
// A target is owned by one thread of the host (ptrace demands it). Run lends that thread to the
// engine; every method must be called from inside Run, except Wake, ReadAt, WriteAt and Maps, which
// any goroutine may call.
//
// # The life of a thread of the target
//
// A thread is running, reported (Wait or Freeze handed out a Stop of it, and the engine owes it a
// Resume) or held (stopped by Freeze, until Thaw).
package target

import (
	"errors"
	"fmt"
	"io"
	"syscall"

	"kprobe/arch"
	"kprobe/symbol"
)

// ErrGone is returned by every method once the target has exited or, for a
// thread's registers, once that thread has. It is ESRCH, by errors.Is.
var ErrGone error = gone{}

type gone struct{}

func (gone) Error() string { return "the target is gone" }
func (gone) Unwrap() error { return syscall.ESRCH }

// ErrNotNow is returned by methods for which a thread of the target must act, where each waits for
// something else (a vfork child) just now. Thaw, and try again.
var ErrNotNow = errors.New("no thread of the target can act now")

// Thread identifies a thread of the target: a kernel thread id, or a vCPU.
type Thread int

// StopKind says why a thread stopped.
type StopKind uint8

const (
	StopWoken      StopKind = iota // none stopped: Wake was called
	StopTrap                       // a trap was executed; PC is Arch.BreakPC past it
	StopAccess                     // data that is watched was accessed: Accessed tells which; the instruction is done
	StopSignal                     // Signal is about to be delivered: Resume decides
	StopFork                       // Thread made Child, a process with a copy of the memory
	StopExec                       // the program was replaced; only Thread is left
	StopSpawn                      // Thread, a process apart (vfork's child), executed a program and is Child now; no Resume is owed
	StopLoad                       // the mappings have changed, or are about to
	StopThreadExit                 // Thread is gone; no Resume is owed
	StopExit                       // the whole target is gone; no Resume is owed
	StopRewrite                    // Thread is about to rewrite text, and must find its own bytes there when it goes on; see Machine
)

var stopNames = [...]string{"woken", "trap", "access", "signal", "fork", "exec", "spawn", "load", "thread exit", "exit", "rewrite"}

func (k StopKind) String() string { return stopNames[k] }

// Stop is one report.
type Stop struct {
	Kind   StopKind
	Thread Thread
	Signal int   // StopSignal: its number; StopTrap: the signal to deliver if the trap is not ours
	Back   bool  // StopTrap: the PC has been set back to the trap instruction already
	Child  Child // StopFork, StopSpawn
	Status Exit  // StopExit

	Withheld error // StopExec, StopSpawn: that the program has not got its rights, because it is traced

	Accessed uint // StopAccess: bit i for the i-th Watch; 0 where it is watched no more
	Among    uint // StopAccess: bits of those of which one was accessed, where the processor did not say which
}

// Exit is the way in which a process ended.
type Exit struct {
	Code   int // exit status; -1 where a signal ended it
	Signal int // the signal that ended it, else 0
}

func (e Exit) String() string {
	if e.Signal != 0 {
		return fmt.Sprintf("killed by signal %d", e.Signal)
	}
	return fmt.Sprintf("exited with status %d", e.Code)
}

// Child is a new process that was born with a copy of the target's memory, or
// has left it by an exec. It is stopped before its first instruction, and it is
// let go by Detach.
type Child interface {
	PID() int
	arch.Memory
	Regs(r *arch.Regs) error
	SetRegs(r *arch.Regs) error
	// Free unmaps the child's copy of an Alloc in its parent, and ReturnTrapAction undoes a
	// Catcher's work there.
	Free(addr arch.Addr, size int) error
	ReturnTrapAction(ours func(Action) bool, old Action) error
	Detach() error
}

// Follower is a Child that can become a target of its own.
type Follower interface {
	// Follow is Detach, for a child that was cleaned like any other. attach,
	// which is called once and not on the owner thread, makes it a target; it
	// waits where it was and is owed a Resume. After an error Detach is due.
	Follow() (attach func() (Target, error), err error)
}

// Target is a live program or kernel.
type Target interface {
	Arch() *arch.Arch

	// PID is the process id, or 0 where there is no such thing.
	PID() int

	// Run calls f on the thread that owns the target and returns when f does.
	Run(f func())

	// OnOwner tells whether the caller runs inside Run.
	OnOwner() bool

	// Wake makes the current or next Wait return StopWoken soon.
	Wake()

	// Wait blocks until a thread stops or Wake is called.
	Wait() (Stop, error)

	// Resume lets a reported thread go on and gives it a signal (0: none). In
	// a frozen target the thread is held until Thaw.
	Resume(th Thread, signal int) error

	// Freeze stops every thread, as stop_machine would. Stops that threads
	// report on the way are returned: they are owed a Resume. A trap that a
	// thread executed before it stopped is among them. Threads that cannot
	// stop because they are not running user code (a vfork parent) are left;
	// Threads omits them and Stuck counts them.
	Freeze() ([]Stop, error)
	// Thaw lets the held threads go on.
	Thaw() error
	// Stuck counts the threads that Freeze could not stop.
	Stuck() int

	// Threads lists the stopped threads; meaningful while frozen.
	Threads() []Thread

	Regs(th Thread, r *arch.Regs) error
	SetRegs(th Thread, r *arch.Regs) error

	// Memory is the target's. WriteAt writes read-only memory too, and the next fetch sees its
	// writes into text.
	arch.Memory

	// Maps lists the present mappings, in order of address. Errors: ErrGone, also where a process
	// has ended and its end has not been reported.
	Maps() ([]symbol.Mapping, error)

	// Close lets the target go for good, running. The engine has put
	// everything back before. A second Close returns os.ErrClosed.
	Close() error
}

// Allocator is a target in which memory can be mapped.
type Allocator interface {
	// PageSize is the unit in which it is mapped, a power of two: 4096 bytes, and on arm64 16384 or
	// 65536 where its kernel was built so. Addresses and sizes below are multiples of it.
	PageSize() int
	// Alloc maps size bytes of private, executable memory at addr, which the caller knows to be
	// free; the target is frozen. Errors: EEXIST where something is mapped there already.
	Alloc(addr arch.Addr, size int) error
	// Free undoes an Alloc; the target is frozen.
	Free(addr arch.Addr, size int) error
}

// Limited is a target that is ended when it wants more memory than it may have.
type Limited interface {
	// Afford tells whether it can have the memory. Any goroutine may ask. Errors: ENOMEM, in
	// numbers.
	Afford(Need) error
}

// Need is memory that is about to be in use.
type Need struct {
	Bytes   int          // of a target
	Each    int          // and of each of its threads
	Written []arch.Range // and the pages of these, as far as the target does not have them for itself yet
}

// Reverter is a target that has a page of a file for itself once it has been written to.
type Reverter interface {
	// Revert has it share such pages with others again, where they equal the file's; the target is
	// frozen. Other pages stay. Errors: why it could not be done.
	Revert(written []arch.Range) error
}

// Sharer is a target that can have memory in common with us.
type Sharer interface {
	// Share maps size bytes of zeros at addr, which the caller knows to be free,
	// readable and writable by both; the target is frozen. Forked children share
	// it too. Errors: as Alloc.
	Share(addr arch.Addr, size int) (ours []byte, err error)
	// Reshare gives a target that has executed another program the memory that it shared before at
	// addr, with its contents. Ours stays where it is. Errors: as Alloc.
	Reshare(addr arch.Addr, ours []byte) error
	// Unshare gives up our side; the target's goes by Free.
	Unshare(ours []byte) error
}

// Grower is a Sharer whose memory need not all be there at once.
type Grower interface {
	// ShareSome is Share, and only the first bytes exist. A thread that touches memory that does
	// not exist gets SIGBUS, and a program that locks all of its memory does not make it.
	ShareSome(addr arch.Addr, size, there int) (ours []byte, err error)
	// Extend makes a part of what was shared, of which no byte exists, memory that grows by itself:
	// the target has it at addr. The target is frozen. Errors: as Alloc; then none of it exists.
	Extend(addr arch.Addr, part []byte, there int) error
	// Resize has the first bytes exist of what was shared, or of a part: less than before only
	// where no thread has touched the rest.
	Resize(ours []byte, there int) error
	// Written is the number of its bytes that exist.
	Written(ours []byte) int
}

// Heir is a target in which controllers that were killed may have left code of theirs.
type Heir interface {
	// GiveBackLeft unmaps it where no thread can come to it. The target is frozen, and nothing
	// leads to this controller's yet.
	GiveBackLeft()
}

// Pool is memory that several targets can have in common with us (internal/pool).
type Pool interface {
	Ours() []byte
	// Lend calls use with its number while a user may attach it. Errors: EPERM; of use.
	Lend(uid, gid uint32, use func(id int) error) error
}

// Pooler is a Sharer that can have a Pool, too.
type Pooler interface {
	// SharePool maps a pool at addr, which the caller knows to be free; the target is frozen.
	// Forked children share it too. Errors: as Alloc; ENOTSUP, EPERM, where the target is in
	// another container, or another user's.
	SharePool(addr arch.Addr, p Pool) error
}

// Breaker is a target that has breakpoints beside its memory: no byte changes,
// the thread that comes to one is reported with Stop.Back set. The target is
// frozen.
type Breaker interface {
	SetBreak(addr arch.Addr) error
	ClearBreak(addr arch.Addr) error
}

// Stepper is a target in which one thread can carry out one instruction where
// it stands, breakpoint or not, while no other thread runs. The thread is reported.
type Stepper interface {
	Step(th Thread) error
}

// Keeper is a target that may take return addresses out of their stack slots
// itself and keep them elsewhere, to return to them in the end.
type Keeper interface {
	// Keeps tells whether a call that returns to this address has its own kept.
	Keeps(word arch.Addr) bool

	// Kept tells where a return address that was written to a slot is kept now, the
	// last taken first. The target is frozen, or a thread is reported.
	Kept(slot, ret arch.Addr) []arch.Addr

	// Carried tells whether a thread may be on its way with one, so that Kept does not
	// find it. It will be at its end soon.
	Carried() bool
}

// Move says how a driven thread goes on.
type Move uint8

const (
	MoveStep Move = iota // by one instruction
	MoveRun              // to its next trap or fault
	MoveDone             // no further
)

// Driver is a target whose threads can be led on, one at a time.
type Driver interface {
	// Drive lets a thread that is reported for a signal go on as next says, and stops it again each
	// time; other signals than those of its own faults, and the one that it is reported for (0:
	// none), wait meanwhile. next may change the registers; fault is the signal that the thread's
	// last instruction got, else 0. In the end the thread is resumed, and gets what has waited.
	// Errors: ErrGone.
	Drive(th Thread, signal int, next func(r *arch.Regs, fault int) Move) error
}

// Lapser is a target whose threads act for us: one may have had to leave the stop that it was
// reported for.
type Lapser interface {
	// Lapsed tells whether th has left the stop for a signal, which it will be reported for
	// once more or has got. It is owed its Resume, and nothing else.
	Lapsed(th Thread) bool

	// Ready tells whether a thread of the frozen target can do so with nothing to lose, should we
	// die meanwhile. Where all are about to be given signals none can; they will soon have them.
	Ready() bool
}

// Caller is a target that is changed by calls which its own threads make for us.
type Caller interface {
	// Together has all calls that f asks for made in one go. The target is frozen. Errors: f's; the
	// target's.
	Together(f func() error) error
}

// Stander is a target whose threads may all wait for us, as a child's do that has just been born.
type Stander interface {
	// Stands tells whether they do, and nothing but an end of theirs is still to be reported. It is
	// asked on the owner thread.
	Stands() bool
	// MayStand is false where they do not. Any goroutine may ask.
	MayStand() bool
}

// Nursery is a target that tells of new threads.
type Nursery interface {
	// OnBirth has f called, on the owner thread, for each thread that is born from now on, before
	// its first instruction; parent is stopped too. It may read and write the threads' registers,
	// and the memory. A vfork child, which goes on as its parent while that sleeps, is left out.
	OnBirth(f func(born, parent Thread))
	// Population is the number of threads, whether they stand or run. It is asked by the owner
	// thread.
	Population() int
}

// Action is a process's action on a signal, as its kernel has it.
type Action [32]byte

// Catcher is a target in which a handler for the trap signal can be installed,
// for the time when no tracer is there to take it. While one is, the handler
// does not run. All but TrapHandler need a frozen target or a reported thread.
type Catcher interface {
	TrapAction() (Action, error)
	SetTrapAction(Action) error
	// ReturnTrapAction undoes that: old is the program's action again, unless it has set itself
	// another one since. ours tells of an action whether it is a handler of ours.
	ReturnTrapAction(ours func(Action) bool, old Action) error
	// TrapHandler makes the action that runs code in the target instead of old,
	// the program's own, which the code may call.
	TrapHandler(handler, restorer arch.Addr, old Action) Action
	// OnTrapTaken has f called when a thread of the process has been given its trap signal, and
	// stands where the handler begins. own is the program's action, where it is not the last that
	// was set. The signal is not blocked then.
	OnTrapTaken(f func(own *Action))
	// KeepTrapAction sets the last action anew if the trap that th is reported for made the kernel
	// take it away. It answers the action that the program has set itself since then, instead, if
	// it has, as far as that can be told.
	KeepTrapAction(th Thread) (own *Action, err error)
	// TrapForced tells whether a thread that is reported for a signal which was sent to it, and
	// that stands where it would after a trap, has met that trap, while it blocked the signal.
	TrapForced(th Thread) bool
	// IgnoresTraps tells whether the program may have ignored the signal until it met one of our
	// traps.
	IgnoresTraps() bool
}

// Dumper is a target that can die of a signal and leave a core file.
type Dumper interface {
	// Dumps tells whether the process will, if a thread that is stopped gets a signal.
	Dumps(th Thread, signal int) bool
	// Outlives tells whether it will not die of a fault of a thread that is stopped, only because
	// it is traced: then the fault comes again and again.
	Outlives(th Thread, signal int) bool
}

// Guarded is a target that a guardian can restore if the controller dies: Guard is called before
// the first byte changes, with the place and the number of the session's lifeline, and Unguard
// after the last one is back.
type Guarded interface {
	Guard(base arch.Addr, id uint64) error
	Unguard()
}

// Vectors is a target whose vector registers can be seen and set.
type Vectors interface {
	// Vector reads the low 16 bytes of vector register n.
	Vector(th Thread, n int, p *[16]byte) error
	SetVector(th Thread, n int, p *[16]byte) error
}

// Watch is data to be watched: Len bytes at Addr, which is a multiple of Len. A
// Len of 0 watches nothing.
type Watch struct {
	Addr  arch.Addr
	Len   int  // 1, 2, 4 or 8
	Write bool // writes only, not reads
	Read  bool // reads only, of a target that WatchesReads
}

// Watcher is a target that stops threads after they have accessed certain data.
type Watcher interface {
	// Watches is the number of data that can be watched at a time. Errors: ENOTSUP, why there are
	// no more here.
	Watches() (int, error)
	// Watch watches these and no others, on every thread that there is and will
	// be; the target is frozen. Errors: all is watched as before.
	Watch([]Watch) error
	// WatchesReads tells whether it can tell reads from writes.
	WatchesReads() bool
}

// Fault describes a signal that an instruction raised.
type Fault struct {
	Trap int       // the machine's trap number (x86: 13 general protection, 14 page fault, ...)
	Addr arch.Addr // the address that the signal handler will be told: of the data or of the instruction
	Sync bool      // raised by the thread's own instruction, not sent
	Insn bool      // Addr is the address of the instruction itself
}

// Faulter is a target whose signals tell their cause.
type Faulter interface {
	// Fault tells the cause of the signal that th is reported for.
	Fault(th Thread) (Fault, error)
	// SetFaultAddr changes the address that the signal handler will be told.
	SetFaultAddr(th Thread, addr arch.Addr) error
}

// Filer is a target whose mapped files can be read.
type Filer interface {
	// OpenMapped opens the file behind a mapping as the target sees it
	// (mount namespaces, deleted files).
	OpenMapped(m symbol.Mapping) (File, error)
	// Root is a path prefix under which the target's file system is seen.
	Root() string
	// Realpath resolves the symbolic links of a path as the target sees it;
	// "" where there is no such file.
	Realpath(path string) string
	// IsProgram tells whether a mapping is of the program itself, rather than
	// of a library.
	IsProgram(m symbol.Mapping) bool
}

// File is an open file.
type File interface {
	io.ReaderAt
	io.Closer
}

// Tasks tells about threads, for events.
type Tasks interface {
	Comm(th Thread) string // name of the thread
	CPU(th Thread) int     // where it ran last, or -1
	ThreadPID(th Thread) int
}

// Blacklister is a target that says itself where it must not be probed.
type Blacklister interface {
	BlackList() ([]arch.Blocked, error)
}

// Placed is a target that is no process of this host.
type Placed interface {
	// Place says where it is, in the same words for all users of this host.
	Place() string
}

// Reserver is a target in which others rewrite text as well.
type Reserver interface {
	// Reserved tells why the instruction at addr must not be probed, and with which
	// errno that is refused; 0 if it may be.
	Reserved(addr arch.Addr) (errno syscall.Errno, reason string)

	// OwnTrap tells whether the trap instruction that is at addr is known to be the text's own.
	OwnTrap(addr arch.Addr) bool
}

// Machine is a target whose threads are CPUs, and where code of ours can run beside
// the kernel's. All but CPUs and Traced need a frozen target.
type Machine interface {
	Switcher

	// Window is the range where Alloc and Share find memory, and nowhere else. It is made by the
	// first call. Errors: in words, why there is none.
	Window() (start, end arch.Addr, err error)

	// CPUs tells how code knows the CPU that it runs on. Errors: in words.
	CPUs() (CPUs, error)

	// Resting finds those addresses, among the ones that in is true for, where a task
	// may go on that no CPU runs, or that was interrupted. There may be too many, never
	// too few. Errors: in words, why that cannot be told now.
	Resting(in func(arch.Addr) bool) ([]arch.Addr, error)

	// Over tells of slots of stacks whether no call is under way that has its return address there:
	// the stack has been left as far as that, or its task has ended. It holds while the target is
	// frozen. Errors: in words, why that cannot be told now.
	Over() (func(slot arch.Addr) bool, error)

	// Traced tells whether the kernel's own tracer is called from an address, where a function
	// begins. The registers that such a call may change are free there: the flags, and registers
	// that functions neither keep nor are given anything in.
	Traced(addr arch.Addr) bool

	// Unreturnable says why the return of the function that begins at an address must not be
	// probed; "" where it may be.
	Unreturnable(entry arch.Addr) string

	// Unreplaceable says why no program may give a result in place of the function that begins at
	// an address; "" where one may.
	Unreplaceable(entry arch.Addr) string

	// Leads are the addresses in the text of the kernel or a module, of that which an address is
	// in, that more than relative branches there may lead to. data is where tables of distances may
	// be. Errors: in words.
	Leads(into arch.Addr) (data []arch.Range, points []arch.Addr, err error)

	// Pinned says why the instructions of a stretch of text must run where they stand: the kernel
	// knows the fault or the trap of one by its address; "" where they may run elsewhere.
	Pinned(start, end arch.Addr) string

	// Excepted tells whether a CPU that was to execute one instruction has come to the kernel's
	// handler of faults instead, and then by which trap (its number), and which registers the CPU
	// had at the instruction.
	Excepted(th Thread, r *arch.Regs) (trap int, at arch.Regs, ok bool)

	// Owned says why bytes of text cannot be overwritten now: their owner does not tell before it
	// rewrites them; "" where they can. An owner that tells causes a StopRewrite.
	Owned(start, end arch.Addr) string
}

// Trapper is a machine in which traps that are written into the kernel's text can be led to code of
// ours, with no stop.
type Trapper interface {
	// TrapHandler is the kernel's own function that all of them come to, with interrupts masked.
	// Its argument is the address of the registers, in the order of Linux's struct pt_regs, and
	// where these say is gone on. Errors: in words, why there is none that is known.
	TrapHandler() (arch.Addr, error)

	// Passing tells whether a CPU may be on its way from a trap to there, or back from there. The
	// target is frozen. It will be at its end soon.
	Passing() bool
}

// CPUs has the offsets that code in a kernel reads, all of them relative to its CPU's base (gs).
type CPUs struct {
	Number  int32 // offset of the CPU's number, 4 bytes
	Numbers []int // of each CPU that there is or will be
	Current int32 // offset of the address of the task that the CPU runs

	TID, TGID, Comm int // offsets in a task
	Cred            int // the same, of the address of what says whose it is; 0 where that is not known
	UID, GID        int // offsets there, of 4 bytes each

	Readers Readers

	// Carriers are the addresses that the kernel itself puts in the place of return addresses, at
	// most two.
	Carriers []arch.Addr
}

// Readers are functions of a kernel that read memory which may not be there: its own and the
// task's, bytes and text, called with destination, source and size. Zeros where it has no such.
// Stack, which may be 0 alone, reads the addresses on a stack, from registers on.
type Readers struct{ Kernel, KernelText, User, UserText, Stack arch.Addr }

// Switcher is a target whose threads, CPUs, run one task after another.
type Switcher interface {
	// TaskID is the task that a thread runs now.
	TaskID(th Thread) int
	// TaskAt is the address of its task; 0 where that is not known.
	TaskAt(th Thread) arch.Addr
}
