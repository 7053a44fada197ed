package script

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"kprobe/internal/guardian"
	"kprobe/internal/host"
	"kprobe/internal/proc"
	"kprobe/script/point"
	"kprobe/script/syntax"
	"kprobe/symbol"
)

// Users are the processes of this user, of everybody for root, that have mapped the code of one of
// the files that a script's probes name, by whatever name. A script that names no process is for
// these, and for those that come later.
type Users struct {
	Files []string

	are    []os.FileInfo // those of Files that are here
	seen   map[int]*mapper
	opened <-chan struct{}
	close  func()
	letGo  func()    // those that are about to execute a file
	own    string    // this program
	all    bool      // all files that are here are watched
	until  time.Time // somebody has opened a file just now
	due    bool      // who has done so may be any process, and may not have been looked at since
	costs  time.Duration
}

// mapper is what is known of a process.
type mapper struct {
	exe   string    // its program
	until time.Time // it may map libraries still
	found bool
}

// settles is how long a new program is looked at: by then it has mapped its libraries.
const settles = time.Second

// UsersOf are those of a script; nil where it has no such probe.
func UsersOf(name, text string) *Users {
	files := probedFiles(name, text)
	if len(files) == 0 {
		return nil
	}
	own, err := proc.Process(os.Getpid()).Readlink("exe")
	if err != nil {
		return nil
	}
	u := &Users{Files: files, own: own, seen: map[int]*mapper{}}
	for _, name := range files {
		if is, err := os.Stat(name); err == nil {
			u.are = append(u.are, is)
		}
	}
	u.opened, u.all, u.close = opens(files)
	return u
}

// Close ends it.
func (u *Users) Close() {
	u.close()
	if u.letGo != nil {
		u.letGo()
	}
}

// Executed tells of each process that is about to execute one of the files, which waits until seen returns. Only root may know that.
func (u *Users) Executed(seen func(pid int)) (err error) {
	u.letGo, err = host.Executes(u.Files, func(pid int) {
		if exe, err := proc.Process(pid).Readlink("exe"); err == nil && exe != u.own && pid != 1 && !guardian.Is(proc.Process(pid).Read) {
			seen(pid)
		}
	})
	return err
}

// Users are looked for from the moment that one of the files is opened until the process that
// opened it has mapped it. The search never takes more than one part in seldom of a processor.
// Where not all files can be watched, it is repeated from time to time, and rarely where no file
// was opened for long.
const (
	briefly = 30 * time.Millisecond
	often   = time.Millisecond
	sparse  = 50 * time.Millisecond
	rare    = time.Second
	seldom  = 20
)

// Wait waits until it is time for another Look, or the context ends.
func (u *Users) Wait(ctx context.Context) {
	wait := sparse
	switch now := time.Now(); {
	case now.Before(u.until):
		wait = often
	case u.all && now.After(u.until.Add(settles)):
		wait = rare
	}
	select {
	case <-u.opened:
		u.until, u.due = time.Now().Add(briefly), true
	case <-time.After(max(wait, seldom*u.costs)):
	case <-ctx.Done():
	}
}

// Look finds those that were not found before. The process with number 1, on which all others depend, is never one,
// nor is one of this program (two that stop one another would both wait for ever) or a guardian.
func (u *Users) Look() (pids []int, err error) {
	all, err := proc.All()
	if err != nil {
		return nil, err
	}
	here := make(map[int]bool, len(all))
	now := time.Now()
	due := u.due
	u.due = due && now.Before(u.until)
	defer func() { u.costs = time.Since(now) }()
	for _, pid := range all {
		here[pid] = true
		if pid == 1 {
			continue
		}
		exe, err := proc.Process(pid).Readlink("exe")
		if err != nil {
			continue // another user's, the kernel's own, or one that is over
		}
		p := u.seen[pid]
		if p == nil || p.exe != exe {
			p = &mapper{exe: exe, until: now.Add(settles)}
			u.seen[pid] = p
		}
		if !p.found && (due || now.Before(p.until)) && exe != u.own && u.maps(pid) && !guardian.Is(proc.Process(pid).Read) {
			p.found = true
			pids = append(pids, pid)
		}
	}
	for pid := range u.seen {
		if !here[pid] {
			delete(u.seen, pid)
		}
	}
	slices.Sort(pids)
	return pids, nil
}

