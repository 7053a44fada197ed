package script_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"kprobe/script"
)

// What is accepted, what is warned of and what refused, script by script.
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
		var told strings.Builder
		_, err := script.Compile(source, script.Options{Unsafe: unsafe, Errors: &told})
		switch {
		case verdict == "warn" && (err != nil || !strings.Contains(told.String(), want)):
			t.Errorf("%s\nis not warned of for %q: %v %s", source, want, err, &told)
		case verdict == "plain" && told.Len() > 0:
			t.Errorf("%s\nis told: %s", source, &told)
		case (verdict == "ok" || verdict == "plain") && err != nil:
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

// What the page of scripts lists is known to the compiler: each name and each function of its table.
func TestPageOfScripts(t *testing.T) {
	page, err := os.ReadFile("../docs/SCRIPTS.md")
	ok(t, err)
	n := 0
	for line := range strings.Lines(string(page)) {
		form, unknown := "uprobe:f:g { %s }", "Unknown identifier"
		switch {
		case strings.HasPrefix(line, "| functions |"):
			form, unknown = "uprobe:f:g { %s() }", "Unknown function"
		case !strings.HasPrefix(line, "| names |"):
			continue
		}
		for i, words := range strings.Split(line, "`") {
			if i%2 == 0 {
				continue
			}
			for _, name := range strings.Fields(words) {
				name, last, _ := strings.Cut(name, "-") // arg0-arg5
				for _, one := range []string{strings.TrimSuffix(name, ".NAME"), last} {
					if one == "" {
						continue
					}
					n++
					if one == "config" {
						one = "config().max_strlen; str" // which is nothing by itself
					}
					_, err := script.Compile(fmt.Sprintf(form, one), script.Options{Unsafe: true})
					if err != nil && strings.Contains(err.Error(), unknown) {
						t.Errorf("%s is listed: %v", one, err)
					}
				}
			}
		}
	}
	if n < 90 {
		t.Errorf("%d names were read", n)
	}
}
