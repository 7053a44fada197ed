//go:build linux && (amd64 || arm64 || ppc64le || riscv64 || s390x)

// Package ptrace is the live Linux process as a target: the ordinary user's
// own processes, no root and no kernel option. It is the only package with
// machine tags, raw system calls and a locked thread.
//
// # The owner thread
//
// The kernel takes ptrace requests for a thread only from the very host
// thread that seized it. A Process therefore has one goroutine locked to one
// host thread; Run lends it out. Waiting is done with __WNOTHREAD, so that the
// exit statuses of the controller's other children stay theirs.
//
// # What the target can notice
//
// Threads are seized, never sent a signal. A stop interrupts a blocking system
// call, which the kernel restarts by itself; the few calls that it would fail
// with EINTR instead are restarted by us (see interrupted).
package ptrace

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"kprobe/arch"
	"kprobe/internal/guardian"
	"kprobe/internal/memcg"
	"kprobe/internal/patience"
	"kprobe/internal/proc"
	"kprobe/internal/tracee"
	"kprobe/target"
)

// seizeOptions: children and new threads are born traced and stopped, before they can run into a
// trap that is not served.
const seizeOptions = unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACEFORK |
	unix.PTRACE_O_TRACEVFORK | unix.PTRACE_O_TRACEEXEC |
	// A stop at the end of a system call that is unread when the tracer dies would become a
	// SIGTRAP; marked as such a stop, it becomes nothing.
	unix.PTRACE_O_TRACESYSGOOD

// Process is a live process. It implements target.Target and the optional interfaces of that
// package that are about processes; it has no exported method beside theirs but Exited.
type Process struct {
	pid     int
	arch    *arch.Arch
	started bool // we started it: its exit status is ours to collect
	ours    bool // it is a child of this program, which may wait for it (see ownchild.go)
	waits   bool // it was fetched, as a followed child, and waits for a Resume
	begun   bool // as one whose program has run before

	jobs  chan func()
	quit  chan struct{} // closed when the owner thread is to end
	owner int           // host thread id of the owner
	woken atomic.Uint32 // Wake was called (1) and Wait has not told yet
	wakes atomic.Uint32 // how often
	// How the owner thread waits, or is about to: a waiting. Set before woken is looked at, and
	// woken is set before this is looked at: so one of the two sees the other.
	waiting atomic.Int32

	mem atomic.Value // *os.File: /proc/PID/mem; replaced by exec

	threads  map[int]*thread
	early    map[int]unix.WaitStatus // first stops of tasks whose parent has not told of them yet
	unread   []*thread               // their reports are still with the kernel: see putAside
	backlog  []target.Stop           // for Wait to answer first
	stopped  bool                    // in a group stop, as far as we know
	frozen   bool
	complete bool // every task that there was when we came is in threads: see missed
	late     bool // a child that is followed had gone on when it was attached to
	newborn  bool // that question waits, for it may be answered otherwise: see alone
	gone     bool
	exit     target.Exit

	watch    debugRegisters     // of every thread; see watch.go
	version  int                // of watch; 0 while nothing has been watched
	watched  bool               // a thread may have been stopped by a debug register
	disarmed map[arch.Addr]bool // where traps stood that may have been taken away while threads ran

	listed atomic.Pointer[listed]

	found gadgets      // in the target, once looked for
	fresh []arch.Range // code that was mapped for us: see GiveBackLeft
	dead  arch.Addr    // where memory for a call's frame was last: see deadMemory
	seen  []byte       // the bytes that were read there

	away    *thread // it makes calls for us, one after the other: see Together
	calling *call

	guardian *guarded      // nil until Guard
	action   target.Action // for SIGTRAP, as it was set last
	stat     statFile
	looked   time.Time // whether it is there still
	unseen   int       // traps since then
	wary     bool      // it was gone once
	onTrap   func(own *target.Action)
	onBirth  func(born, parent target.Thread)
	robust   robustList
	files    sync.Map // *byte, where we have shared memory -> *os.File, the one behind it

	pin   pinning
	comms sync.Map // thread id -> *commEntry

	closeOnce sync.Mutex
	closed    bool
}

type state uint8

const (
	running  state = iota
	reported       // handed out by Wait or Freeze; a Resume is owed
	held           // stopped by Freeze
)

