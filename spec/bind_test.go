package spec

import (
	"errors"
	"strings"
	"testing"
)

// letters are names of one letter, each in the register of that letter. $arg* are a and b.
type letters struct{ refuses error }

func (l letters) Has(f *Fetch) bool { return f.Op == Var }

func (l letters) Pointer(_ int, f *Fetch) (*Fetch, error) {
	return &Fetch{Op: Reg, Name: f.Name}, l.refuses
}

func (l letters) Value(i int, a Arg) ([]Arg, error) {
	f, err := l.Pointer(i, &a.Fetch)
	a.Fetch = *f
	return []Arg{a}, err
}

func (l letters) All(int, Op) ([]Arg, error) {
	return []Arg{
		{Name: "a", Named: true, Fetch: Fetch{Op: Reg, Name: "a"}},
		{Name: "b", Named: true, Fetch: Fetch{Op: Reg, Name: "b"}},
	}, l.refuses
}

// Names are found as values, below dereferences, and in $arg*; what has none stays; no two arguments have
// one name.
func TestBind(t *testing.T) {
	for _, tt := range []struct{ def, want string }{
		{"p f x=%di y=+8(%si)", "x=%di y=+8(%si)"},
		{"p f x=a", "x=%a"},
		{"p f x=+8(a) y=+0(+16(b))", "x=+8(%a) y=+0(+16(%b))"},
		{"p f $arg*", "a=%a b=%b"},
		{"p f b=%di $arg*", "b=%di a=%a arg2=%b"},
		{"p f arg2=%di b=%si $arg*", "arg2=%di b=%si a=%a arg3=%b"},
	} {
		sp, err := Options{Dialect: Kprobes, Types: true, IsReg: func(string) bool { return true }}.Parse(tt.def)
		if err != nil {
			t.Fatal(err)
		}
		before := sp.String()
		args, err := Bind(sp, letters{})
		if err != nil {
			t.Errorf("%s: %v", tt.def, err)
			continue
		}
		bound := *sp
		bound.Args = args
		if _, got, _ := strings.Cut(bound.String(), " f "); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.def, got, tt.want)
		}
		if sp.String() != before {
			t.Errorf("%s: the definition itself has become %s", tt.def, sp)
		}
		no := errors.New("no such name")
		if _, err := Bind(sp, letters{refuses: no}); (err == no) != (tt.want != "x=%di y=+8(%si)") {
			t.Errorf("%s: %v", tt.def, err)
		}
	}
}
