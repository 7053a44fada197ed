package source

// A location may depend on a condition: GCC writes x ? a : b so. The operations behind the branch are followed both ways, and
// the two results become one value.

// maxForks bounds the branches that are followed: of four in a row there are 1 + 2 + 4 + 8.
const maxForks = 15

// jump does a branch or a jump. ended tells that all behind it was done, too. Errors: errComputation for a loop.
func (m *machine) jump(c *cursor) (ended bool, err error) {
	op := byte(c.number(1))
	by := int(int16(c.number(2)))
	to := *c
	if to.pos += by; c.bad || by < 0 || to.pos > len(c.b) {
		return false, errComputation
	}
	if op == opSkip {
		*c = to
		return false, nil
	}
	cond, err := m.pop()
	if err != nil {
		return false, err
	}
	if m.forks++; m.forks > maxForks || m.piece != nil {
		return false, errComputation
	}
	taken := *m
	taken.stack = append([]operand{}, m.stack...)
	if err := taken.from(to); err != nil {
		return false, err
	}
	m.forks = taken.forks
	if err := m.from(*c); err != nil {
		return false, err
	}
	return true, m.either(cond, &taken)
}

// either makes the result of two ways: taken's where cond is not 0.
func (m *machine) either(cond *Expr, taken *machine) error {
	a, aok := taken.left()
	b, bok := m.left()
	if !aok || !bok || (taken.loc.Value == nil) != (m.loc.Value == nil) {
		return errComputation
	}
	if m.loc.Value == nil && taken.stack[len(taken.stack)-1].base != m.stack[len(m.stack)-1].base {
		return errComputation
	}
	two := func(what string, a, b *Expr) *Expr { return &Expr{Op: OpCompute, What: what, A: a, B: b} }
	all := &Expr{Op: OpCompute, What: "neg", A: two("ne", cond, &Expr{Op: OpConst})} // bits: all where cond is not 0, else none
	e := two("xor", b, two("and", two("xor", a, b), all))
	if m.loc.Value != nil {
		m.loc.Value = e
		return nil
	}
	m.stack[len(m.stack)-1] = operand{e: e, base: m.stack[len(m.stack)-1].base}
	return nil
}

// left is the value that the operations have left, if they have left nothing else.
func (m *machine) left() (*Expr, bool) {
	switch {
	case m.piece != nil || m.loc.Bytes != nil || m.loc.Memory != nil:
		return nil, false
	case m.loc.Value != nil:
		return m.loc.Value, true
	case len(m.stack) == 0:
		return nil, false
	}
	return m.stack[len(m.stack)-1].e, true
}
