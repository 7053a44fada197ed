package spec

import (
	"errors"
	"testing"
)

func TestParseExpr(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"a", "a"},
		{"a->b.c", "a->b.c"},
		{"d[2].x", "d[2].x"},
		{"*p", "(*p)"},
		{"**p->q", "(*(*p->q))"},
		{"&a.b", "(&a.b)"},
		{"(struct foo *)p", "((struct foo*)p)"},
		{"((struct foo *)p)->x", "((struct foo*)p)->x"},
		{"(const char *)p", "((char*)p)"},
		{"(ns::T*)p", "((ns::T*)p)"},
		{"(unsigned long)p", "((unsigned long)p)"},
		{"(p)", "p"},
		{"(p) * q", "(p*q)"},
		{"(p)*q", "(p*q)"},
		{"ns::counter", "ns::counter"},
		{"::counter", "counter"},
		{"a > 3 && b == \"x y\" || !c", `(((a>3)&&(b=="x y"))||(!c))`},
		{"a + b * 2 << 1", "((a+(b*2))<<1)"},
		{"a & 4 == 4", "(a&(4==4))"},
		{"$retval->x < 0x10", "($retval->x<16)"},
		{"a-b", "(a-b)"},
		{"a->b-c", "(a->b-c)"},
		{"-1", "(-1)"},
		{"c == 'x'", "(c==120)"},
		{`comm ~ "ng*"`, `(comm~"ng*")`},
		{"10ul", "10"},
	} {
		e, err := ParseExpr(c.text)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if got := e.String(); got != c.want {
			t.Errorf("%s: %s, want %s", c.text, got, c.want)
		}
		again, err := ParseExpr(e.String())
		if err != nil || !again.Equal(e) {
			t.Errorf("%s: reads back as %v, %v", c.text, again, err)
		}
	}
	for _, c := range []struct {
		text string
		at   int
	}{
		{"", 0}, {"a.", 2}, {"a[1", 3}, {"(a", 2}, {"a b", 2}, {"a + ", 4}, {`"a`, 0}, {"1x", 0}, {"a->", 3}, {"$", 0}, {"a @ b", 2},
	} {
		_, err := ParseExpr(c.text)
		var e *ExprError
		if !errors.As(err, &e) || e.At != c.at {
			t.Errorf("%q: %+v, want it at %d", c.text, err, c.at)
		}
	}
}

func FuzzParseExpr(f *testing.F) {
	for _, s := range []string{"a->b.c[2]", "(struct foo *)p->x == \"y\"", "!a && (b | 3) != -1", "((((", "a ~ 'x'"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		e, err := ParseExpr(text)
		if err != nil {
			return
		}
		again, err := ParseExpr(e.String())
		if err != nil { // parentheses of its own may be too deep, and too long
			var bad *ExprError
			if errors.As(err, &bad) && (len(e.String()) > maxExprText || bad.Reason == "nested deeper than 64") {
				return
			}
			t.Fatalf("%q is %q, which is %v", text, e.String(), err)
		}
		if !again.Equal(e) {
			t.Fatalf("%q is %q, which is %q", text, e.String(), again.String())
		}
	})
}
