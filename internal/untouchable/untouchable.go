// Package untouchable knows code of programs by its bytes that no probe may change.
package untouchable

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"kprobe/arch"
)

// sigreturns are the codes that signal handlers return to. Unwinders and
// debuggers know a signal frame by these very bytes, so none may change.
var sigreturns = map[*arch.Arch][][]byte{
	arch.AMD64: {
		{0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05}, // mov $15,%rax; syscall
		{0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05},             // mov $15,%eax; syscall
	},
	arch.PPC64LE: {
		{0x80, 0x00, 0x21, 0x38, 0xac, 0x00, 0x00, 0x38, 0x02, 0x00, 0x00, 0x44}, // addi r1, r1, 128; li r0, 172; sc
	},
	arch.RISCV64: {
		{0x93, 0x08, 0xb0, 0x08, 0x73, 0, 0, 0}, // li a7, 139; ecall
	},
	arch.S390X: {
		{0x0a, 0xad}, // svc 173
	},
	arch.I386: {
		{0xb8, 0xad, 0, 0, 0, 0xcd, 0x80},       // mov $173,%eax; int $0x80
		{0x58, 0xb8, 0x77, 0, 0, 0, 0xcd, 0x80}, // pop %eax; mov $119,%eax; int $0x80
	},
}

// Serves tells whether the signal trampolines of a machine's processes are known.
func Serves(a *arch.Arch) error {
	if sigreturns[a] == nil {
		return fmt.Errorf("the code that signal handlers return to on %s is not known", a.Name)
	}
	return nil
}

// Read reads the target's memory.
type Read func(addr arch.Addr, p []byte) error

// SigreturnAt tells whether an address lies in a signal trampoline.
func SigreturnAt(a *arch.Arch, read Read, addr arch.Addr) (arch.Blocked, bool) {
	for _, code := range sigreturns[a] {
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

// Sigreturns finds the signal trampolines in text that stands at an address.
func Sigreturns(a *arch.Arch, text []byte, at arch.Addr) (as []arch.Blocked) {
	for _, code := range sigreturns[a] {
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
