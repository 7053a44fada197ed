//go:build linux && (amd64 || arm64 || ppc64le || riscv64 || s390x)

package ptrace

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"kprobe/internal/tracee"
	"kprobe/target"
)

// pinning keeps the owner thread on the CPU of the thread that it serves. A
// stop and its answer are two context switches there; across CPUs each is the
// wake-up of a halted one, up to ten times the price. The target's own affinity
// is not ours to change, so the owner follows.
type pinning struct {
	cpu  int // 1 + the CPU pinned to; 0: none yet
	wait int // hits until the next look
	next int // the wait after a look that found the thread elsewhere
}

const (
	pinOften  = 16   // hits between looks while the two are together
	pinSeldom = 1024 // at most, when following does not help: threads on several CPUs
)

// served notes that a stop of t has been dealt with; it has not gone on yet.
func (n *pinning) served(p *Process, t *thread) {
	if n.wait--; n.wait > 0 {
		return
	}
	cpu := p.cpuOf(t)
	if cpu < 0 || cpu+1 == n.cpu {
		n.wait, n.next = pinOften, pinOften
		return
	}
	var set unix.CPUSet
	set.Set(cpu)
	if unix.SchedSetaffinity(0, &set) != nil {
		n.wait = pinSeldom
		return
	}
	n.cpu, n.wait = cpu+1, n.next
	n.next = min(2*max(n.next, pinOften), pinSeldom)
}

// CPU is the CPU on which a thread runs, or ran last.
func (p *Process) CPU(th target.Thread) int {
	if p.OnOwner() {
		if t := p.threads[int(th)]; t != nil {
			return p.cpuOf(t)
		}
	}
	return taskCPU(p.pid, int(th))
}

// cpuOf reads on which CPU a stopped thread is, or -1. Where the program's C
// library has registered a struct rseq, the kernel keeps that number in the
// thread's own memory (cpu_id, at offset 4), which is thirty times as quick to read
// as the file in /proc.
func (p *Process) cpuOf(t *thread) int {
	if t.rseq == 0 {
		t.rseq = tracee.RseqOf(t.tid)
	}
	if t.rseq != 0 {
		var b [4]byte
		if p.ReadAt(t.rseq+4, b[:]) == nil {
			if cpu := int32(binary.NativeEndian.Uint32(b[:])); cpu >= 0 {
				return int(cpu)
			}
		}
		t.rseq = 0 // it has been given up
	}
	return taskCPU(p.pid, t.tid)
}
