package kernel

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"kprobe/internal/guardian"
	"kprobe/target/gdbremote"
)

// A stub keeps its breakpoints when its client dies, and the machine stands at the next one. So a
// guardian process (internal/guardian) is there before the stub is called. When the controller has
// died, it does the next client's work: it connects, puts everything back (Dial), and lets the
// machine go (Close).
const guardianName = "kprobe-machine-guardian"

func init() {
	guardian.Role(guardianName, func([]string) { guard(os.Stdin) })
}

// guard waits, in the guardian, for the controller to end. First comes the address that the
// controller dials.
func guard(in io.Reader) {
	r := bufio.NewReader(in)
	var to record
	line, err := r.ReadBytes('\n')
	if err != nil || json.Unmarshal(line, &to) != nil {
		return // it died before it dialed
	}
	if !guardian.Await(r) {
		return
	}
	const tries = 20
	for range tries {
		var t *Target
		if t, err = dial(to.Address, to.options()); err == nil {
			err = t.Close()
		}
		if err == nil || Gone(err) {
			guardian.File(0).Truncate(0) // nothing is left
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	fmt.Fprintf(os.Stderr, "kprobe: not restored, %s: %v\n", to.Address, err)
}

// guarded is the controller's end of it. Its lock is the machine's: a stub has one client, and
// a second one would wait at the stub without a word.
type guarded struct {
	*guardian.Guardian
	lock *os.File
	to   record
	left []byte // the record of a controller that has died, and whose guardian has too
}

// guardianPatience is the time that the guardian of a dead controller may take.
const guardianPatience = 30 * time.Second

// guardMachine locks a machine and has it guarded. Errors: EBUSY, another session of this user
// probes it.
func guardMachine(address string, o *gdbremote.Options) (*guarded, error) {
	path, err := machineFile(address, "lock")
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	g := &guarded{lock: f, to: recordOf(address, o)}
	if err = g.take(); err != nil {
		f.Close()
		return nil, err
	}
	if err = g.start(); err != nil {
		g.nothing()
		return nil, err
	}
	return g, nil
}

// take takes the lock. A live holder is in the way; the guardian of a dead one is waited for.
func (g *guarded) take() error {
	for end := time.Now().Add(guardianPatience); ; time.Sleep(10 * time.Millisecond) {
		err := unix.Flock(int(g.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			g.left, _ = os.ReadFile(g.lock.Name())
			return g.to.write(g.lock)
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("flock", err)
		}
		if who, err := readRecord(g.lock.Name()); err == nil && who.lives() {
			return fmt.Errorf("%w: process %d probes it", syscall.EBUSY, who.Controller)
		}
		if time.Now().After(end) {
			return fmt.Errorf("%w: the guardian of a controller that was killed does not come to an end", syscall.EBUSY)
		}
	}
}

func (g *guarded) start() error {
	first, err := json.Marshal(g.to)
	if err != nil {
		return err
	}
	// It has the lock as well: no other session gets in before it has done its work.
	if g.Guardian, err = guardian.Start(guardianName, nil, g.lock); err != nil {
		return err
	}
	if err = g.Tell(append(first, '\n')); err != nil {
		g.Leave()
	}
	return err
}

// end tells it that all is back; with an error, that it is its turn now.
func (g *guarded) end(failed error) {
	if failed == nil {
		g.lock.Truncate(0)
		g.Over()
		g.unlock()
		return
	}
	if r, err := readRecord(g.lock.Name()); err == nil {
		r.Controller, r.Start = 0, 0
		r.write(g.lock)
	}
	g.Leave()
	g.lock.Close()
}

// notDialed ends it where Dial has failed.
func (g *guarded) notDialed(failed error) {
	g.Over()
	var before record
	json.Unmarshal(g.left, &before)
	switch {
	case Gone(failed):
		g.left = nil
	case errors.Is(failed, gdbremote.ErrStands):
		if len(g.left) == 0 {
			r := g.to
			r.Controller, r.Start, r.Stands = 0, 0, true
			g.left, _ = json.Marshal(r)
		}
	case before.Stands: // which it does no more
		g.left = nil
	}
	g.nothing()
}

// nothing ends a guard that was not begun. The record that an earlier controller has left there is
// left still.
func (g *guarded) nothing() {
	g.lock.Truncate(0)
	g.lock.WriteAt(g.left, 0)
	g.unlock()
}

// unlock lets others have the machine. The guardian has the same lock, and ends a little later.
func (g *guarded) unlock() {
	unix.Flock(int(g.lock.Fd()), unix.LOCK_UN)
	g.lock.Close()
}
