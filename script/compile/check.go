package compile

import (
	"fmt"
	"slices"
	"strings"

	"kprobe/script/cdecl"
	"kprobe/script/imports"
	"kprobe/script/machine"
	"kprobe/script/macro"
	"kprobe/script/plan"
	"kprobe/script/point"
	"kprobe/script/settings"
	"kprobe/script/syntax"
	"kprobe/script/types"
)

// variable is one $x of one scope.
type variable struct {
	name string
	typ  *types.Type
	set  bool        // let gave it its type
	let  syntax.Node // that declared it

	given bool // a value, in what this pass has seen so far
}

// mapInfo is what is known of one @x.
type mapInfo struct {
	name       string
	key, value *types.Type
	keyed      bool
	keyless    bool
	first      syntax.Node
	declared   syntax.Node // let @m = ...
	used       syntax.Node // where it is used first
	kind       string      // that let declared, "" for none
	size       int
	walked     bool // its value is read by programs: threads share it
	index      int  // among the plan's specs
	plan       *plan.Map
}

// checker finds types. It goes over the script again and again until nothing changes;
// the last time it tells what is wrong.
type checker struct {
	*cdecl.Declared // in C

	opts    Options
	machine *machine.Machine
	src     *syntax.Source
	set     settings.Settings
	errs    syntax.Errors
	told    map[syntax.Span]bool

	final   bool // errors count
	changed bool

	first  bool         // of the passes
	direct *syntax.Call // is assigned to a map: it may gather

	fns     map[string]*fnInfo
	fnOrder []string
	fnAt    *fnInfo // whose body is looked at

	points   map[*syntax.Probe][]*point.Point
	types    map[syntax.Expr]*types.Type
	stored   map[syntax.Expr]*types.Type // as values lie in memory, see types.Value
	vars     map[syntax.Node]*variable   // by the node that declares
	uses     map[*syntax.Var]*variable
	maps     map[string]*mapInfo
	asked    map[string]plan.Option          // those that getopt names
	defaults map[string]string               // of these options
	parts    map[*syntax.Index]*syntax.Field // of tuples: [1] is .1

	scopes []map[string]*variable
	at     []*point.Point // of the probe that is looked at
	locked []**types.Type // that conditions ask about, which are decided before the script runs
	loops  int
	meta   int // within sizeof, typeof and the like, which are not run

	taken     []*variable          // whose addresses are taken
	variables []plan.Variable      // of files, that uaddr names
	addressOf map[*syntax.Call]int // among them

	ofKernel bool // it has no probes on a program: the types that it names may be the kernel's
}

// maxPasses is how often types may change. Each pass makes one wider, and there are few
// widths.
const maxPasses = 100

func (c *checker) errorf(at syntax.Node, format string, a ...any) {
	if !c.final || c.told[at.At()] {
		return
	}
	c.told[at.At()] = true
	c.errs = append(c.errs, &syntax.Error{Span: at.At(), Msg: fmt.Sprintf(format, a...), Source: c.src})
}

func (c *checker) warnf(at syntax.Node, format string, a ...any) {
	if c.final && !c.told[at.At()] {
		c.told[at.At()] = true
		c.errs = append(c.errs, &syntax.Error{Span: at.At(), Warning: true, Msg: fmt.Sprintf(format, a...), Source: c.src})
	}
}

// hint adds what would help to the last error.
func (c *checker) hint(format string, a ...any) {
	if c.final && len(c.errs) > 0 {
		c.errs[len(c.errs)-1].Hint = fmt.Sprintf(format, a...)
	}
}

