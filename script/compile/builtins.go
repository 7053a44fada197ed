package compile

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"kprobe/script/plan"
	"kprobe/script/point"
	"kprobe/script/settings"
	"kprobe/script/syntax"
	"kprobe/script/types"
)

// ofProbes are the builtins that mean nothing in a function of the script's: where it is called from is another thing each time.
var ofProbes = []string{"args", "ctx", "func", "retval"}

// outside refuses what has a meaning at a probe alone.
func (c *checker) outside(at syntax.Node, name string) bool {
	if len(c.at) == 0 {
		c.errorf(at, "Builtin %s not supported outside probe", name)
	}
	return len(c.at) == 0
}

// everywhere tells whether a condition holds for all attach points.
func (c *checker) everywhere(holds func(*point.Point) bool) bool {
	for _, p := range c.at {
		if !holds(p) {
			return false
		}
	}
	return true
}

func (c *checker) ident(x *syntax.Ident) *types.Type {
	c.constantOf(x.Name)
	if t := c.Enums[x.Name]; t != nil {
		return t
	}
	if n, ok := c.Consts[x.Name]; ok {
		return types.LiteralOf(n, int64(n) < 0)
	}
	n, stack, isArg := point.Argument(x.Name)
	if (isArg || slices.Contains(ofProbes, x.Name)) && c.outside(x, x.Name) {
		return nil
	}
	if i := slices.IndexFunc(c.at, func(p *point.Point) bool { return p.Inlined }); isArg && i >= 0 {
		c.errorf(x, "The %s builtin can not be used where %s is inlined: its parameters lie wherever the compiler has them", x.Name, c.at[i].Function)
		return types.Uint64
	}
	if isArg {
		switch {
		case !c.everywhere((*point.Point).Inside) || c.at[0].Syscall != nil || c.at[0].Watch != nil || c.at[0].Event != nil && !c.at[0].Raw:
			c.errorf(x, "The %s builtin can only be used with 'kprobes', 'uprobes' and 'usdt' probes", x.Name)
		case n >= len(c.machine.Args)-c.at[0].First() && !stack && !c.everywhere(func(p *point.Point) bool { return p.Provider == "usdt" }):
			c.errorf(x, "%s doesn't support %s", c.machine.Name, x.Name)
		}
		return types.Uint64
	}
	switch v := values[x.Name]; {
	case v == nil:
	case v.check != nil:
		return v.check(c, x)
	default:
		return v.typ
	}
	if functions[x.Name] != nil && x.Name != "count" {
		return c.call(&syntax.Call{Span: x.Span, Name: x.Name})
	}
	c.errorf(x, "Unknown identifier: '%s'", x.Name)
	return nil
}

func (c *checker) retval(x *syntax.Ident) *types.Type {
	if !c.everywhere((*point.Point).AtReturn) {
		c.errorf(x, "The retval builtin can only be used with 'kretprobe', 'uretprobe' and 'fexit' probes")
	}
	return c.result()
}

func (c *checker) function(x *syntax.Ident) *types.Type {
	if !c.everywhere((*point.Point).Inside) || c.at[0].Syscall != nil {
		c.errorf(x, "The func builtin can not be used with '%s' probes", c.at[0].Provider)
	}
	if c.everywhere((*point.Point).OfKernel) {
		return &types.Type{Kind: types.KSym, Size: 8}
	}
	return &types.Type{Kind: types.USym, Size: 8}
}

func (c *checker) probe(*syntax.Ident) *types.Type {
	if name, ok := c.probeName(); ok {
		return types.StringOf(len(name) + 1)
	}
	return &types.Type{Kind: types.Probe, Size: 8}
}

func (c *checker) probeType(*syntax.Ident) *types.Type {
	size := len("rawtracepoint") // in a function of the script's, whatever probe calls it
	for _, p := range c.at {
		size = max(size, len(p.Type()))
	}
	return types.StringOf(size + 1)
}

func (c *checker) wholeStack(x *syntax.Ident) *types.Type {
	return c.stack(&syntax.Call{Span: x.Span, Name: x.Name})
}

