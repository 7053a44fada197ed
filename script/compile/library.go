package compile

import (
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"kprobe/bpf"
	"kprobe/script/plan"
	"kprobe/script/point"
	"kprobe/script/syntax"
	"kprobe/script/types"
)

// What the library knows beyond the functions that every script uses: addresses of the
// network, groups, signals, questions about types.

// notHere refuses what has no meaning on our targets, with the reason.
func notHere(why string) func(*checker, *syntax.Call) *types.Type {
	return func(c *checker, x *syntax.Call) *types.Type {
		c.errorf(x, "%s() can not be used here: %s", x.Name, why)
		return nil
	}
}

// known tells a number that is known and not negative, and says what is wrong otherwise.
func (c *checker) natural(x *syntax.Call, a syntax.Expr, what string) (uint64, bool) {
	c.expr(a)
	n, ok := c.constant(a)
	switch {
	case !ok:
		c.errorf(x, "%s() expects a int literal (%s provided)", x.Name, c.types[a].Family())
	case int64(n) < 0:
		c.errorf(x, "%s: invalid %s value (must be non-negative literal)", x.Name, what)
		return 0, false
	}
	return n, ok
}

// tseries is tseries(n, interval_ns, num_intervals[, how]).
func (c *checker) tseries(x *syntax.Call) *types.Type {
	c.stable(x, "unstable_tseries")
	t := c.number(x.Args[0], "tseries()")
	step, ok1 := c.natural(x, x.Args[1], "interval_ns")
	n, ok2 := c.natural(x, x.Args[2], "num_intervals")
	if !ok1 || !ok2 {
		return nil
	}
	how := ""
	if len(x.Args) == 4 {
		s, ok := c.literal(x, 3)
		if !ok {
			return nil
		}
		switch how = s; how {
		case "avg", "max", "min", "sum":
		default:
			c.errorf(x, "tseries() expects one of the following aggregation functions: avg, max, min, sum (\"%s\" provided)", how)
			return nil
		}
	}
	switch {
	case step < 1:
		c.errorf(x, "tseries() interval_ns must be >= 1 (%d provided)", step)
	case n < 1:
		c.errorf(x, "tseries() num_intervals must be >= 1 (%d provided)", n)
	case n > 1000000:
		c.errorf(x, "tseries() num_intervals must be < 1000000 (%d provided)", n)
	default:
		series := types.NewTSeries(int(n), int64(step), how, t.Kind != types.Int || t.Signed)
		if series.Size <= bpf.MaxValue {
			return series
		}
		c.errorf(x, "tseries() of %d intervals takes %d bytes for each key: a map has room for %d", n, series.Size, bpf.MaxValue)
	}
	return nil
}

// join prints the strings that an array of pointers in the target points to.
func (c *checker) join(x *syntax.Call) *types.Type {
	if t := c.expr(x.Args[0]); t.Kind != types.None && t.Kind != types.Int && t.Kind != types.Pointer {
		c.errorf(x, "join() only supports int or pointer arguments (%s provided)", t.Family())
	}
	if len(x.Args) == 2 {
		c.literal(x, 1)
	}
	if !c.everywhere(func(p *point.Point) bool { return p.Inside() && p.Provider != "software" && p.Provider != "hardware" }) {
		c.errorf(x, "join can not be used with '%s' probes: there is no target to read", c.at[0].Provider)
	}
	return types.VoidT
}

func (c *checker) unwatch(x *syntax.Call) *types.Type {
	if t := c.expr(x.Args[0]); t.Kind != types.None && t.Kind != types.Int && t.Kind != types.Pointer && !c.counts(x.Args[0], t) {
		c.errorf(x, "unwatch() only supports int or pointer arguments (%s provided)", t.Family())
	}
	return types.VoidT
}

// fail refuses the script where it is not cut off by comptime.
func (c *checker) fail(x *syntax.Call) *types.Type {
	format, ok := c.literal(x, 0)
	if !ok {
		return types.VoidT
	}
	var b strings.Builder
	args := x.Args[1:]
	for _, s := range types.SplitFormat(format) {
		if s.Verb == nil {
			b.WriteString(s.Text)
			continue
		}
		if len(args) == 0 {
			break
		}
		c.expr(args[0])
		if str, ok := args[0].(*syntax.Str); ok {
			b.WriteString(str.Value)
		} else if n, ok := c.constant(args[0]); ok {
			b.WriteString(s.Verb.Number(n))
		}
		args = args[1:]
	}
	c.errorf(x, "%s", b.String())
	return types.VoidT
}

