package symbol

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"kprobe/arch"
)

// JIT names code that a process compiles while it runs, from the files that runtimes write of it
// for perf: the map perf-PID.map (node --perf-basic-prof), and jitdump files, which the process
// maps (node --perf-prof). They are read on as they grow. Files that are not the process's user's
// or root's are not read: any user may put one there.
type JIT struct {
	pid int

	mu     sync.Mutex
	looked time.Time
	files  []*jitFile
	codes  []jitCode   // by address; of one address the older first
	ends   []arch.Addr // the largest end up to here
	read   int
}

// jitCode is a piece of code. Code that comes later lies where older code was.
type jitCode struct {
	start, end arch.Addr
	age        int
	name, file string
}

type jitFile struct {
	path  string // as the process names it
	from  string // as it is read here
	dump  bool
	at    int64            // offset up to which it has been read
	order binary.ByteOrder // of a dump; nil: its header is not read yet
}

const (
	maxJITCodes = 1 << 20
	maxJITBytes = 1 << 30
	jitPause    = 100 * time.Millisecond // between two looks at what files have grown by
)

// NewJIT is for a process; of none nothing has a name.
func NewJIT(pid int) *JIT { return &JIT{pid: pid} }

// At names an address, and the file that tells so.
func (j *JIT) At(addr arch.Addr) (name string, off uint64, file string, ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.look()
	i, _ := slices.BinarySearchFunc(j.codes, addr, func(c jitCode, a arch.Addr) int {
		if c.start <= a {
			return -1
		}
		return 1
	})
	best := -1
	for i--; i >= 0 && j.ends[i] > addr; i-- {
		if c := &j.codes[i]; c.end > addr && (best < 0 || c.age > j.codes[best].age) {
			best = i
		}
	}
	if best < 0 {
		return "", 0, "", false
	}
	c := &j.codes[best]
	return c.name, uint64(addr - c.start), c.file, true
}

// look reads the parts of files that are new since the last look.
func (j *JIT) look() {
	if j.pid <= 0 || time.Since(j.looked) < jitPause {
		return
	}
	defer func() { j.looked = time.Now() }() // a long reading is not repeated all the time
	for _, f := range j.found() {
		if !slices.ContainsFunc(j.files, func(o *jitFile) bool { return o.path == f.path }) {
			j.files = append(j.files, f)
		}
	}
	before := len(j.codes)
	for _, f := range j.files {
		j.readOn(f)
	}
	if len(j.codes) == before {
		return
	}
	slices.SortFunc(j.codes, func(a, b jitCode) int { return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.age, b.age)) })
	j.ends = j.ends[:0]
	most := arch.Addr(0)
	for i := range j.codes {
		most = max(most, j.codes[i].end)
		j.ends = append(j.ends, most)
	}
}

// found are the files that there may be.
func (j *JIT) found() (all []*jitFile) {
	proc := filepath.Join("/proc", strconv.Itoa(j.pid))
	inside := strconv.Itoa(j.pid) // its number in its own namespace
	if status, err := os.ReadFile(filepath.Join(proc, "status")); err == nil {
		for line := range strings.Lines(string(status)) {
			if ids, ok := strings.CutPrefix(line, "NSpid:"); ok {
				if f := strings.Fields(ids); len(f) > 0 {
					inside = f[len(f)-1]
				}
			}
		}
	}
	// Runtimes and perf have agreed on this place, wherever other temporary files are.
	path := filepath.Join("/", "tmp", "perf-"+inside+".map")
	all = append(all, &jitFile{path: path, from: filepath.Join(proc, "root", path)})
	maps, err := os.ReadFile(filepath.Join(proc, "maps"))
	if err != nil {
		return all
	}
	for line := range bytes.Lines(maps) {
		at := bytes.IndexByte(line, '/')
		if at < 0 {
			continue
		}
		path := strings.TrimSuffix(string(line[at:]), "\n")
		if base := filepath.Base(path); strings.HasPrefix(base, "jit-") && strings.HasSuffix(base, ".dump") {
			all = append(all, &jitFile{path: path, from: filepath.Join(proc, "root", path), dump: true})
		}
	}
	return all
}

