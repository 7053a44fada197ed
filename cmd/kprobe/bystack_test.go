package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestStatByStack holds that hits are counted by who called, at stops of a condition's choice too.
func TestStatByStack(t *testing.T) {
	path := compiledSource(t, "gcc", "-O0", "-g", "calls.c")
	r := run(t, "stat", "--by", "stack", "p:leaf leaf", "p:rec rec if n > 1", "--", path)
	var got []string
	for block := range strings.SplitSeq(r.Stderr, "\n\n") {
		var names []string
		for _, m := range regexp.MustCompile(`(?m)^ => (\w+)`).FindAllStringSubmatch(block, -1) {
			if names = append(names, m[1]); m[1] == "main" {
				break
			}
		}
		if head, _, ok := strings.Cut(block, "\n"); ok && len(names) > 0 {
			got = append(got, head+" "+strings.Join(names, " "))
		}
	}
	want := []string{"leaf: 3 leaf outer main", "leaf: 3 leaf tail2 tail1 outer main", "rec: 3 rec main", "rec: 3 rec rec main"}
	if !slices.Equal(got, want) || !r.OK() {
		t.Errorf("got %q, want %q\n%v", got, want, r)
	}
	refused(t, run(t, "stat", "--by", "luck", "p leaf", "--", path), "by is stack")
}

// TestSplitDebugData holds that debug data in files of its own is read, and said to be missing where these are gone.
func TestSplitDebugData(t *testing.T) {
	path := compiledSource(t, "gcc", "-O1", "-g", "-gsplit-dwarf", "calls.c")
	if r := run(t, "vars", path, "leaf"); !r.OK() || !strings.Contains(fmt.Sprint(r), "int n") {
		t.Error(r)
	}
	dwos, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*.dwo"))
	if len(dwos) != 1 {
		t.Fatal(dwos)
	}
	if err := os.Remove(dwos[0]); err != nil {
		t.Fatal(err)
	}
	refused(t, run(t, "vars", path, "leaf"), "debug data is split off")
	refused(t, run(t, "trace", "p calls:leaf n", "--", path), "debug data is split off")
	refused(t, run(t, "trace", "p calls:leaf $arg*", "--", path), "debug data is split off")
}
