//go:build linux && amd64

package tracee

import "kprobe/arch"

// ForAccess tells whether a trap's signal is for an access to watched data. As with ForStep, the code alone does not
// tell: the same processors do not own up to one access of some million. The steps that a program has itself make, and
// what was sent to it, stay its own.
func (s *Siginfo) ForAccess(tid int, m arch.Memory) bool {
	switch s.Code {
	case TrapHWBkpt:
		return true
	case TrapBrkpt:
		var r Registers
		return GetRegs(tid, &r) == nil && r.Eflags&TrapFlag == 0 && !r.InCall(m) && s.ForStep(ByteBefore(m, &r))
	}
	return false
}
