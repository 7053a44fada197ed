package output

import (
	"fmt"
	"strings"
	"time"
)

// Colours of a terminal, as bpftrace gives them whatever the output is.
const (
	green = "\033[32m"
	red   = "\033[31m"
	plain = "\033[0m"
)

func mark(colour, word string) string { return colour + "[" + word + "]" + plain + " " }

// TestsHead is said before the first of n tests.
func TestsHead(n int) string {
	return mark(green, "==========") + fmt.Sprintf("Running %d tests.\n", n)
}

// Test is what is said of a test: its output only where it has failed.
func Test(name string, ok bool, out string, took time.Duration) string {
	var b strings.Builder
	b.WriteString(mark(green, " RUN      ") + name + "\n")
	if ok {
		b.WriteString(mark(green, "       OK "))
	} else {
		for line := range strings.Lines(out) {
			if line = strings.TrimSuffix(line, "\n"); line != "" {
				b.WriteString(line + "\n")
			}
		}
		b.WriteString(mark(red, "  FAILED  "))
	}
	value, unit := duration(took)
	fmt.Fprintf(&b, "%s (%d %s)\n", name, value, unit)
	return b.String()
}

// Tests is said behind the last test.
func Tests(n int, failed []string) string {
	tests := func(n int) string {
		if n == 1 {
			return "1 test"
		}
		return fmt.Sprintf("%d tests", n)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s%s ran.\n%s%s.\n", mark(green, "=========="), tests(n), mark(green, "  PASSED  "), tests(n-len(failed)))
	if len(failed) > 0 {
		fmt.Fprintf(&b, "%s%s, listed below:\n", mark(red, "  FAILED  "), tests(len(failed)))
		for _, name := range failed {
			b.WriteString(mark(red, "  FAILED  ") + name + "\n")
		}
	}
	return b.String()
}

// duration is a time in the unit that suits it.
func duration(d time.Duration) (value int64, unit string) {
	switch {
	case d < time.Microsecond:
		return d.Nanoseconds(), "ns"
	case d < time.Millisecond:
		return d.Microseconds(), "us"
	case d < time.Second:
		return d.Milliseconds(), "ms"
	}
	return int64(d / time.Second), "s"
}
