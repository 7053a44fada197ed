package kernel

import (
	"kprobe/arch"
	"kprobe/internal/cpu"
	"kprobe/target"
)

// on is the record of the guest's machine.
func (t *Target) on() *cpu.Kernel { return &cpu.Of(t.Arch()).Kernel }

// standingCPU is a CPU that stands, for the machine's record.
type standingCPU struct {
	t  *Target
	th target.Thread
	r  *arch.Regs
}

func (c standingCPU) Register(name string) (uint64, error) { return c.t.Register(c.th, name) }

func (c standingCPU) General() *arch.Regs { return c.r }

func (c standingCPU) Symbol(name string) (arch.Addr, bool) { return c.t.kernel.Table().Addr(name) }

func (c standingCPU) Word(at arch.Addr) uint64 { return c.t.number(at, c.t.Arch().PtrSize) }