// file checks everything.
func (c *checker) file(f *syntax.File) {
	c.final = true
	(&imports.Reader{Source: c.src, Find: c.opts.Import, Errorf: c.errorf, Failed: func(es syntax.Errors) { c.errs = append(c.errs, es...) }}).Add(f)
	c.set = c.settings(f)
	c.Open(c.src.Name, c.opts.Header)
	for _, name := range c.opts.Headers {
		c.Include(name)
	}
	c.ofKernel = c.opts.Types != nil && !slices.ContainsFunc(f.Items, func(it syntax.Item) bool {
		p, ok := it.(*syntax.Probe)
		return ok && slices.ContainsFunc(p.Points, func(at syntax.Point) bool {
			name, _, _ := strings.Cut(at.Text, ":")
			return slices.Contains([]string{"uprobe", "uretprobe", "usdt", "watchpoint", "asyncwatchpoint"}, syntax.Providers[name])
		})
	})
	c.Note(f.C)
	for _, d := range f.C {
		c.Read(d, declaring{c})
	}
	for more := true; more; { // what is defined by what is defined behind it
		n := len(c.Consts) + len(c.Texts)
		for _, d := range f.C {
			c.Define(d, declaring{c})
		}
		more = len(c.Consts)+len(c.Texts) > n
	}
	macro.Expand(f, macro.Tell{Errorf: c.errorf, Hint: c.hint}, macro.Library{Takes: takes, Named: func(x syntax.Expr) syntax.Expr {
		if member, ok := x.(*syntax.Field); ok {
			return c.configured(member)
		}
		if id, ok := x.(*syntax.Ident); ok {
			if text, ok := c.Texts[id.Name]; ok {
				return &syntax.Str{Span: x.At(), Value: text}
			}
		}
		if id, ok := x.(*syntax.Ident); ok && macro.Plain(id.Name) == "dw_ustack" {
			c.stable(x, "unstable_dw_ustack")
		} else if call, ok := x.(*syntax.Call); ok && macro.Plain(call.Name) == "dw_ustack" {
			c.stable(x, "unstable_dw_ustack")
		}
		return named(x)
	}})
	macro.Texts(f, c.warnf)
	macro.Gathering(f, func(name string) bool { return functions[name] != nil && functions[name].gathers })
	var probes []*syntax.Probe
	places := point.Reader{Params: c.opts.Params, Machine: c.machine, Kernel: c.opts.Kernel, Missing: c.set.MissingProbes, Program: c.opts.Program, Events: c.opts.Events, Statics: c.opts.Statics, Lines: c.opts.Lines, Inlined: c.opts.Inlined, ProbeInline: c.set.ProbeInline, Errorf: c.errorf, Warnf: c.warnf}
	for _, it := range f.Items {
		switch it := it.(type) {
		case *syntax.Probe:
			probes = append(probes, it)
			for _, at := range it.Points {
				for _, p := range places.Read(at) {
					all := []*point.Point{p}
					switch asked := syntax.Names(it, "args"); {
					case asked && p.Syscall != nil:
						all = p.Each()
					case asked || p.Provider == "fexit" && syntax.Names(it, "retval"):
						all = p.Signatures(c.opts.Debug, c.opts.Types)
					}
					for _, p := range all {
						p.Params = c.resolve(p.Params)
					}
					c.points[it] = append(c.points[it], all...)
				}
			}
			places.Done(len(c.points[it]) > 0)
		case *syntax.MapDecl:
			c.mapDecl(it)
		case *syntax.Fn:
			c.fn(it)
		}
	}
	if len(c.errs.Fatal()) > 0 {
		return
	}
	if len(probes) == 0 {
		c.errorf(syntax.Span{From: 0, To: 1}, "No probes to attach")
		return
	}
	for pass := 0; ; pass++ {
		c.changed = false
		c.first = pass == 0
		c.final = pass == maxPasses || c.final && pass > 0
		c.pass(probes)
		if c.final && pass > 0 {
			return
		}
		c.final = !c.changed
	}
}

func (c *checker) pass(probes []*syntax.Probe) {
	if !c.final {
		clear(c.types)
	}
	for _, p := range probes {
		c.at = c.points[p]
		c.scopes = nil
		c.open()
		if p.Pred != nil {
			c.cond(p.Pred)
		}
		c.block(p.Body)
		c.shut()
	}
	for _, f := range c.fnOrder {
		c.fnBody(c.fns[f])
	}
	for _, m := range c.maps {
		switch {
		case !c.final || m.first == nil && m.declared == nil:
		case m.value.Kind == types.None && m.first != nil:
			c.errorf(m.first, "Undefined map: %s", m.name)
		case m.value.Kind == types.None:
			c.warnf(m.declared, "Unused map: %s", m.name)
		case m.declared != nil && m.kind != "":
			c.suits(m)
		}
	}
}

