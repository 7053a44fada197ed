package types

import (
	"fmt"
	"math/big"
)

// Truncate is a number in a type's width.
func Truncate(n uint64, t *Type) uint64 {
	shift := 64 - 8*t.Size
	if t.Signed {
		return uint64(int64(n<<shift) >> shift)
	}
	return n << shift >> shift
}

// Fold reckons with numbers that are known, signed or not.
func Fold(op string, a, b uint64, signed bool) (uint64, bool) {
	x, y := int64(a), int64(b)
	if !signed {
		switch {
		case (op == "/" || op == "%") && b == 0:
			return 0, false
		case op == "/":
			return a / b, true
		case op == "%":
			return a % b, true
		case op == ">>":
			return a >> (b & 63), true
		case op == "<":
			return Word(a < b), true
		case op == "<=":
			return Word(a <= b), true
		case op == ">":
			return Word(a > b), true
		case op == ">=":
			return Word(a >= b), true
		}
	}
	switch op {
	case "+":
		return a + b, true
	case "-":
		return a - b, true
	case "*":
		return a * b, true
	case "/":
		if b == 0 {
			return 0, false
		}
		return uint64(x / y), true
	case "%":
		if b == 0 {
			return 0, false
		}
		return uint64(x % y), true
	case "&":
		return a & b, true
	case "|":
		return a | b, true
	case "^":
		return a ^ b, true
	case "<<":
		return a << (b & 63), true
	case ">>":
		return uint64(x >> (b & 63)), true
	case "==":
		return Word(a == b), true
	case "!=":
		return Word(a != b), true
	case "<":
		return Word(x < y), true
	case "<=":
		return Word(x <= y), true
	case ">":
		return Word(x > y), true
	case ">=":
		return Word(x >= y), true
	case "&&":
		return Word(a != 0 && b != 0), true
	case "||":
		return Word(a != 0 || b != 0), true
	}
	return 0, false
}

// Word is a boolean as a number.
func Word(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// Reckon is what an operation on two numbers comes to, however large that is; but what is shifted out of 64 bits is lost. nil where
// it comes to no number.
func Reckon(op string, a, b *big.Int) *big.Int {
	n := new(big.Int)
	switch op {
	case "+":
		return n.Add(a, b)
	case "-":
		return n.Sub(a, b)
	case "*":
		return n.Mul(a, b)
	case "/":
		if b.Sign() != 0 {
			return n.Quo(a, b)
		}
	case "%":
		if b.Sign() != 0 {
			return n.Rem(a, b)
		}
	case "&":
		return n.And(a, b)
	case "|":
		return n.Or(a, b)
	case "^":
		return n.Xor(a, b)
	case "<<", ">>":
		if b.Sign() < 0 || b.Cmp(big.NewInt(63)) > 0 {
			return nil
		}
		if op == ">>" {
			return n.Rsh(a, uint(b.Uint64()))
		}
		bits := new(big.Int).And(n.Lsh(a, uint(b.Uint64())), AllOnes).Uint64()
		if a.Sign() < 0 {
			return n.SetInt64(int64(bits))
		}
		return n.SetUint64(bits)
	}
	return nil
}

// AllOnes is the largest number of 64 bits.
var AllOnes = new(big.Int).SetUint64(1<<64 - 1)

// Overflow tells what is wrong with an operation on two numbers where 64 bits do not hold them, or what they come to; "" for
// nothing.
func Overflow(op string, a, b *big.Int) string {
	switch op {
	case "+", "-", "*", "&", "|", "^":
	case "/", "%":
		if b.Sign() == 0 {
			return "division by zero: unable to fold literals"
		}
	case "<<", ">>":
		if b.Sign() < 0 || b.Cmp(big.NewInt(63)) > 0 {
			return fmt.Sprintf("overflow: a number of 64 bits cannot be shifted by %s", b)
		}
		return ""
	default:
		return ""
	}
	n := Reckon(op, a, b)
	signed := a.Sign() < 0 || b.Sign() < 0
	for _, each := range []*big.Int{a, b, n} {
		switch {
		case signed && each.Sign() > 0 && !each.IsInt64(), !signed && each.Sign() > 0 && !each.IsUint64():
			return fmt.Sprintf("overflow: unable to fold literals, 64 bits do not hold %s", each)
		case each.Sign() < 0 && !each.IsInt64():
			return fmt.Sprintf("underflow: unable to fold literals, 64 bits do not hold %s", each)
		}
	}
	return ""
}
