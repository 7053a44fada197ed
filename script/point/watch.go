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

// Interpreted tells whether the probe's program runs in the controller, with a thread's registers and memory: while the
// thread that hit it stands, or of a sample of it.
func (p *Point) Interpreted() bool { return p.Watch != nil && !p.Watch.Execute || p.Sample != nil }

// watchpoint reads ADDRESS:LEN:MODE, where the address may be a variable's name, or FUNCTION+argN.
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
	}
	w := &Watch{Async: pt.Provider == "asyncwatchpoint"}
	function, arg, called := strings.Cut(args[0], "+arg")
	if called {
		n, err := strconv.Atoi(arg)
		if err != nil || n < 0 || n >= len(r.Machine.Args) || function == "" || HasGlob(function) {
			return bad("Invalid function/address argument: %s: a function and one of its first %d arguments are wanted, f+arg0", args[0], len(r.Machine.Args))
		}
		w.Called, w.Arg, args[0] = true, n, function
	} else if w.Async {
		return bad("asyncwatchpoint must be used with a function and an argument: asyncwatchpoint:f+arg0:%s:%s", args[1], args[2])
	}
	if addr, err := syntax.Number(args[0]); err == nil {
		if addr == 0 {
			return bad("watchpoint must be attached to a non-zero address")
		}
		pt.Address, pt.HasAddr = addr, true
	} else if pt.Function = args[0]; args[0] == "" || HasGlob(args[0]) || args[0][0] >= '0' && args[0][0] <= '9' {
		return bad("Invalid function/address argument: %s", args[0])
	}
	n, err := syntax.Number(args[1])
	if err != nil {
		return bad("Invalid length argument: %v", err)
	}
	if !slices.Contains([]uint64{1, 2, 4, 8}, n) {
		return bad("watchpoint length must be one of (1,2,4,8): %s", args[1])
	}
	w.Len = int(n)
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
	case w.Execute && w.Called:
		return bad("watchpoint mode x: what a function is called with is watched for access")
	case w.Read && !w.Write && r.Machine == machine.AMD64:
		return bad("invalid watchpoint mode: r: this machine watches for writes with all accesses. Supported modes: rw, w, x")
	}
	pt.Watch = w
	return pt
}