func (c *checker) mapDecl(d *syntax.MapDecl) {
	c.stable(d, "unstable_map_decl")
	m := c.mapOf(d.Name, d)
	switch d.Kind {
	case "hash", "lruhash", "percpuhash", "percpulruhash", "percpuarray":
	default:
		c.errorf(d, "Invalid bpf map type: %s", d.Kind)
		c.hint("Valid map types: percpulruhash, percpuarray, percpuhash, lruhash, hash")
	}
	n, ok := c.constant(d.Size)
	if d.Kind == "percpuarray" && ok && n != 1 {
		c.errorf(d, "Max entries can only be 1 for map type percpuarray")
	}
	if !ok || n < 1 || n > 1<<24 {
		c.errorf(d.Size, "the number of a map's elements must be known, and from 1 to %d", 1<<24)
	}
	m.kind, m.size, m.first, m.declared = d.Kind, int(n), nil, d
}

// suits holds that a map's declared kind goes with what it keeps.
func (c *checker) suits(m *mapInfo) {
	own := "hash"
	if m.value.Aggregate() {
		own = "percpuhash"
	}
	if strings.HasPrefix(m.kind, "percpu") != m.value.Aggregate() || m.kind == "percpuarray" && m.keyed {
		at := m.used
		if at == nil {
			at = m.declared
		}
		c.errorf(at, "Incompatible map types. Type from declaration: %s. Type from value/key type: %s", m.kind, own)
	}
}

func (c *checker) mapOf(name string, at syntax.Node) *mapInfo {
	m := c.maps[name]
	if m == nil {
		m = &mapInfo{name: name, key: types.NoType, value: types.NoType, first: at}
		c.maps[name] = m
	}
	return m
}

// Scopes.

func (c *checker) open() { c.scopes = append(c.scopes, map[string]*variable{}) }
func (c *checker) shut() {
	last := len(c.scopes) - 1
	for _, v := range c.scopes[last] {
		if v.let != nil && !v.given {
			c.warnf(v.let, "Variable %s never assigned to.", v.name)
		}
	}
	c.scopes = c.scopes[:last]
}

func (c *checker) find(name string) *variable {
	for _, s := range slices.Backward(c.scopes) {
		if v := s[name]; v != nil {
			return v
		}
	}
	return nil
}

func (c *checker) declare(name string, at syntax.Node) *variable {
	v := c.vars[at]
	if v == nil {
		v = &variable{name: name, typ: types.NoType}
		c.vars[at] = v
		if c.fnAt != nil {
			c.fnAt.vars = append(c.fnAt.vars, v)
		}
	}
	c.scopes[len(c.scopes)-1][name] = v
	return v
}

// widen makes a type hold another too.
func (c *checker) widen(t **types.Type, more *types.Type) bool {
	j := types.Join(*t, more)
	if j == nil {
		return false
	}
	if !types.Same(j, *t) {
		*t = j
		c.changed = true
	}
	return true
}

// Statements.

func (c *checker) block(b *syntax.Block) {
	c.open()
	c.inner(b)
	c.shut()
}

func (c *checker) inner(b *syntax.Block) {
	for i, s := range b.Stmts {
		if i > 0 {
			c.unreachable(b.Stmts[i-1], s)
		}
		c.stmt(s)
	}
	if b.Value != nil {
		if n := len(b.Stmts); n > 0 {
			c.unreachable(b.Stmts[n-1], b.Value)
		}
		c.expr(b.Value)
	}
}

// unreachable warns of what stands behind a jump.
func (c *checker) unreachable(before syntax.Stmt, s syntax.Node) {
	if _, left := before.(*syntax.Jump); left {
		c.warnf(s, "Unreachable code")
	}
}

