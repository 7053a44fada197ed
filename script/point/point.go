// Package point reads attach points, and says where they are: the file and the function, the period of a timer, the
// system calls of a tracepoint, the memory of a watchpoint. What is there of functions' parameters others find.
package point

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"kprobe/bpf"
	"kprobe/script/machine"
	"kprobe/script/syntax"
	"kprobe/script/types"
	"kprobe/symbol"
)

// Point is where a probe goes.
type Point struct {
	syntax.Span
	Text     string // as probe tells it
	Provider string // "uprobe"
	Target   string // the file of a uprobe, the unit of an interval
	Function string // may be a glob
	Source   bool   // Function is a name as sources of C++ have it
	pattern  string // Function as Name has it
	Offset   uint64
	Address  uint64 // with HasAddr, in place of a function
	HasAddr  bool
	Inlined  bool    // a copy of Function is there
	Virtual  bool    // the address is as symbols have it; where no code is there, or else, it is an offset in the file
	Static   *Static // of a usdt
	Watch    *Watch  // of a watchpoint; Address is then the target's, Function a variable's name
	Sample   *Sample // of software, hardware, and of a profile of a process
	Syscall  *Syscall
	Event    *Event
	Raw      bool           // of an Event: what its tracepoint is called with, not its record
	Passing  symbol.Passing // of the function's arguments
	Numbered bool           // arguments are asked for by their numbers, so Passing must be right
	Params   []Param        // of args
	NoParams string         // why there are none
	Result   *types.Type    // of retval, where it is known
	Period   uint64         // of an interval or profile: nanoseconds
}

// Inside tells whether the probe is about a thread of the target: its program runs there, or is Interpreted.
func (p *Point) Inside() bool {
	switch p.Provider {
	case "uprobe", "uretprobe", "usdt", "kprobe", "kretprobe", "fentry", "fexit", "tracepoint", "rawtracepoint", "watchpoint", "asyncwatchpoint":
		return true
	}
	return p.Sample != nil
}

// Type is what probetype says.
func (p *Point) Type() string {
	switch p.Provider {
	case "begin", "end", "self":
		return "special"
	}
	return p.Provider
}

// Own tells whether the script itself is what it is about: nothing has happened elsewhere.
func (p *Point) Own() bool {
	return p.Type() == "special" || p.Provider == "test" || p.Provider == "bench"
}

// OfFile tells whether it is at a function of a file, which may have debug data.
func (p *Point) OfFile() bool { return p.Provider == "uprobe" || p.Provider == "uretprobe" }

// AtReturn tells whether it fires when a function returns.
func (p *Point) AtReturn() bool {
	return p.Provider == "uretprobe" || p.Provider == "kretprobe" || p.Provider == "fexit"
}

// Behind tells whether its program runs where a function returns: that of a kernel's system calls, too.
func (p *Point) Behind() bool {
	return p.AtReturn() || p.Syscall != nil && p.Syscall.Kernel && p.Syscall.Exit
}

// AtEntry tells whether it fires where functions begin.
func (p *Point) AtEntry() bool {
	return (p.Provider == "uprobe" || p.Provider == "kprobe" || p.Provider == "fentry") && p.Offset == 0 && !p.HasAddr
}

// Kind is the kind of its programs.
func (p *Point) Kind() bpf.Kind {
	switch {
	case !p.Inside():
		return bpf.Controller
	case p.Behind():
		return bpf.Kretprobe
	}
	return bpf.Kprobe
}

// OfKernel tells whether it is a probe on a kernel.
func (p *Point) OfKernel() bool {
	return slices.Contains([]string{"kprobe", "kretprobe", "fentry", "fexit", "tracepoint", "rawtracepoint", "iter"}, p.Provider)
}

// OfProcess tells whether it can be about a process alone.
func (p *Point) OfProcess() bool {
	return p.OfFile() || p.Provider == "usdt" || p.Watch != nil || p.Sample != nil && !p.Sample.Kernel
}

// OfKernelAlone tells whether it can be about a kernel alone: processes have system calls, too.
func (p *Point) OfKernelAlone() bool {
	return p.OfKernel() && p.Syscall == nil || p.Sample != nil && p.Sample.Kernel
}

// units of intervals.
var units = map[string]uint64{"s": 1e9, "ms": 1e6, "us": 1e3}