// Again has a process that was found be found once more, if it is there still.
func (u *Users) Again(pid int) {
	if p := u.seen[pid]; p != nil {
		p.found = false
	}
}

// maps tells whether a process has mapped the code of one of the files.
func (u *Users) maps(pid int) bool {
	text, err := proc.Process(pid).Read("maps")
	if err != nil {
		return false
	}
	maps, err := symbol.ParseMaps(bytes.NewReader(text))
	return err == nil && slices.ContainsFunc(maps, func(m symbol.Mapping) bool {
		return m.Exec && (slices.Contains(u.Files, m.Path) || slices.ContainsFunc(u.are, func(is os.FileInfo) bool { return sameFile(pid, m, is) }))
	})
}

// sameFile tells whether a mapping is of a file, by whatever name: a link, or a name in another
// namespace of mounts.
func sameFile(pid int, m symbol.Mapping, is os.FileInfo) bool {
	if st, ok := is.Sys().(*syscall.Stat_t); !ok || st.Ino != m.Inode {
		return false
	}
	of, err := os.Stat(proc.Process(pid).File("root" + m.Path))
	return err == nil && os.SameFile(of, is)
}

// WantsKernel tells whether a script has probes on a kernel, and none that only a process can have.
func WantsKernel(name, text string) bool {
	f, err := syntax.Parse(&syntax.Source{Name: name, Text: text})
	if err != nil {
		return false
	}
	wants := false
	for _, it := range f.Items {
		p, ok := it.(*syntax.Probe)
		if !ok {
			continue
		}
		for _, at := range p.Points {
			pt := point.Point{Provider: syntax.Providers[syntax.SplitPoint(at.Text)[0]]}
			if pt.OfProcess() || strings.HasSuffix(pt.Provider, "watchpoint") {
				return false
			}
			wants = wants || pt.OfKernel()
		}
	}
	return wants
}

// probedFiles are the paths of the files that the script's attach points name. One that is no file here
// is left as it is written: no process has it.
func probedFiles(name, text string) (files []string) {
	f, err := syntax.Parse(&syntax.Source{Name: name, Text: text})
	if err != nil {
		return nil // the compiler tells it, with all that is wrong beside it
	}
	for _, it := range f.Items {
		p, ok := it.(*syntax.Probe)
		if !ok {
			continue
		}
		for _, pt := range p.Points {
			parts := syntax.SplitPoint(pt.Text)
			provider := syntax.Providers[parts[0]]
			if len(parts) < 2 || provider != "uprobe" && provider != "uretprobe" && provider != "usdt" {
				continue
			}
			if provider == "usdt" && ofAll(parts[1]) {
				files = append(files, staticFiles(parts[1:])...)
				continue
			}
			target, _, _ := strings.Cut(parts[1], "@") // PATH@FILE:LINE
			if target == "" || hasGlob(target) && !strings.Contains(target, "/") {
				continue // of all files of a process that must be said
			}
			for _, path := range pathsOf(target) {
				if !slices.Contains(files, path) {
					files = append(files, path)
				}
			}
		}
	}
	return files
}

// staticFiles are those of all that are mapped that have the static probes of PATTERN[:PROVIDER]:NAME.
func staticFiles(parts []string) (files []string) {
	provider := ""
	if len(parts) > 2 {
		provider = parts[1]
	}
	all, _ := statics(parts[0], 0) // what cannot be read is no answer
	for _, s := range all {
		if s.Match(provider, parts[len(parts)-1]) && !slices.Contains(files, s.File) {
			files = append(files, s.File)
		}
	}
	return files
}

// pathsOf are the files that a target names, as a process that maps them shows them.
func pathsOf(target string) (all []string) {
	found, err := filesOf(target, 0)
	if err != nil {
		return []string{target}
	}
	for _, f := range found {
		path, err := filepath.EvalSymlinks(f.at)
		if err == nil {
			path, err = filepath.Abs(path)
		}
		if err != nil {
			path = f.told
		}
		all = append(all, path)
	}
	return all
}
