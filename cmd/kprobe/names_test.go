package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestPatternsOverReadableNames holds that a pattern means the names that a source has, also of functions without a namespace.
func TestPatternsOverReadableNames(t *testing.T) {
	path := compiledSource(t, "g++", "-O2", "-g", "named.cc")
	for pattern, want := range map[string][]string{
		"take_*":  {"take_int", "take_text"},
		"most<*":  {"most<int>", "most<long>"},
		"*ost<l*": {"most<long>"},
	} {
		r := run(t, "trace", "p:e named:"+pattern, "--", path)
		var got []string
		for _, l := range r.Lines {
			if _, rest, ok := strings.Cut(l, ": e: ("); ok {
				name, _, _ := strings.Cut(rest, "+0x")
				got = append(got, name)
			}
		}
		slices.Sort(got)
		if got := slices.Compact(got); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q\n%v", pattern, got, want, r)
		}
	}
	refused(t, run(t, "trace", "p named:take_none*", "--", path), "no function matches")
}

// TestTrueAndFalse holds that a condition may compare with them.
func TestTrueAndFalse(t *testing.T) {
	path := compiledSource(t, "g++", "-O2", "-g", "named.cc")
	hold(t, path, []cValues{
		{"p:ev take_int n if odd == true", []string{"n=1", "n=3"}},
		{"p:ev take_int n if odd == false", []string{"n=0", "n=2"}},
		{"p:ev take_int n if odd != false && c == BLUE", []string{"n=3"}},
	}, [][]string{{"--stops"}, {"--stops=false"}})
}

// TestArgumentsHaveNamesOfTheirOwn holds that no two arguments of an event have one name.
func TestArgumentsHaveNamesOfTheirOwn(t *testing.T) {
	path := compiledSource(t, "g++", "-O2", "-g", "named.cc")
	r := run(t, "trace", "--json", "p:e take_int $arg* *p n", "--", path)
	var e struct{ Args map[string]any }
	at := slices.IndexFunc(r.Lines, func(l string) bool { return strings.HasPrefix(l, "{") })
	if at < 0 {
		t.Fatal(r)
	}
	if err := json.Unmarshal([]byte(r.Lines[at]), &e); err != nil {
		t.Fatal(err, r.Lines[at])
	}
	if len(e.Args) != 6 || e.Args["arg2"] != 7.0 || e.Args["arg3"] != e.Args["n"] {
		t.Errorf("%v", r.Lines[at])
	}
}

// TestLinesOfARelativePath holds that the text of a source is found whose compiler was given a path from where it ran.
func TestLinesOfARelativePath(t *testing.T) {
	dir := t.TempDir()
	text, err := os.ReadFile("../../source/testdata/named.cc")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "named.cc"), text, 0o644); err != nil {
		t.Fatal(err)
	}
	builds := [][]string{{"g++", "-g"}, {"g++", "-gdwarf-4"}, {"clang++", "-g"}}
	if testing.Short() {
		builds = builds[1:] // each compiler, and each version of line tables
	}
	for _, cc := range builds {
		c := exec.Command(cc[0], append(cc[1:], "-o", "named", "named.cc")...)
		c.Dir = dir
		if b, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, b)
		}
		r := run(t, "lines", filepath.Join(dir, "named"), "take_text")
		if !strings.Contains(r.String(), "sink += s.size();") {
			t.Errorf("%v: %v", cc, r)
		}
	}
}
