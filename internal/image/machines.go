package image

import (
	"syscall"

	"kprobe/arch"
	"kprobe/internal/errno"
	"kprobe/internal/isa"
	"kprobe/internal/isa/amd64"
	"kprobe/internal/isa/arm64"
	"kprobe/internal/isa/s390x"
	"kprobe/internal/jumps"
)

// machines is the only table that ties a machine to its instructions. Adding
// a machine ends here.
var machines = map[*arch.Arch]isa.ISA{
	arch.AMD64: amd64.ISA,
	arch.ARM64: arm64.ISA,
	arch.S390X: s390x.ISA,
	arch.I386:  amd64.New(arch.I386),
}

// Become makes the image one of a machine. That may change: an i386 program may
// execute an x86-64 one, and the other way round. Errors: ENOTSUP.
func (im *Image) Become(a *arch.Arch) error {
	m := machines[a]
	if m == nil {
		return errno.New(syscall.ENOTSUP, "no instruction set for %s targets", a.Name)
	}
	im.Arch, im.ISA, im.flows = a, m, jumps.NewFinder(m)
	im.flows.Live, _ = im.t.(jumps.Live)
	return nil
}
