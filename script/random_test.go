package script_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"kprobe/internal/testprog"
	"kprobe/script"
)

// scribe writes random statements that are right.
type scribe struct {
	*rand.Rand
	depth int
}

func (s *scribe) pick(all ...string) string { return all[s.IntN(len(all))] }

// number is an expression of numbers.
func (s *scribe) number() string {
	s.depth++
	defer func() { s.depth-- }()
	if s.depth > 4 || s.IntN(4) == 0 {
		return s.pick("$a", "$b", "$c", "1", "7", "0xffffffff", "$u", "@m", `@k[3]`, `@k["x" == "y" ? 3 : 4]`, fmt.Sprint(s.Int64N(1<<40)))
	}
	switch s.IntN(10) {
	case 0:
		return s.pick("-", "~", "!") + "((int64)(" + s.number() + "))"
	case 1:
		return "(" + s.pick("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "bool") + ")(" + s.number() + ")"
	case 2:
		return "(" + s.condition() + " ? " + s.number() + " : " + s.number() + ")"
	case 3:
		return "{ let $" + s.name() + " = " + s.number() + "; " + s.number() + " }"
	case 4:
		return "(" + s.number() + ", " + s.text() + ", " + s.number() + ")." + s.pick("0", "2")
	}
	op := s.pick("+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>")
	right := s.number()
	switch op {
	case "/", "%":
		right = "$c" // not 0
	case "*", "<<", ">>":
		right = "{ " + right + " }" // what literals alone come to must fit
	}
	return "(" + s.number() + " " + op + " " + right + ")"
}

var names int

func (s *scribe) name() string {
	names++
	return fmt.Sprintf("l%d", names)
}

func (s *scribe) condition() string {
	if s.IntN(3) == 0 {
		return s.text() + s.pick(" == ", " != ") + s.text()
	}
	return "(" + s.number() + s.pick(" < ", " <= ", " > ", " >= ", " == ", " != ", " && ", " || ") + s.number() + ")"
}

func (s *scribe) text() string {
	return s.pick(`"x"`, `"a longer string"`, `$s`, `@t`, `@n["q", 1]`, `""`)
}

func (s *scribe) statement() string {
	switch s.IntN(9) {
	case 0:
		return "if (" + s.condition() + ") { " + s.statement() + " } else { " + s.statement() + " }"
	case 1:
		return s.pick("$a", "$b", "@m", "@k[3]", "@k[4]") + s.pick(" = ", " += ", " -= ", " ^= ") + s.number() + ";"
	case 2:
		return s.pick("$a", "$b", "@m", "@k[3]") + s.pick("++", "--") + ";"
	case 3:
		return s.pick("$s", "@t", `@n["q", 1]`, `@n["rrr", 2]`) + " = " + s.text() + ";"
	case 4:
		return "for $" + s.name() + " : 0.." + s.pick("2", "5") + " { " + s.statement() + " }"
	case 5:
		return s.pick("@h = hist(", "@h2[1] = hist(", "@mi = min(", "@ma[1] = max(", "@av[2] = avg(", "@su = sum(") + "(int64)" + s.number() + ");"
	case 6:
		return "print((" + s.text() + ", " + s.condition() + "));"
	case 7:
		return "unroll(2) { " + s.statement() + " }"
	}
	return "print((int64)" + s.number() + ");"
}

// body begins with what statements use, with types that hold everything.
func (s *scribe) body() string {
	b := `$a = (int64)5; $b = (int64)-7; $c = (int64)3; $u = (uint64)0xfffffffffffffff0; let $s : string[24] = "start";
@m = (int64)1; @k[3] = (int64)2; @k[4] = (int64)-2; @t = "a longer string"; @n["q", 1] = "a longer string";`
	for range 12 {
		b += "\n" + s.statement()
	}
	return b
}

// What the checker accepts the verifier accepts; and what a script prints by the interpreter
// in the controller is what it prints by compiled code in a process, maps included.
func TestRandom(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "args", "-O2"))
	session := attach(t, p.Pid)
	for seed := range uint64(60) {
		s := &scribe{Rand: rand.New(rand.NewPCG(seed, 1))}
		body := s.body()
		alone, told, _, err := run("begin { "+body+"\nexit(); }", script.Options{}, nil, nil)
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, body)
		}
		inside, told2, _, err := run("uprobe:args:args_many { "+body+"\nexit(); }", script.Options{}, session, func() { p.Round("1") })
		if err != nil {
			t.Fatalf("seed %d: inside: %v\n%s", seed, err, body)
		}
		if !strings.Contains(alone, "@m: ") {
			t.Fatalf("seed %d: it prints %q", seed, alone)
		}
		if alone != inside {
			t.Fatalf("seed %d: the interpreter prints\n%s%s\nand compiled code\n%s%s\nof\n%s", seed, alone, told, inside, told2, body)
		}
	}
}
