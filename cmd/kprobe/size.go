package main

import (
	"fmt"
	"strconv"
	"strings"

	"kprobe/bpf"
	"kprobe/internal/proc"
)

// ringSize is the value of --buffer: bytes, with K or M behind them for KiB and MiB.
type ringSize int

// Set takes the next power of two.
func (r *ringSize) Set(text string) error {
	n, err := bytesOf(text, bpf.MaxRing)
	if err != nil {
		return err
	}
	size := bpf.MinRing
	for size < n {
		size *= 2
	}
	*r = ringSize(size)
	return nil
}

func (r *ringSize) String() string { return "" } // the usual

// Type is the value's name in help texts.
func (r *ringSize) Type() string { return "SIZE" }

// byteSize is the value of --ring: bytes, in the same form.
type byteSize int

// Set takes a size of 64 KiB or more.
func (b *byteSize) Set(text string) error {
	const least, most = 64 << 10, 1 << 40
	n, err := bytesOf(text, most)
	if err == nil && n < least {
		err = fmt.Errorf("%d is less than %dK", n, least>>10)
	}
	*b = byteSize(n)
	return err
}

func (b *byteSize) String() string { return "" } // none

// Type is the value's name in help texts.
func (b *byteSize) Type() string { return "SIZE" }

// bytesOf reads a size.
func bytesOf(text string, most int) (int, error) {
	digits, unit := text, 1
	for i, suffix := range []string{"K", "M", "G"} {
		if d, ok := strings.CutSuffix(text, suffix); ok {
			digits, unit = d, 1<<(10*(i+1))
		}
	}
	n, err := strconv.ParseUint(digits, 10, 62)
	if err != nil || n > uint64(most/unit) {
		return 0, fmt.Errorf("it is a size such as 256K or 4M, of %dM at most", most>>20)
	}
	return int(n) * unit, nil
}

// ringFor is how large the rings of a process's threads are where nobody says: what all together
// may fill is bounded, and so is what one can. 4 MiB are 15 ms of five million events a second. 0 is
// the usual.
func ringFor(pid int) int {
	const together, most, least = 64 << 20, 4 << 20, 64 << 10
	threads, err := proc.Process(pid).Threads()
	if err != nil {
		return 0
	}
	size := most
	for size > least && size*len(threads) > together {
		size /= 2
	}
	return size
}