// assert ends the script with a message where its condition does not hold.
func (c *checker) assert(x *syntax.Call) *types.Type {
	c.cond(x.Args[0])
	if len(x.Args) == 2 {
		c.literal(x, 1)
	}
	return types.VoidT
}

// lastSignal is the greatest number a signal has.
const lastSignal = 64

// unsafe refuses a function that does something to the target or this machine, unless that is allowed.
func (c *checker) unsafe(x *syntax.Call) (allowed bool) {
	if !c.opts.Unsafe {
		c.errorf(x, "%s() is an unsafe function being used in safe mode", x.Name)
		c.hint("--unsafe allows it")
	}
	return c.opts.Unsafe
}

func (c *checker) signal(x *syntax.Call) *types.Type {
	c.unsafe(x)
	if !c.everywhere((*point.Point).Inside) {
		c.errorf(x, "%s can not be used with '%s' probes", x.Name, c.at[0].Provider)
		return types.VoidT
	}
	t := c.expr(x.Args[0])
	if text, ok := c.stringLiteral(x.Args[0]); ok {
		if signalNumber(text) == 0 {
			c.errorf(x, "%s is not a valid signal", text)
		}
		return types.VoidT
	}
	n, known := c.constant(x.Args[0])
	switch {
	case t.Kind != types.None && t.Kind != types.Int && !c.counts(x.Args[0], t):
		c.errorf(x, "%s() only supports int or string literal arguments (%s provided)", x.Name, t.Family())
	case known && (n < 1 || n > lastSignal):
		c.errorf(x, "%d is not a valid signal, allowed range: [1,%d]", int64(n), lastSignal)
	}
	return types.VoidT
}

// signalNumber is the number of a signal's name, with SIG or without; 0 for none.
func signalNumber(name string) uint64 {
	return uint64(unix.SignalNum("SIG" + strings.TrimPrefix(name, "SIG")))
}

// stringLiteral is the text of what is a string before the script runs: "x", { "x" },
// str($1).
func (c *checker) stringLiteral(x syntax.Expr) (string, bool) {
	switch x := x.(type) {
	case *syntax.Str:
		return x.Value, true
	case *syntax.Block:
		if len(x.Stmts) == 0 && x.Value != nil {
			return c.stringLiteral(x.Value)
		}
	case *syntax.Comptime:
		return c.stringLiteral(x.X)
	case *syntax.Ident:
		if x.Name == "probetype" && len(c.at) > 0 && c.fnAt == nil && c.everywhere(func(p *point.Point) bool { return p.Type() == c.at[0].Type() }) {
			return c.at[0].Type(), true
		}
	case *syntax.Positional:
		if x.N > 0 && x.N <= len(c.opts.Params) {
			return c.opts.Params[x.N-1], true
		}
	case *syntax.Call:
		if x.Name == "str" && len(x.Args) > 0 {
			return c.cut(x)
		}
	case *syntax.Field:
		if elem := element(x); elem != nil {
			return c.stringLiteral(elem)
		}
		if call, ok := x.X.(*syntax.Call); ok && call.Name == "typeinfo" && len(call.Args) == 1 {
			return types.Told(c.types[call.Args[0]], x.Name)
		}
	}
	return "", false
}

// cut is the text that str() makes of a parameter: its NUL counts.
func (c *checker) cut(x *syntax.Call) (string, bool) {
	text, ok := c.paramText(x.Args[0])
	room := uint64(c.set.MaxStrlen)
	if len(x.Args) > 1 {
		n, known := c.constant(x.Args[1])
		room, ok = min(room, max(n, 1)), ok && known
	}
	if uint64(len(text)) >= room {
		text = text[:room-1]
	}
	return text, ok
}

