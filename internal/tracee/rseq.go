//go:build linux && (amd64 || arm64 || ppc64le || riscv64 || s390x)

package tracee

import (
	"encoding/binary"
	"unsafe"

	"kprobe/arch"
)

// rseqConfig is the kernel's struct ptrace_rseq_configuration.
type rseqConfig struct {
	pointer                uint64
	size, signature, flags uint32
	_                      uint32
}

const getRseqConfiguration = 0x420f // Linux 5.13

// RseqOf is the address of a stopped task's struct rseq, by which the kernel and the task share a few facts; 0 where it
// has registered none, or the kernel does not tell.
func RseqOf(tid int) arch.Addr {
	var c rseqConfig
	if requestAt(getRseqConfiguration, tid, uint64(unsafe.Sizeof(c)), unsafe.Pointer(&c)) != nil {
		return 0
	}
	return arch.Addr(c.pointer)
}

// Offsets in struct rseq and struct rseq_cs (the kernel's include/uapi/linux/rseq.h).
const (
	rseqSequence = 8 // of the pointer to the sequence under way
	sequenceSize = 32
)

// AbortSequence has registers r of a stopped task leave the restartable sequence that it is in, if any: for where the
// kernel leads a task that is interrupted there (rseq(2)). The kernel does that when the task goes on, unless it stands
// elsewhere then: it takes a task that we lead away for one that has left by itself. A sequence which that task went on
// with would believe that nothing else has run on its CPU meanwhile.
func AbortSequence(tid int, m arch.Memory, r *Registers) error {
	at := RseqOf(tid)
	if at == 0 {
		return nil
	}
	word := binary.NativeEndian.Uint64
	var b [sequenceSize]byte
	if err := m.ReadAt(at+rseqSequence, b[:8]); err != nil {
		return err
	}
	sequence := arch.Addr(word(b[:]))
	if sequence == 0 {
		return nil
	}
	if err := m.ReadAt(sequence, b[:]); err != nil {
		return err
	}
	start, length, abort := word(b[8:]), word(b[16:]), word(b[24:])
	if r.PC()-start < length {
		r.SetPC(abort)
	}
	return nil
}