// HasGlob tells whether a name is a pattern.
func HasGlob(s string) bool { return strings.ContainsAny(s, "*?[") }

// Reader reads attach points.
type Reader struct {
	Params  []string                                              // $1, $2, ...
	Machine *machine.Machine                                      // the target's
	Kernel  bool                                                  // the target is a kernel
	Missing string                                                // what to do where there is no such probe: error, warn or ignore
	Program string                                                // the process's, whose functions need no path; "" for none
	Events  func() (*TraceEvents, error)                          // of the kernel; nil: none are known
	Statics func(target string) ([]Static, error)                 // nil: those of no file are looked for
	Lines   func(target, file string, line int) ([]uint64, error) // where in the target's file a line's code begins, virtually
	Inlined Inlined                                               // nil: none are known

	ProbeInline bool // probes are at inlined copies, too

	Errorf func(at syntax.Node, format string, a ...any)
	Warnf  func(at syntax.Node, format string, a ...any)

	parts     []syntax.Part   // of the one that is read
	more      []*Point        // beside the one that is read
	unmatched []func()        // patterns of the probe that is read: they say that they match nothing
	suite     map[string]bool // the tests and benches that were read
}

// Read gives the points that an attach point stands for: none where it was refused.
func (r *Reader) Read(at syntax.Point) []*Point {
	text, ok := r.positional(at)
	if !ok {
		return nil
	}
	r.parts = syntax.SplitParts(text)
	parts := syntax.SplitPoint(text)
	if !HasGlob(parts[0]) {
		return r.read(at, parts)
	}
	names := providers(parts, r.Program != "")
	if len(names) == 0 {
		r.Errorf(at, "No probe type matched for %s", parts[0])
		return nil
	}
	// Of a pattern of providers those count that can be read so.
	errorf, why := r.Errorf, ""
	defer func() { r.Errorf = errorf }()
	r.Errorf = func(_ syntax.Node, format string, a ...any) {
		if why == "" {
			why = fmt.Sprintf(format, a...)
		}
	}
	var all []*Point
	for _, name := range names {
		one := slices.Clone(parts)
		if one[0] = name; len(parts) == 1 {
			one = []string{name, parts[0]}
		}
		all = append(all, r.read(at, one)...)
	}
	if len(all) == 0 && why != "" {
		errorf(at, "%s", why)
	}
	return all
}

// providers are those that a pattern matches: a process's where the next part is a path, else a kernel's.
func providers(parts []string, process bool) (names []string) {
	all := []string{"fentry", "hardware", "interval", "iter", "kprobe", "profile", "rawtracepoint", "software", "tracepoint"}
	if process || len(parts) > 1 && strings.Contains(parts[1], "/") {
		all = []string{"uprobe", "usdt"}
	}
	for _, name := range all {
		if ok, _ := path.Match(parts[0], name); ok || len(parts) == 1 {
			names = append(names, name)
		}
	}
	return names
}

// read gives the points of an attach point that was cut into parts.
func (r *Reader) read(at syntax.Point, parts []string) []*Point {
	r.more = nil
	p := r.point(at, parts)
	if p == nil {
		return nil
	}
	return append(r.more, p)
}

