//go:build linux && (amd64 || arm64 || ppc64le || riscv64 || s390x)

package ptrace

import (
	"sync"

	"kprobe/internal/host"
)

// timeStamp reads the counter that the kernel tells the time by: x86's time-stamp counter, arm64's
// virtual one, ppc64le's time base, riscv64's time, s390x's time-of-day clock.
func timeStamp() uint64

var (
	// The first reading is as early as can be: the longer the time between two, the more exact is
	// their result.
	start        = host.Counter(timeStamp).Read()
	counterClock = sync.OnceValues(func() (host.Conversion, error) { return host.Counter(timeStamp).Clock(start) })
	bootAhead    = sync.OnceValue(host.BootAhead)
)

// CounterClock tells how the processor's time-stamp counter becomes CLOCK_MONOTONIC: by base +
// counter*mult >> shift nanoseconds, with a product of 128 bits. It agrees with the kernel to some
// millionths of the time that has passed since. CLOCK_BOOTTIME is ahead by boot. Errors: the kernel
// does not tell the time by the counter, so it may stop or jump.
func (p *Process) CounterClock() (base, mult uint64, shift uint8, boot uint64, err error) {
	c, err := counterClock()
	return c.Base, c.Mult, host.ConversionShift, bootAhead(), err
}
