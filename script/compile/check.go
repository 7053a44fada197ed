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
	Typ  *types.Type
	set  bool        // let gave it its type
	let  syntax.Node // that declared it

	Given bool // a value, in what this pass has seen so far
}

// mapInfo is what is known of one @x.
type mapInfo struct {
	name       string
	Key, Value *types.Type
	Keyed      bool
	Keyless    bool
	first      syntax.Node
	declared   syntax.Node // let @m = ...
	used       syntax.Node // where it is used first
	kind       string      // that let declared, "" for none
	size       int
	Walked     bool // its value is read by programs: threads share it
	Index      int  // among the plan's specs
	Plan       *plan.Map
}

// checker finds types. It goes over the script again and again until nothing changes;
// the last time it tells what is wrong.
type Checker struct {
	*cdecl.Declared // in C

	Opts    Options
	lib     *Library
	Machine *machine.Machine
	src     *syntax.Source
	Set     settings.Settings
	errs    syntax.Errors
	told    map[syntax.Span]bool

	Final   bool // errors count
	changed bool

	First  bool         // of the passes
	direct *syntax.Call // is assigned to a map: it may gather

	fns     map[string]*fnInfo
	fnOrder []string
	FnAt    *fnInfo // whose body is looked at

	points   map[*syntax.Probe][]*point.Point
	Types    map[syntax.Expr]*types.Type
	Stored   map[syntax.Expr]*types.Type // as values lie in memory, see types.Value
	vars     map[syntax.Node]*variable   // by the node that declares
	Uses     map[*syntax.Var]*variable
	Maps     map[string]*mapInfo
	Asked    map[string]plan.Option          // those that getopt names
	Defaults map[string]string               // of these options
	parts    map[*syntax.Index]*syntax.Field // of tuples: [1] is .1

	scopes []map[string]*variable
	At     []*point.Point // of the probe that is looked at
	locked []**types.Type // that conditions ask about, which are decided before the script runs
	Loops  int
	meta   int // within sizeof, typeof and the like, which are not run

	taken     []*variable          // whose addresses are taken
	Variables []plan.Variable      // of files, that uaddr names
	AddressOf map[*syntax.Call]int // among them

	ofKernel bool // it has no probes on a program: the types that it names may be the kernel's
}

// maxPasses is how often types may change. Each pass makes one wider, and there are few
// widths.
const maxPasses = 100

// Errorf tells of an error at a place, once, in the last pass.
func (c *Checker) Errorf(at syntax.Node, format string, a ...any) {
	if !c.Final || c.told[at.At()] {
		return
	}
	c.told[at.At()] = true
	c.errs = append(c.errs, &syntax.Error{Span: at.At(), Msg: fmt.Sprintf(format, a...), Source: c.src})
}

// Warnf tells of what may be wrong at a place, as Errorf does.
func (c *Checker) Warnf(at syntax.Node, format string, a ...any) {
	if c.Final && !c.told[at.At()] {
		c.told[at.At()] = true
		c.errs = append(c.errs, &syntax.Error{Span: at.At(), Warning: true, Msg: fmt.Sprintf(format, a...), Source: c.src})
	}
}

// Hint adds what would help to the last error.
func (c *Checker) Hint(format string, a ...any) {
	if c.Final && len(c.errs) > 0 {
		c.errs[len(c.errs)-1].Hint = fmt.Sprintf(format, a...)
	}
}