// readOn reads the part of a file that has not been read yet.
func (j *JIT) readOn(f *jitFile) {
	in, err := os.OpenFile(f.from, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer in.Close()
	fi, err := in.Stat()
	if err != nil || !fi.Mode().IsRegular() || !j.trusted(fi) || fi.Size() <= f.at || fi.Size() > maxJITBytes {
		return
	}
	if _, err := in.Seek(f.at, io.SeekStart); err != nil {
		return
	}
	r := bufio.NewReaderSize(in, 1<<16)
	if f.dump {
		j.readDump(r, f)
	} else {
		j.readMap(r, f)
	}
}

// trusted tells whether a file is of the process's user, or root's.
func (j *JIT) trusted(fi fs.FileInfo) bool {
	st, ok := fi.Sys().(*syscall.Stat_t)
	var of syscall.Stat_t
	return ok && (st.Uid == 0 || syscall.Stat(filepath.Join("/proc", strconv.Itoa(j.pid)), &of) == nil && st.Uid == of.Uid)
}

func (j *JIT) add(start arch.Addr, size uint64, name, file string) {
	end := start + arch.Addr(size)
	if size == 0 || end < start || name == "" || len(j.codes) >= maxJITCodes {
		return
	}
	j.read++
	j.codes = append(j.codes, jitCode{start, end, j.read, name, file})
}

// readMap reads lines "ADDRESS SIZE NAME", numbers in hexadecimal; a line that is not whole yet is
// left for later.
func (j *JIT) readMap(r *bufio.Reader, f *jitFile) {
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		f.at += int64(len(line))
		first, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		second, name, _ := strings.Cut(rest, " ")
		start, err1 := strconv.ParseUint(strings.TrimPrefix(first, "0x"), 16, 64)
		size, err2 := strconv.ParseUint(strings.TrimPrefix(second, "0x"), 16, 64)
		if err1 == nil && err2 == nil {
			j.add(arch.Addr(start), size, name, f.path)
		}
	}
}

// A jitdump file is a header and records, in the byte order of the machine: perf's
// tools/perf/Documentation/jitdump-specification.txt.
const (
	dumpMagic  = 0x4A695444 // "JiTD"
	dumpHead   = 40
	recordHead = 16
	codeLoad   = 0 // process, thread, 4 bytes each; address, again, size, number, 8 each; name and NUL; the code
	codeMove   = 1 // process, thread; address, old address, new address, size, number
	maxRecord  = 16 << 20
)

// readDump reads records; one that is not whole yet is left for later.
func (j *JIT) readDump(r *bufio.Reader, f *jitFile) {
	if f.order == nil {
		var head [dumpHead]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return
		}
		switch uint32(dumpMagic) {
		case binary.LittleEndian.Uint32(head[:]):
			f.order = binary.LittleEndian
		case binary.BigEndian.Uint32(head[:]):
			f.order = binary.BigEndian
		default:
			f.at = maxJITBytes // it is something else
			return
		}
		size := int64(f.order.Uint32(head[8:]))
		if _, err := r.Discard(int(max(size, dumpHead) - dumpHead)); size < dumpHead || err != nil {
			f.at, f.order = maxJITBytes, nil
			return
		}
		f.at += size
	}
	for {
		head, err := r.Peek(recordHead)
		if err != nil {
			return
		}
		id, size := f.order.Uint32(head), int64(f.order.Uint32(head[4:]))
		if size < recordHead || size > maxRecord {
			f.at = maxJITBytes
			return
		}
		record := make([]byte, size)
		if _, err := io.ReadFull(r, record); err != nil {
			return
		}
		f.at += size
		word := func(i int) uint64 { return f.order.Uint64(record[i:]) }
		switch {
		case id == codeLoad && size > 56:
			name, _, _ := bytes.Cut(record[56:], []byte{0})
			j.add(arch.Addr(word(32)), word(40), string(name), f.path)
		case id == codeMove && size >= 64:
			old, moved, length := arch.Addr(word(32)), arch.Addr(word(40)), word(48)
			for i := len(j.codes) - 1; i >= 0; i-- {
				if c := j.codes[i]; c.start == old {
					j.add(moved, length, c.name, f.path)
					break
				}
			}
		}
	}
}
