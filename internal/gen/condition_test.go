package gen

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"kprobe/arch"
	"kprobe/bpf"
	"kprobe/event"
	"kprobe/spec"
)

// conditional compiles a definition with a condition over its arguments, of which the last is not shown.
func conditional(t testing.TB, text string, m target, args ...string) (*event.Capture, error) {
	t.Helper()
	e, err := spec.ParseExpr(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	parsed := parse(t, "p", args...)
	cond := &event.Condition{Expr: e, Leaf: map[*spec.Expr]int{}}
	var walk func(e *spec.Expr)
	walk = func(e *spec.Expr) {
		if e == nil {
			return
		}
		if e.Op == spec.ExprName {
			cond.Leaf[e] = map[string]int{"tid": event.LeafTID, "pid": event.LeafPID}[e.Name]
			if i := slices.IndexFunc(parsed, func(a spec.Arg) bool { return a.Name == e.Name }); i >= 0 {
				cond.Leaf[e] = i
			}
			return
		}
		walk(e.L)
		walk(e.R)
	}
	walk(e)
	return event.CompileIf(parsed, len(parsed)-1, cond, arch.AMD64, m)
}

var conditionArgs = []string{"a=%di", "b=%si:s32", "u=%si:u8", "bits=%di:b2@1/8", "text=+0(%dx):string", "bad=+0(%di)", "who=$comm", "neg=%ax:s64", "byte=%bx:s8"}

// both works a condition out at a stop and in a program.
func both(t testing.TB, h *hit, text string) (stop, program bool) {
	t.Helper()
	c, err := conditional(t, text, h.memory, conditionArgs...)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	ctx := &event.Context{Regs: &h.regs, Mem: h.memory, Comm: "redis-server", TID: 1001, PID: 1000}
	stop = c.Holds(c.Run(ctx), ctx)
	tr, err := Compile("e", bpf.Kprobe, arch.AMD64, c, Options{})
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	values, program := h.run(t, tr)
	if program && len(values) != len(conditionArgs)-1 {
		t.Errorf("%s: %d arguments are shown", text, len(values))
	}
	return stop, program
}

func conditionHit() *hit {
	m := newTarget(rand.New(rand.NewPCG(1, 1)))
	copy(m[0x300:], "some text\x00")
	h := &hit{memory: m}
	h.regs[arch.DI], h.regs[arch.SI], h.regs[arch.DX], h.regs[arch.AX], h.regs[arch.BX] = 5, ^uint64(6), 0x10300, ^uint64(99), 0x180
	return h
}

func TestConditions(t *testing.T) {
	h := conditionHit()
	for _, c := range []struct {
		text string
		want bool
	}{
		{"a == 5", true},
		{"a", true},
		{"!a", false},
		{"b < 0 && b == -7", true},
		{"u == 249", true},
		{"byte == -128", true},
		{"bits * 2 + 1 == 5", true},
		{"a + b == -2", true},
		{"neg / 7 == -14 && neg % 7 == -2", true},
		{"neg / 0 == 0 || neg % 0 == neg || neg / (a - 5) != 7 || a / 0", false},
		{"!(neg % 0 == neg) && (a == 5 || a / 0 > 1)", true},
		{"-a == b + 2", true},
		{"neg >> 1 == -50", true},
		{"a - 6 > 0", true}, // a is unsigned, of 64 bits
		{"neg < 0", true},
		{"~a == -6", true},
		{"(a ^ 1) == 4 && (a | 8) == 13 && (a & 4) == 4 && a << 2 == 20", true},
		{`text == "some text"`, true},
		{`text ~ "some*"`, true},
		{`text ~ "sum*"`, false},
		{`text != "some"`, true},
		{`who == "redis-server" && tid == 1001 && pid == tid - 1`, true},
		{"bad == bad", false},
		{"!(bad == bad)", true},
		{"bad + 1", false},
		{"a == 4 || (bits == 2 && (b > 0 || u > 0x80))", true},
	} {
		stop, program := both(t, h, c.text)
		if stop != c.want || program != c.want {
			t.Errorf("%s: %v at a stop, %v in a program; want %v", c.text, stop, program, c.want)
		}
	}
	for _, text := range []string{"text > 3", `a == "x"`, `text < "a"`, "(a == 5) + 1", `"x" == text`, "text && a", `a ~ "x"`, "-text"} {
		if _, err := conditional(t, text, h.memory, conditionArgs...); err == nil {
			t.Errorf("%s is accepted", text)
		}
	}
}

// A program holds a condition for what a stop does, whatever it is.
func TestConditionsTheSame(t *testing.T) {
	n := 3000
	if testing.Short() {
		n = 300
	}
	held := 0
	for seed := range n {
		r := rand.New(rand.NewPCG(uint64(seed), 7))
		h := newHit(r, newTarget(r))
		text := randomTruth(r, 3)
		stop, program := both(t, h, text)
		if stop != program {
			t.Fatalf("seed %d: %s: %v at a stop, %v in a program", seed, text, stop, program)
		}
		if stop {
			held++
		}
	}
	if held < n/10 || held > n*9/10 {
		t.Errorf("%d of %d hold", held, n)
	}
}

func randomTruth(r *rand.Rand, depth int) string {
	switch k := r.IntN(6); {
	case depth > 0 && k < 2:
		return fmt.Sprintf("(%s %s %s)", randomTruth(r, depth-1), []string{"&&", "||"}[k], randomTruth(r, depth-1))
	case depth > 0 && k == 2:
		return "!" + randomTruth(r, depth-1)
	case k == 3:
		return fmt.Sprintf(`(text %s "%c")`, []string{"==", "!="}[r.IntN(2)], 'a'+rune(r.IntN(26)))
	}
	return fmt.Sprintf("(%s %s %s)", randomNumber(r, 3), []string{"==", "!=", "<", "<=", ">", ">="}[r.IntN(6)], randomNumber(r, 3))
}

func randomNumber(r *rand.Rand, depth int) string {
	if depth == 0 || r.IntN(3) == 0 {
		return []string{"a", "b", "u", "bits", "bad", "neg", "byte", "tid", "3", "0x10000", "0", "250"}[r.IntN(12)]
	}
	if r.IntN(5) == 0 {
		return []string{"-", "~"}[r.IntN(2)] + randomNumber(r, depth-1)
	}
	op := []string{"+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>"}[r.IntN(10)]
	return fmt.Sprintf("(%s %s %s)", randomNumber(r, depth-1), op, randomNumber(r, depth-1))
}
