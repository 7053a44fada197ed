package source

import (
	"debug/dwarf"
	"errors"
)

// operand is a value on the stack of a location's computation.
type operand struct {
	e    *Expr
	base base
}

// base is the base type of an operand; its zero value is that of addresses, which has all bits and no sign. A narrower
// value is held as 64 bits that are the same number.
type base struct {
	bytes  int
	signed bool
	float  bool // of which nothing is computed
}

func (b base) narrow() bool { return b.bytes > 0 && b.bytes < 8 }

// as is a number of a type, of which e has the low bits.
func (m *machine) as(b base, e *Expr) *Expr {
	if !b.narrow() || b.float || b.bytes == m.u.size {
		return e
	}
	bits := uint64(8 * b.bytes)
	if !b.signed {
		return computed("and", e, 1<<bits-1)
	}
	return computed("shra", computed("shl", e, 64-bits), 64-bits)
}

func computed(what string, e *Expr, n uint64) *Expr {
	return &Expr{Op: OpCompute, What: what, A: e, B: &Expr{Op: OpConst, N: n}}
}

var errComputation = errors.New("where it is takes a computation, which is not done")

func (m *machine) operand() (operand, error) {
	if len(m.stack) == 0 {
		return operand{}, errStack
	}
	o := m.stack[len(m.stack)-1]
	m.stack = m.stack[:len(m.stack)-1]
	return o, nil
}

// operation is one on the two uppermost operands, or (one) on the uppermost. It is done on 64 bits.
type operation struct {
	name string
	one  bool

	// sign tells what an operation on 64 bits takes its operands for: '+' numbers without a sign, '-' numbers with one,
	// 0 either, which makes no difference to the low bits.
	sign byte
}

var arithmetic = map[byte]operation{
	0x19: {"abs", true, '-'}, 0x1a: {"and", false, 0}, 0x1b: {"div", false, '-'}, 0x1c: {"minus", false, 0},
	0x1d: {"mod", false, '+'}, 0x1e: {"mul", false, 0}, 0x1f: {"neg", true, 0}, 0x20: {"not", true, 0}, 0x21: {"or", false, 0},
	0x22: {"plus", false, 0}, 0x24: {"shl", false, 0}, 0x25: {"shr", false, '+'}, 0x26: {"shra", false, '-'},
	0x27: {"xor", false, 0}, 0x29: {"eq", false, 0}, 0x2a: {"ge", false, '-'}, 0x2b: {"gt", false, '-'},
	0x2c: {"le", false, '-'}, 0x2d: {"lt", false, '-'}, 0x2e: {"ne", false, 0},
}

// does tells whether an operation on 64 bits gives what it would on a type: a narrow number without a sign is one with a
// sign, too.
func (o operation) does(b base) bool {
	switch {
	case b.float:
		return false
	case b.bytes == 0 || o.sign == 0:
		return true
	case o.sign == '+':
		return !b.signed
	}
	return b.signed || b.narrow()
}

func (m *machine) arithmetic(o operation) error {
	top, err := m.operand()
	if err != nil {
		return err
	}
	first, e := top, &Expr{Op: OpCompute, What: o.name, A: top.e}
	if !o.one {
		if first, err = m.operand(); err != nil {
			return err
		}
		e.A, e.B = first.e, top.e
	}
	if !o.does(first.base) || top.base.float {
		return errComputation
	}
	switch {
	case o.name == "minus" && e.B.Op == OpConst:
		e = add(e.A, -e.B.N)
	case o.name == "plus" && e.B.Op == OpConst:
		e = add(e.A, e.B.N)
	case o.name == "plus" && e.A.Op == OpConst:
		e = add(e.B, e.A.N)
	case o.name == "plus":
		e = &Expr{Op: OpAdd, A: e.A, B: e.B}
	}
	m.stack = append(m.stack, operand{m.as(first.base, e), first.base})
	return nil
}

// typed does the operations that name a base type.
func (m *machine) typed(c *cursor, op byte) error {
	var e *Expr
	size, err := 0, error(nil)
	switch op {
	case opRegvalType, opGNURegvalType:
		e = &Expr{Op: OpReg, N: c.uleb()}
	case opDerefType, opGNUDerefType:
		size = int(c.number(1))
	}
	b, err := m.baseAt(c.uleb())
	if err != nil {
		return err
	}
	switch op {
	case opConstType, opGNUConstType:
		n := int(c.number(1))
		if n > 8 {
			return errComputation
		}
		e = &Expr{Op: OpConst, N: c.number(n)}
	case opDerefType, opGNUDerefType:
		e = &Expr{Op: OpLoad, Size: size}
		if e.A, err = m.pop(); err != nil {
			return err
		}
	case opConvert, opGNUConvert, opReinterpret, opGNUReinterpret:
		from, err := m.operand()
		switch {
		case err != nil:
			return err
		case (from.base.float || b.float) && from.base != b:
			return errors.New("where it is takes a computation on floating-point numbers, which is not done")
		}
		e = from.e
	}
	m.stack = append(m.stack, operand{m.as(b, e), b})
	return nil
}

// baseAt is the base type at an offset of the unit; at 0 it is that of addresses.
func (m *machine) baseAt(off uint64) (base, error) {
	if off == 0 {
		return base{}, nil
	}
	e := m.f.entry(dwarf.Offset(m.u.off + off))
	if e == nil || e.Tag != dwarf.TagBaseType {
		return base{}, errStack
	}
	size, _ := e.Val(dwarf.AttrByteSize).(int64)
	encoding, _ := e.Val(dwarf.AttrEncoding).(int64)
	if size < 1 || size > 8 && encoding != encFloat {
		return base{}, errComputation
	}
	return base{bytes: int(size), signed: encoding == encSigned || encoding == encSignedChar, float: encoding == encFloat || encoding == encComplex}, nil
}

const encComplex, encFloat = 0x03, 0x04 // DW_ATE_complex_float, DW_ATE_float
