package compile

import (
	"fmt"
	"slices"
	"strings"

	"kprobe/script/syntax"
	"kprobe/script/types"
)

// variable is one $x of one scope.
type variable struct {
	name string
	typ  *types.Type
	set  bool // let gave it its type
}

// mapInfo is what is known of one @x.
type mapInfo struct {
	name       string
	key, value *types.Type
	keyed      bool
	keyless    bool
	first      syntax.Node
	kind       string // that let declared, "" for none
	size       int
	walked     bool // its value is read by programs: threads share it
	index      int  // among the plan's specs
	plan       *Map
}

// checker finds types. It goes over the script again and again until nothing changes;
// the last time it tells what is wrong.
type checker struct {
	opts Options
	src  *syntax.Source
	set  Settings
	errs syntax.Errors
	told map[syntax.Span]bool

	final   bool // errors count
	changed bool

	points map[*syntax.Probe][]*Point
	types  map[syntax.Expr]*types.Type
	vars   map[syntax.Node]*variable // by the node that declares
	uses   map[*syntax.Var]*variable
	maps   map[string]*mapInfo
	consts map[string]uint64      // #define and enums
	named  map[string]*types.Type // "struct foo", and what typedefs name

	scopes []map[string]*variable
	at     []*Point // of the probe that is looked at
	loops  int
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
	c.set = c.settings(f)
	for _, d := range f.C {
		c.cDecl(d)
	}
	for _, i := range f.Imports {
		c.errorf(i, "import is not supported yet")
	}
	c.expand(f)
	var probes []*syntax.Probe
	for _, it := range f.Items {
		switch it := it.(type) {
		case *syntax.Probe:
			probes = append(probes, it)
			for _, pt := range it.Points {
				if p := c.point(pt); p != nil {
					c.points[it] = append(c.points[it], p)
				}
			}
		case *syntax.MapDecl:
			c.mapDecl(it)
		case *syntax.Fn:
			c.errorf(it, "functions are not supported yet")
		}
	}
	if len(c.errs) > 0 {
		return
	}
	if len(probes) == 0 {
		c.errorf(syntax.Span{From: 0, To: 1}, "No probes to attach")
		return
	}
	for pass := 0; ; pass++ {
		c.changed = false
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
	for _, m := range c.maps {
		if c.final && m.value.Kind == types.None && m.first != nil {
			c.errorf(m.first, "Undefined map: %s", m.name)
		}
	}
}

func (c *checker) mapDecl(d *syntax.MapDecl) {
	m := c.mapOf(d.Name, d)
	switch d.Kind {
	case "hash", "lruhash", "percpuhash", "percpulruhash", "percpuarray":
	default:
		c.errorf(d, "Invalid bpf map type: %s", d.Kind)
		c.hint("Valid map types: hash, lruhash, percpuhash, percpulruhash, percpuarray")
	}
	n, ok := c.constant(d.Size)
	if !ok || n < 1 || n > 1<<24 {
		c.errorf(d.Size, "the number of a map's elements must be known, and from 1 to %d", 1<<24)
	}
	m.kind, m.size, m.first = d.Kind, int(n), nil
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
func (c *checker) shut() { c.scopes = c.scopes[:len(c.scopes)-1] }

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
	for _, s := range b.Stmts {
		c.stmt(s)
	}
	if b.Value != nil {
		c.expr(b.Value)
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
		c.cond(s.Cond)
		c.block(s.Then)
		if s.Else != nil {
			c.stmt(s.Else)
		}
	case *syntax.While:
		c.cond(s.Cond)
		c.loops++
		c.block(s.Body)
		c.loops--
	case *syntax.Unroll:
		c.expr(s.Times)
		n, ok := c.constant(s.Times)
		switch {
		case !ok:
			c.errorf(s.Times, "invalid unroll value: it must be known before the script runs")
		case n < 1:
			c.errorf(s.Times, "unroll minimum value is 1")
		case n > 100:
			c.errorf(s.Times, "unroll maximum value is 100")
		}
		c.block(s.Body)
	case *syntax.For:
		c.forStmt(s)
	case *syntax.Jump:
		if s.Kind != "return" && c.loops == 0 {
			c.errorf(s, "%s statement outside of a loop", s.Kind)
		}
		if s.Value != nil {
			c.number(s.Value, "return")
		}
	}
}

func (c *checker) statementExpr(s *syntax.ExprStmt) {
	t := c.expr(s.X)
	switch s.X.(type) {
	case *syntax.Call, *syntax.Unary, *syntax.Block, *syntax.Ternary, *syntax.Comptime:
		if t.Aggregate() {
			if call, ok := s.X.(*syntax.Call); ok {
				c.errorf(s, "%s() must be assigned directly to a map", call.Name)
			}
		}
	}
}

func (c *checker) forStmt(s *syntax.For) {
	c.loops++
	c.open()
	v := c.declare(s.Var, s)
	if s.Over != nil {
		c.overMap(s, v)
	} else {
		c.number(s.From, "range")
		c.number(s.To, "range")
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
		c.errorf(s.Over, "a loop goes over a map, or a range of numbers")
		return
	}
	m := c.mapOf(x.Name, x)
	switch {
	case m.keyless && !m.keyed:
		c.errorf(x, "%s has no explicit keys (scalar map), and cannot be used for iteration", x.Name)
	case m.value.Kind == types.None || m.key.Kind == types.None:
		c.errorf(x, "Undefined map: %s", x.Name)
	case c.inTarget():
		c.errorf(s, "loops over maps are for begin, end and interval probes: those on functions cannot walk maps yet")
	default:
		c.widen(&v.typ, types.TupleOf(nil, m.key, aggregateValue(m.value)))
	}
}

// inTarget tells whether any of the attach points is in the target.
func (c *checker) inTarget() bool { return !c.everywhere(func(p *Point) bool { return !p.Inside() }) }

func (c *checker) let(s *syntax.Let) {
	if c.scopes[len(c.scopes)-1][s.Name] != nil || c.find(s.Name) != nil {
		c.errorf(s, "Variable %s was already declared. Variable shadowing is not allowed.", s.Name)
		return
	}
	var value *types.Type
	if s.Value != nil {
		value = c.expr(s.Value)
	}
	v := c.declare(s.Name, s)
	if s.Type != nil {
		v.set = true
		if t := c.typeOf(s.Type); t != nil {
			v.typ = t
		}
	}
	if value != nil {
		c.assignVar(s, v, value, s.Value)
	}
}

func (c *checker) assignVar(at syntax.Node, v *variable, t *types.Type, value syntax.Expr) {
	switch {
	case t.Kind == types.Void:
		c.errorf(at, "Value '%s' cannot be assigned to a scratch variable.", t)
	case t.Aggregate():
		if call, ok := value.(*syntax.Call); ok {
			c.errorf(value, "%s() must be assigned directly to a map", call.Name)
		} else {
			c.errorf(at, "Value '%s' cannot be assigned to a scratch variable.", t)
		}
	case v.set && v.typ.Kind != types.None:
		if j := types.Join(v.typ, t); t.Kind != types.None && (j == nil || v.typ.Kind == types.String && t.Size > v.typ.Size) {
			c.errorf(at, "Type mismatch for %s: trying to assign value of type '%s' when variable already has a type '%s'", v.name, t, v.typ)
		}
	case !c.widen(&v.typ, t):
		c.errorf(at, "Type mismatch for %s: trying to assign value of type '%s' when variable already has a type '%s'", v.name, t, v.typ)
	}
}

func (c *checker) assign(s *syntax.Assign) {
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
		m := c.mapUse(target)
		if t.Kind == types.Void {
			c.errorf(s, "Value '%s' cannot be assigned to a map.", t)
			return
		}
		if t.Kind == types.Int && t.Lit {
			t = types.Int64
		}
		if _, call := s.Value.(*syntax.Call); t.Aggregate() && !call {
			t = aggregateValue(t)
		}
		if !c.widen(&m.value, t) {
			c.errorf(s, "Type mismatch for %s: trying to assign value of type '%s' when map already has a type '%s'", m.name, t, m.value)
		}
	}
}

