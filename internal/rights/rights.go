// Package rights knows which programs have more rights than the process that executes them: those
// of a set-user-ID or set-group-ID file, and of one with capabilities (execve(2)). The kernel gives
// none of these to a process whose tracer may not trace any process (CAP_SYS_PTRACE), and says
// nothing.
package rights

import (
	"encoding/binary"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"kprobe/internal/proc"
)

// File has the facts about a file that decide.
type File struct {
	Mode     fs.FileMode
	UID, GID uint64
	NoSuid   bool   // such files have no rights where it is (mount(8))
	Caps     []byte // its attribute security.capability
}

// Gains says which rights a process would get if it executed a file without a tracer; "" for none
// more than it has. Where it is in another user namespace than this process, that is not known.
func (f *File) Gains(pid int) string {
	if f.Mode&(fs.ModeSetuid|fs.ModeSetgid) == 0 && len(f.Caps) == 0 {
		return "" // most have none, and that is quickly known
	}
	if f.NoSuid || !f.Mode.IsRegular() || f.Mode&0o111 == 0 || number(pid, "NoNewPrivs", 0, 10) != 0 || namespace(pid) != namespace(os.Getpid()) {
		return ""
	}
	const effective = 1
	switch {
	case f.Mode&fs.ModeSetuid != 0 && f.UID != number(pid, "Uid", effective, 10):
		return fmt.Sprintf("those of user %d", f.UID)
	case f.Mode&fs.ModeSetgid != 0 && f.Mode&0o010 != 0 && f.GID != number(pid, "Gid", effective, 10):
		return fmt.Sprintf("those of group %d", f.GID)
	case f.permitted()&number(pid, "CapBnd", 0, 16)&^number(pid, "CapPrm", 0, 16) != 0:
		return "capabilities"
	}
	return ""
}

// permitted are the capabilities that a file gives (capabilities(7), linux/capability.h).
func (f *File) permitted() (caps uint64) {
	const revision, second, third = 0xff000000, 0x02000000, 0x03000000
	if len(f.Caps) < 12 {
		return 0
	}
	word := func(i int) uint64 { return uint64(binary.LittleEndian.Uint32(f.Caps[4*i:])) }
	caps = word(1)
	switch of := word(0) & revision; {
	case of == second && len(f.Caps) >= 20, of == third && len(f.Caps) >= 24 && word(5) == 0: // else they belong to another namespace
		return caps | word(3)<<32
	case of == third:
		return 0
	}
	return caps
}

// number reads a number of a process's status, the n-th of its line; 0 where there is none.
func number(pid int, name string, n, base int) uint64 {
	line, _ := proc.Thread(pid).Status(name)
	fields := slices.Clip(strings.Fields(line))
	if n >= len(fields) {
		return 0
	}
	v, _ := strconv.ParseUint(fields[n], base, 64)
	return v
}

func namespace(pid int) string {
	name, _ := os.Readlink(proc.Thread(pid).File("ns/user"))
	return name
}