// file checks everything.
func (c *Checker) file(f *syntax.File) {
	c.Final = true
	(&imports.Reader{Source: c.src, Find: c.Opts.Import, Errorf: c.Errorf, Failed: func(es syntax.Errors) { c.errs = append(c.errs, es...) }}).Add(f)
	c.Set = c.settings(f)
	c.Open(c.src.Name, c.Opts.Header)
	for _, name := range c.Opts.Headers {
		c.Include(name)
	}
	c.ofKernel = c.Opts.Types != nil && !slices.ContainsFunc(f.Items, func(it syntax.Item) bool {
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
	macro.Expand(f, macro.Tell{Errorf: c.Errorf, Hint: c.Hint}, macro.Library{Takes: c.lib.takes, Named: func(x syntax.Expr) syntax.Expr {
		if member, ok := x.(*syntax.Field); ok {
			return c.configured(member)
		}
		if id, ok := x.(*syntax.Ident); ok {
			if text, ok := c.Texts[id.Name]; ok {
				return &syntax.Str{Span: x.At(), Value: text}
			}
		}
		if id, ok := x.(*syntax.Ident); ok && macro.Plain(id.Name) == "dw_ustack" {
			c.Stable(x, "unstable_dw_ustack")
		} else if call, ok := x.(*syntax.Call); ok && macro.Plain(call.Name) == "dw_ustack" {
			c.Stable(x, "unstable_dw_ustack")
		}
		return c.lib.named(x)
	}})
	macro.Texts(f, c.Warnf)
	macro.Gathering(f, c.lib.gathers)
	var probes []*syntax.Probe
	places := point.Reader{Params: c.Opts.Params, Machine: c.Machine, Kernel: c.Opts.Kernel, Missing: c.Set.MissingProbes, Program: c.Opts.Program, Events: c.Opts.Events, Statics: c.Opts.Statics, Lines: c.Opts.Lines, Inlined: c.Opts.Inlined, ProbeInline: c.Set.ProbeInline, Errorf: c.Errorf, Warnf: c.Warnf}
	for _, it := range f.Items {
		switch it := it.(type) {
		case *syntax.Probe:
			probes = append(probes, it)
			for _, at := range it.Points {
				for _, p := range places.Read(at) {
					all := []*point.Point{p}
					p.Numbered = syntax.Any(it, isArgument)
					switch asked := syntax.Names(it, "args"); {
					case asked && p.Syscall != nil:
						all = p.Each()
					case asked || p.Provider == "fexit" && syntax.Names(it, "retval"):
						all = p.Signatures(c.Opts.Debug, c.Opts.Types)
					case p.Numbered && p.OfFile() && c.Opts.Debug != nil:
						all = p.ByPassing(c.Opts.Debug)
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
		c.Errorf(syntax.Span{From: 0, To: 1}, "No probes to attach")
		return
	}
	for pass := 0; ; pass++ {
		c.changed = false
		c.First = pass == 0
		c.Final = pass == maxPasses || c.Final && pass > 0
		c.pass(probes)
		if c.Final && pass > 0 {
			return
		}
		c.Final = !c.changed
	}
}

// isArgument tells whether a name is an argument's, by its number.
func isArgument(x *syntax.Ident) bool {
	_, _, is := point.Argument(x.Name)
	return is
}

func (c *Checker) pass(probes []*syntax.Probe) {
	if !c.Final {
		clear(c.Types)
	}
	for _, p := range probes {
		c.At = c.points[p]
		c.scopes = nil
		c.open()
		if p.Pred != nil {
			c.Cond(p.Pred)
		}
		c.block(p.Body)
		c.shut()
	}
	for _, f := range c.fnOrder {
		c.fnBody(c.fns[f])
	}
	for _, m := range c.Maps {
		switch {
		case !c.Final || m.first == nil && m.declared == nil:
		case m.Value.Kind == types.None && m.first != nil:
			c.Errorf(m.first, "Undefined map: %s", m.name)
		case m.Value.Kind == types.None:
			c.Warnf(m.declared, "Unused map: %s", m.name)
		case m.declared != nil && m.kind != "":
			c.suits(m)
		}
	}
}

func (c *Checker) mapDecl(d *syntax.MapDecl) {
	c.Stable(d, "unstable_map_decl")
	m := c.MapOf(d.Name, d)
	switch d.Kind {
	case "hash", "lruhash", "percpuhash", "percpulruhash", "percpuarray":
	default:
		c.Errorf(d, "Invalid bpf map type: %s", d.Kind)
		c.Hint("Valid map types: percpulruhash, percpuarray, percpuhash, lruhash, hash")
	}
	n, ok := c.Constant(d.Size)
	switch {
	case d.Kind == "percpuarray" && ok && n != 1:
		c.Errorf(d, "Max entries can only be 1 for map type percpuarray")
	case !ok || n < 1 || n > 1<<24:
		c.Errorf(d.Size, "the number of a map's elements must be known, and from 1 to %d", 1<<24)
	}
	m.kind, m.size, m.declared = d.Kind, int(n), d
	m.first = nil // it is declared, so that it is not reported as undefined
}

// suits holds that a map's declared kind goes with what it keeps.
func (c *Checker) suits(m *mapInfo) {
	own := "hash"
	if m.Value.Aggregate() {
		own = "percpuhash"
	}
	if strings.HasPrefix(m.kind, "percpu") != m.Value.Aggregate() || m.kind == "percpuarray" && m.Keyed {
		at := m.used
		if at == nil {
			at = m.declared
		}
		c.Errorf(at, "Incompatible map types. Type from declaration: %s. Type from value/key type: %s", m.kind, own)
	}
}

// MapOf finds what is known of a map; one that is named for the first time is named at.
func (c *Checker) MapOf(name string, at syntax.Node) *mapInfo {
	m := c.Maps[name]
	if m == nil {
		m = &mapInfo{name: name, Key: types.NoType, Value: types.NoType, first: at}
		c.Maps[name] = m
	}
	return m
}

// Scopes.

func (c *Checker) open() { c.scopes = append(c.scopes, map[string]*variable{}) }
func (c *Checker) shut() {
	last := len(c.scopes) - 1
	for _, v := range c.scopes[last] {
		if v.let != nil && !v.Given {
			c.Warnf(v.let, "Variable %s never assigned to.", v.name)
		}
	}
	c.scopes = c.scopes[:last]
}

// Find finds the variable of that name that is seen here; nil for none.
func (c *Checker) Find(name string) *variable {
	for _, s := range slices.Backward(c.scopes) {
		if v := s[name]; v != nil {
			return v
		}
	}
	return nil
}

func (c *Checker) declare(name string, at syntax.Node) *variable {
	v := c.vars[at]
	if v == nil {
		v = &variable{name: name, Typ: types.NoType}
		c.vars[at] = v
		if c.FnAt != nil {
			c.FnAt.vars = append(c.FnAt.vars, v)
		}
	}
	c.scopes[len(c.scopes)-1][name] = v
	return v
}

// widen makes a type hold another too.
func (c *Checker) widen(t **types.Type, more *types.Type) bool {
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

func (c *Checker) block(b *syntax.Block) {
	c.open()
	c.inner(b)
	c.shut()
}

func (c *Checker) inner(b *syntax.Block) {
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
		c.Expr(b.Value)
	}
}

// unreachable warns of what stands behind a jump.
func (c *Checker) unreachable(before syntax.Stmt, s syntax.Node) {
	if _, left := before.(*syntax.Jump); left {
		c.Warnf(s, "Unreachable code")
	}
}

// implied warns of a conversion that is not written, and may give another value.
func (c *Checker) implied(at syntax.Node, to, from *types.Type) {
	if types.Alters(to, from) {
		c.Warnf(at, "Implicit cast from '%s' to '%s' can change the value", from, to)
	}
}

// early warns of a variable that let has declared, and nothing has given a value yet.
func (c *Checker) early(x *syntax.Var, v *variable) {
	if v.let != nil && !v.Given && v.Typ.Kind != types.None && c.meta == 0 {
		c.Warnf(x, "Variable used before it was assigned: %s", x.Name)
	}
}

func (c *Checker) stmt(s syntax.Stmt) {
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
		c.Cond(s.Cond)
		for _, b := range []syntax.Stmt{s.Then, s.Else} {
			if b != nil {
				c.stmt(b)
			}
			if b, ok := b.(*syntax.Block); ok && b.Value != nil {
				c.discarded(b.Value, c.Types[b.Value])
			}
		}
	case *syntax.While:
		c.Cond(s.Cond)
		c.Loops++
		c.block(s.Body)
		c.Loops--
	case *syntax.Unroll:
		c.Expr(s.Times)
		n, ok := c.Constant(s.Times)
		head := syntax.Span{From: s.From, To: s.Times.At().To + 1} // with the parenthesis
		switch {
		case !ok:
			c.Errorf(s.Times, "invalid unroll value: it must be known before the script runs")
		case n < 1:
			c.Errorf(head, "unroll minimum value is 1")
		case n > 100:
			c.Errorf(head, "unroll maximum value is 100")
		}
		c.block(s.Body)
	case *syntax.For:
		c.forStmt(s)
	case *syntax.Jump:
		if s.Kind != "return" && c.Loops == 0 {
			c.Errorf(s, "%s statement outside of a loop", s.Kind)
		}
		if c.FnAt != nil && s.Kind == "return" {
			c.returns(s)
		} else if s.Value != nil {
			if t := c.Number(s.Value, "return"); t.Kind == types.Pointer {
				c.Errorf(s, "Probe return values can only be integers. Found %s", t)
			}
		}
	}
}

// ifComptime looks at the branch alone that is taken. What is not known in the first pass
// may be in the next.
func (c *Checker) ifComptime(s *syntax.If) {
	cond := s.Cond
	if k, ok := cond.(*syntax.Comptime); ok {
		cond = k.X
	}
	c.Cond(cond)
	n, ok := c.Constant(cond)
	switch {
	case c.First:
		c.changed = true
	case !ok:
		c.Errorf(cond, "Unable to resolve comptime expression")
	case n != 0:
		defer c.lock(cond)()
		c.block(s.Then)
	case s.Else != nil:
		defer c.lock(cond)()
		c.stmt(s.Else)
	}
}

// lock holds the types that a condition asks about: what it decides over may not change them. It gives what lets go.
func (c *Checker) lock(cond syntax.Expr) (unlock func()) {
	n := len(c.locked)
	syntax.Copy(cond, func(x syntax.Expr) syntax.Expr {
		switch x := x.(type) {
		case *syntax.Var:
			if v := c.Find(x.Name); v != nil {
				c.locked = append(c.locked, &v.Typ)
			}
		case *syntax.Map:
			if m := c.MapOf(x.Name, x); m.Keyed && x.Key == nil {
				c.locked = append(c.locked, &m.Key)
			} else {
				c.locked = append(c.locked, &m.Value)
			}
		}
		return nil
	})
	return func() { c.locked = c.locked[:n] }
}

// keeps tells whether a type that is locked would stay as it is with another value, and complains where it would not.
func (c *Checker) keeps(at syntax.Node, name string, t **types.Type, more *types.Type) bool {
	j := types.Join(*t, more)
	if j != nil && !types.Same(j, *t) && (*t).Kind != types.None {
		c.Errorf(at, "Type mismatch for %s: this type has been locked because it was used in another part of the type graph that was already resolved (e.g. `sizeof`, `typeinfo`, etc.). The new type '%s' doesn't fit into the locked type '%s'", name, more, *t)
	}
	return j != nil
}

func (c *Checker) statementExpr(s *syntax.ExprStmt) {
	t := c.Expr(s.X)
	c.discarded(s.X, t)
	switch s.X.(type) {
	case *syntax.Call, *syntax.Unary, *syntax.Block, *syntax.Ternary, *syntax.Comptime:
		if t.Aggregate() {
			if call, ok := s.X.(*syntax.Call); ok {
				c.Errorf(s, "%s() must be assigned directly to a map", call.Name)
			}
		}
	}
}

// discarded warns of a value that nobody takes: _ = x says that this is meant.
func (c *Checker) discarded(x syntax.Expr, t *types.Type) {
	switch x := x.(type) {
	case *syntax.Unary:
		if x.Op == "++" || x.Op == "--" {
			return
		}
	case *syntax.Call:
		if f := c.lib.Functions[x.Name]; f != nil && f.Act != nil || c.fns[x.Name] != nil {
			return
		}
	case *syntax.Ternary, *syntax.Block:
		if t.Kind == types.Int || t.Kind == types.Bool {
			break
		}
		return
	}
	if t.Kind != types.None && t.Kind != types.Void && !t.Aggregate() {
		c.Warnf(x, "Return value discarded.")
	}
}

func (c *Checker) forStmt(s *syntax.For) {
	if c.Find(s.Var) != nil {
		c.Errorf(c.src.Find(s.Span, s.Var), "Loop declaration shadows existing variable: %s", s.Var)
	}
	c.Loops++
	c.open()
	v := c.declare(s.Var, s)
	if s.Over != nil {
		c.overMap(s, v)
	} else {
		for what, x := range map[string]syntax.Expr{"start": s.From, "end": s.To} {
			if t := c.Expr(x); t.Kind != types.None && t.Kind != types.Int && !c.Counts(x, t) {
				c.Errorf(x, "Loop range requires an integer for the %s value", what)
			}
		}
		c.widen(&v.Typ, types.Int64)
	}
	c.block(s.Body)
	c.shut()
	c.Loops--
}

// overMap is a loop over a map: its variable is (key, value).
func (c *Checker) overMap(s *syntax.For, v *variable) {
	x, ok := s.Over.(*syntax.Map)
	if !ok || x.Key != nil {
		c.Expr(s.Over)
		c.Errorf(s.Over, "a loop goes over a map, or a range of numbers")
		return
	}
	m := c.MapOf(x.Name, x)
	switch {
	case m.Keyless && !m.Keyed:
		c.Errorf(x, "%s has no explicit keys (scalar map), and cannot be used for iteration", x.Name)
	case m.Value.Kind == types.None || m.Key.Kind == types.None:
		c.Errorf(x, "Undefined map: %s", x.Name)
	case types.Lined(m.Value):
		c.Errorf(x, "Loop expression does not support type: %s", m.Value)
	default:
		c.widen(&v.Typ, types.TupleOf(nil, m.Key, types.ValueOf(m.Value)))
	}
}

func (c *Checker) let(s *syntax.Let) {
	if v := c.Find(s.Name); v != nil {
		c.Errorf(syntax.Span{From: s.From, To: c.src.Find(s.Span, s.Name).To}, "Variable %s was already declared. Variable shadowing is not allowed.", s.Name)
		return
	}
	var value *types.Type
	if s.Value != nil {
		value = c.Expr(s.Value)
	}
	v := c.declare(s.Name, s)
	v.let, v.Given = s, false
	if s.Type != nil {
		v.set = true
		t := c.typeOf(s.Type)
		switch {
		case t == nil:
		case t.Aggregate():
			c.Errorf(s, "Invalid variable declaration type: %s", strings.TrimSpace(s.Type.Name))
		default:
			if !types.Same(v.Typ, t) {
				c.changed = true
			}
			v.Typ = t
		}
	}
	if value != nil {
		c.AssignVar(s, v, value, s.Value)
	}
}

// AssignVar gives a variable the type of what it is assigned.
func (c *Checker) AssignVar(at syntax.Node, v *variable, t *types.Type, value syntax.Expr) {
	v.Given = true
	defer func() { c.implied(at, v.Typ, t) }()
	_, declares := at.(*syntax.Let)
	_, literal := c.LiteralNumber(value)
	switch {
	case t.Kind == types.Void:
		c.Errorf(at, "Value '%s' cannot be assigned to a scratch variable.", t)
	case t.Aggregate():
		call, ok := value.(*syntax.Call)
		switch {
		case ok:
			c.Errorf(value, "%s() must be assigned directly to a map", call.Name)
		case types.Lined(t):
			c.Errorf(at, "Value '%s' cannot be assigned to a scratch variable.", t)
		default:
			c.AssignVar(at, v, types.ValueOf(t), value)
		}
	case v.set && declares && !literal && t.Kind == types.Int && types.Alters(v.Typ, t): // is told
	case v.set && v.Typ.Kind != types.None:
		if t.Kind != types.None && !c.fits(v.Typ, t, value) {
			c.Errorf(at, "Type mismatch for %s: trying to assign value of type '%s' when variable already has a type '%s'", v.name, t, v.Typ)
		}
	case t.Kind == types.None && v.Typ.Kind == types.None && len(c.errs) == 0:
		if _, ok := value.(*syntax.Var); ok {
			c.Errorf(value, "Could not resolve the type of this variable")
		}
	case slices.Contains(c.locked, &v.Typ) && c.keeps(at, v.name, &v.Typ, t):
	case syntax.IsReference(value) && v.Typ.Kind == types.Pointer && v.Typ.Name == t.Name && !types.Same(v.Typ, t):
		v.Typ, c.changed = t, true // the variable's type has grown
	case !c.widen(&v.Typ, t):
		c.Errorf(at, "Type mismatch for %s: trying to assign value of type '%s' when variable already has a type '%s'", v.name, t, v.Typ)
	}
}

// fits tells whether a value goes into a variable whose type was declared.
func (c *Checker) fits(to, t *types.Type, value syntax.Expr) bool {
	n, ok := c.LiteralNumber(value)
	if call, asked := value.(*syntax.Call); asked && c.lib.constant(call.Name) {
		n, ok = c.Constant(value)
	}
	if ok && to.Kind == types.Int && t.Kind == types.Int {
		return types.Truncate(n, to) == n && (to.Signed || int64(n) >= 0 || !t.Signed)
	}
	j := types.Join(to, t)
	return j != nil && (types.Same(j, to) || to.Kind != types.Int && to.Scalar())
}

func (c *Checker) assign(s *syntax.Assign) {
	if call, ok := s.Value.(*syntax.Call); ok && s.Op == "=" {
		if _, ok := s.Target.(*syntax.Map); ok {
			c.direct = call
		}
	}
	t := c.Expr(s.Value)
	if s.Op != "=" {
		c.compound(s, t)
		return
	}
	switch target := s.Target.(type) {
	case *syntax.Ident: // _ = value
	case *syntax.Var:
		v := c.Find(target.Name)
		if v == nil {
			v = c.declare(target.Name, s)
		}
		c.Uses[target] = v
		c.Types[target] = v.Typ
		c.AssignVar(s, v, t, s.Value)
	case *syntax.Map:
		if c.meta > 0 {
			c.Errorf(s, "Map assignments not allowed inside of typeof, typeinfo, sizeof and offsetof")
		}
		m := c.MapUse(target)
		if t.Kind == types.Void {
			c.Errorf(s, "Value '%s' cannot be assigned to a map.", t)
			return
		}
		if _, call := s.Value.(*syntax.Call); t.Aggregate() && !call {
			if t = types.ValueOf(t); m.Value.Kind != types.Int || types.Lined(t) {
				if c.Final {
					c.copied(s, m.name, c.Types[s.Value])
				}
				return
			}
		}
		if slices.Contains(c.locked, &m.Value) && c.keeps(s, m.name, &m.Value, t) {
			return
		}
		if c.implied(s, m.Value, t); !c.widen(&m.Value, t) {
			c.Errorf(s, "Type mismatch for %s: trying to assign value of type '%s' when map already has a type '%s'", m.name, t, m.Value)
		}
	}
}

// copied refuses @a = @b where @b gathers.
func (c *Checker) copied(s *syntax.Assign, name string, t *types.Type) {
	c.Errorf(s, "Map value '%s' cannot be assigned from one map to another. The function that returns this type must be called directly e.g. `%s = %s;`.", t, name, gathering[t.Kind])
	if m, ok := s.Value.(*syntax.Map); ok && !types.Lined(t) {
		c.Hint("Add a cast to integer if you want the value of the aggregate, e.g. `%s = (int64)%s;`.", name, m.Name)
	}
}

// compound is +=, -= and the like.
func (c *Checker) compound(s *syntax.Assign, t *types.Type) {
	if !t.Number() && t.Kind != types.None {
		c.Errorf(s, "The %s operator can not be used on expressions of type '%s'", strings.TrimSuffix(s.Op, "="), t)
		return
	}
	op := strings.TrimSuffix(s.Op, "=")
	switch target := s.Target.(type) {
	case *syntax.Var:
		old := c.Expr(target)
		if old.Kind == types.Pointer || t.Kind == types.Pointer {
			c.pointers(&syntax.Binary{Span: s.Span, Op: op, X: target, Y: s.Value}, old, t)
			return
		}
		if old.Kind != types.None && !old.Number() {
			c.Errorf(s, "The %s operator can not be used on expressions of types '%s', '%s'", op, old, t)
			return
		}
		if v := c.Uses[target]; v != nil && !v.set {
			c.widen(&v.Typ, types.Arithmetic(strings.TrimSuffix(s.Op, "="), old, t))
		}
	case *syntax.Map:
		m := c.MapUse(target)
		if m.Value.Aggregate() {
			c.Errorf(s, "Type mismatch for %s: trying to assign value of type '%s' when map already has a type '%s'", m.name, types.ValueOf(m.Value), m.Value)
			return
		}
		if m.Value.Kind == types.Pointer || t.Kind == types.Pointer && m.Value.Kind != types.None {
			c.pointers(&syntax.Binary{Span: s.Span, Op: op, X: target, Y: s.Value}, m.Value, t)
			return
		}
		if !c.widen(&m.Value, types.Changed(op, m.Value, t)) || !m.Value.Number() {
			c.Errorf(s, "The %s operator can not be used on expressions of type '%s'", strings.TrimSuffix(s.Op, "="), m.Value)
		}
	default:
		c.Errorf(s, "only variables and maps can be assigned to")
	}
}

// MapUse looks at a map where it is named, with its key.
func (c *Checker) MapUse(x *syntax.Map) *mapInfo {
	m := c.MapOf(x.Name, x)
	if m.used == nil {
		m.used = x
	}
	if x.Key == nil {
		m.Keyless = true
		if m.Keyed {
			c.Errorf(x, "%s used as a map without an explicit key (scalar map), previously used with an explicit key (non-scalar map)", x.Name)
		}
		return m
	}
	k := c.Expr(x.Key)
	m.Keyed = true
	switch {
	case m.Keyless && m.first != nil:
		c.Errorf(x, "%s used as a map with an explicit key (non-scalar map), previously used without an explicit key (scalar map)", x.Name)
	case k.Aggregate() && c.Counts(x.Key, k):
		c.widen(&m.Key, types.ValueOf(k))
	case k.Aggregate() || k.Kind == types.Void:
		c.Errorf(x.Key, "%s cannot be part of a map key", k)
	case slices.Contains(c.locked, &m.Key) && c.keeps(x, x.Name, &m.Key, k):
	default:
		if c.implied(x.Key, m.Key, k); !c.widen(&m.Key, k) {
			c.Errorf(x, "Argument mismatch for %s: trying to access with arguments: '%s' when map expects arguments: '%s'", x.Name, k, m.Key)
		}
	}
	return m
}