func (c *checker) numaid(x *syntax.Ident) *types.Type {
	if n, err := os.ReadFile("/sys/devices/system/node/online"); c.opts.Kernel || err == nil && strings.TrimSpace(string(n)) != "0" {
		c.errorf(x, "numaid can not be used here: the node of a processor is not known")
	}
	return types.Uint32
}

func (c *checker) ncpus(x *syntax.Ident) *types.Type {
	if c.cpus() == 0 {
		c.errorf(x, "ncpus can not be used here: how many processors the kernel has is not known")
	}
	return types.Uint64
}

func (c *checker) cgroup(x *syntax.Ident) *types.Type {
	if c.opts.Kernel {
		c.errorf(x, "cgroup can not be used on a kernel yet")
	}
	return types.Uint64
}

func (c *checker) cpid(x *syntax.Ident) *types.Type {
	if c.opts.CPID == 0 {
		c.warnf(x, "There is no child process: cpid is 0 without -c")
	}
	return types.Uint64
}

func (c *checker) ctxHere(x *syntax.Ident) *types.Type {
	if i := slices.IndexFunc(c.at, (*point.Point).Own); i >= 0 {
		c.errorf(x, "The ctx builtin can not be used with '%s' probes", c.at[i].Provider)
	}
	return c.ctx()
}

func (c *checker) curtask(x *syntax.Ident) *types.Type {
	if len(c.at) > 0 && !c.everywhere(func(p *point.Point) bool { return p.Inside() && (c.opts.Kernel || p.OfKernelAlone()) }) {
		c.errorf(x, "curtask can not be used here: it is a kernel's task, at a probe on a kernel")
		return nil
	}
	if t := c.known("struct task_struct"); t != nil {
		return types.PointerTo(t)
	}
	return types.Uint64
}

// cpus are the target's processors; 0 where that is not known.
func (c *checker) cpus() uint64 {
	if !c.opts.Kernel {
		return settings.CPUs()
	}
	if c.opts.CPUs == nil {
		return 0
	}
	n, err := c.opts.CPUs()
	if err != nil {
		return 0
	}
	return uint64(n)
}

// result is the type of retval: that of the function where all points agree on one, and it is a scalar.
func (c *checker) result() *types.Type {
	var t *types.Type
	for _, p := range c.at {
		if p.Result == nil || !p.Result.Scalar() || t != nil && !types.Same(t, p.Result) {
			return types.Uint64
		}
		t = p.Result
	}
	if t == nil {
		return types.Uint64
	}
	return t
}

// probeName is the text of probe where there is only one that it can be.
func (c *checker) probeName() (string, bool) {
	if len(c.at) == 1 && !point.HasGlob(c.at[0].Text) && !c.at[0].Many() {
		return c.at[0].Text, true
	}
	return "", false
}

func is(t *types.Type) func(*checker, *syntax.Call) *types.Type {
	return func(*checker, *syntax.Call) *types.Type { return t }
}

func addressed(kind types.Kind) func(*checker, *syntax.Call) *types.Type {
	return func(c *checker, x *syntax.Call) *types.Type {
		if t := c.expr(x.Args[0]); t.Kind != types.None && !t.Scalar() {
			c.errorf(x, "%s() only supports integer or pointer arguments", x.Name)
		}
		return &types.Type{Kind: kind, Size: 8}
	}
}

// worded is a number that is shown as a name: what says of what table.
func worded(what string) func(*checker, *syntax.Call) *types.Type {
	return func(c *checker, x *syntax.Call) *types.Type {
		c.number(x.Args[0], x.Name+"()")
		return &types.Type{Kind: types.Error, Size: 8, Name: what}
	}
}

func gathers(kind types.Kind) func(*checker, *syntax.Call) *types.Type {
	return func(c *checker, x *syntax.Call) *types.Type {
		t := c.number(x.Args[0], x.Name+"()")
		size := 16
		if kind == types.Sum {
			size = 8
		}
		return &types.Type{Kind: kind, Size: size, Signed: t.Kind != types.Int || t.Signed}
	}
}

