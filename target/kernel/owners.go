package kernel

import (
	"errors"
	"fmt"
	"syscall"

	"kprobe/arch"
	"kprobe/spec"
	"kprobe/symbol"
	"kprobe/symbol/kernel"
)

// Bind gives a definition's arguments in terms that need no type information, by
// that of the kernel, or of the module that the place is in.
func (t *Target) Bind(sp *spec.Spec, at symbol.Loc) ([]spec.Arg, error) {
	types, _ := t.kernel.Types() // without any, Bind says where they are missed
	if at.Module != nil {
		if m, ok := t.kernel.Module(at.Module.Name); ok {
			types, _ = t.kernel.ModuleTypes(m)
		}
	}
	return types.Bind(sp, at.Func.Name, at.Off)
}

// Reserved tells why an instruction that begins at addr must be left alone: as in
// the kernel (check_kprobe_address_safe), because somebody rewrites it whenever he
// pleases, and what was displaced would be what he wrote before. A function's entry
// that ftrace has is not refused: it is a NOP, or a call that the guest asked for.
//
// Where the kernel's symbols are of functions only this cannot be known, and is not
// refused: behind a stub the text stays as it is, so nothing is overwritten.
func (t *Target) Reserved(addr arch.Addr) (syscall.Errno, string) {
	t.mu.Lock()
	blocked := t.blocked
	t.mu.Unlock()
	if b, bad := t.kernel.Blacklisted(blocked, addr); bad { // also what the list implies
		return syscall.EINVAL, b.Reason
	}
	sites, err := t.kernel.Foreign(addr, addr+1)
	if errors.Is(err, kernel.ErrNoData) {
		return 0, ""
	}
	if err != nil {
		return syscall.EIO, err.Error()
	}
	for _, s := range sites {
		switch {
		case s.Owner == kernel.Kprobe:
			return syscall.EBUSY, "the guest has a probe of its own there"
		case s.Owner != kernel.Ftrace:
			return syscall.EINVAL, fmt.Sprintf("the kernel has a %s there", s.Owner)
		case s.Addr != addr:
			return syscall.EILSEQ, "it is inside of a call that ftrace has there"
		}
	}
	return 0, ""
}

// OwnTrap tells a trap instruction of the kernel's own from one that somebody has
// put there: its text has some behind returns and jumps, where nothing may run into,
// and who else writes there is known. Who of a breakpoint is not, is somebody else.
func (t *Target) OwnTrap(addr arch.Addr) bool {
	sites, err := t.kernel.Foreign(addr, addr+1)
	return err == nil && len(sites) == 0
}
