//go:build linux && (amd64 || arm64 || ppc64le || riscv64 || s390x)

package ptrace

import (
	"golang.org/x/sys/unix"

	"kprobe/internal/tracee"
	"kprobe/target"
)

// keepCramped has a thread that is reported for a trap safe from its signal, where the thread's stack
// has no room for a signal's frame: should we die now, the kernel would end the program, since it
// cannot call the handler. Back at its trap, and without the signal, the thread finds the trap gone.
func (p *Process) keepCramped(t *thread) {
	s := target.Stop{Thread: target.Thread(t.tid)}
	if !p.hasFrameRoom(t) && p.setBack(&s) {
		read(t.tid)
	}
}

// hasFrameRoom tells whether memory is mapped below a thread's stack pointer, as far as a signal's
// frame reaches. That is asked at every hit, so it is not asked again while the thread's stack pointer
// stays in its page. A stack that the kernel has yet to extend is taken for one without: that costs
// little.
func (p *Process) hasFrameRoom(t *thread) bool {
	sp, page := t.sp, uint64(p.PageSize())
	if sp == 0 {
		var r tracee.Registers
		if tracee.GetRegs(t.tid, &r) != nil {
			return true
		}
		sp = r.SP()
	}
	if t.roomy == sp&^(page-1)+1 {
		return true
	}
	end := sp - uint64(p.arch.RedZone)
	var (
		b      [frameRoom/4096 + 2]byte // for the smallest pages that there are
		local  [len(b)]unix.Iovec
		remote [len(b)]unix.RemoteIovec
	)
	pages := int(frameRoom/page + 2)
	for i := range pages {
		local[i].Base = &b[i]
		local[i].SetLen(1)
		remote[i] = unix.RemoteIovec{Base: uintptr(max(end-frameRoom+min(uint64(i)*page, frameRoom), page)), Len: 1}
	}
	n, err := unix.ProcessVMReadv(p.pid, local[:pages], remote[:pages], 0)
	if err == unix.EFAULT || err == nil && n < pages {
		return false
	}
	t.roomy = sp&^(page-1) + 1
	return true
}