// point reads an attach point.
func (r *Reader) point(at syntax.Point, parts []string) *Point {
	provider, ok := syntax.Providers[parts[0]]
	pt := &Point{Span: at.Span, Provider: provider}
	bad := func(format string, a ...any) *Point {
		r.Errorf(at, format, a...)
		return nil
	}
	switch {
	case parts[0] == "":
		return bad("No attach points for probe: it names no probe type")
	case !ok:
		return bad("Invalid probe type: %s", parts[0])
	}
	parts[0] = provider
	pt.Text = strings.Join(parts, ":")
	args := parts[1:]
	switch provider {
	case "begin", "end":
		if len(args) > 0 && !slices.Equal(args, []string{"*"}) {
			return bad("%s probe type requires 0 arguments, found %d", provider, len(args))
		}
		return pt
	case "self":
		if len(args) != 2 {
			return bad("self probe type requires 2 arguments, found %d", len(args))
		}
		if args[0] != "signal" {
			return bad("%s is not a supported trigger", args[0])
		}
		if args[1] != "SIGUSR1" {
			return bad("%s is not a supported signal", args[1])
		}
		return pt
	case "test", "bench":
		if len(args) != 1 {
			return bad("%s probe type requires 1 arguments, found %d", provider, len(args))
		}
		if args[0] == "" {
			return bad("%s probes must have a name", provider)
		}
		pt.Function = args[0]
		if r.suite == nil {
			r.suite = map[string]bool{}
		}
		if r.suite[pt.Text] {
			return bad("%q was used as the name for more than one %s probe", args[0], provider)
		}
		r.suite[pt.Text] = true
		return pt
	case "interval", "profile":
		return r.timer(at, pt, args)
	case "software", "hardware":
		return r.sampled(at, pt, args)
	case "uprobe", "uretprobe":
		if r.Program != "" && (len(args) == 1 || len(args) == 2 && args[0] == "cpp") {
			args = slices.Insert(args, 0, r.Program)
		}
		name := NameOf(r.parts[min(max(len(r.parts)-len(args)+1, 0), len(r.parts)):])
		if name.Source {
			args = slices.Delete(args, 1, 2)
		}
		switch {
		case len(args) < 2:
			return bad("%s probe type requires 2 or 3 arguments, found %d: %s:PATH:FUNCTION", provider, len(args), provider)
		case args[0] == "":
			return bad("%s should have a target", provider)
		case args[1] == "":
			return bad("%s should be attached to a function and/or address", provider)
		}
		if !name.Source && len(args) == 3 && args[2] != "" && !strings.Contains(args[0], "@") {
			return bad("unsupported language type: %s", args[1])
		}
		if p, ok := r.line(at, pt, args); ok {
			return p
		}
		pt.Target, pt.Virtual, pt.Source = args[0], true, name.Source
		return r.inlined(at, r.function(at, pt, name.Pattern))
	case "tracepoint":
		return r.tracepoint(at, pt, args)
	case "watchpoint", "asyncwatchpoint":
		return r.watchpoint(at, pt, args)
	case "usdt":
		return r.usdt(at, pt, args)
	case "kprobe", "kretprobe", "fentry", "fexit":
		switch len(args) {
		case 1:
		case 2:
			pt.Target = args[0]
		default:
			return bad("%s probe type requires 1 or 2 arguments, found %d", provider, len(args))
		}
		if args[len(args)-1] == "" {
			return bad("%s should be attached to a function", provider)
		}
		return r.function(at, pt, args[len(args)-1])
	case "rawtracepoint":
		return r.raw(at, pt, args)
	case "iter":
		return bad("iter: the lists that a kernel walks for BPF programs cannot be walked from outside yet")
	}
	return bad("%s probes are not supported yet", provider)
}

// line reads PATH@FILE:LINE, and PATH@FILE:LINE:COLUMN: probes where a line's code begins. It is false for all else.
func (r *Reader) line(at syntax.Point, pt *Point, args []string) (*Point, bool) {
	i := strings.LastIndexByte(args[0], '@')
	n, err := strconv.Atoi(args[1])
	if i < 1 || err != nil {
		return nil, false
	}
	file := args[0][i+1:]
	pt.Target, pt.HasAddr, pt.Virtual = args[0][:i], true, true
	switch {
	case pt.AtReturn():
		r.Errorf(at, "uretprobe: a line has no return: name the function")
		return nil, true
	case len(args) > 2:
		r.Errorf(at, "uprobe: columns are not told apart: %s:%s:%d is the line", pt.Target, file, n)
		return nil, true
	case r.Lines == nil:
		return pt, true
	}
	places, err := r.Lines(pt.Target, file, n)
	if err != nil || len(places) == 0 {
		r.Errorf(at, "%s: no code of line %d of %s is known: %v", pt.Target, n, file, err)
		return nil, true
	}
	for _, addr := range places[1:] {
		one := *pt
		one.Address = addr
		r.more = append(r.more, &one)
	}
	pt.Address = places[0]
	return pt, true
}

