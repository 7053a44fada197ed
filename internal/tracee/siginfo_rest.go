//go:build linux && (arm64 || ppc64le || riscv64 || s390x)

package tracee

import "kprobe/arch"

// ForAccess tells whether a trap's signal is for an access to watched data.
func (s *Siginfo) ForAccess(int, arch.Memory) bool { return s.Code == TrapHWBkpt }
