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

// Reserved tells why an instruction that begins at addr must be left alone. As in the kernel
// (check_kprobe_address_safe), it is because its owner rewrites it at any time, and a displaced
// instruction would be an earlier one. A function's entry that ftrace has is not refused: it is a
// NOP, or a call that the guest asked for. Where the kernel's symbols are of functions only this
// cannot be known, and is not refused: behind a stub the text stays as it is, so nothing is
// overwritten.
func (t *Target) Reserved(addr arch.Addr) (syscall.Errno, string) {
	t.mu.Lock()
	blocked := t.blocked
	t.mu.Unlock()
	if b, bad := t.kernel.Blacklisted(blocked, addr); bad { // also places that the list implies
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

// OwnTrap tells a trap instruction of the kernel's own from one that was put there. The kernel's
// text has some behind returns and jumps, where nothing may run into. The writers of text are
// known. So a trap at a place without a writer is the kernel's own.
func (t *Target) OwnTrap(addr arch.Addr) bool {
	sites, err := t.kernel.Foreign(addr, addr+1)
	return err == nil && len(sites) == 0
}
