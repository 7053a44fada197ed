package compile

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"kprobe/bpf"
	"kprobe/script/syntax"
)

// Point is where a probe goes.
type Point struct {
	syntax.Span
	Text     string // as probe tells it
	Provider string // "uprobe"
	Target   string // the file of a uprobe, the unit of an interval
	Function string // may be a glob
	Offset   uint64
	Address  uint64 // with HasAddr, in place of a function
	HasAddr  bool
	Period   uint64 // of an interval or profile: nanoseconds
}

// providers by all their names.
var providers = map[string]string{
	"begin": "begin", "BEGIN": "begin", "end": "end", "END": "end", "self": "self", "test": "test", "bench": "bench",
	"uprobe": "uprobe", "u": "uprobe", "uretprobe": "uretprobe", "ur": "uretprobe", "usdt": "usdt", "U": "usdt",
	"kprobe": "kprobe", "k": "kprobe", "kretprobe": "kretprobe", "kr": "kretprobe",
	"fentry": "fentry", "f": "fentry", "kfunc": "fentry", "fexit": "fexit", "fr": "fexit", "kretfunc": "fexit",
	"tracepoint": "tracepoint", "t": "tracepoint", "rawtracepoint": "rawtracepoint", "rt": "rawtracepoint",
	"interval": "interval", "i": "interval", "profile": "profile", "p": "profile",
	"software": "software", "s": "software", "hardware": "hardware", "h": "hardware",
	"watchpoint": "watchpoint", "w": "watchpoint", "asyncwatchpoint": "asyncwatchpoint", "aw": "asyncwatchpoint",
	"iter": "iter", "it": "iter",
}

// Inside tells whether the probe's program runs in the target.
func (p *Point) Inside() bool {
	switch p.Provider {
	case "uprobe", "uretprobe", "kprobe", "kretprobe", "fentry", "fexit":
		return true
	}
	return false
}

// AtReturn tells whether it fires when a function returns.
func (p *Point) AtReturn() bool {
	return p.Provider == "uretprobe" || p.Provider == "kretprobe" || p.Provider == "fexit"
}

// kind is the kind of its programs.
func (p *Point) kind() bpf.Kind {
	switch {
	case !p.Inside():
		return bpf.Controller
	case p.AtReturn():
		return bpf.Kretprobe
	}
	return bpf.Kprobe
}

// ofKernel tells whether it is a probe on a kernel.
func (p *Point) ofKernel() bool {
	return slices.Contains([]string{"kprobe", "kretprobe", "fentry", "fexit", "tracepoint", "rawtracepoint", "iter"}, p.Provider)
}

// units of intervals.
var units = map[string]uint64{"s": 1e9, "ms": 1e6, "us": 1e3, "ns": 1}

// splitPoint cuts at colons that are not within quotes.
func splitPoint(text string) (parts []string) {
	from, quoted := 0, false
	for i := 0; i <= len(text); i++ {
		switch {
		case i == len(text) || text[i] == ':' && !quoted:
			parts = append(parts, strings.ReplaceAll(text[from:i], `"`, ""))
			from = i + 1
		case text[i] == '"':
			quoted = !quoted
		}
	}
	return parts
}

// point reads an attach point.
func (c *checker) point(at syntax.Point) *Point {
	text := c.positional(at)
	parts := splitPoint(text)
	provider, ok := providers[parts[0]]
	pt := &Point{Span: at.Span, Provider: provider}
	bad := func(format string, a ...any) *Point {
		c.errorf(at, format, a...)
		return nil
	}
	if !ok {
		return bad("Invalid probe type: %s", parts[0])
	}
	parts[0] = provider
	pt.Text = strings.Join(parts, ":")
	args := parts[1:]
	switch provider {
	case "begin", "end":
		if len(args) > 0 {
			return bad("%s probes should not have any arguments", strings.ToUpper(provider))
		}
		return pt
	case "interval", "profile":
		return c.timer(at, pt, args)
	case "uprobe", "uretprobe":
		if len(args) == 3 && args[1] == "cpp" {
			args = slices.Delete(args, 1, 2)
		}
		if len(args) < 2 || args[0] == "" || args[1] == "" {
			return bad("%s probe type requires a path and a function or address: %s:PATH:FUNCTION", provider, provider)
		}
		pt.Target = args[0]
		return c.function(at, pt, strings.Join(args[1:], ":"))
	case "kprobe", "kretprobe", "fentry", "fexit":
		switch len(args) {
		case 1:
		case 2:
			pt.Target = args[0]
		default:
			return bad("%s probe type requires 1 or 2 arguments, found %d", provider, len(args))
		}
		return c.function(at, pt, args[len(args)-1])
	}
	return bad("%s probes are not supported yet", provider)
}

// function reads NAME, NAME+OFFSET or an address.
func (c *checker) function(at syntax.Point, pt *Point, text string) *Point {
	if addr, err := strconv.ParseUint(text, 0, 64); err == nil {
		pt.Address, pt.HasAddr = addr, true
		return pt
	}
	name, off, has := strings.Cut(text, "+")
	pt.Function = name
	if has {
		n, err := strconv.ParseUint(off, 0, 64)
		if err != nil {
			c.errorf(at, "Invalid offset: %s", off)
			return nil
		}
		if pt.AtReturn() {
			c.errorf(at, "Offset not allowed: a function has one return, wherever it leaves")
			return nil
		}
		pt.Offset = n
	}
	return pt
}

// timer reads s:1, ms:10, hz:99, 1s.
func (c *checker) timer(at syntax.Point, pt *Point, args []string) *Point {
	var n uint64
	var err error
	switch len(args) {
	case 1:
		unit := strings.TrimLeft(args[0], "0123456789")
		n, err = strconv.ParseUint(strings.TrimSuffix(args[0], unit), 10, 63)
		if unit == "" && pt.Provider == "profile" {
			unit = "hz"
		}
		pt.Target = unit
	case 2:
		pt.Target = args[0]
		n, err = strconv.ParseUint(args[1], 0, 63)
	default:
		c.errorf(at, "%s probe must have 1 or 2 arguments", pt.Provider)
		return nil
	}
	scale, known := units[pt.Target]
	switch {
	case err != nil:
		c.errorf(at, "%s probe: invalid number in %q", pt.Provider, strings.Join(args, ":"))
		return nil
	case n == 0:
		c.errorf(at, "%s frequency should be a positive integer", pt.Provider)
		return nil
	case pt.Target == "hz":
		pt.Period = 1e9 / min(n, 1e9)
	case known && n <= 1<<63/scale:
		pt.Period = n * scale
	default:
		c.errorf(at, "%s is not an accepted unit. Valid units: s, ms, us, ns, hz", pt.Target)
		return nil
	}
	return pt
}

// positional puts parameters into an attach point's text.
func (c *checker) positional(at syntax.Point) string {
	var b strings.Builder
	text := at.Text
	for i := 0; i < len(text); i++ {
		j := i + 1
		for j < len(text) && text[j] >= '0' && text[j] <= '9' {
			j++
		}
		if text[i] != '$' || j == i+1 {
			b.WriteByte(text[i])
			continue
		}
		n, _ := strconv.Atoi(text[i+1 : j])
		if n < 1 || n > len(c.opts.Params) {
			c.errorf(at, "param $%d is not given", n)
		} else {
			b.WriteString(c.opts.Params[n-1])
		}
		i = j - 1
	}
	return b.String()
}

func (p *Point) String() string {
	if p.Period > 0 {
		return fmt.Sprintf("%s every %d ns", p.Provider, p.Period)
	}
	return p.Text
}
