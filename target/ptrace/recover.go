//go:build linux && (amd64 || arm64 || ppc64le || riscv64 || s390x)

package ptrace

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"kprobe/arch"
	"kprobe/internal/leftover"
	"kprobe/internal/lifeline"
	"kprobe/internal/patience"
	"kprobe/internal/tracee"
	"kprobe/target"
)

// ErrNothing is Recover's error for a process that has nothing to restore: it is gone, another has
// its pid, it executes another program by now, or its text is back already.
var ErrNothing = lifeline.ErrNothing

// Recovered is the result of Recover for one process.
type Recovered struct {
	PID   int
	Err   error  // nil where its text was restored
	Stays string // the memory that stays mapped then, and why; "" where nothing that is large does
}

// Recover restores the processes whose controller has died and whose guardian
// has too: pid, or all for 0. Processes with a live controller are left alone. The
// error tells of journals that cannot be read, each; the others are recovered.
func Recover(pid int) ([]Recovered, error) {
	paths, err := lifeline.Journals(pid)
	if err != nil {
		return nil, err
	}
	var all []Recovered
	var errs []error
	for _, path := range paths {
		j, err := lifeline.Load(path)
		switch {
		case errors.Is(err, fs.ErrNotExist): // its guardian has just removed it
		case err != nil:
			errs = append(errs, err)
		case j.Abandoned():
			most := patience.Of(j.PID, tries)
			stays, err := recoverJournal(j, func() bool { return !most.Spent() })
			all = append(all, Recovered{j.PID, err, stays})
		}
	}
	return all, errors.Join(errs...)
}

// recoverJournal restores a process and its children. It tries again, while it may, where that
// cannot be done now: another tracer is there, the one before is still about to end, or all threads
// wait for a vfork child. Any other failure is tried again a few times: a thread that did not obey
// may do so when it has gone on. Parts that are restored already are not touched again. The journal
// goes when nothing is left.
func recoverJournal(j *lifeline.Journal, may func() bool) (stays string, err error) {
	retry := func(j *lifeline.Journal, stays *string) error {
		const longest = time.Second
		others := 10
		for pause := time.Millisecond; ; pause = min(2*pause, longest) {
			err := recoverOnce(j, stays)
			if err == nil || errors.Is(err, lifeline.ErrNothing) || !may() {
				return err
			}
			if !errors.Is(err, target.ErrNotNow) && !errors.Is(err, unix.EPERM) {
				if others--; others == 0 {
					return err
				}
			}
			time.Sleep(pause)
		}
	}
	err = retry(j, &stays)
	for _, c := range copies(j) {
		if e := retry(c, new(string)); err == nil && !errors.Is(e, lifeline.ErrNothing) {
			err = e
		}
	}
	if err == nil || errors.Is(err, lifeline.ErrNothing) {
		os.Remove(j.Path())
	}
	return stays, err
}

// copies finds the processes that have a copy of a session's memory: children that
// the process made when its controller was dead and it not yet restored, and theirs.
// The lifeline serves them like their parent.
func copies(j *lifeline.Journal) (all []*lifeline.Journal) {
	seen := map[int]bool{j.PID: true, os.Getpid(): true}
	for found := true; found; {
		found = false
		pids, _ := listProcesses()
		for _, pid := range pids {
			if id, err := programID(pid); seen[pid] || err != nil || id != j.BuildID {
				continue
			}
			seen[pid] = true
			c := j.Child(pid)
			if c == nil {
				continue
			}
			p, err := Look(pid)
			if err != nil {
				continue
			}
			if trap, err := lifeline.Read(p.arch, j.Base, p.ReadAt); err == nil && trap.ID == j.ID {
				all = append(all, c)
				found = true
			}
			p.Close()
		}
	}
	return all
}

// recoverOnce restores a process after a dead controller: the text, the return addresses on the
// stacks, the program's own action on SIGTRAP. The slots stay mapped: a thread may stand in one,
// and a signal frame may lead back to it.
func recoverOnce(j *lifeline.Journal, stays *string) error {
	if is, err := concerns(j); err != nil {
		return fmt.Errorf("process %d cannot be looked into any more: %w", j.PID, err)
	} else if !is {
		return lifeline.ErrNothing
	}
	p, err := Attach(j.PID)
	if err != nil {
		if is, e := concerns(j); !is && e == nil { // it is ending
			return lifeline.ErrNothing
		}
		return err
	}
	p.Run(func() {
		if err = p.restore(j); err == nil {
			*stays = p.giveBack(j)
			p.GiveBackLeft()
		}
	})
	if e := p.Close(); err == nil && !errors.Is(e, os.ErrClosed) {
		err = e
	}
	if errors.Is(err, target.ErrGone) && !j.Current() {
		err = lifeline.ErrNothing
	}
	return err
}

