package source

import (
	"debug/dwarf"
	"encoding/binary"
	"fmt"
	"maps"
	"math/big"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"kprobe/internal/testprog"
)

// integers are C's types of integers, by their size and sign.
var integers = map[string]base{
	"char": {1, true, false}, "unsigned char": {1, false, false}, "short int": {2, true, false}, "short unsigned int": {2, false, false},
	"int": {4, true, false}, "unsigned int": {4, false, false}, "long int": {8, true, false}, "long unsigned int": {8, false, false},
}

// number is the number that the low bits of n are in a type.
func (b base) number(n uint64) *big.Int {
	v := new(big.Int).And(new(big.Int).SetUint64(n), big.NewInt(0).Sub(big.NewInt(0).Lsh(big.NewInt(1), uint(8*b.bytes)), big.NewInt(1)))
	if b.signed && v.Bit(8*b.bytes-1) == 1 {
		v.Sub(v, big.NewInt(0).Lsh(big.NewInt(1), uint(8*b.bytes)))
	}
	return v
}

// evaluated is an expression's value.
func evaluated(t *testing.T, e *Expr) uint64 {
	t.Helper()
	switch e.Op {
	case OpConst:
		return e.N
	case OpAdd:
		return evaluated(t, e.A) + evaluated(t, e.B)
	case OpCompute:
	default:
		t.Fatalf("operation %d of a constant", e.Op)
	}
	a, b := evaluated(t, e.A), uint64(0)
	if e.B != nil {
		b = evaluated(t, e.B)
	}
	truth := func(is bool) uint64 { return uint64(btoi(is)) }
	switch e.What {
	case "abs":
		return uint64(max(int64(a), -int64(a)))
	case "neg":
		return -a
	case "not":
		return ^a
	case "and":
		return a & b
	case "or":
		return a | b
	case "xor":
		return a ^ b
	case "minus":
		return a - b
	case "mul":
		return a * b
	case "div":
		return uint64(int64(a) / int64(b))
	case "mod":
		return a % b
	case "shl":
		return a << b
	case "shr":
		return a >> b
	case "shra":
		return uint64(int64(a) >> b)
	case "eq":
		return truth(a == b)
	case "ne":
		return truth(a != b)
	case "lt":
		return truth(int64(a) < int64(b))
	case "le":
		return truth(int64(a) <= int64(b))
	case "gt":
		return truth(int64(a) > int64(b))
	case "ge":
		return truth(int64(a) >= int64(b))
	}
	t.Fatalf("operation %s", e.What)
	return 0
}

// exact returns the result of an operation in C on two numbers; nil where that is not defined.
func exact(op string, a, b *big.Int, bits int) *big.Int {
	truth := func(is bool) *big.Int { return big.NewInt(int64(btoi(is))) }
	shift := int(b.Int64())
	defined := b.Sign() >= 0 && b.IsInt64() && shift < bits
	out := new(big.Int)
	switch op {
	case "abs":
		return out.Abs(a)
	case "neg":
		return out.Neg(a)
	case "not":
		return out.Not(a)
	case "and":
		return out.And(a, b)
	case "or":
		return out.Or(a, b)
	case "xor":
		return out.Xor(a, b)
	case "plus":
		return out.Add(a, b)
	case "minus":
		return out.Sub(a, b)
	case "mul":
		return out.Mul(a, b)
	case "eq":
		return truth(a.Cmp(b) == 0)
	case "ne":
		return truth(a.Cmp(b) != 0)
	case "lt":
		return truth(a.Cmp(b) < 0)
	case "le":
		return truth(a.Cmp(b) <= 0)
	case "gt":
		return truth(a.Cmp(b) > 0)
	case "ge":
		return truth(a.Cmp(b) >= 0)
	case "div":
		if b.Sign() != 0 {
			return out.Quo(a, b)
		}
	case "mod":
		if b.Sign() != 0 {
			return out.Rem(a, b)
		}
	case "shl":
		if defined {
			return out.Lsh(a, uint(shift))
		}
	case "shr", "shra":
		if defined {
			return out.Rsh(a, uint(shift))
		}
	}
	return nil
}

