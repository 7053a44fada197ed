package script

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"kprobe/internal/proc"
	"kprobe/script/point"
	"kprobe/symbol"
)

// targetFile is a file that an attach point's target stands for: as it is told, and where it can be read.
type targetFile struct{ told, at string }

// filesOf are those that a target names: one; those that a pattern matches; or, of a process, those that it has mapped,
// where the target is a pattern or empty. A path is told as it was written.
func filesOf(target string, pid int) ([]targetFile, error) {
	if pid != 0 && (target == "" || point.HasGlob(target)) {
		if strings.HasPrefix(target, "./") || strings.HasPrefix(target, "../") {
			var err error
			if target, err = filepath.Abs(target); err != nil {
				return nil, err
			}
		}
		return mappedFiles(target, pid)
	}
	if !point.HasGlob(target) {
		if pid != 0 && filepath.IsAbs(target) {
			if at := proc.Process(pid).File("root" + target); readable(at) {
				return []targetFile{{target, at}}, nil
			}
		}
		if pid != 0 && !strings.Contains(target, "/") {
			if all, err := mappedFiles("*/"+target, pid); err == nil && len(all) > 0 {
				return all[:1], nil
			}
		}
		at, err := findFile(target)
		if err != nil {
			return nil, err
		}
		if strings.Contains(target, "/") {
			return []targetFile{{target, at}}, nil
		}
		return []targetFile{{at, at}}, nil
	}
	if ofAll(target) {
		return nil, fmt.Errorf("%s: a pattern of all files needs a process (-p), or a folder", target)
	}
	names, err := filepath.Glob(target)
	if err != nil || len(names) == 0 {
		return nil, fmt.Errorf("target file '%s' does not exist or is not executable", target)
	}
	var all []targetFile
	for _, name := range names {
		if st, err := os.Stat(name); err == nil && st.Mode().IsRegular() {
			if strings.HasPrefix(target, "./") {
				name = "./" + strings.TrimPrefix(name, "./")
			}
			all = append(all, targetFile{name, name})
		}
	}
	return all, nil
}

func readable(name string) bool {
	f, err := os.Open(name)
	if err != nil {
		return false
	}
	return f.Close() == nil
}

// mappedFiles are the files whose code a process has mapped, as far as a pattern matches their paths; an empty one
// matches all.
func mappedFiles(pattern string, pid int) ([]targetFile, error) {
	of := proc.Process(pid)
	text, err := of.Read("maps")
	if err != nil {
		return nil, err
	}
	maps, err := symbol.ParseMaps(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	var all []targetFile
	for _, m := range maps {
		if !m.Exec || !filepath.IsAbs(m.Path) || slices.ContainsFunc(all, func(f targetFile) bool { return f.told == m.Path }) {
			continue
		}
		if pattern == "" || matchPath(pattern, m.Path) {
			all = append(all, targetFile{m.Path, of.File("root" + m.Path)})
		}
	}
	return all, nil
}

// ofAll tells of a pattern that is not of a folder's files.
func ofAll(target string) bool { return point.HasGlob(target) && !strings.Contains(target, "/") }

// everybodys are the files that a pattern matches of all that processes of this user have mapped.
func everybodys(pattern string) (all []targetFile, err error) {
	pids, err := proc.All()
	if err != nil {
		return nil, err
	}
	there := map[string]bool{}
	for _, pid := range pids {
		files, _ := mappedFiles(pattern, pid) // of none that is another's, or over
		for _, f := range files {
			if !there[f.told] {
				all = append(all, f)
			}
			there[f.told] = true
		}
	}
	return all, nil
}

// matchPath matches a pattern whose stars match folders, too.
func matchPath(pattern, name string) bool {
	flat := strings.NewReplacer("/", "\x00")
	ok, _ := path.Match(flat.Replace(pattern), flat.Replace(name))
	return ok
}

// read reads the file's symbols, and has them used.
func (t targetFile) read(use func(file *symbol.File)) error {
	f, err := os.Open(t.at)
	if err != nil {
		return err
	}
	defer f.Close()
	file, err := symbol.Open(f, &symbol.Options{Path: t.at, Debug: symbol.DebugFinder("/")})
	if err != nil {
		return fmt.Errorf("%s: %w", t.told, err)
	}
	use(file)
	return nil
}

// statics are the static probes of a target's files. Among several, those that are no programs have none.
func statics(target string, pid int) (all []point.Static, err error) {
	files, err := filesOf(target, pid)
	if pid == 0 && ofAll(target) {
		files, err = everybodys(target)
	}
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		err := f.read(func(file *symbol.File) {
			for _, p := range file.StaticProbes() {
				s := point.Static{File: f.told, Provider: p.Provider, Name: p.Name, Vaddr: p.Vaddr, Semaphore: p.Semaphore, Args: file.StaticArgs(&p)}
				all = append(all, s)
			}
		})
		if err != nil && len(files) == 1 && !ofAll(target) {
			return nil, err
		}
	}
	return all, nil
}

// listStatics are those that PATH[:PROVIDER]:NAME matches; of a process NAME alone may do.
func listStatics(pattern string, pid int) ([]string, error) {
	parts := strings.Split(pattern, ":")
	switch {
	case len(parts) > 1:
	case pid != 0:
		parts = append([]string{""}, parts...)
	default:
		parts = append(parts, "*")
	}
	provider, name := "", parts[len(parts)-1]
	if len(parts) > 2 {
		provider = parts[1]
	}
	found, err := statics(parts[0], pid)
	var all []string
	for _, s := range found {
		if s.Match(provider, name) {
			all = append(all, s.String())
		}
	}
	slices.Sort(all)
	return slices.Compact(all), err
}

// programOf is the path of a process's program, as the process has it; "" for none.
func programOf(pid int) string {
	if pid == 0 {
		return ""
	}
	exe, err := proc.Process(pid).Readlink("exe")
	if err != nil {
		return ""
	}
	return exe
}