// implied warns of a conversion that is not written, and may give another value.
func (c *checker) implied(at syntax.Node, to, from *types.Type) {
	if types.Alters(to, from) {
		c.warnf(at, "Implicit cast from '%s' to '%s' can change the value", from, to)
	}
}

// early warns of a variable that let has declared, and nothing has given a value yet.
func (c *checker) early(x *syntax.Var, v *variable) {
	if v.let != nil && !v.given && v.typ.Kind != types.None && c.meta == 0 {
		c.warnf(x, "Variable used before it was assigned: %s", x.Name)
	}
}

func (c *checker) stmt(s syntax.Stmt) {
	switch s := s.(type) {
	case *syntax.Block:
		c.block(s)
	case *syntax.ExprStmt:
		c.statementExpr(s)
	case *syntax.Assign:
		c.assign(s)
	case *syntax.Let:
		c.let(s)
	case *syntax.If:
		if _, known := s.Cond.(*syntax.Comptime); known || s.Comptime {
			c.ifComptime(s)
			return
		}
		c.cond(s.Cond)
		for _, b := range []syntax.Stmt{s.Then, s.Else} {
			if b != nil {
				c.stmt(b)
			}
			if b, ok := b.(*syntax.Block); ok && b.Value != nil {
				c.discarded(b.Value, c.types[b.Value])
			}
		}
	case *syntax.While:
		c.cond(s.Cond)
		c.loops++
		c.block(s.Body)
		c.loops--
	case *syntax.Unroll:
		c.expr(s.Times)
		n, ok := c.constant(s.Times)
		head := syntax.Span{From: s.From, To: s.Times.At().To + 1} // with the parenthesis
		switch {
		case !ok:
			c.errorf(s.Times, "invalid unroll value: it must be known before the script runs")
		case n < 1:
			c.errorf(head, "unroll minimum value is 1")
		case n > 100:
			c.errorf(head, "unroll maximum value is 100")
		}
		c.block(s.Body)
	case *syntax.For:
		c.forStmt(s)
	case *syntax.Jump:
		if s.Kind != "return" && c.loops == 0 {
			c.errorf(s, "%s statement outside of a loop", s.Kind)
		}
		if c.fnAt != nil && s.Kind == "return" {
			c.returns(s)
		} else if s.Value != nil {
			if t := c.number(s.Value, "return"); t.Kind == types.Pointer {
				c.errorf(s, "Probe return values can only be integers. Found %s", t)
			}
		}
	}
}

// ifComptime looks at the branch alone that is taken. What is not known in the first pass
// may be in the next.
func (c *checker) ifComptime(s *syntax.If) {
	cond := s.Cond
	if k, ok := cond.(*syntax.Comptime); ok {
		cond = k.X
	}
	c.cond(cond)
	n, ok := c.constant(cond)
	switch {
	case c.first:
		c.changed = true
	case !ok:
		c.errorf(cond, "Unable to resolve comptime expression")
	case n != 0:
		defer c.lock(cond)()
		c.block(s.Then)
	case s.Else != nil:
		defer c.lock(cond)()
		c.stmt(s.Else)
	}
}

// lock holds the types that a condition asks about: what it decides over may not change them. It gives what lets go.
func (c *checker) lock(cond syntax.Expr) (unlock func()) {
	n := len(c.locked)
	syntax.Copy(cond, func(x syntax.Expr) syntax.Expr {
		switch x := x.(type) {
		case *syntax.Var:
			if v := c.find(x.Name); v != nil {
				c.locked = append(c.locked, &v.typ)
			}
		case *syntax.Map:
			if m := c.mapOf(x.Name, x); m.keyed && x.Key == nil {
				c.locked = append(c.locked, &m.key)
			} else {
				c.locked = append(c.locked, &m.value)
			}
		}
		return nil
	})
	return func() { c.locked = c.locked[:n] }
}

