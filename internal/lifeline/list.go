package lifeline

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// List is a file that shows a session's probes to other processes. Its name has the target and the
// controller, processes by pid and start time, so that a list left behind is known for it.
type List struct {
	path  string
	saved string
}

// Subject names the target of a session, as a list's name does.
type Subject string

// Process is a process of this host.
func Process(pid int) Subject { return Subject(fmt.Sprintf("%d.%d", pid, StartTime(pid))) }

// Place is a target that is no process of this host, by its address.
func Place(address string) Subject {
	return Subject(fmt.Sprintf("0.%x", sha256.Sum256([]byte(address)))[:24])
}

// NewList makes a list for a session; nil where there is no place for it.
func NewList(on Subject) *List {
	dir, err := MakeDir()
	if err != nil {
		return nil
	}
	sweepNow(dir)
	self := os.Getpid()
	return &List{path: filepath.Join(dir, fmt.Sprintf("%s.%d.%d.list", on, self, StartTime(self)))}
}

// Save writes the list anew, whole or not at all. Failing to is no reason to
// fail anything else: only readers of lists miss it.
func (l *List) Save(text string) {
	if l == nil || text == l.saved && text != "" {
		return
	}
	tmp := l.path + ".new"
	if os.WriteFile(tmp, []byte(text), 0o600) == nil && os.Rename(tmp, l.path) == nil {
		l.saved = text
	}
}

// Remove takes the list away.
func (l *List) Remove() {
	if l != nil {
		os.Remove(l.path)
	}
}

// Listed is a live session of some controller.
type Listed struct {
	Controller int    // its pid
	List       string // as it was saved
}

// Lists finds the lists of the sessions on a subject: this user's, and for root all users'.
func Lists(on Subject) []Listed {
	var all []Listed
	for _, dir := range dirs() {
		for _, l := range lists(dir) {
			if l.on != on || !l.live() {
				continue
			}
			if text, err := os.ReadFile(l.path); err == nil {
				all = append(all, Listed{l.controller, string(text)})
			}
		}
	}
	return all
}

// listFile is the parsed name of a list.
type listFile struct {
	path            string
	on              Subject
	pid, controller int // pid is 0 where it is none of this host
	controllerStart string
}

// live tells whether both processes that the name speaks of still are.
func (l *listFile) live() bool {
	return (l.pid == 0 || l.on == Process(l.pid)) && l.controllerStart == fmt.Sprint(StartTime(l.controller))
}

func lists(dir string) []listFile {
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var all []listFile
	for _, f := range files {
		part := strings.Split(f.Name(), ".")
		if len(part) != 5 || part[4] != "list" {
			continue
		}
		l := listFile{path: filepath.Join(dir, f.Name()), on: Subject(part[0] + "." + part[1]), controllerStart: part[3]}
		l.pid, _ = strconv.Atoi(part[0])
		l.controller, _ = strconv.Atoi(part[2])
		all = append(all, l)
	}
	return all
}

// swept has the time when each folder was swept last: a family of processes has a list each.
var swept struct {
	sync.Mutex
	at map[string]time.Time
}

// sweepNow sweeps a folder, unless this process has done it a moment ago.
func sweepNow(dir string) {
	const often = 10 * time.Second
	swept.Lock()
	defer swept.Unlock()
	if last, ok := swept.at[dir]; ok && time.Since(last) < often {
		return
	}
	sweep(dir)
	if swept.at == nil {
		swept.at = make(map[string]time.Time)
	}
	swept.at[dir] = time.Now()
}

// sweep removes what controllers that died have left behind.
func sweep(dir string) {
	for _, l := range lists(dir) {
		if !l.live() {
			os.Remove(l.path)
		}
	}
	// Files that were not written whole, and that no process writes any more.
	const old = time.Minute
	halves, _ := filepath.Glob(filepath.Join(dir, "*.new"))
	for _, f := range halves {
		if fi, err := os.Stat(f); err == nil && time.Since(fi.ModTime()) > old {
			os.Remove(f)
		}
	}
}
