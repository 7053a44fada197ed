package symbol

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"

	"kprobe/arch"
)

// Mapping is one line of /proc/PID/maps: a range of a process's memory.
type Mapping struct {
	Start, End                arch.Addr
	Off                       uint64 // of Start in the file, bytes
	Read, Write, Exec, Shared bool
	Dev                       string // "major:minor" in hexadecimal, as in the text
	Inode                     uint64 // 0 for memory without a file
	Path                      string // "" for anonymous memory; "[vdso]", "[stack]", "[heap]", "[anon:NAME]"
	Deleted                   bool   // the file has been unlinked; Path is its former path
	Data                      bool   // it is a module that has no code: variables of a kernel's CPU
}

// maxMapsLine is more than the longest line: a path of 4096 bytes, each of which
// may have become four.
const maxMapsLine = 1 << 16

const deletedSuffix = " (deleted)"

// ParseMaps reads the text of /proc/PID/maps. It stops at the first line that
// it does not understand and says which. The text is the kernel's, in order of
// addresses; nothing here depends on that.
func ParseMaps(r io.Reader) ([]Mapping, error) {
	var maps []Mapping
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxMapsLine)
	for n := 1; lines.Scan(); n++ {
		m, err := parseMapping(lines.Text())
		if err != nil {
			return nil, fmt.Errorf("maps, line %d: %w", n, err)
		}
		maps = append(maps, m)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("maps: %w", err)
	}
	return maps, nil
}

// parseMapping reads a line:
//
//	7f1c0000-7f1d0000 r-xp 00026000 fe:01 1234                 /usr/lib/x.so
func parseMapping(line string) (Mapping, error) {
	var m Mapping
	fields := [5]string{}
	rest := line
	for i := range fields {
		// One space between fields; more before the path only.
		var ok bool
		fields[i], rest, ok = strings.Cut(rest, " ")
		if fields[i] == "" || !ok && i < len(fields)-1 {
			return m, fmt.Errorf("%q: want ADDRESSES PERMS OFFSET DEV INODE", line)
		}
	}
	start, end, _ := strings.Cut(fields[0], "-")
	var from, to uint64
	var errs [4]error
	from, errs[0] = strconv.ParseUint(start, 16, 64)
	to, errs[1] = strconv.ParseUint(end, 16, 64)
	m.Start, m.End = arch.Addr(from), arch.Addr(to)
	m.Off, errs[2] = strconv.ParseUint(fields[2], 16, 64)
	m.Inode, errs[3] = strconv.ParseUint(fields[4], 10, 64)
	for _, err := range errs {
		if err != nil {
			return m, fmt.Errorf("%q: %w", line, err)
		}
	}
	if m.Start >= m.End {
		return m, fmt.Errorf("%q: empty range", line)
	}
	perms := fields[1]
	if len(perms) != 4 {
		return m, fmt.Errorf("%q: permissions", line)
	}
	m.Read, m.Write, m.Exec, m.Shared = perms[0] == 'r', perms[1] == 'w', perms[2] == 'x', perms[3] == 's'
	m.Dev = fields[3]
	m.Path, m.Deleted = strings.CutSuffix(strings.TrimLeft(rest, " "), deletedSuffix)
	// The kernel escapes newlines and nothing else, not even the backslash.
	m.Path = strings.ReplaceAll(m.Path, `\012`, "\n")
	return m, nil
}

// Range is the mapping's addresses.
func (m *Mapping) Range() arch.Range { return arch.Range{Start: m.Start, End: m.End} }

// special tells a mapping that the kernel made and that holds an ELF file.
func (m *Mapping) special() bool { return m.Path == "[vdso]" }

// SameMapping tells whether two addresses lie in one of the mappings.
func SameMapping(ms []Mapping, a, b arch.Addr) bool {
	for _, m := range ms {
		if a >= m.Start && a < m.End {
			return b >= m.Start && b < m.End
		}
	}
	return false
}
