package kernel

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"kprobe/arch"
	"kprobe/internal/lifeline"
	"kprobe/target/gdbremote"
)

// record is the content of a machine's lock: the controller that probes it, and the way to the
// machine. It is gone when all is put back. So a record whose lock is free is of a controller that
// died, as its guardian did.
type record struct {
	Controller int    // its pid; 0 if it lives, but left the rest to its guardian
	Start      uint64 // clock ticks since boot: with the pid it names the process for good
	Address    string
	Options    gdbremote.Options
	Machine    string // by name: Options.Arch
	Stands     bool   // nothing is left in it, but it may stand: its stub did not take the goodbye
}

// recordOf is this process's, about what Dial is asked for: it says the same in any folder.
func recordOf(address string, o *gdbremote.Options) record {
	self := os.Getpid()
	r := record{Controller: self, Start: lifeline.StartTime(self), Address: Place(address), Options: *o}
	for _, file := range []*string{&r.Options.RAM, &r.Options.Window, &r.Options.Symbols} {
		if abs, err := filepath.Abs(*file); err == nil && *file != "" {
			*file = abs
		}
	}
	if o.Arch != nil {
		r.Machine, r.Options.Arch = o.Arch.Name, nil
	}
	return r
}

// options are the options that Dial was given.
func (r record) options() *gdbremote.Options {
	all := arch.All()
	if i := slices.IndexFunc(all, func(a *arch.Arch) bool { return a.Name == r.Machine }); i >= 0 {
		r.Options.Arch = all[i]
	}
	return &r.Options
}

// lives tells whether the controller does.
func (r record) lives() bool {
	return r.Start != 0 && lifeline.StartTime(r.Controller) == r.Start
}

func (r record) write(f *os.File) error {
	b, err := json.Marshal(r)
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = f.WriteAt(append(b, '\n'), 0)
	}
	return err
}

func readRecord(path string) (r record, err error) {
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	return r, err
}

// Gone tells of an error of Dial's, or of Recover's, that there is no stub any more, and so no
// machine. A file that is not there is another thing.
func Gone(err error) bool {
	var call *net.OpError
	return errors.As(err, &call) && (errors.Is(call, fs.ErrNotExist) || errors.Is(call, syscall.ECONNREFUSED))
}

// Machine is one that a controller of this user probes, or has left when it died.
type Machine struct {
	Address    string
	Controller int  // its pid; 0 where it could not put all back
	Abandoned  bool // it is dead, and so is its guardian
	Stands     bool // nothing is left in it, but it may stand: its stub did not take the goodbye

	record record
}

// Machines finds the machines that have, or had, a controller of this user, and are not put back.
func Machines() ([]Machine, error) {
	dir, err := lifeline.MakeDir()
	if err != nil {
		return nil, err
	}
	locks, err := filepath.Glob(filepath.Join(dir, "*.lock"))
	var all []Machine
	for _, path := range locks {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			continue // of something else, or gone
		}
		free := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil
		if r, err := readRecord(path); err == nil {
			all = append(all, Machine{r.Address, r.Controller, free, r.Stands, r})
		}
		f.Close() // and with it the lock
	}
	return all, err
}

// Recover does the guardian's work for a machine: it puts everything back, and lets the machine go.
// Errors: as Dial; Gone tells that the machine is not there any more.
func (m Machine) Recover() error {
	if m.Stands {
		return m.letGo()
	}
	t, err := Dial(m.Address, m.record.options())
	if err != nil {
		return err
	}
	return t.Close()
}

// letGo lets a machine go on that nothing is left in. To be let go it need not be one that can be
// probed.
func (m Machine) letGo() error {
	o := &gdbremote.Options{Arch: m.record.options().Arch}
	g, err := guardMachine(m.Address, o)
	if err != nil {
		return err
	}
	t, err := gdbremote.Dial(m.Address, o)
	if err == nil {
		err = t.Close()
	}
	g.notDialed(err)
	if Gone(err) || errors.Is(err, gdbremote.ErrStands) {
		return err
	}
	return nil
}
