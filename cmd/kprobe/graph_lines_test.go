package main

import (
	"slices"
	"testing"
)

// TestDrawnCalls holds that a call with nothing in it is one line, whenever the drawing went on.
func TestDrawnCalls(t *testing.T) {
	for _, c := range []struct{ drawn, want []string }{
		{[]string{" a-1 |          |  f(n=1) {", " a-1 |   1.0 us |  } /* f ret=2 */"}, []string{"T f(n=1); /* ret=2 */"}},
		{[]string{" a-1 |          |    f() {", " a-1 |   1.0 us |    } /* f */"}, []string{"T   f();"}},
		{[]string{" a-1 |          |  f() {", " a-1 |          |  } /* f: did not return */"}, []string{"- f(); /* did not return */"}},
		{[]string{" a-1 |          |  f() {", " a-1 |   1.0 us |    g();", " a-1 |   2.0 us |  } /* f */"}, []string{"- f() {", "T   g();", "T } /* f */"}},
		{[]string{" a-1 g7 |          |  f() {", " a-1 g8 |          |  h() {", " a-1 g7 |   2.0 us |  } /* f ret=1 */"}, []string{"7 T f(); /* ret=1 */", "8 - h() {"}},
	} {
		if got := drawnCalls(c.drawn); !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, want %q", c.drawn, got, c.want)
		}
	}
}