// keeps tells whether a type that is locked would stay as it is with another value, and complains where it would not.
func (c *checker) keeps(at syntax.Node, name string, t **types.Type, more *types.Type) bool {
	j := types.Join(*t, more)
	if j != nil && !types.Same(j, *t) && (*t).Kind != types.None {
		c.errorf(at, "Type mismatch for %s: this type has been locked because it was used in another part of the type graph that was already resolved (e.g. `sizeof`, `typeinfo`, etc.). The new type '%s' doesn't fit into the locked type '%s'", name, more, *t)
	}
	return j != nil
}

func (c *checker) statementExpr(s *syntax.ExprStmt) {
	t := c.expr(s.X)
	c.discarded(s.X, t)
	switch s.X.(type) {
	case *syntax.Call, *syntax.Unary, *syntax.Block, *syntax.Ternary, *syntax.Comptime:
		if t.Aggregate() {
			if call, ok := s.X.(*syntax.Call); ok {
				c.errorf(s, "%s() must be assigned directly to a map", call.Name)
			}
		}
	}
}

// discarded warns of a value that nobody takes: _ = x says that this is meant.
func (c *checker) discarded(x syntax.Expr, t *types.Type) {
	switch x := x.(type) {
	case *syntax.Unary:
		if x.Op == "++" || x.Op == "--" {
			return
		}
	case *syntax.Call:
		if f := functions[x.Name]; x.Name == "delete" || x.Name == "write_user" || f != nil && f.act != nil || c.fns[x.Name] != nil {
			return
		}
	case *syntax.Ternary, *syntax.Block:
		if t.Kind == types.Int || t.Kind == types.Bool {
			break
		}
		return
	}
	if t.Kind != types.None && t.Kind != types.Void && !t.Aggregate() {
		c.warnf(x, "Return value discarded.")
	}
}

func (c *checker) forStmt(s *syntax.For) {
	if c.find(s.Var) != nil {
		c.errorf(c.src.Find(s.Span, s.Var), "Loop declaration shadows existing variable: %s", s.Var)
	}
	c.loops++
	c.open()
	v := c.declare(s.Var, s)
	if s.Over != nil {
		c.overMap(s, v)
	} else {
		for what, x := range map[string]syntax.Expr{"start": s.From, "end": s.To} {
			if t := c.expr(x); t.Kind != types.None && t.Kind != types.Int && !c.counts(x, t) {
				c.errorf(x, "Loop range requires an integer for the %s value", what)
			}
		}
		c.widen(&v.typ, types.Int64)
	}
	c.block(s.Body)
	c.shut()
	c.loops--
}

// overMap is a loop over a map: its variable is (key, value).
func (c *checker) overMap(s *syntax.For, v *variable) {
	x, ok := s.Over.(*syntax.Map)
	if !ok || x.Key != nil {
		c.expr(s.Over)
		c.errorf(s.Over, "a loop goes over a map, or a range of numbers")
		return
	}
	m := c.mapOf(x.Name, x)
	switch {
	case m.keyless && !m.keyed:
		c.errorf(x, "%s has no explicit keys (scalar map), and cannot be used for iteration", x.Name)
	case m.value.Kind == types.None || m.key.Kind == types.None:
		c.errorf(x, "Undefined map: %s", x.Name)
	case types.Lined(m.value):
		c.errorf(x, "Loop expression does not support type: %s", m.value)
	default:
		c.widen(&v.typ, types.TupleOf(nil, m.key, types.ValueOf(m.value)))
	}
}

func (c *checker) let(s *syntax.Let) {
	if v := c.find(s.Name); v != nil {
		c.errorf(syntax.Span{From: s.From, To: c.src.Find(s.Span, s.Name).To}, "Variable %s was already declared. Variable shadowing is not allowed.", s.Name)
		return
	}
	var value *types.Type
	if s.Value != nil {
		value = c.expr(s.Value)
	}
	v := c.declare(s.Name, s)
	v.let, v.given = s, false
	if s.Type != nil {
		v.set = true
		t := c.typeOf(s.Type)
		switch {
		case t == nil:
		case t.Aggregate():
			c.errorf(s, "Invalid variable declaration type: %s", strings.TrimSpace(s.Type.Name))
		default:
			if !types.Same(v.typ, t) {
				c.changed = true
			}
			v.typ = t
		}
	}
	if value != nil {
		c.assignVar(s, v, value, s.Value)
	}
}