func (c *checker) staticAssert(x *syntax.Call) *types.Type {
	c.expr(x.Args[0])
	n, ok := c.constant(x.Args[0])
	if !ok && !c.first {
		c.errorf(x.Args[0], "Unable to resolve comptime expression: static_assert is about what is known before the script runs")
	}
	if ok && n == 0 {
		text := ""
		if s, ok := x.Args[len(x.Args)-1].(*syntax.Str); ok {
			text = ": " + s.Value
		}
		c.errorf(x, "static assertion failed%s", text)
	}
	return types.VoidT
}

func (c *checker) call(x *syntax.Call) *types.Type {
	f := functions[x.Name]
	if direct := c.direct == x; f != nil && f.gathers && !direct {
		c.errorf(x, "%s() must be assigned directly to a map", x.Name)
		return nil
	}
	c.direct = nil
	if info := c.fns[x.Name]; info != nil {
		return c.fnCall(x, info)
	}
	if f == nil {
		c.errorf(x, "Unknown function: '%s'", x.Name)
		for _, a := range x.Args {
			c.expr(a)
		}
		return nil
	}
	switch n := len(x.Args); {
	case n < f.least && f.least == f.most, n > f.most && f.least == f.most:
		c.errorf(x, "%s() requires %s (%d provided)", x.Name, arguments(f.least), n)
		return nil
	case n < f.least:
		c.errorf(x, "%s() requires at least %s (%d provided)", x.Name, arguments(f.least), n)
		return nil
	case n > f.most:
		c.errorf(x, "%s() takes up to %s (%d provided)", x.Name, arguments(f.most), n)
		return nil
	}
	return f.check(c, x)
}

func arguments(n int) string {
	if n < 2 {
		return []string{"no arguments", "one argument"}[n]
	}
	return strconv.Itoa(n) + " arguments"
}

func (c *checker) exit(x *syntax.Call) *types.Type {
	if len(x.Args) == 1 {
		if t := c.expr(x.Args[0]); t.Kind != types.None && !t.Number() && !c.counts(x.Args[0], t) {
			c.errorf(x, "exit() only supports int arguments (%s provided)", t.Family())
		}
	}
	return types.VoidT
}

// pidOf is pid(init) or pid(curr_ns): the two are one, where nothing is asked of the kernel.
func (c *checker) pidOf(x *syntax.Call) *types.Type {
	if len(x.Args) == 1 {
		if id, ok := x.Args[0].(*syntax.Ident); !ok {
			c.errorf(x, "%s() only supports curr_ns and init as the argument (%s provided)", x.Name, c.expr(x.Args[0]).Family())
		} else if id.Name != "curr_ns" && id.Name != "init" {
			c.errorf(id, "Invalid PID namespace mode: %s (expects: curr_ns or init)", id.Name)
		}
	}
	return types.Uint32
}

func (c *checker) hist(x *syntax.Call) *types.Type {
	c.number(x.Args[0], "hist()")
	bits := uint64(0)
	if len(x.Args) == 2 {
		n, ok := c.constant(x.Args[1])
		if !ok || n > 5 {
			if ok {
				c.errorf(x, "hist: bits %d must be 0..5", int64(n))
			} else {
				c.errorf(x, "hist() expects a int literal (%s provided)", c.expr(x.Args[1]).Family())
			}
			return nil
		}
		bits = n
	}
	return types.NewHist(int(bits))
}

func (c *checker) lhist(x *syntax.Call) *types.Type {
	c.number(x.Args[0], "lhist()")
	var n [3]int64
	for i, a := range x.Args[1:] {
		c.expr(a)
		v, ok := c.natural(x, a, []string{"min", "max", "step"}[i])
		if !ok {
			return nil
		}
		n[i] = int64(v)
	}
	switch {
	case n[2] <= 0:
		c.errorf(x, "lhist() step must be >= 1 (%d provided)", n[2])
	case n[0] > n[1]:
		c.errorf(x, "lhist() min must be less than max (provided min %d and max %d)", n[0], n[1])
	case n[1]-n[0] < n[2]:
		c.errorf(x, "lhist() step is too large for the given range (provided step %d for range %d)", n[2], n[1]-n[0])
	case (n[1]-n[0])/n[2] > 1000:
		c.errorf(x, "lhist() too many buckets, must be <= 1000 (would need %d)", (n[1]-n[0])/n[2])
	default:
		return types.NewLHist(n[0], n[1], n[2])
	}
	return nil
}