// compound is +=, -= and the like.
func (c *checker) compound(s *syntax.Assign, t *types.Type) {
	if !t.Number() && t.Kind != types.None {
		c.errorf(s, "The %s operator can not be used on expressions of type '%s'", strings.TrimSuffix(s.Op, "="), t)
		return
	}
	switch target := s.Target.(type) {
	case *syntax.Var:
		old := c.expr(target)
		if v := c.uses[target]; v != nil && !v.set {
			c.widen(&v.typ, c.arithmetic(strings.TrimSuffix(s.Op, "="), old, t))
		}
	case *syntax.Map:
		m := c.mapUse(target)
		if !c.widen(&m.value, types.Int64) || !m.value.Number() {
			c.errorf(s, "The %s operator can not be used on expressions of type '%s'", strings.TrimSuffix(s.Op, "="), m.value)
		}
	default:
		c.errorf(s, "only variables and maps can be assigned to")
	}
}

// mapUse looks at a map where it is named, with its key.
func (c *checker) mapUse(x *syntax.Map) *mapInfo {
	m := c.mapOf(x.Name, x)
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
	case k.Aggregate() || k.Kind == types.Void:
		c.errorf(x.Key, "'%s' cannot be used as a map key", k)
	default:
		if k.Kind == types.Int && m.key.Kind == types.None && k.Lit {
			k = types.Int64
		}
		if k.Kind == types.Int && k.Size < 8 {
			k = wide(k)
		}
		if !c.widen(&m.key, k) {
			c.errorf(x, "Argument mismatch for %s: trying to access with arguments: '%s' when map expects arguments: '%s'", x.Name, k, m.key)
		}
	}
	return m
}

func wide(t *types.Type) *types.Type {
	if t.Signed {
		return types.Int64
	}
	return types.Uint64
}
