package source

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"
)

// ran runs a location's operations, of those that this test writes, and returns their result.
func ran(t *testing.T, code []byte) uint64 {
	var stack []uint64
	pop := func() uint64 { v := stack[len(stack)-1]; stack = stack[:len(stack)-1]; return v }
	for pc := 0; pc < len(code); {
		op := code[pc]
		pc++
		switch op {
		case 0x09: // const1s
			stack = append(stack, uint64(int8(code[pc])))
			pc++
		case opDrop:
			pop()
		case opSwap:
			b, a := pop(), pop()
			stack = append(stack, b, a)
		case 0x1c: // minus
			b, a := pop(), pop()
			stack = append(stack, a-b)
		case 0x2d: // lt
			b, a := pop(), pop()
			stack = append(stack, uint64(btoi(int64(a) < int64(b))))
		case opBra, opSkip:
			by := int(int16(uint16(code[pc]) | uint16(code[pc+1])<<8))
			if pc += 2; op == opSkip || pop() != 0 {
				pc += by
			}
		case opStackValue:
		default:
			t.Fatalf("operation %#x", op)
		}
	}
	return pop()
}

// branching writes random operations of no more than so many branches.
func branching(r *rand.Rand, branches *int, depth int) []byte {
	of := func() []byte { return branching(r, branches, depth-1) }
	jump := func(op byte, over []byte) []byte {
		return append([]byte{op, byte(len(over)), byte(len(over) >> 8)}, over...)
	}
	switch k := r.IntN(6); {
	case depth == 0 || k == 0:
		return []byte{0x09, byte(r.IntN(7) - 3)}
	case k < 4 || *branches == 0:
		return append(append(of(), of()...), []byte{0x1c, 0x2d}[r.IntN(2)])
	case k == 4: // as GCC writes it: both values, then the condition, which leaves one
		*branches--
		a, b, cond := of(), of(), of()
		return append(append(append(a, b...), cond...), append(jump(opBra, []byte{opSwap}), opDrop)...)
	}
	*branches--
	cond, a, b := of(), of(), of()
	b = append(b, jump(opSkip, a)...) // b, and over a
	return append(append(cond, jump(opBra, b[:len(b)-len(a)])...), a...)
}

// TestBranches holds that locations with branches give what running them gives.
func TestBranches(t *testing.T) {
	f := &File{}
	f.sec.little = true
	r := rand.New(rand.NewPCG(1, 24))
	for range 5_000 {
		branches := r.IntN(4 + 1)
		code := branching(r, &branches, 5)
		want := ran(t, code)
		for _, code := range [][]byte{code, append(code, opStackValue)} {
			m := machine{f: f, u: &unit{size: 8}}
			l, err := m.locate(code)
			if err != nil {
				t.Fatalf("% x: %v", code, err)
			}
			e := l.Memory
			if code[len(code)-1] == opStackValue {
				e = l.Value
			}
			if e == nil || evaluated(t, e) != want {
				t.Fatalf("% x: %+v, want %d", code, l, want)
			}
		}
	}
	for _, code := range [][]byte{
		append([]byte{opBreg0, 0}, bytes.Repeat([]byte{opDup, 0x1e}, 60)...),             // a number that is squared 60 times
		{0x31, opBra, 0xfc, 0xff, 0x32}, {opSkip, 0xfd, 0xff}, {0x31, opBra, 9, 0, 0x32}, // loops, and a jump to nowhere
		{0x31, opBra, 2, 0, 0x32, opStackValue, 0x33}, // a value or an address
	} {
		m := machine{f: f, u: &unit{size: 8}}
		if l, err := m.locate(code); !errors.Is(err, errComputation) {
			t.Errorf("% x: %+v, %v", code, l, err)
		}
	}
}
