package lifeline

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"kprobe/arch"
	"kprobe/internal/proc"
)

// Journal says which process has a session's memory, and where. It is written
// before the first byte of the process changes and removed after the last one
// is back; all else that a recovery needs is in the process itself.
type Journal struct {
	PID     int       `json:"pid"`
	Start   uint64    `json:"start"`    // clock ticks since boot: with the pid it names the process for good
	BuildID string    `json:"build_id"` // of its program, or the program's size and inode: exec keeps pid and start
	Base    arch.Addr `json:"base"`     // of the Trap
	ID      uint64    `json:"id"`       // of the session, as the Trap has it

	// Serial tells the journals about one process apart: a guardian that is late must
	// not take the journal of the next session for its own. It is the ID of the
	// session's first Trap; an exec makes another necessary.
	Serial uint64 `json:"serial"`

	Controller      int    `json:"controller"`
	ControllerStart uint64 `json:"controller_start"`

	file string // where it was loaded from
	by   int    // the user whose file that is
}

// Dir is the folder of a user's journals and lists: private to the user, gone with the next boot at
// the latest, as the processes are. A pid has a meaning only in its namespace, so each namespace
// has a folder of its own. Else all that is in this one would look dead to a process that sees
// other pids.
func Dir(uid int) string {
	return filepath.Join(os.TempDir(), fmt.Sprintf("kprobe-%d", uid)+namespace())
}

// namespace tells this process's pid namespace from the others: nothing for the machine's first.
func namespace() string {
	const first = "pid:[4026531836]" // PROC_PID_INIT_INO, on every kernel
	name, err := os.Readlink("/proc/self/ns/pid")
	if err != nil || name == first {
		return ""
	}
	return "." + strings.Trim(strings.TrimPrefix(name, "pid:"), "[]")
}

// MakeDir makes this user's Dir. A directory in a shared place could be a trap
// laid by others, so it must be a real one, ours, and closed to them.
func MakeDir() (string, error) {
	dir := Dir(os.Getuid())
	if err := os.Mkdir(dir, 0o700); errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("there is no folder for temporary files: %s does not exist (TMPDIR names one)", filepath.Dir(dir))
	} else if err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	fi, err := os.Lstat(dir)
	if err != nil {
		return "", err
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !fi.IsDir() || fi.Mode().Perm()&0o077 != 0 || !ok || int(st.Uid) != os.Getuid() {
		return "", fmt.Errorf("%s is not a directory of this user alone", dir)
	}
	return dir, nil
}

// dirs are the places to look in: this user's, and for root all users', of this pid namespace.
func dirs() []string {
	if os.Getuid() == 0 {
		all, _ := filepath.Glob(filepath.Join(os.TempDir(), "kprobe-*"))
		return slices.DeleteFunc(all, func(dir string) bool { return filepath.Ext(dir) != namespace() })
	}
	return []string{Dir(os.Getuid())}
}

// Path is the journal's file.
func (j *Journal) Path() string {
	if j.file != "" {
		return j.file
	}
	return filepath.Join(Dir(os.Getuid()), j.name())
}

func (j *Journal) name() string { return fmt.Sprintf("%d.%d.%d.journal", j.PID, j.Start, j.Serial) }

// Save writes the journal, whole or not at all.
func (j *Journal) Save() error {
	if _, err := MakeDir(); err != nil {
		return err
	}
	b, err := json.Marshal(j)
	if err != nil {
		return err
	}
	tmp := j.Path() + ".new"
	if err := os.WriteFile(tmp, append(b, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, j.Path())
}

// Load reads a journal. Errors: the system's; for a file that is no journal; and for one of a user
// who does not own the process: to root it would be an order to change any process.
func Load(path string) (*Journal, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	j := new(Journal)
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(j); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if j.PID <= 0 || j.Base == 0 || j.name() != filepath.Base(path) {
		return nil, fmt.Errorf("%s: not a journal", path)
	}
	j.file = path
	by, of := owner(path), owner(proc.Process(j.PID).Dir())
	if by == nobody {
		return nil, fmt.Errorf("%s: %w", path, fs.ErrNotExist) // removed just now
	}
	if by != os.Getuid() && of != nobody && by != of {
		return nil, fmt.Errorf("%s: process %d is not of the user who wrote it", path, j.PID)
	}
	j.by = by
	return j, nil
}

// Child is the journal of a process that may be a child, born with a copy of the session's memory
// when no controller was there to clean it. It is nil for a process that is not of the user who
// wrote j. It is not in a file: j's stays until the children are restored too.
func (j *Journal) Child(pid int) *Journal {
	if by := owner(proc.Process(pid).Dir()); by != j.by && j.by != os.Getuid() {
		return nil
	}
	c := *j
	c.PID, c.Start, c.file = pid, StartTime(pid), ""
	return &c
}

const nobody = -1 // the owner of a file that does not exist

func owner(path string) int {
	if fi, err := os.Lstat(path); err == nil {
		if st, ok := fi.Sys().(*syscall.Stat_t); ok {
			return int(st.Uid)
		}
	}
	return nobody
}

// Journals finds the journals that there are: for pid, or for every process
// where pid is 0; this user's, and for root all users'.
func Journals(pid int) ([]string, error) {
	var all []string
	for _, dir := range dirs() {
		files, err := filepath.Glob(filepath.Join(dir, "*.journal"))
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			of, _, _ := strings.Cut(filepath.Base(f), ".")
			if pid == 0 || of == strconv.Itoa(pid) {
				all = append(all, f)
			}
		}
	}
	return all, nil
}

// Abandoned tells whether the journal's controller is dead.
func (j *Journal) Abandoned() bool {
	return StartTime(j.Controller) != j.ControllerStart
}

// Current tells whether the process that the journal is about still exists.
func (j *Journal) Current() bool { return j.Start != 0 && StartTime(j.PID) == j.Start }

// StartTime is the time when a process was started, in clock ticks since boot; 0 if it is gone
// (proc.Process.Start).
func StartTime(pid int) uint64 { return proc.Process(pid).Start() }

// ErrNothing is answered by a recovery that found nothing to restore: the
// process is gone, or runs another program by now.
var ErrNothing = errors.New("nothing to recover")
