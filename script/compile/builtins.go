package compile

import (
	"strconv"

	"kprobe/script/syntax"
	"kprobe/script/types"
)

// comm is the type of a thread's name.
var comm = types.StringOf(16)

// builtins have the types of names that are values. What depends on the probe is in ident.
var builtins = map[string]*types.Type{
	"pid": types.Uint32, "tid": types.Uint32, "uid": types.Uint64, "gid": types.Uint64, "cpu": types.Uint64, "nsecs": types.Uint64,
	"elapsed": types.Uint64, "rand": types.Uint32, "comm": comm, "username": {Kind: types.User, Size: 8}, "ncpus": types.Uint64,
	"cpid": types.Uint64, "usermode": types.Uint8, "jiffies": types.Uint64,
	"ustack": {Kind: types.UStack, Size: 8}, "kstack": {Kind: types.KStack, Size: 8},
}

// argument tells whether the name is arg0 to arg9, or sarg0 to sarg9, and which.
func argument(name string) (n int, stack, ok bool) {
	if len(name) == 5 && name[0] == 's' {
		name, stack = name[1:], true
	}
	if len(name) != 4 || name[:3] != "arg" || name[3] < '0' || name[3] > '9' {
		return 0, false, false
	}
	return int(name[3] - '0'), stack, true
}

// everywhere tells whether a condition holds for all attach points.
func (c *checker) everywhere(holds func(*Point) bool) bool {
	for _, p := range c.at {
		if !holds(p) {
			return false
		}
	}
	return true
}

func (c *checker) ident(x *syntax.Ident) *types.Type {
	if _, ok := c.consts[x.Name]; ok {
		return types.Int64
	}
	if n, _, ok := argument(x.Name); ok {
		switch {
		case !c.everywhere((*Point).Inside) || !c.everywhere(func(p *Point) bool { return !p.AtReturn() }):
			c.errorf(x, "The %s builtin can only be used with 'kprobes', 'uprobes' and 'usdt' probes", x.Name)
		case n > 5:
			c.errorf(x, "x86_64 doesn't support %s", x.Name)
		}
		return types.Uint64
	}
	inside := func() bool { return c.everywhere((*Point).Inside) }
	switch x.Name {
	case "retval":
		if !c.everywhere((*Point).AtReturn) {
			c.errorf(x, "The retval builtin can only be used with 'kretprobe', 'uretprobe' and 'fexit' probes")
		}
		return types.Uint64
	case "func":
		if !inside() {
			c.errorf(x, "The func builtin can not be used with '%s' probes", c.at[0].Provider)
		}
		if c.everywhere((*Point).ofKernel) {
			return &types.Type{Kind: types.KSym, Size: 8}
		}
		return &types.Type{Kind: types.USym, Size: 8}
	case "probe":
		if name, ok := c.probeName(); ok {
			return types.StringOf(len(name) + 1)
		}
		return &types.Type{Kind: types.Probe, Size: 8}
	case "ustack", "kstack":
		if !inside() {
			c.errorf(x, "%s can not be used with '%s' probes", x.Name, c.at[0].Provider)
		}
	case "args", "curtask", "ctx", "cgroup":
		c.errorf(x, "The %s builtin is not supported yet", x.Name)
		return nil
	case "cpid":
		if c.opts.CPID == 0 {
			c.errorf(x, "The cpid builtin can only be used with -c")
		}
	}
	if t := builtins[x.Name]; t != nil {
		return t
	}
	if functions[x.Name] != nil && x.Name != "count" {
		return c.call(&syntax.Call{Span: x.Span, Name: x.Name})
	}
	c.errorf(x, "Unknown identifier: '%s'", x.Name)
	return nil
}

// probeName is the text of probe where there is only one that it can be.
func (c *checker) probeName() (string, bool) {
	if len(c.at) == 1 && !hasGlob(c.at[0].Text) {
		return c.at[0].Text, true
	}
	return "", false
}

func hasGlob(s string) bool {
	for i := range len(s) {
		switch s[i] {
		case '*', '?', '[':
			return true
		}
	}
	return false
}

// function is what there is to know of a function before its code is made.
type function struct {
	least, most int // arguments
	result      func(c *checker, x *syntax.Call) *types.Type
	action      bool // a statement alone
}

func is(t *types.Type) func(*checker, *syntax.Call) *types.Type {
	return func(*checker, *syntax.Call) *types.Type { return t }
}