// literal holds that an argument is a string in quotes.
func (c *checker) literal(x *syntax.Call, i int) (string, bool) {
	if s, ok := x.Args[i].(*syntax.Str); ok {
		return s.Value, true
	}
	t := c.expr(x.Args[i])
	if text, ok := c.stringLiteral(x.Args[i]); ok && t.Kind == types.String {
		x.Args[i] = &syntax.Str{Span: x.Args[i].At(), Value: text}
		return text, true
	}
	c.errorf(x, "%s() expects a string literal (%s provided)", x.Name, t.Family())
	return "", false
}

func (c *checker) printf(x *syntax.Call) *types.Type {
	if x.Name == "debugf" {
		c.warnf(x, "The debugf() builtin is not recommended for production use.")
	}
	if x.Name == "system" {
		c.unsafe(x)
	}
	format, ok := c.literal(x, 0)
	if !ok {
		return types.VoidT
	}
	if strings.Contains(format, "%gr") {
		c.errorf(x, "%s: %%gr, flags of the kernel's allocator by their names, is not there yet: %%x shows the number", x.Name)
		return nil
	}
	wants := types.Verbs(format)
	if got := len(x.Args) - 1; len(wants) != got {
		word := "enough"
		if got > len(wants) {
			word = "many"
		}
		if word == "enough" {
			c.errorf(x, "%s: Not enough arguments for format string (%d supplied, %d expected)", x.Name, got, len(wants))
		} else {
			c.errorf(x, "%s: Too many arguments for format string (%d supplied, %d expected)", x.Name, got, len(wants))
		}
	}
	for i, a := range x.Args[1:] {
		t := c.expr(a)
		if t.Kind == types.None {
			continue
		}
		if c.counts(a, t) {
			t = types.ValueOf(t)
		}
		if i < len(wants) && !wants[i].Takes(t) {
			c.errorf(a, "%s: %s specifier expects a value of type %s (%s supplied)", x.Name, wants[i].Text, wants[i].Expects(), t)
		}
	}
	return types.VoidT
}

func (c *checker) clock(x *syntax.Call) *types.Type {
	if len(x.Args) == 1 {
		c.literal(x, 0)
	}
	return types.VoidT
}

func (c *checker) print(x *syntax.Call) *types.Type {
	if m, ok := x.Args[0].(*syntax.Map); ok && m.Key == nil {
		info := c.mapOf(m.Name, m)
		if info.value.Kind == types.None {
			c.errorf(m, "Undefined map: %s", m.Name)
		}
		if c.loops > 0 {
			c.warnf(x, "Using 'print()' in a loop can lead to unexpected behavior: the map will likely have changed before it is printed.")
		}
		if info.value.Kind == types.Stats && len(x.Args) > 1 {
			c.warnf(x, "print()'s top and div arguments are ignored when used on stats() maps.")
		}
		for _, a := range x.Args[1:] {
			if n, ok := c.constant(a); !ok || int64(n) < 0 {
				c.errorf(a, "print() expects the number of entries and the divisor to be literals that are not negative")
			}
			c.expr(a)
		}
		return types.VoidT
	}
	t := c.expr(x.Args[0])
	if len(x.Args) > 1 {
		c.errorf(x, "Non-map print() only takes 1 argument, %d found", len(x.Args))
	}
	if _, isMap := x.Args[0].(*syntax.Map); isMap && types.Lined(t) {
		c.errorf(x, "Map type %s cannot print the value of individual keys. You must print the whole map.", t)
	} else if t.Kind == types.Void || t.Aggregate() && !isMap {
		c.errorf(x.Args[0], "%s type passed to print() is not printable", t)
	}
	return types.VoidT
}

// wholeMap is clear and zero.
func (c *checker) wholeMap(x *syntax.Call) *types.Type {
	m, ok := x.Args[0].(*syntax.Map)
	if !ok || m.Key != nil {
		c.expr(x.Args[0])
		c.errorf(x, "%s() expects a map to be provided", x.Name)
		return types.VoidT
	}
	if c.mapOf(m.Name, m).value.Kind == types.None {
		c.errorf(m, "Undefined map: %s", m.Name)
	}
	return types.VoidT
}

