package point

import (
	"maps"
	"slices"
	"strings"

	"kprobe/script/syntax"
)

// Sample is an event of the kernel's counters at which a sample of a thread of the process is taken, or the time when one of
// each CPU of a kernel is.
type Sample struct {
	Kernel   bool // of the CPUs of a kernel, by the host's clock
	Hardware bool
	Config   uint64 // which of its kind, by the kernel's number (linux/perf_event.h)
	Period   uint64 // at each so many; of clocks nanoseconds
}

// counter is an event, and how many of them a sample stands for unless a script says.
type counter struct{ config, period uint64 }

var software = map[string]counter{
	"cpu-clock": {0, 1000000}, "cpu": {0, 1000000}, "task-clock": {1, 1000000},
	"page-faults": {2, 100}, "faults": {2, 100}, "context-switches": {3, 1000}, "cs": {3, 1000}, "cpu-migrations": {4, 1},
	"minor-faults": {5, 100}, "major-faults": {6, 1}, "alignment-faults": {7, 1}, "emulation-faults": {8, 1},
	"dummy": {9, 1}, "bpf-output": {10, 1},
}

var hardware = map[string]counter{
	"cpu-cycles": {0, 1000000}, "cycles": {0, 1000000}, "instructions": {1, 1000000},
	"cache-references": {2, 1000000}, "cache-misses": {3, 1000000}, "branch-instructions": {4, 100000}, "branches": {4, 100000},
	"branch-misses": {5, 100000}, "bus-cycles": {6, 100000}, "frontend-stalls": {7, 1000000}, "backend-stalls": {8, 1000000},
	"ref-cycles": {9, 1000000},
}

// counters are the events of a provider by their names.
func counters(provider string) map[string]counter {
	if provider == "hardware" {
		return hardware
	}
	return software
}

// Events are the names of the events of a provider, software or hardware.
func Events(provider string) []string { return slices.Sorted(maps.Keys(counters(provider))) }

// sampled reads EVENT[:COUNT] of software and hardware.
func (r *Reader) sampled(at syntax.Point, pt *Point, args []string) *Point {
	c, known := counter{}, false
	if len(args) > 0 {
		c, known = counters(pt.Provider)[args[0]]
	}
	n := c.period
	var err error
	if len(args) == 2 && args[1] != "" && args[1] != "*" {
		if n, err = syntax.Number(args[1]); n == 0 {
			n = c.period
		}
	}
	switch {
	case len(args) != 1 && len(args) != 2:
		r.Errorf(at, "%s probe type requires 1 or 2 arguments, found %d", pt.Provider, len(args))
	case HasGlob(args[0]):
		r.Errorf(at, "wildcards are not allowed for %s probe type: name one of %s", pt.Provider, strings.Join(Events(pt.Provider), ", "))
	case !known:
		r.Errorf(at, "%s is not a %s probe: those are %s", args[0], pt.Provider, strings.Join(Events(pt.Provider), ", "))
	case err != nil:
		r.Errorf(at, "Invalid count for %s probe: %v", pt.Provider, err)
	case n >= 1<<63:
		r.Errorf(at, "Invalid count for %s probe: %d is more than is counted", pt.Provider, n)
	case r.Kernel:
		r.Errorf(at, "%s: events of a kernel's processors are not counted from outside", pt.Provider)
	default:
		pt.Target, pt.Sample = args[0], &Sample{Hardware: pt.Provider == "hardware", Config: c.config, Period: n}
		return pt
	}
	return nil
}
