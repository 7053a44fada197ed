package script_test

import (
	"fmt"
	"strings"
	"testing"

	"kprobe/script"
)

// A program may be so long that its end is too far for the jumps at its beginning.
func TestLong(t *testing.T) {
	var b strings.Builder
	b.WriteString("begin /@more != 1/ {")
	for i := range 1000 {
		fmt.Fprintf(&b, " @x[%d] = %d;", i, 2*i)
	}
	b.WriteString(" } begin { @more = 1; } begin /@more != 1/ {")
	for i := range 1000 {
		fmt.Fprintf(&b, " @x[%d] = 7;", i)
	}
	b.WriteString(" } end { clear(@more); }")
	out, told, _, err := run(b.String(), script.Options{Quiet: true}, nil, nil)
	ok(t, err)
	if strings.Count(out, "\n") != 1002 || !strings.Contains(out, "\n@x[0]: 0\n@x[1]: 2\n") || !strings.Contains(out, "@x[999]: 1998\n") || told != "" {
		t.Errorf("%.200q %q", out, told)
	}
}
