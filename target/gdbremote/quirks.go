package gdbremote

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"kprobe/target"
)

// The ways of real stubs with the protocol, each with our way around it. The
// versions are those that were tried: QEMU 7.2, gdbserver 13.1.
//
//   - The first question. QEMU, when a client connects to a running machine, stops
//     it and reports T02 unasked, before it answers anything: halted drops that.
//     gdbserver ends itself with a failed assertion when it is asked for
//     target.xml before "?": greet asks "?" first.
//   - Leftovers. QEMU keeps a dead client's breakpoints, and takes those of one CPU
//     out when it is asked "?": those of the CPU that Hc chose. It keeps a list
//     for each CPU, and z0 gives up at the first that lacks the breakpoint, so
//     nothing else helps: sweep asks "?" for every CPU. gdbserver forgets them with
//     the client.
//   - p and P are empty answers in QEMU until target.xml has been read, and for
//     good where a machine has none (mips, sparc, alpha, ...): setRegister falls back
//     on G, and reading uses g only.
//   - Acknowledgements. QEMU has no QStartNoAckMode and no X. It counts the next packet as
//     an acknowledgement, so that a machine's stub gets no others, each of which would wake
//     it, and takes several packets in one write. It does not hear an interrupt while
//     it waits for one; but then the machine stands, and says so. Its user mode waits
//     for them.
//   - Other threads. Plain "s", and "vCont;s:ID;c", let other CPUs run, and their
//     stop may be the one that is reported: step names one thread and no default.
//   - Steps that do nothing. Up to 1 % of QEMU's steps report back with every
//     register as it was: step tries again.
//   - A step in QEMU's machines runs with interrupts and timers held back, so
//     it ends behind the instruction and not in an interrupt's handler.
//   - A step at a breakpoint. QEMU passes it, gdbserver reports it again for ever: step
//     takes the breakpoint out meanwhile. No other thread runs then.
//   - Continuing at a breakpoint reports it again at once, without moving: where
//     a thread is meant to go on there, it must be stepped.
//   - Several CPUs at breakpoints. One is reported, the others with the next "c":
//     machineStopped looks at all of them.
//   - Breakpoints (Z0) change no memory in QEMU's emulation, and gdbserver shows
//     memory without its own: reads need no mending.
//   - A breakpoint instruction that we wrote ourselves is the guest's own affair in
//     a machine: only Z0 stops it.
//   - Which memory. A machine's stub reads through the page tables of the chosen CPU.
//     One that is in user mode, under page-table isolation, does not see the
//     kernel: seen goes through the tables by itself then.
//   - Registers of the system, such as those that page tables are found by, are
//     in the answer to g on x86; on arm64 and s390x they are described, but only p reads
//     them: alone.
//   - Two address spaces. On s390x an address of the kernel's is one of the
//     program's too. The stub's breakpoints and its m go by the address alone: read
//     translates by itself, and machineStopped leads a program over our breakpoint.
//   - Code that is written into the file of a guest's RAM is not seen by code that
//     QEMU has translated already: WriteAt lets the stub write.
//   - Interrupts. QEMU's user mode reads nothing while the program runs, so it takes them as
//     signals only: interrupt sends one to the process that listens at the socket, which must be a
//     unix socket for that to be known. A system call that the program waits in fails with EINTR
//     then, since QEMU does not restart it: a program that does not expect that must be probed
//     before it runs. And a signal that comes while it reads from its socket, or has been woken
//     there and did not run yet, makes it lose the connection, and let the program run. So
//     interrupt waits until all that was sent has been read, and keeps the acknowledgement of a
//     stop that is just being reported: QEMU waits for that in another way, which a signal does not
//     hurt. gdbserver passes them on to the program's process group, and so to no process if the
//     program was attached to and leads no group: start it with setsid.
//   - Threads of QEMU's user mode are not held when one stops. Another may report in
//     the place of the one that is stepped, whose own report comes late: a trap at
//     neither a breakpoint nor a trap instruction is that.
//   - An interrupt of ours reaches a program under gdbserver as a real SIGINT, also
//     when something else stopped it first: programStopped swallows as many as were sent, and
//     drain waits for the rest before it is let go, for it would die of them.
//   - D wants the process's number where thread ids have one.
//   - kgdb (tried: Linux 6.1 with kgdboc on a serial line) is refused. It has no qSupported, and so
//     no description, and no vCont. Its threads are the CPUs, from fffffffe down, and all tasks.
//     The reason is that it reads its line only while the machine stands: one that runs hears no
//     interrupt, so a session could neither add a probe nor take its own out, nor leave.

// stepPatience is the number of times that a step is tried again which did nothing. One that does
// nothing so often is an instruction that jumps to itself.
const stepPatience = 32

// machineEnded is the signal by which QEMU says that the guest has switched
// itself off (SIGQUIT).
const machineEnded = 3

// drain lets a program without breakpoints run until it has met the interrupts that are on their
// way to it. One that does not come soon has met a stub that did not pass it on.
func (t *Target) drain() error {
	const soon, tries = 100 * time.Millisecond, 8
	for try := 0; t.program && t.swallow > 0 && !t.over && try < tries; try++ {
		for _, st := range t.queue {
			if st.Kind == target.StopSignal { // it will not be taken any more
				t.signals[st.Thread] = gdbSignal(st.Signal)
			}
		}
		t.queue, t.frozen = nil, false
		clear(t.owed)
		if err := t.goOn(); err != nil {
			return err
		}
		for end := time.Now().Add(soon); !t.c.hasStop() && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		if !t.c.hasStop() {
			t.swallow = 0
			if err := t.halt(); err != nil {
				return err
			}
			continue
		}
		report, err := t.c.stop("an interrupt")
		if err == nil {
			err = t.stopped(report)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// detach lets the target go.
func (t *Target) detach() error {
	if t.process != 0 {
		return t.c.command(fmt.Sprintf("D;%x", t.process))
	}
	return t.c.command("D")
}

// sweep takes out the breakpoints that a client has left which is no more. See "Leftovers".
func (t *Target) sweep() error {
	if t.program {
		return nil
	}
	for _, th := range t.threads() {
		if err := t.c.command("Hc" + t.ids[th]); err != nil {
			return err
		}
		if err := t.halted(); err != nil {
			return err
		}
	}
	return nil
}

// checkHearing finds out how to interrupt the target. See "Interrupts".
func (t *Target) checkHearing() error {
	answer, err := t.c.ask("qqemu.sstepbits")
	if err != nil || answer == "" || !t.program {
		return err
	}
	if t.has.listener = t.c.peer(); t.has.listener == 0 {
		return errors.New("QEMU's user mode hears no interrupts; at a unix socket it could be sent a signal")
	}
	return nil
}

// deafPatience is the time that QEMU may take to read that the program is to run.
const deafPatience = 10 * time.Second

// interrupt stops the target, unless it stops by itself.
func (t *Target) interrupt() error {
	if t.has.listener == 0 {
		t.swallow++
		return t.c.interrupt()
	}
	sent := false
	for end := time.Now().Add(deafPatience); !sent; time.Sleep(time.Millisecond) {
		stopped, err := t.c.whileDeaf(func() error {
			sent = true
			return unix.Kill(t.has.listener, unix.SIGINT)
		})
		if stopped {
			return nil // by itself
		}
		if err != nil {
			return t.giveUp("signal to process %d: %v", t.has.listener, err)
		}
		if !sent && time.Now().After(end) {
			return t.giveUp("process %d does not read what it is told", t.has.listener)
		}
	}
	t.swallow++
	return nil
}
