package gdbremote

import (
	"fmt"
	"syscall"

	"kprobe/arch"
	"kprobe/internal/cpu"
	"kprobe/target"
)

// standingCPU is a CPU that stands, for the machine's record.
type standingCPU struct {
	t  *Target
	th target.Thread
}

func (t *Target) cpu(th target.Thread) standingCPU { return standingCPU{t, th} }

func (c standingCPU) Register(name string) (uint64, error) { return c.t.register(c.th, name) }

func (c standingCPU) Entry(phys uint64) (uint64, error) {
	b := make([]byte, 8)
	err := c.t.readPhysical(phys, b)
	return c.t.arch.Order.Uint64(b), err
}

// translate finds the physical address of one of the kernel's. Errors: EFAULT.
func (t *Target) translate(addr arch.Addr) (uint64, error) {
	if p := cpu.Of(t.arch).Paging; p != nil {
		return p.Translate(t.cpu(t.current), addr)
	}
	return 0, syscall.ENOTSUP
}

// translateUser finds the physical address of one of the program's, where those are apart. Errors:
// EFAULT.
func (t *Target) translateUser(addr arch.Addr) (uint64, error) {
	return cpu.Of(t.arch).Paging.User(t.cpu(t.current), addr)
}

// apart tells a machine whose kernel and programs have address spaces of their
// own: the same address may be in both.
func (t *Target) apart() bool {
	p := cpu.Of(t.arch).Paging
	return !t.program && p != nil && p.User != nil
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
	in, err := cpu.Of(t.arch).Paging.InKernel(t.cpu(th))
	return !in, err
}