func (c *checker) assignVar(at syntax.Node, v *variable, t *types.Type, value syntax.Expr) {
	v.given = true
	defer func() { c.implied(at, v.typ, t) }()
	_, declares := at.(*syntax.Let)
	_, literal := c.literalNumber(value)
	switch {
	case t.Kind == types.Void:
		c.errorf(at, "Value '%s' cannot be assigned to a scratch variable.", t)
	case t.Aggregate():
		call, ok := value.(*syntax.Call)
		switch {
		case ok:
			c.errorf(value, "%s() must be assigned directly to a map", call.Name)
		case types.Lined(t):
			c.errorf(at, "Value '%s' cannot be assigned to a scratch variable.", t)
		default:
			c.assignVar(at, v, types.ValueOf(t), value)
		}
	case v.set && declares && !literal && t.Kind == types.Int && types.Alters(v.typ, t): // is told
	case v.set && v.typ.Kind != types.None:
		if t.Kind != types.None && !c.fits(v.typ, t, value) {
			c.errorf(at, "Type mismatch for %s: trying to assign value of type '%s' when variable already has a type '%s'", v.name, t, v.typ)
		}
	case t.Kind == types.None && v.typ.Kind == types.None && len(c.errs) == 0:
		if _, ok := value.(*syntax.Var); ok {
			c.errorf(value, "Could not resolve the type of this variable")
		}
	case slices.Contains(c.locked, &v.typ) && c.keeps(at, v.name, &v.typ, t):
	case syntax.IsReference(value) && v.typ.Kind == types.Pointer && v.typ.Name == t.Name && !types.Same(v.typ, t):
		v.typ, c.changed = t, true // the variable's type has grown
	case !c.widen(&v.typ, t):
		c.errorf(at, "Type mismatch for %s: trying to assign value of type '%s' when variable already has a type '%s'", v.name, t, v.typ)
	}
}

// fits tells whether a value goes into a variable whose type was declared.
func (c *checker) fits(to, t *types.Type, value syntax.Expr) bool {
	n, ok := c.literalNumber(value)
	if call, asked := value.(*syntax.Call); asked && (call.Name == "sizeof" || call.Name == "offsetof") {
		n, ok = c.constant(value)
	}
	if ok && to.Kind == types.Int && t.Kind == types.Int {
		return types.Truncate(n, to) == n && (to.Signed || int64(n) >= 0 || !t.Signed)
	}
	j := types.Join(to, t)
	return j != nil && (types.Same(j, to) || to.Kind != types.Int && to.Scalar())
}

func (c *checker) assign(s *syntax.Assign) {
	if call, ok := s.Value.(*syntax.Call); ok && s.Op == "=" {
		if _, ok := s.Target.(*syntax.Map); ok {
			c.direct = call
		}
	}
	t := c.expr(s.Value)
	if s.Op != "=" {
		c.compound(s, t)
		return
	}
	switch target := s.Target.(type) {
	case *syntax.Ident: // _ = value
	case *syntax.Var:
		v := c.find(target.Name)
		if v == nil {
			v = c.declare(target.Name, s)
		}
		c.uses[target] = v
		c.types[target] = v.typ
		c.assignVar(s, v, t, s.Value)
	case *syntax.Map:
		if c.meta > 0 {
			c.errorf(s, "Map assignments not allowed inside of typeof, typeinfo, sizeof and offsetof")
		}
		m := c.mapUse(target)
		if t.Kind == types.Void {
			c.errorf(s, "Value '%s' cannot be assigned to a map.", t)
			return
		}
		if _, call := s.Value.(*syntax.Call); t.Aggregate() && !call {
			if t = types.ValueOf(t); m.value.Kind != types.Int || types.Lined(t) {
				if c.final {
					c.copied(s, m.name, c.types[s.Value])
				}
				return
			}
		}
		if slices.Contains(c.locked, &m.value) && c.keeps(s, m.name, &m.value, t) {
			return
		}
		if c.implied(s, m.value, t); !c.widen(&m.value, t) {
			c.errorf(s, "Type mismatch for %s: trying to assign value of type '%s' when map already has a type '%s'", m.name, t, m.value)
		}
	}
}