// keyed makes delete(@m, key) and delete(@m[key]) one.
func (c *checker) keyed(x *syntax.Call) *syntax.Map {
	m, ok := x.Args[0].(*syntax.Map)
	if !ok {
		c.errorf(x.Args[0], "%s() expects a map argument", x.Name)
		return nil
	}
	if len(x.Args) == 2 {
		if m.Key != nil {
			c.errorf(m, "%s() expects a map with no keys for the first argument", x.Name)
			return nil
		}
		m = &syntax.Map{Span: m.Span, Name: m.Name, Key: x.Args[1]}
		x.Args = []syntax.Expr{m}
	}
	return m
}

func (c *checker) deletes(x *syntax.Call) *types.Type {
	if m := c.keyed(x); m != nil {
		if info := c.mapOf(m.Name, m); m.Key != nil && info.keyless && !info.keyed {
			c.errorf(x, "call to delete() with two arguments expects a map with explicit keys (non-scalar map)")
			return types.BoolT
		}
		c.mapUse(m).walked = true // shared, so that one thread deletes all of it
		c.types[m] = types.NoType
	}
	return types.BoolT
}

func (c *checker) hasKey(x *syntax.Call) *types.Type {
	m, ok := x.Args[0].(*syntax.Map)
	if !ok || m.Key != nil {
		c.errorf(x.Args[0], "has_key() expects a map argument")
		return types.BoolT
	}
	c.mapUse(&syntax.Map{Span: m.Span, Name: m.Name, Key: x.Args[1]})
	return types.BoolT
}

// length is len of a map or a stack.
func (c *checker) length(x *syntax.Call) *types.Type {
	m, ok := x.Args[0].(*syntax.Map)
	switch {
	case !ok || m.Key != nil:
		if t := c.expr(x.Args[0]); t.Kind != types.None && !t.Kind.Stack() {
			c.errorf(x.Args[0], "len() expects a map or stack to be provided")
		}
	case c.mapOf(m.Name, m).value.Kind == types.None:
		c.errorf(m, "Undefined map: %s", m.Name)
	case c.mapOf(m.Name, m).keyless:
		c.errorf(m, "call to len() expects a map with explicit keys (non-scalar map)")
	}
	return types.Uint64
}

// str is a string of at most max_strlen bytes, or of as many as a second argument says: its NUL is one of them.
func (c *checker) str(x *syntax.Call) *types.Type {
	var t *types.Type
	if text, ok := c.paramText(x.Args[0]); ok {
		c.provided(x.Args[0])
		t = types.StringOf(len(text) + 1)
	} else {
		t = c.expr(x.Args[0])
	}
	own := t.Kind == types.String || t.Kind == types.Array
	if t.Kind != types.None && t.Kind != types.Int && t.Kind != types.Pointer && t.Kind != types.String && !(t.Kind == types.Array && t.Elem.Size == 1) {
		c.errorf(x.Args[0], "str() expects an integer or a pointer type as first argument (%s provided)", t.Family())
	}
	room := &types.Type{Kind: types.String, Size: c.set.MaxStrlen, Filled: true}
	if len(x.Args) == 2 {
		c.number(x.Args[1], "str()")
		switch n, ok := c.constant(x.Args[1]); {
		case !ok && own:
			c.errorf(x.Args[1], "str() of a string that is there already takes no length but one that is known before the script runs")
		case !ok:
		case int64(n) < 0:
			c.errorf(x.Args[1], "str() cannot use negative length (%d)", int64(n))
		case n > uint64(room.Size):
			if !own {
				c.warnf(x.Args[1], "length param (%d) is too long and will be shortened to %d bytes (see BPFTRACE_MAX_STRLEN)", n, room.Size)
			}
		default:
			room = types.StringOf(max(int(n), 1))
		}
	}
	if t.Kind == types.String && t.Size <= room.Size {
		return t
	}
	return room
}

// provided warns of parameters that were not given.
func (c *checker) provided(x syntax.Expr) {
	if p, ok := x.(*syntax.Positional); ok && p.N > len(c.opts.Params) {
		c.warnf(p, "Positional parameter $%d is empty or not provided.", p.N)
	}
}

