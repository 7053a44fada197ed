package testprog

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"kprobe/internal/proc"
)

// Mapping is one line of /proc/PID/maps.
type Mapping struct {
	Start, End uint64
	Perms      string // "r-xp"
	Offset     uint64 // of Start in the file
	Path       string // a file, "[name]" of the kernel's, or ""
}

// File says whether a file is behind the mapping, a deleted one included.
func (m Mapping) File() bool { return strings.HasPrefix(m.Path, "/") }

// Executable says whether code runs there.
func (m Mapping) Executable() bool { return strings.Contains(m.Perms, "x") }

func (m Mapping) String() string {
	return fmt.Sprintf("%x-%x %s %08x %s", m.Start, m.End, m.Perms, m.Offset, m.Path)
}

// Mappings reads a process's maps.
func Mappings(pid int) ([]Mapping, error) {
	f, err := proc.Process(pid).Open("maps")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out []Mapping
	s := bufio.NewScanner(f)
	for s.Scan() {
		// The path is the rest of the line after the inode, and may hold spaces.
		var m Mapping
		var dev string
		var inode uint64
		if _, err := fmt.Sscanf(s.Text(), "%x-%x %s %x %s %d", &m.Start, &m.End, &m.Perms, &m.Offset, &dev, &inode); err != nil {
			return nil, fmt.Errorf("maps: %q: %w", s.Text(), err)
		}
		if fields := strings.SplitAfterN(s.Text(), " ", 6); len(fields) == 6 {
			m.Path = strings.TrimLeft(fields[5], " ")
		}
		out = append(out, m)
	}
	return out, s.Err()
}

// TextDiff compares every executable file-backed mapping of a live process with
// its file, and returns a line for each run of bytes that differ:
// "ADDRESS PATH+OFFSET: BYTES, file has BYTES". Nothing is excepted: after a
// detach, the list is empty.
func TextDiff(pid int) ([]string, error) {
	maps, err := Mappings(pid)
	if err != nil {
		return nil, err
	}
	mem, err := proc.Process(pid).Open("mem")
	if err != nil {
		return nil, err
	}
	defer mem.Close()
	var diffs []string
	for _, m := range maps {
		if !m.File() || !m.Executable() {
			continue
		}
		live, disk := make([]byte, m.End-m.Start), make([]byte, m.End-m.Start)
		if _, err := mem.ReadAt(live, int64(m.Start)); err != nil {
			return nil, fmt.Errorf("%s: %w", m, err)
		}
		if err := readFile(pid, m, disk); err != nil {
			return nil, fmt.Errorf("%s: %w", m, err)
		}
		diffs = append(diffs, compare(m, live, disk)...)
	}
	return diffs, nil
}

// readFile reads what is behind a mapping. What the file does not have, up to the
// end of the page, the kernel shows as zeros; so do we.
func readFile(pid int, m Mapping, p []byte) error {
	// map_files reaches deleted files and other mount namespaces, but is for
	// root only; the path, through the process's root, is for everybody.
	f, err := proc.Process(pid).Open(fmt.Sprintf("map_files/%x-%x", m.Start, m.End))
	if err != nil {
		f, err = proc.Process(pid).Open("root" + m.Path)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.ReadAt(p, int64(m.Offset)); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

func compare(m Mapping, live, disk []byte) (diffs []string) {
	if bytes.Equal(live, disk) {
		return nil
	}
	for i := 0; i < len(live); i++ {
		from := i
		for i < len(live) && live[i] != disk[i] {
			i++
		}
		if from < i {
			diffs = append(diffs, fmt.Sprintf("%#x %s+%#x: % x, file has % x",
				m.Start+uint64(from), m.Path, m.Offset+uint64(from), live[from:i], disk[from:i]))
		}
	}
	return diffs
}

// Restored waits until a guardian has put a process's text back and has gone: it takes its journal away last.
// journals lists those that there are.
func Restored(t testing.TB, pid int, journals func(pid int) ([]string, error)) {
	t.Helper()
	UntilNil(t, "a guardian puts the text back", Here, func() error {
		diffs, err := TextDiff(pid)
		if err != nil {
			t.Fatal(err)
		}
		left, err := journals(pid)
		if err != nil {
			t.Fatal(err)
		}
		if len(diffs) > 0 || len(left) > 0 {
			return fmt.Errorf("not restored: %v, %v", diffs, left)
		}
		return nil
	})
}
