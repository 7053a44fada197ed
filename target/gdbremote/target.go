// Package gdbremote probes targets behind a GDB stub: a whole machine with its kernel (QEMU), whose
// threads are CPUs, or a program (gdbserver, QEMU's user mode). It speaks the GDB remote serial
// protocol, as the GDB manual's appendix "GDB Remote Serial Protocol" has it; quirks.go has the
// ways of real stubs with it.
//
//	packet.go       packets and their bytes
//	conn.go         the line: requests, answers, stop reports
//	description.go  the machine's registers, as the stub describes them
//	dial.go         the greeting: what the stub can do, and has
//	target.go       the target: going on, stopping, threads
//	registers.go    their registers
//	watch.go        data that is watched
//	memory.go       memory, by the stub or in the file that holds a guest's RAM
//	paging.go       the page tables of a machine, which MACHINE_paging.go go through
//	boot.go         whether a machine is still the one that was found
//	program.go      what is mapped in a program, by hostio.go: files where the stub runs
//	family.go       the program's children
//	signals.go      how GDB numbers signals
//
// # All or nothing
//
// The protocol as every stub has it is all-stop: one thread stops and all do. So
// the target goes on when Wait is called, nothing is frozen and no thread is owed
// a Resume. Memory of a running target is read by stopping it for the moment.
//
// # Leaving
//
// A stub keeps breakpoints when its client vanishes, and QEMU keeps the guest stopped. Close takes
// everything out and says goodbye. Dial finds and removes what a client without a goodbye has left.
//
// # Known dangers
//
// A stub has one client at a time: for a second one Dial fails after a while. QEMU takes that call
// when the first client has gone, and stops the guest for it: the next client lets it go on.
//
// A guest that is reset keeps its breakpoints, which may be in the middle of anything then, and its
// stub does not say so. A caller that can tell one boot from the next has to say how (boot.go).
package gdbremote

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"kprobe/arch"
	"kprobe/internal/host"
	"kprobe/symbol"
	"kprobe/target"
)

// Target is a machine or a program behind a stub.
type Target struct {
	c     *conn
	arch  *arch.Arch
	about *description
	row   []*register // of about, by arch.Reg; nil where the stub does not show one

	program bool // threads are those of one program, rather than CPUs
	process int  // the stub's number for the program or machine; 0 if it has none
	has     features
	ram     *ram

	maps atomic.Pointer[func() ([]symbol.Mapping, error)]

	run   sync.Mutex // held inside Run
	owner atomic.Int64
	look  atomic.Int64 // when the machine is to be looked at: see boot.go

	woken bool // guarded by c.mu

	// The following fields are for a caller between c.enter and c.leave.
	ids     map[target.Thread]string // as the stub writes them
	running bool
	frozen  bool
	over    bool // the target is gone, or was let go
	closed  bool
	parted  bool          // with nothing of ours left in it
	reason  error         // why it is over, if not by its own end
	facts   []Fact        // the facts that identify this boot of a machine
	queue   []target.Stop // not handed out yet
	owed    map[target.Thread]bool
	signals map[target.Thread]int // to be delivered, in GDB's numbers
	swallow int                   // reports of our own interrupts that may still come
	breaks  map[arch.Addr]bool
	watches []target.Watch
	sharers int           // children that have the program's memory: see family.go
	current target.Thread // whose memory is meant
	chosen  target.Thread // of the last Hg request
	regs    map[target.Thread]registers
	witness target.Thread        // the CPU that has shown the facts while it stands as it does
	single  map[*register]uint64 // of the chosen thread: registers that are not in regs
}

// features are the abilities of a stub.
type features struct {
	vCont    bool // it can let threads go on one by one
	binary   bool // X
	whole    bool // G only, no P
	physical bool // Qqemu.PhyMemMode
	deaf     bool // it hears no client while the target runs: see quirks.go, "kgdb"
	listener int  // the stub's own process, where it takes interrupts as signals only; else 0
	packet   int  // longest packet, in bytes
}

// document reads one of the stub's descriptions of the machine.
func (t *Target) document(name string) (string, error) { return t.xfer("features", name) }