// thread is one task that runs in the target's memory: a thread of it, or,
// until it execs or exits, a child born by vfork.
type thread struct {
	tid, tgid int
	state     state
	group     bool // in a group stop (SIGSTOP and its kin): listen, do not continue
	asked     bool // a PTRACE_INTERRUPT is under way
	trapped   bool // the signal that it was reported for last is a trap's,
	dealt     bool // ours, and it is not going to be given it: the report was read
	back      bool // it was set back to the trap that it is reported for
	owed      bool // its fork was reported, and it is on its way to a clean stop
	lapsed    bool // its stop is over: see Lapsed
	stepped   bool // it has come to this stop by steps

	unfiltered bool // it has no seccomp filter, as long as no thread runs that could set one

	signal int           // to deliver when a held thread goes on
	fault  *target.Fault // behind its trap's signal, where that is no more to be asked for
	vfork  int           // the vfork child this thread waits for, uninterruptibly
	parent *thread

	mask      uint64 // blocked signals when they were last seen, if maskSeen
	maskSeen  bool
	maskKnown bool // they are those of the last hit
	doubt     bool // it stood at a trap when another's had the action put back: see trapForced

	sp    uint64 // its stack pointer, as Regs has read it at this stop; 0: it has not
	roomy uint64 // the page of its stack pointer, and 1, when a signal's frame had room below

	watch int // the version of Process.watch that it has

	blocked tracee.BlockedCall // when it was asked to stop

	rseq arch.Addr // see cpuOf; 0 where not known
}

// Attach seizes every thread of a running process. The process goes on running and has not been
// changed. Errors wrap the errno and name the obstacle (see Diagnose). They are ESRCH for a process
// that is not there, or has ended meanwhile, whatever it was that failed for that. While a guardian
// puts back what a controller that died has left there, it is waited for, for some seconds. A child
// of this program must not be waited for before Close: such a wait takes what its tracer is told
// (see ownchild.go). EBUSY: one is under way.
func Attach(pid int) (*Process, error) {
	const longest = 100 * time.Millisecond
	most := patience.Of(pid, tries)
	for pause := time.Millisecond; ; pause = min(2*pause, longest) {
		before := restoring(pid)
		p, err := attach(pid)
		if errors.Is(err, unix.EPERM) && (before || restoring(pid)) && !most.Spent() {
			time.Sleep(pause)
			continue
		}
		if err != nil && isOver(pid) {
			err = errGone(pid)
		}
		return p, err
	}
}

// goneError is ESRCH and a sentence.
type goneError int

func errGone(pid int) error       { return goneError(pid) }
func (e goneError) Error() string { return fmt.Sprintf("there is no process %d", int(e)) }
func (e goneError) Unwrap() error { return unix.ESRCH }

func attach(pid int) (*Process, error) {
	if guardian.Is(proc.Process(pid).Read) {
		return nil, fmt.Errorf("process %d is kprobe's own guardian, and cannot be probed", pid)
	}
	a, err := machineOf(pid)
	if err != nil {
		return nil, err
	}
	ours := ownChild(pid)
	if ours && proc.WaitedFor(pid) {
		return nil, fmt.Errorf("process %d is waited for by this program, which would take what its tracer is told: wait for it after Close: %w", pid, unix.EBUSY)
	}
	p := newProcess(pid, a)
	if p.ours = ours; ours {
		go p.alarm()
	}
	p.Run(func() { err = p.seizeAll(pid) })
	if err == nil {
		err = p.openMem()
	}
	if err != nil {
		p.Run(p.letGo)
		p.stopOwner()
		if d := Diagnose(pid); !d.OK() {
			return nil, fmt.Errorf("attach to process %d: %w: %s", pid, rootErrno(err), d.Obstacle())
		}
		return nil, fmt.Errorf("attach to process %d: %w", pid, err)
	}
	return p, nil
}

// Look opens a running process for reading only. It is not traced: nothing in
// it changes, not even that it could be seen from /proc.
func Look(pid int) (*Process, error) {
	a, err := machineOf(pid)
	if err != nil {
		return nil, err
	}
	p := newProcess(pid, a)
	if err := p.openMemFor(os.O_RDONLY); err != nil {
		p.stopOwner()
		return nil, fmt.Errorf("look at process %d: %w", pid, err)
	}
	return p, nil
}

// Start runs a program and stops it before its first instruction. Its standard files are those of
// attr, or the controller's own. It is a child of the controller: a caller that lets it go with
// Close waits for its end, as for any child.
func Start(argv []string, attr *os.ProcAttr) (*Process, error) {
	if len(argv) == 0 {
		return nil, fmt.Errorf("start: no program given: %w", unix.EINVAL)
	}
	p := newProcess(0, nil)
	p.started = true
	var err error
	p.Run(func() { err = p.start(argv, attr) })
	if err == nil {
		err = p.openMem()
	}
	if err != nil {
		if p.pid != 0 {
			unix.Kill(p.pid, unix.SIGKILL)
		}
		p.stopOwner()
		return nil, fmt.Errorf("start %s: %w", argv[0], err)
	}
	return p, nil
}

