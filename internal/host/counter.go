package host

import (
	"fmt"
	"math/bits"
	"os"
	"strings"
	"time"
)

// Counter reads the processor's counter that Linux may tell the time by.
type Counter func() uint64

// Reading is the counter and the clock at one moment.
type Reading struct{ Counter, Clock uint64 }

// Read reads both.
func (c Counter) Read() (best Reading) {
	shortest := ^uint64(0)
	for range 10 {
		before := c()
		now := Monotonic.Now()
		after := c()
		if after-before < shortest {
			shortest = after - before
			best = Reading{before + (after-before)/2, now}
		}
	}
	return best
}

// Conversion tells how the counter becomes Monotonic: by Base + counter*Mult >> ConversionShift nanoseconds, with a product of
// 128 bits.
type Conversion struct{ Base, Mult uint64 }

// ConversionShift is how far a product is shifted.
const ConversionShift = 32

// Clock finds it out, by a reading of before: the longer ago, the more exact is what the two tell. Errors: the counter is
// not what the kernel tells the time by, and so may stop or jump.
func (c Counter) Clock(start Reading) (to Conversion, err error) {
	const file = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
	source, err := os.ReadFile(file)
	if err != nil {
		return to, err
	}
	switch name := strings.TrimSpace(string(source)); name {
	case "tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter", "riscv_clocksource", "timebase", "tod":
	default:
		return to, fmt.Errorf("the kernel tells the time by %s, so the time-stamp counter cannot be trusted", name)
	}
	const atLeast = 20 * time.Millisecond
	end := c.Read()
	if d := atLeast - time.Duration(end.Clock-start.Clock); d > 0 {
		time.Sleep(d)
		end = c.Read()
	}
	took := end.Clock - start.Clock
	to.Mult, _ = bits.Div64(took>>(64-ConversionShift), took<<ConversionShift, end.Counter-start.Counter)
	to.Base = end.Clock - to.product(end.Counter)
	return to, nil
}

func (to Conversion) product(counter uint64) uint64 {
	hi, lo := bits.Mul64(counter, to.Mult)
	return hi<<(64-ConversionShift) | lo>>ConversionShift
}

// Nanoseconds is Monotonic at the time of a counter.
func (to Conversion) Nanoseconds(counter uint64) uint64 { return to.Base + to.product(counter) }