// function reads NAME, NAME+OFFSET or an address.
func (r *Reader) function(at syntax.Point, pt *Point, pattern string) *Point {
	if addr, err := strconv.ParseUint(pattern, 0, 64); err == nil {
		if HasGlob(pt.Target) {
			r.Errorf(at, "Cannot use wildcards with absolute address")
			return nil
		}
		pt.Address, pt.HasAddr = addr, true
		return pt
	}
	name, off, has := cutOffset(pattern)
	pt.pattern, pt.Function = name, symbol.Literal(name)
	if has {
		n, err := syntax.Number(off)
		if err != nil {
			r.Errorf(at, "Invalid offset: %v", err)
			return nil
		}
		if pt.AtReturn() {
			r.Errorf(at, "Offset not allowed: a function has one return, wherever it leaves")
			return nil
		}
		if pt.Many() {
			r.Errorf(at, "Offset not allowed: %s may be several functions", pt.Function)
			return nil
		}
		pt.Offset = n
	}
	return pt
}

// timer reads s:1, ms:10, hz:99, 1s.
func (r *Reader) timer(at syntax.Point, pt *Point, args []string) *Point {
	if len(args) != 1 && len(args) != 2 {
		r.Errorf(at, "%s probe type requires 1 or 2 arguments, found %d", pt.Provider, len(args))
		return nil
	}
	n, err := syntax.Number(args[len(args)-1])
	if err != nil {
		r.Errorf(at, "Invalid rate of %s probe: %v", pt.Provider, err)
		return nil
	}
	pt.Target = args[0]
	if len(args) == 1 {
		if n < 1000 {
			r.Errorf(at, "Invalid rate of %s probe. Minimum is 1000 or 1us. Found: %d nanoseconds", pt.Provider, n)
			return nil
		}
		pt.Target, n = "us", n/1000
	}
	scale, known := units[pt.Target]
	switch {
	case n == 0:
		r.Errorf(at, "%s frequency should be a positive integer", pt.Provider)
		return nil
	case pt.Target == "hz":
		pt.Period = 1e9 / min(n, 1e9)
	case known && n > 1<<63/scale:
		r.Errorf(at, "Invalid rate of %s probe: %d%s is longer than a timer can wait", pt.Provider, n, pt.Target)
		return nil
	case known:
		pt.Period = n * scale
	default:
		r.Errorf(at, "%s is not an accepted unit of time: those are s, ms, us and hz", pt.Target)
		return nil
	}
	if pt.Provider == "profile" && r.Kernel {
		pt.Sample = &Sample{Kernel: true, Period: pt.Period}
	} else if pt.Provider == "profile" && r.Program != "" {
		pt.Sample = &Sample{Period: pt.Period} // by the clock that runs while a thread does
	}
	return pt
}

// noProbes tells of an attach point that nothing stands for, and why, as the script has asked to be told.
func (r *Reader) noProbes(at syntax.Point, why string) {
	r.absent(at, func() {
		switch r.Missing {
		case "error":
			r.Errorf(at, "No probes found for %s: %s", at.Text, why)
		case "warn":
			r.Warnf(at, "No probes found for %s", at.Text)
		}
	})
}

// absent tells that there is nothing at an attach point: of a pattern when all of its probe have been read.
func (r *Reader) absent(at syntax.Point, tell func()) {
	if HasGlob(at.Text) {
		r.unmatched = append(r.unmatched, tell)
	} else {
		tell()
	}
}

// Done is for when all attach points of a probe have been read: a pattern that matches nothing does no harm where another was found.
func (r *Reader) Done(found bool) {
	if !found {
		for _, tell := range r.unmatched {
			tell()
		}
	}
	r.unmatched = nil
}

// positional puts parameters into an attach point's text, but for what is in quotes; those that are not given are empty.
func (r *Reader) positional(at syntax.Point) (string, bool) {
	var b strings.Builder
	text, quoted := at.Text, false
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '"':
			quoted = !quoted
		case c == '\\' && quoted && i+1 < len(text):
			b.WriteByte(c)
			i++
			c = text[i]
		case c == '$' && !quoted && i+1 < len(text):
			j := i + 1
			for j < len(text) && text[j] >= '0' && text[j] <= '9' {
				j++
			}
			n, err := strconv.ParseUint(text[i+1:j], 10, 64)
			switch {
			case j == i+1 || text[i+1] == '0':
				r.Errorf(at, "invalid trailing character for positional param: %c. Put it in quotes if it is meant so", text[i+1])
				return "", false
			case err != nil:
				r.Errorf(at, "positional parameter is not valid: %s", text[i:j])
				return "", false
			case n <= uint64(len(r.Params)):
				b.WriteString(r.Params[n-1])
			}
			i = j - 1
			continue
		}
		b.WriteByte(c)
	}
	return b.String(), true
}
