package host

import "golang.org/x/sys/unix"

// Clock is one of Linux's clocks.
type Clock int32

// Other systems do not have names for both.
const (
	Monotonic Clock = 1
	Boot      Clock = 7
	TAI       Clock = 11
)

// Now is the time in nanoseconds; 0 where the system has no such clock.
func (c Clock) Now() uint64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(c), &ts); err != nil {
		return 0
	}
	return uint64(ts.Nano())
}

// BootAhead is what the time since boot is ahead of the monotonic clock, in nanoseconds.
func BootAhead() uint64 { return uint64(max(0, Boot.Ahead(Monotonic))) }

// Ahead is what a clock is ahead of another, in nanoseconds. Who is put off the processor between two looks at clocks sees them far
// apart: of a few tries the one whose looks were closest counts.
func (c Clock) Ahead(of Clock) (ahead int64) {
	const tries, close = 10, 5000 // ns: two looks take some 50
	best := ^uint64(0)
	for n := 0; n < tries && best > close; n++ {
		before := of.Now()
		now := c.Now()
		if took := of.Now() - before; took < best {
			best, ahead = took, int64(now-before-took/2)
		}
	}
	return ahead
}