// getopt is an option of the command line, --name or --name=value: it is known before the
// script runs, and stands for a literal.
func (c *checker) getopt(x *syntax.Call) *types.Type {
	name, ok := c.literal(x, 0)
	help := ""
	if len(x.Args) == 3 {
		help, _ = c.literal(x, 2)
	}
	if len(x.Args) == 1 {
		x.Args = append(x.Args, &syntax.Bool{Span: x.Span})
	}
	t := c.expr(x.Args[1])
	if !ok || t.Kind == types.None {
		return nil
	}
	c.asked[name] = plan.Option{Default: syntax.Written(x.Args[1]), Help: help}
	if text, isText := c.stringLiteral(x.Args[1]); c.final {
		n, _ := c.constant(x.Args[1])
		own := fmt.Sprint(t.Kind, text, isText, n)
		if there, known := c.defaults[name]; known && there != own {
			c.errorf(x.Args[1], "Command line option '%s' needs to have the same default value in all places it is used", name)
		}
		c.defaults[name] = own
	}
	value, given := c.opts.Named[name]
	switch t.Kind {
	case types.Bool:
		if _, ok := settings.Truth(value); given && !ok {
			c.errorf(x, "Invalid value for option --%s: it must be true or false", name)
		}
		return t
	case types.Int:
		n, ok := settings.Number(value)
		if given && !ok {
			c.errorf(x, "Invalid value for option --%s: it must be a number", name)
		}
		if given && int64(n) < 0 && value[0] != '-' || !given && c.unsigned(x.Args[1]) { // no number with a sign
			return types.Uint64
		}
		return types.Int64
	case types.String:
		if given {
			return types.StringOf(len(value) + 1)
		}
		return t
	}
	c.errorf(x.Args[1], "Invalid default of an option: it must be a number, a string or a boolean")
	return nil
}

// option is the value of a getopt that is a number or a boolean.
func (c *checker) option(x *syntax.Call) (uint64, bool) {
	name, ok := x.Args[0].(*syntax.Str)
	if !ok || len(x.Args) < 2 {
		return 0, false
	}
	value, given := c.opts.Named[name.Value]
	if _, text := x.Args[1].(*syntax.Str); text {
		return 0, false
	}
	if !given {
		return c.constant(x.Args[1])
	}
	if _, flag := x.Args[1].(*syntax.Bool); flag {
		n, _ := settings.Truth(value)
		return types.Word(n), true
	}
	return settings.Number(value)
}

// buf is bytes of the target: its length comes first.
func (c *checker) buf(x *syntax.Call) *types.Type {
	t := c.expr(x.Args[0])
	size := c.set.MaxStrlen
	if len(x.Args) == 2 {
		c.number(x.Args[1], "buf()")
		if n, ok := c.constant(x.Args[1]); ok {
			if int64(n) < 0 {
				c.errorf(x.Args[1], "buf() cannot use negative length (%d)", int64(n))
			} else if n > uint64(size) {
				c.warnf(x.Args[1], "length param (%d) is too long and will be shortened to %d bytes (see BPFTRACE_MAX_STRLEN)", n, size)
			} else {
				size = max(int(n), 1)
			}
		}
	} else if t.Kind == types.Array {
		size = t.Size
	} else if t.Kind != types.None {
		c.errorf(x, "buf() expects a length argument for non-array type %s", t.Family())
	}
	if t.Kind != types.None && t.Kind != types.Int && t.Kind != types.Pointer && t.Kind != types.String && t.Kind != types.Array {
		c.errorf(x.Args[0], "buf() expects an integer, a pointer, a string or an array (%s provided)", t.Family())
	}
	return &types.Type{Kind: types.Buffer, Size: 8 + size}
}

// ntop is an address of the network: ntop([family,] address).
func (c *checker) ntop(x *syntax.Call) *types.Type {
	if len(x.Args) == 2 {
		c.number(x.Args[0], "ntop()")
	}
	last := x.Args[len(x.Args)-1]
	t := c.expr(last)
	switch {
	case t.Kind == types.None || t.Kind == types.Int:
	case syntax.IsText(last):
		c.errorf(x, "ntop() expects an integer or array argument, got %s", t.Family())
	case (t.Kind == types.Array || t.Kind == types.String) && (c.stored[last].Size == 4 || c.stored[last].Size == 16):
	default:
		c.errorf(x, "ntop() expects an integer or array argument, got %s", t)
	}
	return &types.Type{Kind: types.Inet, Size: 24}
}