// numbers holds that all arguments are numbers.
func numbers(t *types.Type) func(*checker, *syntax.Call) *types.Type {
	return func(c *checker, x *syntax.Call) *types.Type {
		for _, a := range x.Args {
			c.number(a, x.Name+"()")
		}
		return t
	}
}

func addressed(kind types.Kind) func(*checker, *syntax.Call) *types.Type {
	return func(c *checker, x *syntax.Call) *types.Type {
		if t := c.expr(x.Args[0]); t.Kind != types.None && !t.Scalar() {
			c.errorf(x, "%s() only supports integer or pointer arguments", x.Name)
		}
		return &types.Type{Kind: kind, Size: 8}
	}
}

var functions map[string]*function

func init() {
	gathers := func(kind types.Kind) func(*checker, *syntax.Call) *types.Type {
		return func(c *checker, x *syntax.Call) *types.Type {
			t := c.number(x.Args[0], x.Name+"()")
			size := 16
			if kind == types.Sum {
				size = 8
			}
			return &types.Type{Kind: kind, Size: size, Signed: t.Kind == types.Int && (t.Signed || t.Lit)}
		}
	}
	functions = map[string]*function{
		"count": {0, 0, is(&types.Type{Kind: types.Count, Size: 8}), false},
		"sum":   {1, 1, gathers(types.Sum), false},
		"avg":   {1, 1, gathers(types.Avg), false},
		"stats": {1, 1, gathers(types.Stats), false},
		"min":   {1, 1, gathers(types.Min), false},
		"max":   {1, 1, gathers(types.Max), false},
		"hist":  {1, 2, (*checker).hist, false},
		"lhist": {4, 4, (*checker).lhist, false},

		"printf": {1, 64, (*checker).printf, true},
		"errorf": {1, 64, (*checker).printf, true},
		"warnf":  {1, 64, (*checker).printf, true},
		"system": {1, 64, (*checker).printf, true},
		"cat":    {1, 64, (*checker).printf, true},
		"time":   {0, 1, (*checker).clock, true},
		"print":  {1, 3, (*checker).print, true},
		"clear":  {1, 1, (*checker).wholeMap, true},
		"zero":   {1, 1, (*checker).wholeMap, true},
		"exit":   {0, 1, numbers(types.VoidT), true},
		"delete": {1, 2, (*checker).deletes, false},

		"len":      {1, 1, (*checker).length, false},
		"getopt":   {2, 3, (*checker).getopt, false},
		"buf":      {1, 2, (*checker).buf, false},
		"ntop":     {1, 2, (*checker).ntop, false},
		"has_key":  {2, 2, (*checker).hasKey, false},
		"str":      {1, 2, (*checker).str, false},
		"strncmp":  {3, 3, (*checker).strncmp, false},
		"sizeof":   {1, 1, (*checker).sizeof, false},
		"usym":     {1, 1, addressed(types.USym), false},
		"ksym":     {1, 1, addressed(types.KSym), false},
		"strerror": {1, 1, addressed(types.Error), false},
		"strftime": {2, 2, (*checker).strftime, false},
		"reg":      {1, 1, (*checker).reg, false},
		"nsecs":    {0, 1, (*checker).nsecs, false},
		"ustack":   {0, 2, (*checker).stack, false},
		"kstack":   {0, 2, (*checker).stack, false},
		"pid":      {0, 1, is(types.Uint32), false},
		"tid":      {0, 1, is(types.Uint32), false},
		"override": {1, 1, (*checker).override, true},
		"bswap":    {1, 1, (*checker).bswap, false},

		"static_assert": {1, 2, func(c *checker, x *syntax.Call) *types.Type {
			if n, ok := c.constant(x.Args[0]); ok && n == 0 {
				text := ""
				if s, ok := x.Args[len(x.Args)-1].(*syntax.Str); ok {
					text = ": " + s.Value
				}
				c.errorf(x, "static assertion failed%s", text)
			}
			return types.VoidT
		}, true},
	}
}

func (c *checker) call(x *syntax.Call) *types.Type {
	f := functions[x.Name]
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
	return f.result(c, x)
}

func arguments(n int) string {
	switch n {
	case 0:
		return "no arguments"
	case 1:
		return "one argument"
	}
	return []string{"", "", "two", "three", "four"}[min(n, 4)] + " arguments"
}