// paramText is the text of $1, or of a part: $1 + 2 is what stands behind its first 2 bytes.
func (c *checker) paramText(x syntax.Expr) (string, bool) {
	switch x := x.(type) {
	case *syntax.Positional:
		switch {
		case x.N == 0:
			return "", false
		case x.N > len(c.opts.Params):
			return "", true
		}
		return c.opts.Params[x.N-1], true
	case *syntax.Binary:
		if x.Op != "+" {
			return "", false
		}
		text, ok := c.paramText(x.X)
		by, known := c.constant(x.Y)
		if !ok {
			text, ok = c.paramText(x.Y)
			by, known = c.constant(x.X)
		}
		if ok && known {
			return text[min(by, uint64(len(text))):], true
		}
	}
	return "", false
}

// macaddr is six bytes of the target.
func (c *checker) macaddr(x *syntax.Call) *types.Type {
	t := c.expr(x.Args[0])
	_, literal := x.Args[0].(*syntax.Str)
	switch {
	case t.Kind == types.None || t.Kind == types.Int || t.Kind == types.Pointer:
	case (t.Kind == types.Array || t.Kind == types.String) && c.stored[x.Args[0]].Size == 6 && !literal:
	case t.Kind == types.Array || t.Kind == types.String:
		c.errorf(x, "macaddr() argument must be 6 bytes in size")
	default:
		c.errorf(x, "macaddr() only supports array or pointer arguments (%s provided)", t.Family())
	}
	return &types.Type{Kind: types.Mac, Size: 8}
}

// pton is an address of the network in bytes.
func (c *checker) pton(x *syntax.Call) *types.Type {
	text, ok := c.literal(x, 0)
	if !ok {
		return nil
	}
	addr, err := netip.ParseAddr(text)
	if err != nil || addr.Zone() != "" {
		c.errorf(x, "pton() expects an string argument of an IPv4/IPv6 address, got %s", text)
		return nil
	}
	return types.ArrayOf(types.Uint8, len(addr.AsSlice()))
}

func (c *checker) cgroupID(x *syntax.Call) *types.Type {
	c.hosts(x)
	c.literal(x, 0)
	return types.Uint64
}

// hosts refuses what is known of the kernel that kprobe runs on, where the target is another.
func (c *checker) hosts(x *syntax.Call) {
	if c.opts.Kernel {
		c.errorf(x, "%s() can not be used on a kernel yet: its control groups are not known", x.Name)
	}
}

func (c *checker) cgroupPath(x *syntax.Call) *types.Type {
	c.hosts(x)
	t := c.expr(x.Args[0])
	if t.Kind != types.None && t.Kind != types.Int {
		c.errorf(x, "cgroup_path() only supports int arguments (%s provided)", t.Family())
	}
	if len(x.Args) == 2 {
		c.literal(x, 1)
	}
	return &types.Type{Kind: types.CgroupPath, Size: 8}
}

func (c *checker) kaddr(x *syntax.Call) *types.Type {
	name, ok := c.literal(x, 0)
	if ok && c.opts.KernelSymbol != nil && c.final {
		if _, err := c.opts.KernelSymbol(name); err != nil {
			c.errorf(x, "Failed to resolve kernel symbol: %s%v", name, err)
		}
	}
	return types.Uint64
}

// percpuKaddr is a variable that each processor of a kernel has of its own.
func (c *checker) percpuKaddr(x *syntax.Call) *types.Type {
	if !c.opts.Kernel {
		c.errorf(x, "percpu_kaddr(): the variables of each processor are known of a kernel that is the target (-k)")
	}
	c.kaddr(x)
	if len(x.Args) == 2 {
		c.number(x.Args[1], "percpu_kaddr()")
	}
	return types.PointerTo(types.Uint64)
}

// writeUser is write_user(TO, VALUE): it writes as many bytes as TO points to, or VALUE has.
func (c *checker) writeUser(x *syntax.Call) *types.Type {
	to, value := c.expr(x.Args[0]), c.expr(x.Args[1])
	_, literal := x.Args[1].(*syntax.Str)
	switch {
	case !c.unsafe(x):
	case c.opts.Kernel || !c.everywhere((*point.Point).Inside) || len(c.at) > 0 && c.at[0].Interpreted():
		c.errorf(x, "write_user() writes the memory of a process, at a probe on it")
	case to.Kind != types.None && to.Kind != types.Int && to.Kind != types.Pointer:
		c.errorf(x, "write_user() expects an address (%s provided)", to.Family())
	case value.Kind == types.String && !literal:
		c.errorf(x, "write_user(): how much of a text is to be written is known of a literal alone")
	case value.Kind != types.None && value.Aggregate():
		c.errorf(x, "write_user() cannot write a %s", value.Family())
	}
	return types.Int64
}

