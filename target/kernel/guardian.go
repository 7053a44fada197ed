package kernel

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"kprobe/arch"
	"kprobe/internal/lifeline"
	"kprobe/target/gdbremote"
)

// A stub keeps its breakpoints when its client dies, and the machine stands at the next one. So a guardian
// process is there before the stub is called: the controller's own program, started once more, which knows itself by
// this name before its main does anything. When the controller has died, it does what the next
// client would: it connects, puts back what was left (Dial), and lets the machine go (Close).
const guardianName = "kprobe-machine-guardian"

func init() {
	if len(os.Args) == 1 && os.Args[0] == guardianName {
		guard(os.Stdin)
		os.Exit(0)
	}
}

// guard waits, in the guardian, for the controller to end. Its standard input is a pipe that only the controller
// can write to: first comes what it dials, then a byte if all was put back; an end without one tells that it died.
func guard(in io.Reader) {
	r := bufio.NewReader(in)
	var to dialed
	line, err := r.ReadBytes('\n')
	if err != nil || json.Unmarshal(line, &to) != nil {
		return // it died before it dialed
	}
	if _, err := r.ReadByte(); err == nil {
		return
	}
	const tries = 20
	for range tries {
		var t *Target
		if t, err = dial(to.Address, to.options()); err == nil {
			err = t.Close()
		}
		if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) { // without a stub there is no machine
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	fmt.Fprintf(os.Stderr, "kprobe: not restored, %s: %v\n", to.Address, err)
}

// dialed is what Dial was asked for.
type dialed struct {
	Address string
	Options gdbremote.Options
	Machine string // by name: Options.Arch
}

// options are those that Dial was given.
func (d dialed) options() *gdbremote.Options {
	all := []*arch.Arch{arch.AMD64, arch.ARM64, arch.I386, arch.S390X}
	if i := slices.IndexFunc(all, func(a *arch.Arch) bool { return a.Name == d.Machine }); i >= 0 {
		d.Options.Arch = all[i]
	}
	return &d.Options
}

// guardian is the controller's end of it. Its lock is the machine's: a stub has one client, and
// a second one would wait at the stub without a word.
type guardian struct {
	lock *os.File
	pipe io.WriteCloser
}

// guardianPatience is how long the guardian of one that has died may take.
const guardianPatience = 30 * time.Second

// guardMachine locks a machine and has it guarded. Errors: EBUSY, somebody of this user probes it.
func guardMachine(address string, o *gdbremote.Options) (*guardian, error) {
	path, err := machineFile(address, "lock")
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	g := &guardian{lock: f}
	if err = g.take(); err == nil {
		to := dialed{Address: address, Options: *o}
		if o.Arch != nil {
			to.Machine, to.Options.Arch = o.Arch.Name, nil
		}
		err = g.start(to)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return g, nil
}

// take takes the lock. Who has it and lives is in the way; the guardian of one that has died is waited for.
func (g *guardian) take() error {
	for end := time.Now().Add(guardianPatience); ; time.Sleep(10 * time.Millisecond) {
		err := unix.Flock(int(g.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return g.sign(os.Getpid())
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("flock", err)
		}
		var b [64]byte
		n, _ := g.lock.ReadAt(b[:], 0)
		var pid int
		var start uint64
		if _, err := fmt.Sscan(string(b[:n]), &pid, &start); err == nil && start != 0 && lifeline.StartTime(pid) == start {
			return fmt.Errorf("%w: process %d probes it", syscall.EBUSY, pid)
		}
		if time.Now().After(end) {
			return fmt.Errorf("%w: the guardian of a controller that was killed does not come to an end", syscall.EBUSY)
		}
	}
}

// sign writes whose the lock is.
func (g *guardian) sign(pid int) error {
	text := fmt.Sprintf("%d %d\n", pid, lifeline.StartTime(pid))
	text += strings.Repeat(" ", 63-len(text)) + "\n" // over what was there
	_, err := g.lock.WriteAt([]byte(text), 0)
	return err
}

func (g *guardian) start(to dialed) error {
	first, err := json.Marshal(to)
	if err != nil {
		return err
	}
	cmd := &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{guardianName},
		Stderr: os.Stderr, ExtraFiles: []*os.File{g.lock},
		// Of a session of its own: what is sent to the controller's process
		// group, ^C and kill alike, is not meant for it.
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if g.pipe, err = cmd.StdinPipe(); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the guardian: %w", err)
	}
	go cmd.Wait()
	_, err = g.pipe.Write(append(first, '\n'))
	return err
}

// end tells it that all is back; with an error, that it is its turn now.
func (g *guardian) end(failed error) {
	if failed == nil {
		g.pipe.Write([]byte{0})
		unix.Flock(int(g.lock.Fd()), unix.LOCK_UN) // the guardian has the same lock, and ends a little later
	} else {
		g.sign(0)
	}
	g.pipe.Close()
	g.lock.Close()
}