// giveBack has the frozen process share its text with others again, and unmaps the memory that a
// session had in common with it. It answers which memory stays, and why.
func (p *Process) giveBack(j *lifeline.Journal) (stays string) {
	found, err := lifeline.Read(p.arch, j.Base, p.ReadAt)
	if err != nil {
		return ""
	}
	text := make([]arch.Range, len(found.Entries))
	for i, e := range found.Entries {
		text[i] = arch.Range{Start: e.Addr, End: e.Addr + arch.Addr(max(e.Len, 1))}
	}
	p.Revert(text) // pages that it cannot give back stay the process's own
	return leftover.GiveBack(p, "/memfd:"+memoryName(j.ID), found.Harmless(j.Base), func() error {
		stops, err := p.freezeWholly()
		p.passOn(stops)
		return err
	})
}

// restore works on the owner thread. It leaves the process frozen, for Close
// to let go.
func (p *Process) restore(j *lifeline.Journal) error {
	p.watched = true // for all that we know
	found, err := lifeline.Read(p.arch, j.Base, p.ReadAt)
	if err == nil && found.ID == j.ID {
		// They may be gone already, and with them what tells that a thread ran into one.
		p.disarmed = found.Traps()
	}
	stops, err := p.freezeWholly()
	if err != nil {
		return err
	}
	p.skipCalls()
	if err := p.closeMemoryFile(j.ID); err != nil && !errors.Is(err, target.ErrGone) {
		p.passOn(stops)
		return err
	}
	found, err = lifeline.Read(p.arch, j.Base, p.ReadAt)
	if err != nil || found.ID != j.ID {
		// A trap handler is there before the first byte changes, and goes after
		// the last one is back: the controller died before, or after.
		p.passOn(stops)
		if err == nil || errors.Is(err, unix.EFAULT) || errors.Is(err, lifeline.ErrForeign) {
			err = lifeline.ErrNothing
		}
		return err
	}
	var code []arch.Range
	if !found.Stays(p.abi().Lifeline) {
		code = p.codeOf(j, found)
	}
	var errs []error
	for _, e := range found.Entries {
		if err := p.restoreBytes(e); err != nil {
			errs = append(errs, err)
		}
	}
	for sp, real := range found.Frames {
		p.restoreReturn(sp, found.Return, real)
	}
	if found.Return != 0 {
		// A thread may stand on the trampoline, or come back to it from a signal
		// handler: the one that served its trap when we came, for one.
		if err := p.WriteAt(found.Return, p.abi().Lifeline.BypassReturn(j.Base)); err != nil {
			errs = append(errs, err)
		}
	}
	for i := range stops {
		p.dealWith(&stops[i], found.Driven)
	}
	p.undrive(found.Driven)
	err = p.unwatchLeft()
	// This takes the traps' signals from their threads, as long as their handler is there to
	// recognize them.
	if err == nil && !found.Stays(p.abi().Lifeline) {
		handler := lifeline.HandlerOf(j.Base)
		p.action = p.TrapHandler(handler, lifeline.RestorerOf(j.Base), found.Old)
		err = p.ReturnTrapAction(func(a target.Action) bool { return lifeline.LeadsTo(p.arch, a, handler) }, found.Old)
	}
	if err != nil {
		errs = append(errs, err)
	}
	p.passOn(stops)
	if len(errs) == 0 {
		over := lifeline.Over(j.Base)
		left := found.Left(p.arch, j.Base, code)
		errs = append(errs, p.WriteAt(left.Addr, left.New), p.WriteAt(over.Addr, over.New))
	}
	return errors.Join(errs...)
}

// skipCalls leads threads past the call that the dead controller was about to have them make: on to
// the frame with all that they had before (see call). Made later, it would change parts that have
// been restored.
func (p *Process) skipCalls() {
	for tid, t := range p.threads {
		var r tracee.Registers
		if t.state == running || tracee.GetRegs(tid, &r) != nil {
			continue
		}
		if back := p.ledTo(&r); back != 0 {
			r.SetPC(uint64(back))
			tracee.Insist(func() error { return tracee.SetRegs(tid, &r) })
		}
	}
}

