//go:build linux && (amd64 || arm64 || ppc64le || riscv64 || s390x)

package tracee

import (
	"time"
)

// LoopSleep bounds the wait of a child that may sleep instead of looping (see loopRounds): a loop takes a processor from its tracer.
var LoopSleep = 10 * time.Second

// Loop is where a child waits: code at a page, and what that needs behind it.
type Loop struct {
	Page uint64
	Size int
	Real Registers // and the mask of blocked signals: to go on with
	Mask uint64

	MayCall bool // no filter of system calls is in the way of one that sleeps
}

// Leave has a stopped child go on with what is its own.
func (l *Loop) Leave(tid int) error {
	if err := Insist(func() error { return SetRegs(tid, &l.Real) }); err != nil {
		return RegsError(err)
	}
	return RegsError(Block(tid, l.Mask))
}