func (c *checker) hist(x *syntax.Call) *types.Type {
	c.number(x.Args[0], "hist()")
	bits := uint64(0)
	if len(x.Args) == 2 {
		n, ok := c.constant(x.Args[1])
		if !ok || n > 5 {
			c.errorf(x, "hist: bits must be 0 .. 5")
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
		v, ok := c.constant(a)
		if !ok {
			c.errorf(a, "lhist() requires that min, max and step are literals")
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
	c.expr(x.Args[i])
	c.errorf(x.Args[i], "%s() expects a string literal", x.Name)
	return "", false
}

func (c *checker) printf(x *syntax.Call) *types.Type {
	if x.Name == "system" && !c.opts.Unsafe {
		c.errorf(x, "system() is an unsafe function being used in safe mode")
		c.hint("--unsafe allows it")
	}
	format, ok := c.literal(x, 0)
	if !ok {
		return types.VoidT
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
			t = aggregateValue(t)
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
		for _, a := range x.Args[1:] {
			if _, ok := c.constant(a); !ok {
				c.errorf(a, "print() expects the numbers of entries and the divisor to be literals")
			}
			c.expr(a)
		}
		return types.VoidT
	}
	t := c.expr(x.Args[0])
	if len(x.Args) > 1 {
		c.errorf(x, "Non-map print() only takes 1 argument, %d found", len(x.Args))
	}
	if _, isMap := x.Args[0].(*syntax.Map); t.Kind == types.Void || t.Aggregate() && !isMap {
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
	if len(x.Args) == 2 && m.Key == nil {
		m = &syntax.Map{Span: m.Span, Name: m.Name, Key: x.Args[1]}
		x.Args = []syntax.Expr{m}
	}
	return m
}

func (c *checker) deletes(x *syntax.Call) *types.Type {
	if m := c.keyed(x); m != nil {
		c.mapUse(m)
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

// length is len of a map.
func (c *checker) length(x *syntax.Call) *types.Type {
	m, ok := x.Args[0].(*syntax.Map)
	switch {
	case !ok || m.Key != nil:
		c.expr(x.Args[0])
		c.errorf(x.Args[0], "len() expects a map to be provided")
	case c.mapOf(m.Name, m).value.Kind == types.None:
		c.errorf(m, "Undefined map: %s", m.Name)
	case c.mapOf(m.Name, m).keyless:
		c.errorf(m, "call to len() expects a map with explicit keys (non-scalar map)")
	case c.inTarget():
		c.errorf(x, "len() is for begin, end and interval probes: those on functions cannot walk maps yet")
	}
	return types.Uint64
}

func (c *checker) str(x *syntax.Call) *types.Type {
	t := c.expr(x.Args[0])
	if t.Kind == types.String {
		return t
	}
	if t.Kind != types.None && !t.Number() {
		c.errorf(x.Args[0], "str() expects an integer or a pointer type as first argument (%s provided)", t)
	}
	size := c.set.MaxStrlen
	if len(x.Args) == 2 {
		c.number(x.Args[1], "str()")
		if n, ok := c.constant(x.Args[1]); ok {
			if int64(n) < 0 {
				c.errorf(x.Args[1], "str() cannot use negative length (%d)", int64(n))
			} else if n > uint64(size) {
				c.warnf(x.Args[1], "length param (%d) is too long and will be shortened to %d bytes (see BPFTRACE_MAX_STRLEN)", n, size)
			} else {
				size = max(int(n), 1)
			}
		}
	}
	return types.StringOf(size)
}

// getopt is an option of the command line, --name or --name=value: it is known before the
// script runs, and stands for a literal.
func (c *checker) getopt(x *syntax.Call) *types.Type {
	name, ok := c.literal(x, 0)
	if len(x.Args) == 3 {
		c.literal(x, 2)
	}
	t := c.expr(x.Args[1])
	if !ok || t.Kind == types.None {
		return nil
	}
	value, given := c.opts.Named[name]
	switch t.Kind {
	case types.Bool:
		if given && value != "" && value != "true" && value != "false" {
			c.errorf(x, "Invalid value for option --%s: it must be true or false", name)
		}
		return t
	case types.Int:
		if _, ok := parseNumber(value); given && !ok {
			c.errorf(x, "Invalid value for option --%s: it must be a number", name)
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

func parseNumber(text string) (uint64, bool) {
	if n, err := strconv.ParseInt(text, 0, 64); err == nil {
		return uint64(n), true
	}
	n, err := strconv.ParseUint(text, 0, 64)
	return n, err == nil
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
		return word(value != "false"), true
	}
	return parseNumber(value)
}

// buf is bytes of the target: its length comes first.
func (c *checker) buf(x *syntax.Call) *types.Type {
	t := c.expr(x.Args[0])
	size := c.set.MaxStrlen
	if len(x.Args) == 2 {
		c.number(x.Args[1], "buf()")
		if n, ok := c.constant(x.Args[1]); ok {
			if n > uint64(size) {
				c.warnf(x.Args[1], "length param (%d) is too long and will be shortened to %d bytes (see BPFTRACE_MAX_STRLEN)", n, size)
			} else {
				size = max(int(n), 1)
			}
		}
	} else if t.Kind == types.Array {
		size = t.Size
	} else if t.Kind != types.None {
		c.errorf(x, "buf() expects a length argument for non-array type %s", t)
	}
	return &types.Type{Kind: types.Buffer, Size: 8 + size}
}

// ntop is an address of the network: ntop([family,] address).
func (c *checker) ntop(x *syntax.Call) *types.Type {
	if len(x.Args) == 2 {
		c.number(x.Args[0], "ntop()")
	}
	t := c.expr(x.Args[len(x.Args)-1])
	switch {
	case t.Kind == types.None || t.Kind == types.Int:
	case (t.Kind == types.Array || t.Kind == types.String) && (t.Size == 4 || t.Size == 16):
	default:
		c.errorf(x, "ntop() expects an integer or array argument, got %s", t)
	}
	return &types.Type{Kind: types.Inet, Size: 24}
}

func (c *checker) strncmp(x *syntax.Call) *types.Type {
	for _, a := range x.Args[:2] {
		if t := c.expr(a); t.Kind != types.None && t.Kind != types.String {
			c.errorf(a, "strncmp() expects strings, not a value of type '%s'", t)
		}
	}
	c.expr(x.Args[2])
	if _, ok := c.constant(x.Args[2]); !ok {
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
	if !ok {
		return nil
	}
	return &types.Type{Kind: types.Time, Size: 8, Name: format}
}

func (c *checker) reg(x *syntax.Call) *types.Type {
	name, ok := c.literal(x, 0)
	if ok && register(name) < 0 {
		c.errorf(x, "'%s' is not a valid register on this architecture (x86_64)", name)
	}
	if !c.everywhere((*Point).Inside) {
		c.errorf(x, "reg can not be used with '%s' probes", c.at[0].Provider)
	}
	return types.Uint64
}

func (c *checker) nsecs(x *syntax.Call) *types.Type {
	if len(x.Args) == 1 {
		id, ok := x.Args[0].(*syntax.Ident)
		switch {
		case !ok:
			c.errorf(x.Args[0], "nsecs() expects a clock: monotonic or boot")
		case id.Name != "monotonic" && id.Name != "boot":
			c.errorf(id, "the clock %s is not supported: monotonic and boot are", id.Name)
		}
	}
	return types.Uint64
}

func (c *checker) stack(x *syntax.Call) *types.Type {
	if !c.everywhere((*Point).Inside) {
		c.errorf(x, "%s can not be used with '%s' probes", x.Name, c.at[0].Provider)
	}
	t := &types.Type{Kind: types.UStack, Size: 8, Name: c.set.StackMode}
	if x.Name == "kstack" {
		t.Kind = types.KStack
	}
	for _, a := range x.Args {
		if id, ok := a.(*syntax.Ident); ok {
			switch id.Name {
			case "bpftrace", "perf", "raw":
				t.Name = id.Name
				continue
			}
			c.errorf(a, "Invalid stack mode: %s", id.Name)
		} else if n, ok := c.constant(a); ok && n > 0 && n <= 127 {
			t.Len = int(n)
		} else {
			c.errorf(a, "%s() expects a mode and a number of frames from 1 to 127", x.Name)
		}
	}
	return t
}

func (c *checker) override(x *syntax.Call) *types.Type {
	c.number(x.Args[0], "override()")
	if !c.opts.Unsafe {
		c.errorf(x, "override() is an unsafe function being used in safe mode")
		c.hint("--unsafe allows it")
	}
	if !c.everywhere(func(p *Point) bool { return p.Provider == "kprobe" || p.Provider == "uprobe" }) {
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