func (c *checker) strncmp(x *syntax.Call) *types.Type {
	c.text(x, 0)
	c.text(x, 1)
	c.expr(x.Args[2])
	if n, ok := c.constant(x.Args[2]); !ok || int64(n) < 0 {
		c.errorf(x.Args[2], "Builtin strncmp requires a non-negative literal")
	}
	return types.Uint64
}

func (c *checker) sizeof(x *syntax.Call) *types.Type {
	c.sizeArg(x.Args[0])
	return types.Uint64
}

func (c *checker) strftime(x *syntax.Call) *types.Type {
	format, ok := c.literal(x, 0)
	c.number(x.Args[1], "strftime()")
	if ns, isCall := x.Args[1].(*syntax.Call); isCall && ns.Name == "nsecs" && len(ns.Args) == 1 {
		if id, isID := ns.Args[0].(*syntax.Ident); isID && id.Name == "monotonic" {
			c.errorf(x, "strftime() can not take a monotonic timestamp")
		}
	}
	if !ok {
		return nil
	}
	return &types.Type{Kind: types.Time, Size: 8, Name: format}
}

func (c *checker) reg(x *syntax.Call) *types.Type {
	name, ok := c.literal(x, 0)
	if ok && c.machine.Register(name) < 0 {
		c.errorf(x, "'%s' is not a valid register on this architecture (%s)", name, c.machine.Name)
	}
	if !c.everywhere((*point.Point).Inside) {
		c.errorf(x, "reg can not be used with '%s' probes", c.at[0].Provider)
	}
	return types.Uint64
}

func (c *checker) nsecs(x *syntax.Call) *types.Type {
	if len(x.Args) == 1 {
		id, ok := x.Args[0].(*syntax.Ident)
		switch {
		case !ok:
			c.errorf(x.Args[0], "Invalid timestamp mode: a clock is wanted: monotonic, boot, tai or sw_tai")
		case id.Name != "monotonic" && id.Name != "boot" && id.Name != "tai" && id.Name != "sw_tai":
			c.errorf(id, "Invalid timestamp mode: %s", id.Name)
		}
	}
	return types.Uint64
}

func (c *checker) stack(x *syntax.Call) *types.Type {
	t := &types.Type{Kind: types.UStack, Size: 8, Name: c.set.StackMode}
	if x.Name == "kstack" {
		t.Kind = types.KStack
	} else if c.opts.Kernel {
		c.errorf(x, "ustack can not be used on a kernel yet: the stacks of the programs that it runs are not walked")
	}
	for i, a := range x.Args {
		if id, ok := a.(*syntax.Ident); ok && i == 0 && c.Consts[id.Name] == 0 {
			switch id.Name {
			case "bpftrace", "perf", "raw", "build_id":
				t.Name = id.Name
				continue
			}
			c.errorf(a, "Invalid stack mode: %s", id.Name)
		} else if n, ok := c.constant(a); ok && n > 0 && n <= 1024 && i == len(x.Args)-1 {
			c.expr(a)
			t.Len = int(n)
		} else {
			c.expr(a)
			c.errorf(x, "%s() expects a mode and a number of frames from 1 to 1024", x.Name)
		}
	}
	return t
}

func (c *checker) override(x *syntax.Call) *types.Type {
	c.number(x.Args[0], "override()")
	c.unsafe(x)
	if !c.everywhere(func(p *point.Point) bool { return p.Provider == "kprobe" || p.Provider == "uprobe" }) {
		c.errorf(x, "override can not be used with '%s' probes", c.at[0].Provider)
	}
	return types.VoidT
}

func (c *checker) bswap(x *syntax.Call) *types.Type {
	t := c.number(x.Args[0], "bswap()")
	if t.Kind != types.Int {
		return types.Uint64
	}
	return &types.Type{Kind: types.Int, Size: t.Size}
}