func newProcess(pid int, a *arch.Arch) *Process {
	p := &Process{
		pid: pid, arch: a,
		jobs:    make(chan func()),
		quit:    make(chan struct{}),
		threads: make(map[int]*thread),
		early:   make(map[int]unix.WaitStatus),
	}
	memcg.Use()
	ready := make(chan struct{})
	go p.ownerLoop(ready)
	<-ready
	return p
}

// ownerLoop is the owner thread. It never unlocks: the host thread ends with
// it, and with the thread its affinity.
func (p *Process) ownerLoop(ready chan struct{}) {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() {
		// The main thread does not end with its goroutine; the threads that it had not let go of
		// would stay traced. Another is made while this one is taken.
		go p.ownerLoop(ready)
		<-ready
		runtime.UnlockOSThread()
		return
	}
	p.owner = unix.Gettid()
	armWakeSignal()
	close(ready)
	for {
		select {
		case f := <-p.jobs:
			f()
		case <-p.quit:
			p.stat.close()
			return
		}
	}
}

func (p *Process) stopOwner() {
	p.closeOnce.Lock()
	defer p.closeOnce.Unlock()
	if !p.closed {
		p.closed = true
		close(p.quit)
		memcg.Leave()
		p.closeMem()
	}
}

// Arch tells the machine of the program, read from its ELF header.
func (p *Process) Arch() *arch.Arch { return p.arch }

// PID is the process id.
func (p *Process) PID() int { return p.pid }

// Run calls f on the owner thread and returns when it is done. After Close it does nothing.
func (p *Process) Run(f func()) {
	done := make(chan struct{})
	select {
	case p.jobs <- func() { defer close(done); f() }:
		<-done
	case <-p.quit:
	}
}

// OnOwner tells whether the caller runs on the owner thread, that is, inside Run.
func (p *Process) OnOwner() bool { return unix.Gettid() == p.owner }

// missed finds, in a process that has just been frozen for the first time, what
// seizeAll could not see: a task that was being made then. Its maker was not
// traced when the making began, so it was not born traced; and processes that were
// made before, by vfork or by clone with CLONE_VM, have the memory, but are no
// threads. Now that all makers have stopped, or wait for such a child, there are
// no more of them.
func (p *Process) missed() (found bool, err error) {
	for _, t := range p.threads {
		if t.tgid != p.pid && t.state != running && !p.sharesMemory(t.tgid, 0) {
			// It executed a program between the look and the call, last time. A signal that it
			// stopped for is its own.
			var info tracee.Siginfo
			if is, err := tracee.ReportedFor(t.tid, &info); err != nil || !is {
				info.Signo = 0
			}
			tracee.Insist(func() error { return tracee.Request(unix.PTRACE_DETACH, t.tid, 0, uint64(info.Signo)) })
			p.forget(t)
			found = true // the thread that waited for it has to stop now
		}
	}
	known := len(p.threads)
	if err := p.seizeAll(p.pid); err != nil {
		return false, err
	}
	pids, err := listProcesses()
	if err != nil {
		return false, err
	}
	for _, pid := range pids {
		if pid != p.pid && p.threads[pid] == nil && p.sharesMemory(pid, 0) {
			if err := p.seizeAll(pid); err != nil && alive(pid, pid) && p.sharesMemory(pid, 0) {
				return false, fmt.Errorf("process %d has the same memory: %w", pid, err)
			}
		}
	}
	for _, t := range p.threads {
		if t.state != running {
			continue
		}
		for _, pid := range childrenOf(t.tgid, t.tid) {
			if c := p.threads[pid]; c != nil { // the child that it waits for
				c.parent, t.vfork = t, pid
			}
		}
	}
	return found || len(p.threads) > known, nil
}

// seizeAll seizes thread after thread of a process until a look at the list finds
// no new one. From then on new threads are born seized.
//
// Threads of the kernel's are left alone: some are in the list since they do the process's input and output (io_uring(7)).
// They run no program, and one that is interrupted fails the request that it is at.
func (p *Process) seizeAll(pid int) error {
	for fresh := true; fresh; {
		fresh = false
		tids, err := listTasks(pid)
		if err != nil {
			return err
		}
		for _, tid := range tids {
			if p.threads[tid] != nil || tid != pid && isWorker(pid, tid, statFields(pid, tid)) {
				continue
			}
			err := tracee.Request(unix.PTRACE_SEIZE, tid, 0, seizeOptions)
			if err != nil && !alive(pid, tid) {
				continue // it ended before the call; a first thread may have done so long ago
			}
			if err == unix.EPERM && p.bornSeized(tid) {
				err = nil
			}
			if err != nil {
				return fmt.Errorf("seize thread %d: %w", tid, err)
			}
			p.threads[tid] = &thread{tid: tid, tgid: pid}
			fresh = true
		}
	}
	return nil
}

