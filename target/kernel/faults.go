package kernel

import (
	"kprobe/arch"
	"kprobe/target"
)

// Excepted looks at where the CPU is: at the very first instruction of a handler the other
// registers are as they were.
func (t *Target) Excepted(th target.Thread, r *arch.Regs) (trap int, at arch.Regs, ok bool) {
	if excepted := t.on().Excepted; excepted != nil {
		return excepted(standingCPU{t, th, r})
	}
	return 0, at, false
}