// xfer reads one of the stub's documents, in pieces.
func (t *Target) xfer(object, name string) (string, error) {
	var text strings.Builder
	for text.Len() < maxPacket {
		answer, err := t.c.ask(fmt.Sprintf("qXfer:%s:read:%s:%x,%x", object, name, text.Len(), t.has.packet/2))
		if err != nil {
			return "", err
		}
		if answer == "" || answer[0] != 'l' && answer[0] != 'm' {
			return "", refused(object+" "+name, answer)
		}
		text.WriteString(answer[1:])
		if answer[0] == 'l' {
			return text.String(), nil
		}
		if len(answer) == 1 {
			break
		}
	}
	return "", fmt.Errorf("%s %s has no end", object, name)
}

// Arch is the machine that the stub described.
func (t *Target) Arch() *arch.Arch { return t.arch }

// PID is the program's process id where the stub runs; 0 for a machine.
func (t *Target) PID() int {
	if !t.program {
		return 0
	}
	return t.process
}

// IsMachine tells a machine from a program.
func (t *Target) IsMachine() bool { return !t.program }

// Run calls f. No thread of the host is special here, but one at a time is the
// owner.
func (t *Target) Run(f func()) {
	t.run.Lock()
	defer t.run.Unlock()
	runtime.LockOSThread() // the thread's number tells whether a caller is inside
	defer runtime.UnlockOSThread()
	t.owner.Store(host.Thread())
	defer t.owner.Store(0)
	f()
}

// OnOwner tells whether the caller runs inside Run.
func (t *Target) OnOwner() bool { return t.owner.Load() == host.Thread() }

// Wake makes the current or next Wait return StopWoken.
func (t *Target) Wake() {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	t.woken = true
	t.c.change.Broadcast()
}

// Wait lets the target go on, if nothing holds it, until a thread stops or Wake
// is called. Errors: ErrGone.
func (t *Target) Wait() (target.Stop, error) {
	for {
		t.c.enter()
		st, ok, err := t.poll()
		t.c.leave()
		if ok || err != nil {
			return st, err
		}
		t.sleep()
	}
}

// sleep waits until poll may have something.
func (t *Target) sleep() {
	c := t.c
	if at := t.due(); !at.IsZero() {
		alarm := time.AfterFunc(time.Until(at), func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.change.Broadcast()
		})
		defer alarm.Stop()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.err == nil && !t.woken && (c.busy || len(c.stops) == 0 && len(t.queue) == 0 && !t.isDue()) {
		c.change.Wait()
	}
}

// poll is Wait without waiting.
func (t *Target) poll() (st target.Stop, ok bool, err error) {
	if t.takeWake() {
		return target.Stop{Kind: target.StopWoken}, true, nil
	}
	if t.running {
		report, ok, err := t.c.tryStop()
		if err != nil {
			return st, false, err
		}
		if ok {
			err = t.stopped(report)
		} else if t.isDue() {
			err = t.halt()
		}
		if err != nil {
			return st, false, err
		}
	}
	if len(t.queue) > 0 {
		st = t.queue[0]
		t.queue = t.queue[1:]
		t.handOut(st)
		return st, true, nil
	}
	if t.over {
		return st, false, t.gone()
	}
	if err := t.c.dead(); err != nil { // a thread that is owed a Resume gets none any more
		t.over, t.reason = true, err // or its memory could still be read, where that is shared
		return st, false, err
	}
	return st, false, t.goOn()
}

// takeWake tells whether Wake was called since it was asked last.
func (t *Target) takeWake() bool {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	woken := t.woken
	t.woken = false
	return woken
}

// handOut notes that a stop's thread is owed a Resume; its memory is now meant.
func (t *Target) handOut(st target.Stop) {
	switch st.Kind {
	case target.StopTrap, target.StopSignal, target.StopExec, target.StopAccess:
		t.owed[st.Thread] = true
		t.current = st.Thread
	}
}

// goOn lets the target run, if nothing holds it.
func (t *Target) goOn() error {
	if t.running || t.frozen || t.over || len(t.owed) > 0 || len(t.queue) > 0 {
		return nil
	}
	request := "vCont"
	for _, th := range slices.Sorted(maps.Keys(t.signals)) {
		if id, ok := t.ids[th]; ok {
			request += fmt.Sprintf(";C%02x:%s", t.signals[th], id)
		}
	}
	clear(t.signals)
	t.forget()
	t.setDue()
	t.running = true
	return t.c.send(request + ";c")
}