// ledTo is the address to which a thread goes after a call that a controller has it make next, and
// its registers r are as they are there then; 0 where it is not about to make such a call. A signal
// handler that makes a call of its own has a frame too, but not one of ours.
func (p *Process) ledTo(r *tracee.Registers) arch.Addr {
	a := p.abi()
	for _, e := range a.Entries[:len(a.Entries)-1] { // the last one does not return
		if !holds(p, arch.Addr(r.PC()), e.Code) {
			continue
		}
		frame, to := r.Returns(a, p, e.Pops)
		ours := holds(p, frame+arch.Addr(a.Note), tracee.FrameMark)
		if ours && slices.ContainsFunc(a.Back, func(code string) bool { return holds(p, to, code) }) {
			return to
		}
		return 0
	}
	return 0
}

// restoreBytes puts an instruction back, if our trap or jump is still there. The trap at the end of
// a slot becomes a jump: a thread may be in the slot, or come back to it from a signal handler,
// when traps are not served any more.
func (p *Process) restoreBytes(e lifeline.Entry) error {
	have := make([]byte, e.Len)
	if len(have) == 0 || p.ReadAt(e.Addr, have) != nil {
		return nil // a trap within a jump, that goes with it; or unmapped since
	}
	trap := bytes.HasPrefix(have, p.arch.Break)
	if jump, ok := e.Bypass(p.abi().Lifeline); ok {
		if !trap {
			return nil // that jump is there already
		}
		return p.WriteAt(e.Addr, jump)
	}
	if trap || p.abi().Lifeline.IsJump(have) {
		return p.WriteAt(e.Addr, e.Original[:e.Len])
	}
	return nil
}

func (p *Process) restoreReturn(sp, trampoline, real arch.Addr) {
	if !p.arch.RetAddrOnStack {
		return // it may be anywhere: the trampoline leads there
	}
	b := make([]byte, p.arch.PtrSize)
	if trampoline == 0 || p.ReadAt(sp, b) != nil || p.arch.Word(b) != uint64(trampoline) {
		return
	}
	p.arch.PutWord(b, uint64(real))
	p.WriteAt(sp, b)
}

// dealWith takes the signal off a stop for a trap that needs no server any more. Such a thread was
// set back to the trap, and runs the code in the trap's place by now, the instruction or a jump. Or
// the tracer before us has dealt with the trap. Or the trap is that of the thread's step.
func (p *Process) dealWith(st *target.Stop, driven lifeline.Driven) {
	if st.Kind != target.StopTrap {
		return
	}
	var r tracee.Registers
	if st.Back || uint64(st.Thread) == driven.TID && p.stepped(st.Thread) || tracee.GetRegs(int(st.Thread), &r) == nil && r.IsDealt(int(st.Thread), false) {
		st.Signal, st.Back = 0, false
	}
}

// stepped tells whether a thread that was told to make single steps is reported for one. That may
// have been the step into the handler for the one before: then the kernel reports a signal that
// does not exist.
func (p *Process) stepped(th target.Thread) bool {
	var info tracee.Siginfo
	var r tracee.Registers
	if tracee.TransferSiginfo(unix.PTRACE_GETSIGINFO, int(th), &info) != nil || tracee.GetRegs(int(th), &r) != nil {
		return false
	}
	return info.ForStep(tracee.ByteBefore(p, &r))
}

// undrive has a thread make no more single steps, and gives it its own signal mask again, if it
// still has the one that it was driven with.
func (p *Process) undrive(d lifeline.Driven) {
	tid := int(d.TID)
	if p.threads[tid] == nil {
		return
	}
	tracee.Unstep(tid)
	if mask, err := tracee.SignalMask(unix.PTRACE_GETSIGMASK, tid, 0); err == nil && mask == d.Held {
		tracee.Block(tid, d.Mask)
	}
}

// passOn gives the stops of a freeze back: children go, and signals are delivered,
// those of traps too. A trap is for whomever it is: with the lifeline still in
// place it is served there.
func (p *Process) passOn(stops []target.Stop) {
	for _, st := range stops {
		switch st.Kind {
		case target.StopFork:
			st.Child.Detach()
			p.Resume(st.Thread, 0)
		case target.StopSpawn:
			st.Child.Detach()
		case target.StopAccess:
			p.Resume(st.Thread, 0)
		case target.StopTrap, target.StopSignal:
			if st.Back {
				p.setForth(int(st.Thread))
			}
			p.Resume(st.Thread, st.Signal)
		}
	}
}
