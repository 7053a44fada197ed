package gdbremote

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"kprobe/arch"
	"kprobe/target"
)

// Options of Dial. Zero values mean the defaults.
type Options struct {
	// RAM is a file that shares the guest's memory (QEMU's memory-backend-file
	// with share=on). Reading it is thousands of times faster than asking the stub.
	RAM string

	// Window is a file that shares the memory of a device of the guest's (QEMU's
	// ivshmem-plain), for what package target/kernel has code in the guest for.
	Window string

	// Symbols is a file with the symbols of a machine's kernel (System.map, vmlinux,
	// bzImage, a copy of /proc/kallsyms), for package target/kernel.
	Symbols string

	// OverrideAny lets programs give results in place of any function of a kernel, for package
	// target/kernel; else of those only that the kernel lists as such that may be made to fail.
	// Callers of the others may not be made for that.
	OverrideAny bool

	// Arch is the machine, for a stub that does not say.
	Arch *arch.Arch

	// Hold leaves the target standing where Dial fails: all that is in it must be put back before
	// it may go on.
	Hold bool

	// Patience is the time that the stub may take to answer before it is given up: a minute, unless
	// said otherwise.
	Patience time.Duration
}

// ErrStands tells of an error of Dial's that the target may stand still, since the stub did not
// take the goodbye.
var ErrStands = errors.New("it may stand now, as nothing has told it to go on")

// Dial connects to a stub: unix:PATH, tcp:HOST:PORT or HOST:PORT. The target stands until Wait is
// called first. The error names what a stub lacks, or ErrStands; otherwise the target goes on.
func Dial(address string, o *Options) (*Target, error) {
	if o == nil {
		o = &Options{}
	}
	patience := o.Patience
	if patience == 0 {
		patience = time.Minute
	}
	var memory *os.File // opened before the target is stopped for us
	if o.RAM != "" {
		var err error
		if memory, err = os.Open(o.RAM); err != nil {
			return nil, err
		}
	}
	c, err := dial(address, patience)
	if err != nil {
		memory.Close() // of none does nothing
		return nil, err
	}
	t := &Target{c: c,
		ids:     make(map[target.Thread]string),
		owed:    make(map[target.Thread]bool),
		signals: make(map[target.Thread]int),
		breaks:  make(map[arch.Addr]bool),
		regs:    make(map[target.Thread]registers),
		single:  make(map[*register]uint64),
	}
	c.enter()
	defer c.leave()
	if err = t.greet(o); err == nil && memory != nil {
		err = t.openRAM(memory)
	}
	if err != nil {
		memory.Close()
		return nil, t.decline(fmt.Errorf("stub at %s: %w", address, err), o.Hold)
	}
	return t, nil
}

// decline says goodbye to a target that the call has stopped, and that is not taken. The error says
// why, and whether it stands.
func (t *Target) decline(why error, hold bool) error {
	if t.stopsForUs() && (hold || t.sayGoodbye() != nil && t.stopsForUs()) {
		why = fmt.Errorf("%w; %w", why, ErrStands)
	}
	t.c.fail(why)
	return why
}

// stopsForUs tells whether it is the call that has stopped the target: it is still there, and hears
// calls while it runs.
func (t *Target) stopsForUs() bool { return !t.has.deaf && !t.over && !t.c.hasEnded() }

// sayGoodbye is detach at any moment of the greeting.
func (t *Target) sayGoodbye() error {
	if t.process == 0 { // its number may not have been told yet
		t.halted()
	}
	return t.detach()
}

// greet learns the stub's abilities and registers.
func (t *Target) greet(o *Options) error {
	answer, err := t.c.ask("qSupported:multiprocess+;swbreak+;hwbreak+;vContSupported+;xmlRegisters=i386" + families)
	if err != nil {
		return err
	}
	t.has.deaf = answer == ""
	offers := make(map[string]bool)
	t.has.packet = 400 // the size that the manual lets every client assume
	for _, f := range strings.Split(answer, ";") {
		offers[f] = true
		if size, ok := strings.CutPrefix(f, "PacketSize="); ok {
			n, err := strconv.ParseUint(size, 16, 20)
			if err != nil || n < 64 {
				return fmt.Errorf("packets of %q bytes", size)
			}
			t.has.packet = int(n)
		}
	}
	t.program = offers["qXfer:auxv:read+"] // only programs have one
	if offers["QStartNoAckMode+"] {
		if err := t.c.command("QStartNoAckMode"); err != nil {
			return err
		}
		t.c.quiet()
	}
	if err := t.halted(); err != nil {
		return err
	}
	if err := t.describe(o, offers["qXfer:features:read+"]); err != nil {
		return err
	}
	if err := t.checkWords(); err != nil {
		return err
	}
	answer, err = t.c.ask("vCont?")
	if err != nil {
		return err
	}
	t.has.vCont = strings.Contains(answer, ";c") && strings.Contains(answer, ";s")
	if !t.has.vCont {
		return errors.New("it cannot step one thread alone (no vCont)")
	}
	answer, err = t.c.ask("X0,0:")
	if err != nil {
		return err
	}
	t.has.binary = answer == "OK"
	if answer, err = t.c.ask("qqemu.PhyMemMode"); err != nil {
		return err
	}
	if t.has.physical = answer == "0" || answer == "1"; t.has.physical && !t.program {
		t.c.quiet() // see quirks.go, "Acknowledgements"
		t.c.hurry()
	}
	if err := t.checkHearing(); err != nil {
		return err
	}
	if err := t.listThreads(); err != nil {
		return err
	}
	if err := t.sweep(); err != nil {
		return err
	}
	return t.checkAbilities()
}

// checkAbilities refuses a stub that lacks an ability which every probe needs.
func (t *Target) checkAbilities() error {
	if _, err := t.registers(t.current); err != nil {
		return err
	}
	answer, err := t.c.ask("z0,0,1") // taking out a breakpoint that is not there is an error, or none
	if err == nil && answer == "" {
		err = errors.New("it has no breakpoints (no Z0)")
	}
	return err
}

// describe finds out what machine it is.
func (t *Target) describe(o *Options, described bool) (err error) {
	if !described {
		if ok, err := t.undescribed(); ok || err != nil {
			return err
		}
		return errors.New("it does not describe its machine (no qXfer:features:read), as kgdb does not; QEMU and gdbserver do")
	}
	if t.about, err = parseDescription(t.document); err != nil {
		return fmt.Errorf("its description of the machine: %w", err)
	}
	t.arch = o.Arch
	if t.arch == nil {
		t.arch = t.about.arch()
	}
	if t.arch == nil {
		return fmt.Errorf("it is a machine that is not known here (%q)", t.about.machine)
	}
	return t.show()
}

// show finds the machine's registers in the description.
func (t *Target) show() error {
	for _, name := range t.arch.RegNames {
		t.row = append(t.row, t.about.byName[name])
	}
	for i := range t.about.registers { // under another name: riscv64's s0 is fp
		row := &t.about.registers[i]
		if r, ok := t.arch.RegByName(row.name); ok && t.row[r] == nil {
			t.row[r] = row
		}
	}
	for _, r := range []arch.Reg{t.arch.PC, t.arch.SP} {
		if t.row[r] == nil {
			return fmt.Errorf("it does not show the register %s", t.arch.RegNames[r])
		}
	}
	return nil
}
