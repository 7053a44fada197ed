package main

import (
	"fmt"
	"strconv"
	"strings"

	"kprobe/bpf"
)

// ringSize is the value of --buffer: bytes, with K or M behind them for KiB and MiB.
type ringSize int

// Set takes the next power of two.
func (r *ringSize) Set(text string) error {
	digits, unit := text, 1
	switch {
	case strings.HasSuffix(text, "K"):
		digits, unit = text[:len(text)-1], 1<<10
	case strings.HasSuffix(text, "M"):
		digits, unit = text[:len(text)-1], 1<<20
	}
	n, err := strconv.ParseUint(digits, 10, 32)
	if err != nil || int(n)*unit > bpf.MaxRing {
		return fmt.Errorf("it is a size such as 256K or 4M, of %dM at most", bpf.MaxRing>>20)
	}
	size := bpf.MinRing
	for size < int(n)*unit {
		size *= 2
	}
	*r = ringSize(size)
	return nil
}

func (r *ringSize) String() string { return "" } // the usual

// Type is the value's name in help texts.
func (r *ringSize) Type() string { return "SIZE" }