// copied refuses @a = @b where @b gathers.
func (c *checker) copied(s *syntax.Assign, name string, t *types.Type) {
	c.errorf(s, "Map value '%s' cannot be assigned from one map to another. The function that returns this type must be called directly e.g. `%s = %s;`.", t, name, gathering[t.Kind])
	if m, ok := s.Value.(*syntax.Map); ok && !types.Lined(t) {
		c.hint("Add a cast to integer if you want the value of the aggregate, e.g. `%s = (int64)%s;`.", name, m.Name)
	}
}

// compound is +=, -= and the like.
func (c *checker) compound(s *syntax.Assign, t *types.Type) {
	if !t.Number() && t.Kind != types.None {
		c.errorf(s, "The %s operator can not be used on expressions of type '%s'", strings.TrimSuffix(s.Op, "="), t)
		return
	}
	op := strings.TrimSuffix(s.Op, "=")
	switch target := s.Target.(type) {
	case *syntax.Var:
		old := c.expr(target)
		if old.Kind == types.Pointer || t.Kind == types.Pointer {
			c.pointers(&syntax.Binary{Span: s.Span, Op: op, X: target, Y: s.Value}, old, t)
			return
		}
		if old.Kind != types.None && !old.Number() {
			c.errorf(s, "The %s operator can not be used on expressions of types '%s', '%s'", op, old, t)
			return
		}
		if v := c.uses[target]; v != nil && !v.set {
			c.widen(&v.typ, types.Arithmetic(strings.TrimSuffix(s.Op, "="), old, t))
		}
	case *syntax.Map:
		m := c.mapUse(target)
		if m.value.Aggregate() {
			c.errorf(s, "Type mismatch for %s: trying to assign value of type '%s' when map already has a type '%s'", m.name, types.ValueOf(m.value), m.value)
			return
		}
		if m.value.Kind == types.Pointer || t.Kind == types.Pointer && m.value.Kind != types.None {
			c.pointers(&syntax.Binary{Span: s.Span, Op: op, X: target, Y: s.Value}, m.value, t)
			return
		}
		if !c.widen(&m.value, types.Changed(op, m.value, t)) || !m.value.Number() {
			c.errorf(s, "The %s operator can not be used on expressions of type '%s'", strings.TrimSuffix(s.Op, "="), m.value)
		}
	default:
		c.errorf(s, "only variables and maps can be assigned to")
	}
}

// mapUse looks at a map where it is named, with its key.
func (c *checker) mapUse(x *syntax.Map) *mapInfo {
	m := c.mapOf(x.Name, x)
	if m.used == nil {
		m.used = x
	}
	if x.Key == nil {
		m.keyless = true
		if m.keyed {
			c.errorf(x, "%s used as a map without an explicit key (scalar map), previously used with an explicit key (non-scalar map)", x.Name)
		}
		return m
	}
	k := c.expr(x.Key)
	m.keyed = true
	switch {
	case m.keyless && m.first != nil:
		c.errorf(x, "%s used as a map with an explicit key (non-scalar map), previously used without an explicit key (scalar map)", x.Name)
	case k.Aggregate() && c.counts(x.Key, k):
		c.widen(&m.key, types.ValueOf(k))
	case k.Aggregate() || k.Kind == types.Void:
		c.errorf(x.Key, "%s cannot be part of a map key", k)
	case slices.Contains(c.locked, &m.key) && c.keeps(x, x.Name, &m.key, k):
	default:
		if c.implied(x.Key, m.key, k); !c.widen(&m.key, k) {
			c.errorf(x, "Argument mismatch for %s: trying to access with arguments: '%s' when map expects arguments: '%s'", x.Name, k, m.key)
		}
	}
	return m
}