func (c *checker) uaddr(x *syntax.Call) *types.Type {
	name, ok := c.literal(x, 0)
	if !c.everywhere(func(p *point.Point) bool { return strings.HasPrefix(p.Provider, "u") }) {
		c.errorf(x, "uaddr can not be used with '%s' probes", c.at[0].Provider)
		return nil
	} else if ok && strings.ContainsAny(name, "?*[] \t") {
		c.errorf(x, "uaddr() expects a symbol's name, not %q", name)
		return nil
	}
	if !ok || len(c.at) == 0 {
		return types.PointerTo(types.Uint64)
	}
	v := c.variableOf(x, c.at[0].Target, name)
	for _, pt := range c.at {
		if pt.Target != c.at[0].Target {
			c.errorf(x, "uaddr: the attach points are in different files")
		}
	}
	return v
}

// variableOf is the type of a file's variable's address: bytes and words as its size says. The plan remembers it.
func (c *checker) variableOf(x *syntax.Call, target, name string) *types.Type {
	if c.opts.Variable == nil {
		return types.PointerTo(types.Uint64)
	}
	addr, size, err := c.opts.Variable(target, name)
	if err != nil {
		c.errorf(x, "Could not resolve symbol: %s:%s: %v", target, name, err)
		return nil
	}
	v := plan.Variable{Target: target, Name: name, Addr: addr}
	if !slices.Contains(c.variables, v) {
		c.variables = append(c.variables, v)
	}
	c.addressOf[x] = slices.Index(c.variables, v)
	if size == 1 || size == 2 || size == 4 {
		return types.PointerTo(types.IntOf(int(size), true))
	}
	return types.PointerTo(types.Int64)
}

// space is kptr and uptr: memory is read where it is, whichever is said.
func (c *checker) space(x *syntax.Call) *types.Type {
	t := c.expr(x.Args[0])
	if t.Kind != types.None && t.Kind != types.Int && t.Kind != types.Pointer {
		c.errorf(x, "%s() only supports int or pointer arguments (%s provided)", x.Name, t.Family())
	}
	return t
}

// offsetof(struct foo, a.b).
func (c *checker) offsetof(x *syntax.Call) *types.Type {
	if t := c.sizeArg(x.Args[0]); t != nil && t.Kind != types.None {
		c.memberOffset(x, t, x.Args[1])
	}
	return types.Uint64
}

// memberOffset is where a member lies; what it is is the second result.
func (c *checker) memberOffset(x *syntax.Call, t *types.Type, path syntax.Expr) (uint64, *types.Type) {
	name, off := "", uint64(0)
	switch p := path.(type) {
	case *syntax.Ident:
		name = p.Name
	case *syntax.Field:
		off, t = c.memberOffset(x, t, p.X)
		name = p.Name
	}
	if t == nil {
		return 0, nil
	}
	if c.complete(t); t.Kind != types.Record || t.Name == "" {
		c.errorf(x, "'%s' is not a c_struct type.", t)
		return 0, nil
	}
	i := t.Field(name)
	if i < 0 {
		c.errorf(x, "'%s' has no field named '%s'", t, name)
		return 0, nil
	}
	return off + uint64(t.Fields[i].Offset), t.Fields[i].Type
}

// findKey is find(@m, key, $v): has_key that puts the value into a variable.
func (c *checker) findKey(x *syntax.Call) *types.Type {
	m, ok := x.Args[0].(*syntax.Map)
	v, okV := x.Args[2].(*syntax.Var)
	if !ok || m.Key != nil || !okV {
		c.errorf(x, "find() expects a map, a key and a variable")
		return types.BoolT
	}
	c.mapUse(&syntax.Map{Span: m.Span, Name: m.Name, Key: x.Args[1]})
	if info := c.find(v.Name); info != nil {
		info.given = true
	}
	c.expr(v)
	if info := c.uses[v]; info != nil && c.maps[m.Name].value.Kind != types.None {
		c.assignVar(x, info, types.ValueOf(c.maps[m.Name].value), v)
	}
	return types.BoolT
}