// bornSeized tells whether a thread that refuses to be seized is ours already:
// a thread that was seized a moment ago made it.
func (p *Process) bornSeized(tid int) bool {
	tracer, err := statusField(tid, tid, "TracerPid")
	return err == nil && tracer == fmt.Sprint(p.owner) // the tracer is a thread, not its process
}

// letGo detaches from all threads that were seized; used where attaching fails half way.
func (p *Process) letGo() {
	if len(p.threads) == 0 {
		return
	}
	stops, _ := p.Freeze()
	p.passOn(stops)
	p.detachAll()
}

// detachAll lets all threads go. One that did not stop is let go by the end of the owner thread: it
// may have come to a stop since then, for a signal that it would lose by being detached from
// without it.
func (p *Process) detachAll() {
	p.unwatch()
	for _, t := range p.threads {
		if t.state == running {
			continue
		}
		tracee.Insist(func() error { return tracee.Request(unix.PTRACE_DETACH, t.tid, 0, uint64(t.signal)) })
	}
	clear(p.threads)
	p.frozen = false
}

// Close lets the process go on without us. A program that Start started is
// let go too; Exited tells whether it is over.
func (p *Process) Close() error {
	p.closeOnce.Lock()
	closed := p.closed
	p.closeOnce.Unlock()
	if closed {
		return os.ErrClosed
	}
	slow := false
	p.Run(func() {
		if p.gone || len(p.threads) == 0 {
			return
		}
		if !p.frozen || p.Stuck() > 0 {
			freeze := p.freezeWholly
			if p.awaitsUs() {
				freeze = p.Freeze
			}
			stops, _ := freeze()
			p.passOn(stops)
		}
		slow = p.Stuck() > 0
		p.detachAll()
	})
	p.stopOwner()
	p.releaseGuardian()
	p.files.Range(func(_, f any) bool { f.(*os.File).Close(); return true })
	// Until the owner thread has ended, a wait for the process may get stops that are not meant for
	// it.
	for most := patience.Of(os.Getpid(), tries); slow && exists(os.Getpid(), p.owner) && !most.Spent(); {
		time.Sleep(time.Millisecond)
	}
	return nil
}

// Exited tells whether and how the process ended.
func (p *Process) Exited() (target.Exit, bool) { return p.exit, p.gone }

// start forks and execs on the owner thread. The child asks to be traced
// before its exec; since a thread traced that way cannot be interrupted
// without a signal, it is let go with a stop and seized again.
func (p *Process) start(argv []string, attr *os.ProcAttr) error {
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return err
	}
	var a os.ProcAttr
	if attr != nil {
		a = *attr
	}
	pid, err := tracee.Fork(path, argv, &a)
	if err != nil {
		return err
	}
	p.pid = pid
	var ws unix.WaitStatus
	if _, err := tracee.Wait4(pid, &ws, unix.WALL); err != nil {
		return err
	}
	if !ws.Stopped() {
		return fmt.Errorf("the program ended at once (%v)", exitOf(ws))
	}
	if p.arch, err = machineOf(pid); err != nil {
		return err
	}
	if err := tracee.Request(unix.PTRACE_DETACH, pid, 0, uint64(unix.SIGSTOP)); err != nil {
		return err
	}
	if err := tracee.Request(unix.PTRACE_SEIZE, pid, 0, seizeOptions); err != nil {
		return err
	}
	t := &thread{tid: pid, tgid: pid}
	p.threads[pid] = t
	if _, err := p.Freeze(); err != nil {
		return err
	}
	unix.Kill(pid, unix.SIGCONT)
	for most := patience.Of(pid, tries); t.group && !most.Spent(); {
		// Leave the group stop: the next stop is an ordinary one.
		tracee.Request(unix.PTRACE_INTERRUPT, pid, 0, 0)
		p.cont(t, 0)
		if _, err := tracee.Wait4(pid, &ws, unix.WALL); err != nil {
			return err
		}
		if s, ok := p.event(pid, ws); ok && s.Kind == target.StopSignal {
			p.Resume(target.Thread(pid), 0) // the SIGCONT that we sent
		}
	}
	p.frozen = false
	t.state = reported
	return nil
}

// Fresh tells whether the process was just started, or is a child that was just
// born or has just executed a program: its thread waits and is owed a Resume. A
// born child's program has begun; else the thread stands before the first
// instruction.
func (p *Process) Fresh() (th target.Thread, begun, ok bool) {
	return target.Thread(p.pid), p.begun, p.started || p.waits
}

// ShadowStack tells whether the kernel keeps a shadow stack for the process.
func (p *Process) ShadowStack() bool {
	f, err := statusOf(p.pid, "x86_Thread_features")
	return err == nil && strings.Contains(f, "shstk")
}

// rootErrno is the errno at the root of an error.
func rootErrno(err error) error {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}
