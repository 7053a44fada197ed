//go:build linux && (amd64 || arm64 || riscv64)

package ptrace

import (
	"fmt"
	"math/bits"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// timeStamp reads the counter that the kernel tells the time by: x86's time-stamp counter, arm64's virtual one, riscv64's time.
func timeStamp() uint64

// reading is the counter and the clock at one moment.
type reading struct{ counter, clock uint64 }

// start is as early as can be: the longer the time between two readings, the more
// exact is what they tell.
var start = readClock()

func readClock() (best reading) {
	shortest := ^uint64(0)
	for range 10 {
		var ts unix.Timespec
		before := timeStamp()
		unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
		after := timeStamp()
		if after-before < shortest {
			shortest = after - before
			best = reading{before + (after-before)/2, uint64(ts.Nano())}
		}
	}
	return best
}

// CounterClock tells how the processor's time-stamp counter becomes CLOCK_MONOTONIC: by
//
//	base + counter*mult >> shift
//
// nanoseconds, with a product of 128 bits. It agrees with the kernel to some
// millionths of the time that has passed since. boot is what CLOCK_BOOTTIME is ahead.
// Errors: the counter is not what the kernel tells the time by, and so may stop or jump.
func (p *Process) CounterClock() (base, mult uint64, shift uint8, boot uint64, err error) {
	c, err := counterClock()
	return c.base, c.mult, clockShift, c.boot, err
}

const clockShift = 32

type conversion struct{ base, mult, boot uint64 }

var counterClock = sync.OnceValues(func() (c conversion, err error) {
	const file = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
	source, err := os.ReadFile(file)
	if err != nil {
		return c, err
	}
	switch name := strings.TrimSpace(string(source)); name {
	case "tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter", "riscv_clocksource":
	default:
		return c, fmt.Errorf("the kernel tells the time by %s, so the time-stamp counter cannot be trusted", name)
	}
	const atLeast = 20 * time.Millisecond
	end := readClock()
	if d := atLeast - time.Duration(end.clock-start.clock); d > 0 {
		time.Sleep(d)
		end = readClock()
	}
	c.mult, _ = bits.Div64((end.clock-start.clock)>>(64-clockShift), (end.clock-start.clock)<<clockShift, end.counter-start.counter)
	hi, lo := bits.Mul64(end.counter, c.mult)
	c.base = end.clock - (hi<<(64-clockShift) | lo>>clockShift)
	var mono, boot unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &mono)
	unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot)
	c.boot = uint64(max(0, boot.Nano()-mono.Nano()))
	return c, nil
})
