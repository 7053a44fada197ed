package gdbremote

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"kprobe/arch"
	"kprobe/target"
)

// stopped takes in a stop report: which threads stand where, and which stops the engine is to hear
// of.
func (t *Target) stopped(report string) error {
	t.running = false
	t.look.Store(0)
	t.forget()
	if report == "" {
		return t.giveUp("its stub does not know how to let it go on")
	}
	switch report[0] {
	case 'W', 'X':
		if !t.program { // its status is QEMU's: nothing else tells why a session of it is over
			return t.giveUp("the machine has ended")
		}
		return t.ended(report)
	case 'T', 'S':
	case 'E':
		return t.giveUp("it does not let the target go on: %.40q", report)
	default:
		return t.giveUp("a stop that is not understood: %.40q", report)
	}
	if len(report) < 3 {
		return t.giveUp("a stop that is not understood: %.40q", report)
	}
	signal, err := strconv.ParseUint(report[1:3], 16, 8)
	if err != nil {
		return t.giveUp("a stop that is not understood: %.40q", report)
	}
	if !t.program {
		return t.machineStopped(report, int(signal))
	}
	th, err := t.reporter(report)
	if err != nil {
		return t.giveUp("a stop that is not understood: %.40q", report)
	}
	if ok, err := t.related(th, report); ok || err != nil {
		return err
	}
	if set, accessed := t.accessedBy(report); accessed {
		t.queue = append(t.queue, target.Stop{Kind: target.StopAccess, Thread: th, Accessed: set})
		return nil
	}
	return t.programStopped(th, int(signal))
}

// reporter is the thread that a program's stop is about; it may be a new one.
func (t *Target) reporter(report string) (th target.Thread, err error) {
	th = t.current
	for _, field := range strings.Split(report[min(3, len(report)):], ";") {
		id, ok := strings.CutPrefix(field, "thread:")
		if !ok {
			continue
		}
		var process int
		if process, th, err = parseThread(id); err != nil {
			return 0, err
		}
		t.ids[th] = id
		t.belongs(process)
	}
	return th, nil
}

