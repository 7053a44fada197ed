package point

import (
	"strconv"
	"strings"
)

// Argument tells whether a name is arg0 to arg11, or sarg0 to sarg11, and which: a static probe has twelve.
func Argument(name string) (n int, stack, ok bool) {
	rest, stack := strings.CutPrefix(name, "s")
	n, err := strconv.Atoi(strings.TrimPrefix(rest, "arg"))
	ok = err == nil && n >= 0 && n < 12 && rest == "arg"+strconv.Itoa(n)
	return n, stack && ok, ok
}