// question is one about a type: it is answered before the script runs.
func (c *checker) question(x *syntax.Call) *types.Type {
	if m, ok := x.Args[0].(*syntax.Map); ok && m.Key == nil {
		c.mapOf(m.Name, m)
	} else {
		c.sizeArg(x.Args[0])
	}
	return types.BoolT
}

// isErr asks whether a pointer of the kernel's is an error number.
func (c *checker) isErr(x *syntax.Call) *types.Type {
	c.number(x.Args[0], "is_err()")
	return types.BoolT
}

// answer is what question is answered.
func (c *checker) answer(x *syntax.Call) (uint64, bool) {
	if len(x.Args) != 1 {
		return 0, false
	}
	if x.Name == "is_literal" {
		_, str := c.stringLiteral(x.Args[0])
		_, num := c.literalNumber(x.Args[0])
		return types.Word(str || num), true
	}
	m, isMap := x.Args[0].(*syntax.Map)
	if x.Name == "is_scalar" {
		if !isMap || c.maps[m.Name] == nil {
			return 0, false
		}
		return types.Word(!c.maps[m.Name].keyed), c.maps[m.Name].keyed || c.maps[m.Name].keyless
	}
	t := c.types[x.Args[0]]
	if t == nil || t.Kind == types.None {
		return 0, false
	}
	switch x.Name {
	case "is_integer":
		return types.Word(t.Kind == types.Int), true
	case "is_unsigned_integer":
		return types.Word(t.Kind == types.Int && !t.Signed), true
	case "is_str":
		return types.Word(t.Kind == types.String), true
	case "is_ptr":
		return types.Word(t.Kind == types.Pointer), true
	case "is_array":
		return types.Word(t.Kind == types.Array), true
	}
	return 0, false
}

// typeinfo is a record of a type's names and number.
func (c *checker) typeinfo(x *syntax.Call) *types.Type {
	c.stable(x, "unstable_typeinfo")
	t := c.sizeArg(x.Args[0])
	if t == nil || t.Kind == types.None {
		if c.final {
			c.errorf(x.Args[0], "Could not resolve the type of this variable")
		}
		return nil
	}
	c.types[x.Args[0]] = t
	return types.TupleOf([]string{"base_type", "full_type", "btf_id"}, types.StringOf(len(t.Family())+1), types.StringOf(len(t.String())+1), types.Int64)
}

// text holds that an argument is a string.
func (c *checker) text(x *syntax.Call, i int) *types.Type {
	t := c.expr(x.Args[i])
	if (t.Kind == types.Pointer || t.Kind == types.Array) && t.Elem != nil && t.Elem.Kind == types.Int && t.Elem.Size == 1 { // of characters
		x.Args[i] = &syntax.Call{Span: x.Args[i].At(), Name: "str", Args: []syntax.Expr{x.Args[i]}}
		t = c.expr(x.Args[i])
	}
	if t.Kind != types.None && t.Kind != types.String {
		c.errorf(x, "%s() only supports string arguments (%s provided)", x.Name, t.Family())
	}
	return t
}

// memcmp compares so many first bytes of two values.
func (c *checker) memcmp(x *syntax.Call) *types.Type {
	n, ok := c.natural(x, x.Args[2], "count")
	for _, a := range x.Args[:2] {
		if t := c.expr(a); ok && t.Kind != types.None && n > uint64(t.Slot()) {
			c.errorf(a, "memcmp() cannot compare %d bytes of a value that has %d", n, t.Size)
		}
	}
	return types.Int32
}

// defaultLength is how long a string of the target may be.
func (c *checker) defaultLength(*syntax.Call) *types.Type {
	return types.LiteralOf(uint64(c.set.MaxStrlen), false)
}

// assertText holds that an expression is text.
func (c *checker) assertText(x *syntax.Call) *types.Type {
	c.text(x, 0)
	return types.VoidT
}

// kernelFunction is a question about the kernel's functions for programs: none of them can be called here.
func (c *checker) kernelFunction(x *syntax.Call) *types.Type {
	c.literal(x, 0)
	return types.BoolT
}

func (c *checker) strlen(x *syntax.Call) *types.Type {
	c.text(x, 0)
	return types.Uint64
}

func (c *checker) strcontains(x *syntax.Call) *types.Type {
	c.text(x, 0)
	c.text(x, 1)
	if x.Name == "strstr" {
		return types.Int64
	}
	return types.BoolT
}