// gone is the error for a target that is over.
func (t *Target) gone() error {
	if t.reason != nil {
		return t.reason
	}
	return target.ErrGone
}

// forget drops the facts about threads while they stand.
func (t *Target) forget() {
	clear(t.regs)
	clear(t.single)
	t.chosen, t.witness = 0, 0
}

// halt stops a running target.
func (t *Target) halt() error {
	if !t.running {
		return nil
	}
	if err := t.interrupt(); err != nil {
		return err
	}
	report, err := t.c.stop("an interrupt")
	if err != nil {
		return err
	}
	return t.stopped(report)
}

// still calls f while nothing of the target runs, and lets it go on if it did.
func (t *Target) still(f func() error) error {
	t.c.enter()
	defer t.c.leave()
	if t.over {
		return t.gone()
	}
	was := t.running
	if err := t.halt(); err != nil {
		return err
	}
	if t.over {
		return t.gone()
	}
	err := f()
	if was {
		err = errors.Join(err, t.goOn())
	}
	return err
}

// Resume lets a reported thread go on, as soon as all others may.
func (t *Target) Resume(th target.Thread, signal int) error {
	t.c.enter()
	defer t.c.leave()
	if t.over {
		return t.gone()
	}
	delete(t.owed, th)
	if signal != 0 && t.program {
		t.signals[th] = gdbSignal(signal)
	}
	return nil
}

// LetGo tells whether Close has reached the target, and nothing of ours is in it.
func (t *Target) LetGo() bool {
	t.c.enter()
	defer t.c.leave()
	return t.parted
}

// Requeue takes a reported stop back: Wait will hand it out again, as st.
func (t *Target) Requeue(st target.Stop) error {
	t.c.enter()
	defer t.c.leave()
	if t.over {
		return t.gone()
	}
	delete(t.owed, st.Thread)
	t.queue = append([]target.Stop{st}, t.queue...)
	return nil
}

// Freeze stops the target and reports the threads that stand at a breakpoint.
func (t *Target) Freeze() (stops []target.Stop, err error) {
	err = t.still(func() error {
		t.frozen = true
		return nil
	})
	t.c.enter()
	defer t.c.leave()
	stops, t.queue = t.queue, nil
	for _, st := range stops {
		t.handOut(st)
	}
	return stops, err
}

// Thaw lets it go on with the next Wait.
func (t *Target) Thaw() error {
	t.c.enter()
	defer t.c.leave()
	t.frozen = false
	if t.over {
		return t.gone()
	}
	return nil
}

// Stuck is 0: an all-stop stub stops everything.
func (t *Target) Stuck() int { return 0 }

// Threads lists the CPUs, or the program's threads.
func (t *Target) Threads() []target.Thread {
	t.c.enter()
	defer t.c.leave()
	if t.program && !t.running && !t.over && t.listThreads() != nil {
		return nil
	}
	return t.threads()
}

func (t *Target) threads() []target.Thread { return slices.Sorted(maps.Keys(t.ids)) }

// listThreads asks the stub which threads there are.
func (t *Target) listThreads() error {
	ids := make(map[target.Thread]string)
	for request := "qfThreadInfo"; ; request = "qsThreadInfo" {
		answer, err := t.c.ask(request)
		if err != nil {
			return err
		}
		list, more := strings.CutPrefix(answer, "m")
		if !more {
			if answer != "l" {
				return refused(request, answer)
			}
			break
		}
		for _, id := range strings.Split(list, ",") {
			pid, th, err := parseThread(id)
			if err != nil {
				return err
			}
			ids[th] = id
			t.belongs(pid)
		}
		if len(ids) > 1<<20 {
			return errors.New("threads without end")
		}
	}
	if len(ids) == 0 {
		return errors.New("it has no threads")
	}
	t.ids = ids
	if _, ok := ids[t.current]; !ok {
		t.current = t.threads()[0]
	}
	return nil
}

// belongs learns the stub's number of the process from a thread's name. The first that is told, in
// Dial, stays: any goroutine may ask for it at any time, and a child's thread has its own.
func (t *Target) belongs(pid int) {
	if t.process == 0 && pid != 0 {
		t.process = pid
	}
}