// TestTypedOperations holds that operations on values of C's types give what C has, or are refused, and that conversions do.
func TestTypedOperations(t *testing.T) {
	path := filepath.Join(t.TempDir(), "integers")
	testprog.CompileText(t, path, []string{"gcc", "-g"}, "integers.c", "char a; unsigned char b; short c; unsigned short d; int e; unsigned f; long g; unsigned long h; float i; double j; int main() {}")
	f := open(t, path)
	at := map[string]uint64{}
	for typ := range f.types().types() {
		if typ.tag == dwarf.TagBaseType {
			at[f.name(typ.name)] = uint64(typ.off) - f.units[0].off
		}
	}
	for name := range integers {
		if at[name] == 0 {
			t.Fatalf("no type %s", name)
		}
	}
	rnd := testprog.Rand(t)
	constant := func(name string, n uint64) []byte {
		b := binary.AppendUvarint([]byte{opConstType}, at[name])
		size := integers[name].bytes
		return append(append(b, byte(size)), binary.LittleEndian.AppendUint64(nil, n)[:size]...)
	}
	run := func(b []byte) (uint64, error) {
		m := machine{f: f, u: f.units[0]}
		l, err := m.locate(append(b, opStackValue))
		if err != nil {
			return 0, err
		}
		return evaluated(t, l.Value), nil
	}
	names := slices.Sorted(maps.Keys(integers))
	done, refused := 0, map[string]bool{}
	for range 1000 {
		of, to := names[rnd.IntN(len(names))], names[rnd.IntN(len(names))]
		x, y := interesting(rnd), interesting(rnd)
		a, b := integers[of].number(x), integers[of].number(y)
		converted, err := run(binary.AppendUvarint(append(constant(of, x), opConvert), at[to]))
		if want := integers[to].number(x); err != nil || integers[of].bytes >= integers[to].bytes && integers[to].number(converted).Cmp(want) != 0 {
			t.Fatalf("%s %v as %s: %d, want %v, %v", of, a, to, int64(converted), want, err)
		}
		if want := new(big.Int).And(a, new(big.Int).SetUint64(^uint64(0))).Uint64(); integers[of].bytes < integers[to].bytes && integers[to].number(converted).Cmp(integers[to].number(want)) != 0 {
			t.Fatalf("%s %v as %s: %d", of, a, to, int64(converted))
		}
		for code, op := range arithmetic {
			want := exact(op.name, a, b, 8*integers[of].bytes)
			if want == nil {
				continue
			}
			text := constant(of, x)
			if !op.one {
				text = append(text, constant(of, y)...)
			}
			have, err := run(append(text, code))
			if err != nil {
				refused[fmt.Sprintf("%s of %s", op.name, of)] = true
				continue
			}
			done++
			if integers[of].number(have).Cmp(integers[of].number(new(big.Int).And(want, new(big.Int).SetUint64(^uint64(0))).Uint64())) != 0 {
				t.Fatalf("%s %v %s %v: %d, want %v", of, a, op.name, b, int64(have), want)
			}
			// As a number it is what the type has, for what is done with it next.
			if !integers[of].narrow() {
				continue
			}
			if n := new(big.Int).SetInt64(int64(have)); n.Cmp(integers[of].number(have)) != 0 {
				t.Fatalf("%s %v %s %v is held as %d", of, a, op.name, b, int64(have))
			}
		}
	}
	for _, to := range []string{"float", "long int"} { // a number of another kind
		b := binary.AppendUvarint([]byte{opConstType}, at["double"])
		b = append(append(b, 8), make([]byte, 8)...)
		if n, err := run(binary.AppendUvarint(append(b, opConvert), at[to])); err == nil {
			t.Errorf("double as %s: %d", to, n)
		}
	}
	t.Logf("%d operations, refused: %v", done, slices.Sorted(maps.Keys(refused)))
	if done < 10000 || len(refused) > 30 {
		t.Errorf("%d operations, %d kinds of them refused", done, len(refused))
	}
}

// interesting is a random number, near the limits of types more often than not.
func interesting(rnd *rand.Rand) uint64 {
	n := rnd.Uint64() >> rnd.IntN(64)
	if rnd.IntN(2) == 0 {
		n = 1<<rnd.IntN(64) + uint64(rnd.IntN(5)) - 2
	}
	return n
}
