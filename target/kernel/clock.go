package kernel

import (
	"bytes"
	"errors"
	"fmt"
	"math/bits"
	"time"

	"kprobe/arch"
	"kprobe/target"
)

// The clock of a kernel's own tracer (sched_clock, trace_clock "local") is the processor's counter,
// by factors that it keeps for each CPU (Linux: struct cyc2ns).

// CounterClock gives the numbers that turn the counter into that time, in nanoseconds: base +
// (counter * mult) >> shift. Errors: in words, where the kernel has no such clock.
func (t *Target) CounterClock() (base, mult uint64, shift uint8, boot uint64, err error) {
	const (
		data  = 16 // of one set of factors: u32 mult, u32 shift, u64 offset
		latch = 2 * data
	)
	at, ok := t.kernel.Table().Addr("cyc2ns")
	if !ok || !t.on().Counter {
		return 0, 0, 0, 0, errors.New("the kernel's clock is not known")
	}
	cpus, err := t.perCPU()
	if err != nil {
		return 0, 0, 0, 0, err
	}
	for i, cpu := range cpus {
		c := cpu + at
		c += arch.Addr(t.number(c+latch, 4)&1) * data
		m, s, b := t.number(c, 4), t.number(c+4, 4), t.number(c+8, 8)
		if m == 0 || s > 63 {
			return 0, 0, 0, 0, fmt.Errorf("CPU %d has no clock of its counter", i)
		}
		if mult != 0 && (m != mult || uint8(s) != shift || b != base) {
			return 0, 0, 0, 0, errors.New("the CPUs' clocks are different")
		}
		base, mult, shift = b, m, uint8(s)
	}
	return base, mult, shift, 0, nil
}

// Time reads the clock now, as a reported CPU reads it: it carries out one instruction, which
// reads the counter.
func (t *Target) Time(th target.Thread) (time.Duration, error) {
	base, mult, shift, _, err := t.CounterClock()
	if err != nil {
		return 0, err
	}
	if t.rdtsc == 0 {
		if err := t.findCounter(); err != nil {
			return 0, err
		}
	}
	var r arch.Regs
	if err := t.Regs(th, &r); err != nil {
		return 0, err
	}
	there := r
	there[arch.IP] = uint64(t.rdtsc)
	err = t.SetRegs(th, &there)
	if err == nil {
		err = t.Step(th)
	}
	if err == nil {
		err = t.Regs(th, &there)
	}
	if err = errors.Join(err, t.SetRegs(th, &r)); err != nil {
		return 0, err
	}
	hi, lo := bits.Mul64(there[arch.DX]<<32|there[arch.AX]&(1<<32-1), mult)
	return time.Duration(base + (hi<<(64-shift) | lo>>shift)), nil
}

// findCounter finds an instruction that reads the counter.
func (t *Target) findCounter() error {
	for _, name := range []string{"native_sched_clock", "native_sched_clock_from_tsc", "read_tsc"} {
		for _, s := range t.kernel.Lookup(name) {
			b := make([]byte, min(s.Size, 4096))
			if t.ReadAt(s.Addr, b) != nil {
				continue
			}
			if i := bytes.Index(b, []byte{0x0f, 0x31}); i >= 0 { // rdtsc, whatever the bytes are there for
				t.rdtsc = s.Addr + arch.Addr(i)
				return nil
			}
		}
	}
	return errors.New("the kernel has no instruction that reads the counter")
}