// parseThread reads THREAD or pPROCESS.THREAD, both in hexadecimal.
func parseThread(id string) (pid int, th target.Thread, err error) {
	text := id
	if rest, ok := strings.CutPrefix(id, "p"); ok {
		process, thread, ok := strings.Cut(rest, ".")
		n, err := strconv.ParseUint(process, 16, 31)
		if !ok || err != nil {
			return 0, 0, fmt.Errorf("thread %q", id)
		}
		pid, text = int(n), thread
	}
	n, err := strconv.ParseUint(text, 16, 31)
	if err != nil || n == 0 {
		return 0, 0, fmt.Errorf("thread %q", id)
	}
	return pid, target.Thread(n), nil
}

// SetBreak puts a breakpoint at addr. Memory stays as it is, or the stub shows
// it so.
func (t *Target) SetBreak(addr arch.Addr) error {
	return t.still(func() error { return t.setBreak(addr) })
}

func (t *Target) setBreak(addr arch.Addr) error {
	if t.breaks[addr] {
		return nil
	}
	err := t.putBreak('Z', addr)
	if err == nil {
		t.breaks[addr] = true
	}
	return err
}

// ClearBreak takes a breakpoint out.
func (t *Target) ClearBreak(addr arch.Addr) error {
	return t.still(func() error { return t.clearBreak(addr) })
}

func (t *Target) clearBreak(addr arch.Addr) error {
	if !t.breaks[addr] {
		return nil
	}
	delete(t.breaks, addr)
	return t.putBreak('z', addr)
}

// breakRequest: the last number is the breakpoint's "kind", its length on all
// machines that are known here (x86 1, arm64 4, s390x 2).
func (t *Target) breakRequest(verb byte, addr arch.Addr) string {
	return fmt.Sprintf("%c0,%x,%d", verb, uint64(addr), len(t.arch.Break))
}

// Step lets a reported thread carry out one instruction, while all others stand.
func (t *Target) Step(th target.Thread) error {
	return t.change(func() error { return t.step(th) })
}

// Maps lists the mappings: of a program those that its system tells, of a machine those of SetMaps.
func (t *Target) Maps() ([]symbol.Mapping, error) {
	if f := t.maps.Load(); f != nil {
		return (*f)()
	}
	if t.program {
		return t.programMaps()
	}
	return nil, nil
}

// SetMaps makes f the answer of Maps: only a machine's kernel knows the machine's mappings.
func (t *Target) SetMaps(f func() ([]symbol.Mapping, error)) { t.maps.Store(&f) }

// Monitor gives a command to the program that the stub is part of, such as QEMU's monitor.
// Errors: the stub has none.
func (t *Target) Monitor(command string) (out string, err error) {
	err = t.still(func() error {
		out, err = t.c.monitor(command)
		return err
	})
	return out, err
}

// Close takes every breakpoint out and lets the target go on.
func (t *Target) Close() error {
	t.c.enter()
	defer t.c.leave()
	if t.closed {
		return os.ErrClosed
	}
	t.closed = true
	err := t.part()
	t.c.fail(fmt.Errorf("%w: %w", target.ErrGone, os.ErrClosed))
	if t.ram != nil {
		err = errors.Join(err, t.ram.Close())
	}
	t.over = true
	return err
}

// HangUp ends the connection without a goodbye: the target stands, and our breakpoints stay in the
// stub.
func (t *Target) HangUp() {
	t.c.enter()
	defer t.c.leave()
	t.over = true
	t.c.fail(target.ErrGone)
}

// part says goodbye. If the target is gone, it says nothing.
func (t *Target) part() error {
	if t.over {
		return nil
	}
	err := t.halt()
	if err == nil && !t.over {
		for _, a := range slices.Sorted(maps.Keys(t.breaks)) {
			err = errors.Join(err, t.clearBreak(a))
		}
		err = errors.Join(err, t.changeWatches(nil))
		err = errors.Join(err, t.drain())
		err = errors.Join(err, t.detach())
		t.parted = err == nil
	}
	if errors.Is(err, target.ErrGone) {
		return nil
	}
	return err
}
