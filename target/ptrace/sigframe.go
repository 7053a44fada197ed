//go:build linux && (amd64 || arm64 || ppc64le || riscv64 || s390x)

package ptrace

import (
	"bytes"
	"encoding/binary"
	"math/bits"

	"golang.org/x/sys/unix"

	"kprobe/arch"
	"kprobe/internal/lifeline"
	"kprobe/internal/tracee"
	"kprobe/symbol"
)

// frameRoom is the largest size of a frame, in whole pages.
const frameRoom = tracee.MostVector + 4096

// frameAt is the address for a call's frame; 0 where there is no place. While threads run, only
// memory of our own will do. A frozen process has some that is dead, and the call may unmap our
// own.
func (p *Process) frameAt() arch.Addr {
	if p.frozen {
		return p.deadMemory()
	}
	if p.guardian == nil {
		return 0
	}
	return p.guardian.journal.Base + lifeline.CallRoomAt
}

// deadMemory finds memory of the frozen process that is not in use, for a frame: at the far end of
// the first thread's stack, which the kernel maps in advance and most programs never reach. It must
// lie below every stack pointer, and hold zeros only: a thread that has been there and is away, on
// another stack, left something. If there is none such, a frame of ours whose thread has done with
// it will do. It is 0 where there is none at all.
func (p *Process) deadMemory() arch.Addr {
	if p.seen == nil {
		p.seen = make([]byte, frameRoom)
	}
	b := p.seen
	if p.dead != 0 && p.isUnused(p.dead, b) && isZero(b) {
		return p.dead
	}
	maps, _ := p.Maps()
	p.dead = 0
	for _, m := range maps {
		if !isStack(m) {
			continue
		}
		// Always the same places, however far the stack has grown, so that the rest of an earlier
		// frame is found whole.
		for at := m.Start + (m.End-m.Start)%frameRoom; at < m.End; at += frameRoom {
			switch {
			case !p.isUnused(at, b):
			case isZero(b):
				p.dead = at
				return at
			case p.dead == 0 && p.isDoneWith(b):
				p.dead = at
			}
		}
	}
	return p.dead
}

func isStack(m symbol.Mapping) bool { return m.Path == "[stack]" && m.Read }

func isZero(b []byte) bool { return len(b) == 0 || b[0] == 0 && bytes.Equal(b[1:], b[:len(b)-1]) }

// isUnused reads a frame's place, and tells whether it lies below every stack that
// it may be part of.
func (p *Process) isUnused(at arch.Addr, b []byte) bool {
	if p.ReadAt(at, b) != nil {
		return false
	}
	for _, t := range p.threads {
		var r tracee.Registers
		if t.state == running || tracee.GetRegs(t.tid, &r) != nil {
			continue
		}
		const stackRoom = 64 << 20 // no other stack is so near below
		sp, end := arch.Addr(r.SP()), at+frameRoom+arch.Addr(p.arch.RedZone)
		if sp < end && end-sp < stackRoom {
			return false
		}
	}
	return true
}

// isDoneWith tells whether bytes are the rest of a frame that is not needed any more. Its thread
// may be away on another stack, in the handler of a signal that came before it returned to the
// frame; but then it still has nearly all signals blocked, as during a call.
func (p *Process) isDoneWith(b []byte) bool {
	note, ok := bytes.CutPrefix(b[p.abi().Note:], []byte(tracee.FrameMark))
	if !ok {
		return false
	}
	tid := int(binary.NativeEndian.Uint32(note))
	for _, t := range p.threads {
		if t.tid != tid {
			continue
		}
		const never = 1<<(unix.SIGKILL-1) | 1<<(unix.SIGSTOP-1)
		mask, err := tracee.SignalMask(unix.PTRACE_GETSIGMASK, tid, 0)
		return err == nil && bits.OnesCount64(^(mask|never)) > 1
	}
	return true
}