// machineStopped looks at every CPU: several may have come to a breakpoint at once, and only one is
// reported. Other stops of a machine do not matter here, but for its end.
func (t *Target) machineStopped(report string, signal int) error {
	t.swallow = 0
	if signal == machineEnded {
		return t.giveUp("the machine has been shut down")
	}
	if th, err := t.reporter(report); err == nil && signal == gdbTRAP {
		t.current = th
	}
	// The one that will most likely be asked more is asked last: so it stays chosen.
	others := slices.DeleteFunc(t.threads(), func(th target.Thread) bool { return th == t.current })
	if err := t.askAll(append(others, t.current)); err != nil {
		return err
	}
	if err := t.recognize(); err != nil {
		return err
	}
	if set, accessed := t.accessedBy(report); accessed {
		t.queue = append(t.queue, target.Stop{Kind: target.StopAccess, Thread: t.current, Accessed: set})
	}
	for _, th := range t.threads() {
		pc, err := t.pc(th)
		if err != nil {
			return err
		}
		if !t.breaks[pc] {
			continue
		}
		away, err := t.elsewhere(th)
		if err == nil && away {
			err = t.step(th) // see quirks.go, "Two address spaces"
		} else if err == nil {
			t.queue = append(t.queue, target.Stop{Kind: target.StopTrap, Thread: th, Back: true})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// programStopped: others that came to a breakpoint at the same time are reported
// by the stub one after another.
func (t *Target) programStopped(th target.Thread, signal int) error {
	switch {
	case signal == gdbINT && t.swallow > 0:
		t.swallow--
	case signal == gdbTRAP:
		pc, err := t.pc(th)
		if err != nil {
			return err
		}
		if t.has.listener != 0 && !t.breaks[pc] && !t.trapAt(pc) {
			return nil // see quirks.go, "Threads of QEMU's user mode"
		}
		t.queue = append(t.queue, target.Stop{Kind: target.StopTrap, Thread: th,
			Signal: linuxSignal(signal), Back: t.breaks[pc]})
	case signal != 0:
		t.queue = append(t.queue, target.Stop{Kind: target.StopSignal, Thread: th, Signal: linuxSignal(signal)})
	}
	return nil
}

// trapAt tells whether the program has a trap of its own where a thread has stopped.
func (t *Target) trapAt(pc arch.Addr) bool {
	b := make([]byte, len(t.arch.Break))
	return t.read(pc-arch.Addr(t.arch.BreakPC), b) == nil && bytes.Equal(b, t.arch.Break)
}

// ended: W and a status, or X and a signal.
func (t *Target) ended(report string) error {
	number, _, _ := strings.Cut(report[1:], ";")
	n, err := strconv.ParseUint(number, 16, 32)
	if err != nil {
		return t.giveUp("an end that is not understood: %.40q", report)
	}
	exit := target.Exit{Code: int(n)}
	if report[0] == 'X' {
		exit = target.Exit{Code: -1, Signal: linuxSignal(int(n))}
	}
	t.over = true
	t.queue = append(t.queue, target.Stop{Kind: target.StopExit, Status: exit})
	return nil
}

// giveUp ends the connection to a target that there is nothing more to do with.
func (t *Target) giveUp(format string, args ...any) error {
	t.over = true
	err := fmt.Errorf("%w: "+format, append([]any{target.ErrGone}, args...)...)
	t.reason = err
	t.c.fail(err)
	return err
}

// halted asks why the target stands, which it does since Dial.
func (t *Target) halted() error {
	t.c.dropStops() // QEMU's, unasked
	if err := t.c.send("?"); err != nil {
		return err
	}
	report, err := t.c.stop("?")
	if err != nil {
		return err
	}
	switch {
	case report == "":
		return refused("?", report)
	case report[0] == 'W' || report[0] == 'X':
		t.over = true
		return fmt.Errorf("%w: nothing runs there", target.ErrGone)
	}
	t.reporter(report) // of which process it is; a stub that names none has one only
	return nil
}

// step lets th carry out one instruction. Its own breakpoint is taken out for that while no other
// thread can pass.
func (t *Target) step(th target.Thread) error {
	id, ok := t.ids[th]
	if !ok {
		return target.ErrGone
	}
	pc, err := t.pc(th)
	if err != nil {
		return err
	}
	if t.breaks[pc] {
		if err := t.clearBreak(pc); err != nil {
			return err
		}
		defer func() {
			if again := t.setBreak(pc); err == nil && !t.over {
				err = again
			}
		}()
	}
	before, err := t.registers(th)
	if err != nil {
		return err
	}
	// See quirks.go, "steps that do nothing".
	for range stepPatience {
		t.forget()
		if err = t.c.send("vCont;s:" + id); err != nil {
			return err
		}
		report, err := t.c.stop("a step")
		if err != nil {
			return err
		}
		if report == "" || report[0] != 'T' && report[0] != 'S' {
			return t.stopped(report)
		}
		if t.program {
			if ok, err := t.related(th, report); ok || err != nil {
				return err
			}
			if other, err := t.reporter(report); err != nil {
				return err
			} else if signal, err := strconv.ParseUint(report[1:3], 16, 8); err == nil && other != th && signal != gdbTRAP {
				if err := t.programStopped(other, int(signal)); err != nil {
					return err
				}
			}
		}
		after, err := t.registers(th)
		if err != nil || string(after) != string(before) {
			return err
		}
	}
	return nil // an instruction that jumps to itself
}

func (t *Target) pc(th target.Thread) (arch.Addr, error) {
	g, err := t.registers(th)
	if err != nil {
		return 0, err
	}
	v, ok := t.about.get(t.arch, g, t.row[t.arch.PC])
	if !ok {
		return 0, fmt.Errorf("the stub does not tell where thread %s stands", t.ids[th])
	}
	return arch.Addr(v), nil
}
