// Package untouchable knows code of programs by its bytes that no probe may change.
package untouchable

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"kprobe/arch"
)

// Sigreturns are the codes that signal handlers return to on a machine. Unwinders and
// debuggers know a signal frame by these very bytes, so none may change. nil: they are not known.
type Sigreturns [][]byte

// Missing says what is not known of a machine without Sigreturns.
func Missing(a *arch.Arch) error {
	return fmt.Errorf("the code that signal handlers return to on %s is not known", a.Name)
}

// Read reads the target's memory.
type Read func(addr arch.Addr, p []byte) error

// At tells whether an address lies in a signal trampoline, on a machine.
func (s Sigreturns) At(a *arch.Arch, read Read, addr arch.Addr) (arch.Blocked, bool) {
	for _, code := range s {
		// Any instruction of it may be asked for: all have four bytes, or there is one; on x86 the last has two.
		offs := []int{0, 1, len(code) - 2}
		if a.MinInsn > 1 {
			offs = offs[:1]
			for off := 4; off < len(code); off += 4 {
				offs = append(offs, off)
			}
		}
		for _, off := range offs {
			at, b := addr-arch.Addr(off), make([]byte, len(code))
			if read(at, b) == nil && bytes.Equal(b, code) {
				return sigreturn(at, len(code)), true
			}
		}
	}
	return arch.Blocked{}, false
}

func sigreturn(at arch.Addr, n int) arch.Blocked {
	return arch.Blocked{Start: at, End: at + arch.Addr(n), Symbol: "__restore_rt", Reason: "unwinders know signal frames by its bytes"}
}

// Find finds the signal trampolines in text that stands at an address.
func (s Sigreturns) Find(text []byte, at arch.Addr) (as []arch.Blocked) {
	for _, code := range s {
		for off := 0; ; {
			i := bytes.Index(text[off:], code)
			if i < 0 {
				break
			}
			as = append(as, sigreturn(at+arch.Addr(off+i), len(code)))
			off += i + len(code)
		}
	}
	return as
}

// rseqSize is sizeof(struct rseq_cs): version and flags, then start_ip and
// post_commit_offset at 8 and 16 (the kernel's include/uapi/linux/rseq.h).
const rseqSize = 32

// Restartable are the sequences that a module's descriptors from start up to end tell
// of; a descriptor that cannot be read tells of none.
func Restartable(read Read, order binary.ByteOrder, start, end arch.Addr, module string) (as []arch.Blocked) {
	for cs := start; cs+rseqSize <= end; cs += rseqSize {
		b := make([]byte, rseqSize)
		if read(cs, b) != nil {
			continue
		}
		from, length := arch.Addr(order.Uint64(b[8:])), arch.Addr(order.Uint64(b[16:]))
		if length < 1<<20 {
			as = append(as, arch.Blocked{Start: from, End: from + length, Symbol: "rseq in " + module,
				Reason: "a trap in a restartable sequence restarts it for ever"})
		}
	}
	return as
}
