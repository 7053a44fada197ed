package point

import (
	"strconv"
	"testing"
)

// The names of arguments are those of twelve, as numbers are written.
func TestArgumentNames(t *testing.T) {
	for n := range 12 {
		if got, stack, ok := Argument("arg" + strconv.Itoa(n)); got != n || stack || !ok {
			t.Errorf("arg%d is %d, %v, %v", n, got, stack, ok)
		}
		if got, stack, ok := Argument("sarg" + strconv.Itoa(n)); got != n || !stack || !ok {
			t.Errorf("sarg%d is %d, %v, %v", n, got, stack, ok)
		}
	}
	for _, name := range []string{"arg12", "arg", "arg01", "arg-1", "arg+1", "args", "sarg", "ssarg1", "1", "s1"} {
		if _, _, ok := Argument(name); ok {
			t.Errorf("%s is an argument", name)
		}
	}
}
