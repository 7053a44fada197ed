package point

import (
	"slices"
	"strconv"
	"strings"

	"kprobe/script/machine"
	"kprobe/script/syntax"
)

// Watch is memory whose accesses a probe is about.
type Watch struct {
	Len     int // 1, 2, 4 or 8
	Read    bool
	Write   bool
	Execute bool // then nothing else: a probe on the instruction

	// Called: the address is what the point's function is called with, as its argument of that number. Async: who calls it does not
	// wait until the memory is watched.
	Called, Async bool
	Arg           int
}

// Interpreted tells whether the probe's program runs in the controller while the thread that hit it stands: it has that
// thread's registers and memory.
func (p *Point) Interpreted() bool { return p.Watch != nil && !p.Watch.Execute }

// watchpoint reads ADDRESS:LEN:MODE, where the address may be a variable's name.
func (r *Reader) watchpoint(at syntax.Point, pt *Point, args []string) *Point {
	bad := func(format string, a ...any) *Point {
		r.Errorf(at, format, a...)
		return nil
	}
	switch {
	case len(args) != 3:
		return bad("%s probe type requires 3 arguments, found %d: %s:ADDRESS:LENGTH:MODE", pt.Provider, len(args), pt.Provider)
	case r.Kernel:
		return bad("%s: memory of a kernel cannot be watched by a script yet", pt.Provider)
	case pt.Provider == "asyncwatchpoint", strings.Contains(args[0], "+arg"):
		return bad("%s: addresses that a function is called with cannot be watched yet: say the address, or a variable's name", pt.Provider)
	}
	if addr, err := strconv.ParseUint(args[0], 0, 64); err == nil {
		if addr == 0 {
			return bad("watchpoint must be attached to a non-zero address")
		}
		pt.Address, pt.HasAddr = addr, true
	} else if pt.Function = args[0]; args[0] == "" || HasGlob(args[0]) || args[0][0] >= '0' && args[0][0] <= '9' {
		return bad("Invalid address: %s", args[0])
	}
	n, err := strconv.ParseUint(args[1], 0, 8)
	if err != nil || !slices.Contains([]uint64{1, 2, 4, 8}, n) {
		return bad("Invalid watchpoint length: %s: it must be one of 1, 2, 4, 8", args[1])
	}
	w := &Watch{Len: int(n)}
	for _, m := range args[2] {
		on := map[rune]*bool{'r': &w.Read, 'w': &w.Write, 'x': &w.Execute}[m]
		switch {
		case on == nil:
			return bad("watchpoint mode must be a combination of the letters r, w and x, not %q", args[2])
		case *on:
			return bad("watchpoint modes may not be duplicates: %s", args[2])
		}
		*on = true
	}
	switch {
	case args[2] == "":
		return bad("watchpoint mode must be a combination of the letters r, w and x")
	case w.Execute && (w.Read || w.Write):
		return bad("watchpoint modes (rx, wx, rwx) are not supported: a place is watched for execution, or for access")
	case w.Read && !w.Write && r.Machine == machine.AMD64:
		return bad("invalid watchpoint mode: r: this machine watches for writes with all accesses. Supported modes: rw, w, x")
	}
	pt.Watch = w
	return pt
}
