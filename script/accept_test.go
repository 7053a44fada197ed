package script_test

import (
	"os"
	"strings"
	"testing"

	"kprobe/script"
)

// What is accepted and what refused, script by script.
func TestAccepts(t *testing.T) {
	text, err := os.ReadFile("testdata/accepts.txt")
	ok(t, err)
	n := 0
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "# ") {
			continue
		}
		n++
		rest, unsafe := strings.CutPrefix(line, "unsafe ")
		verdict, source, _ := strings.Cut(rest, " ")
		source, want, _ := strings.Cut(source, " | ")
		source = strings.NewReplacer("P {", "uprobe:f:g {", "P /", "uprobe:f:g /", "Q {", "uprobe:f:h {").Replace(source)
		_, err := script.Compile(source, script.Options{Unsafe: unsafe})
		switch {
		case verdict == "ok" && err != nil:
			t.Errorf("%s\nis refused: %v", source, err)
		case verdict == "no" && err == nil:
			t.Errorf("%s\nis accepted", source)
		case verdict == "no" && !strings.Contains(err.Error(), want):
			t.Errorf("%s\nis refused, but not for %q: %v", source, want, err)
		}
	}
	if n < 200 {
		t.Errorf("%d scripts were read", n)
	}
}
