package gdbremote

import (
	"fmt"
	"syscall"

	"kprobe/arch"
	"kprobe/target"
)

// pageSize is the smallest page of all machines here.
const pageSize = 4096

// paging says how a machine finds its memory.
type paging struct {
	// translate finds the physical address that the current CPU gives to one of
	// the kernel's. Errors: EFAULT; ENOTSUP for a mode that no kernel here uses.
	translate func(t *Target, addr arch.Addr) (uint64, error)

	// user is the same for an address of the program that the CPU runs. nil: one
	// address space holds both.
	user func(t *Target, addr arch.Addr) (uint64, error)

	// bases are the physical addresses at which memory may begin, on the boards
	// that QEMU has, and sameUpTo (0: no limit) where it may go on elsewhere. In
	// the hole there is something else.
	bases    []uint64
	sameUpTo uint64
	hole     span

	// inKernel tells from the registers whether a CPU runs the kernel; nil: an
	// address tells.
	inKernel func(t *Target, th target.Thread) (bool, error)
}

type span struct{ start, end uint64 }

// translate finds the physical address of one of the kernel's. Errors: EFAULT.
func (t *Target) translate(addr arch.Addr) (uint64, error) {
	if p := on(t.arch).paging; p != nil {
		return p.translate(t, addr)
	}
	return 0, syscall.ENOTSUP
}

// apart tells a machine whose kernel and programs have address spaces of their
// own: the same address may be in both.
func (t *Target) apart() bool {
	p := on(t.arch).paging
	return !t.program && p != nil && p.user != nil
}

// entry reads one entry of a page table.
func (t *Target) entry(phys uint64) (uint64, error) {
	b := make([]byte, 8)
	err := t.readPhysical(phys, b)
	return t.arch.Order.Uint64(b), err
}

// readPhysical reads physical memory.
func (t *Target) readPhysical(phys uint64, p []byte) error {
	if t.ram != nil && t.ram.read(phys, p) {
		return nil
	}
	if !t.has.physical {
		return fmt.Errorf("physical memory: %w", errUnknown)
	}
	return t.physically(func() error { return t.m(phys, p) })
}

// elsewhere tells that a CPU which stands at an address of the kernel's is in a
// program, which has something of its own there.
func (t *Target) elsewhere(th target.Thread) (bool, error) {
	if !t.apart() {
		return false, nil
	}
	in, err := on(t.arch).paging.inKernel(t, th)
	return !in, err
}
