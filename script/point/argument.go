package point

import (
	"strconv"
	"strings"

	"kprobe/script/machine"
	"kprobe/symbol"
)

// Args are the registers with the first arguments of the point's function; none where they are not in registers, or
// that is not known.
func (p *Point) Args(m *machine.Machine) []string {
	switch p.Passing {
	case symbol.ByC:
		return m.Args[p.First():]
	case symbol.ByGo:
		return m.GoArgs
	}
	return nil
}

// Argument tells whether a name is arg0 to arg11, or sarg0 to sarg11, and which: a static probe has twelve.
func Argument(name string) (n int, stack, ok bool) {
	rest, stack := strings.CutPrefix(name, "s")
	n, err := strconv.Atoi(strings.TrimPrefix(rest, "arg"))
	ok = err == nil && n >= 0 && n < 12 && rest == "arg"+strconv.Itoa(n)
	return n, stack && ok, ok
}
