//go:build linux && (amd64 || arm64 || ppc64le || riscv64 || s390x)

package ptrace

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"kprobe/internal/guardian"
	"kprobe/internal/lifeline"
	"kprobe/internal/proc"
)

// guardianName is the name of a guardian of a process (internal/guardian).
const guardianName = "kprobe-guardian"

func init() {
	guardian.Role(guardianName, func([]string) { guard(os.Stdin) })
}

// The messages to a guardian, a line each. It is for one process at a time, and for another one
// when that is over: to start a program for each child of a family costs more than all else that is
// done for a child.
const (
	tellHold  = "hold"  // the thread that owns the process: to be held at its end (see hold)
	tellGuard = "guard" // the journal by which the target is restored when the controller ends; it answers that it knows
	tellOver  = "over"  // everything is back
)

// duty holds a guardian's orders.
type duty struct {
	journal atomic.Pointer[string] // nil while there is nothing to restore
	owners  chan int
	died    chan struct{} // the controller has ended
}

// listen hears the controller to its end.
func (d *duty) listen(in io.Reader) {
	defer close(d.died)
	for lines := bufio.NewScanner(in); lines.Scan(); {
		what, of, _ := strings.Cut(lines.Text(), " ")
		switch what {
		case tellHold:
			if tid, err := strconv.Atoi(of); err == nil {
				d.owners <- tid
			}
		case tellGuard:
			if path, err := strconv.Unquote(of); err == nil {
				d.journal.Store(&path)
			}
			guardian.Ready() // it is known: see guarded.know
		case tellOver:
			d.journal.Store(nil)
		}
	}
}

// guard is a guardian's life: it holds one owner thread after the other, until the controller ends.
func guard(in io.Reader) {
	runtime.LockOSThread() // a tracer is a thread
	d := &duty{owners: make(chan int, 1), died: make(chan struct{})}
	go d.listen(in)
	for {
		select {
		case owner := <-d.owners:
			hold(owner, func() {
				if journal := d.journal.Load(); journal != nil {
					disarmLeft(*journal)
				}
			})
			guardian.Ready() // for another one
		case <-d.died:
			if journal := d.journal.Load(); journal != nil {
				restore(*journal)
			}
			return
		}
	}
}

// restore restores the process that a dead controller left.
func restore(journal string) {
	j, err := lifeline.Load(journal)
	if errors.Is(err, fs.ErrNotExist) {
		return // it died before it had one
	}
	if err == nil {
		// For as long as it lives: another tracer may be there meanwhile.
		_, err = recoverJournal(j, j.Current)
	}
	if err != nil && !errors.Is(err, lifeline.ErrNothing) {
		fmt.Fprintf(os.Stderr, "kprobe: not restored, %s: %v\n", filepath.Base(journal), err)
	}
}

// programID tells one program from another that the same process may have
// executed: exec keeps the pid and the start time. Errors: EACCES, the process has
// become one that this user may not look into (prctl PR_SET_DUMPABLE).
func programID(pid int) (string, error) {
	var st syscall.Stat_t
	err := proc.Process(pid).Try("exe", func(file string) error { return syscall.Stat(file, &st) })
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%x:%x:%x:%x", st.Dev, st.Ino, st.Size, st.Mtim.Nano()), nil
}

// concerns tells whether the process that a journal is about is still there, and
// executes the program that it did. Errors: those of programID.
func concerns(j *lifeline.Journal) (bool, error) {
	if !j.Current() {
		return false, nil
	}
	id, err := programID(j.PID)
	if !j.Current() || errors.Is(err, fs.ErrNotExist) {
		return false, nil // it has ended meanwhile, or is about to: its memory is gone
	}
	return err == nil && id == j.BuildID, err
}

// tries is the time for which a step is tried again that does not depend on us alone: the kernel
// may still be busy with the end of the tracer before. Where it depends on the target, it is the
// target's time (see kprobe/internal/patience).
const tries = 10 * time.Second
