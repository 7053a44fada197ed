package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"kprobe/internal/testprog"
)

// TestJITStacks holds that functions that node has compiled have their names in stacks, by either of the files that it
// writes for perf, and that there are none without.
func TestJITStacks(t *testing.T) {
	testprog.Need(t, "node", have("node"))
	dir := t.TempDir()
	code := filepath.Join(dir, "work.js")
	if err := os.WriteFile(code, []byte(`const fs = require('fs');
const out = fs.openSync('/dev/null', 'w');
function innerWork(n) { let s = 0; for (let i = 0; i < n; i++) s += Math.sqrt(i); fs.writeSync(out, '.'); return s; }
function outerWork(n) { return innerWork(n) + 1; }
setInterval(() => { for (let i = 0; i < 300; i++) outerWork(300); }, 5);
`), 0o644); err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		flags []string
		named bool
	}{
		{[]string{"--perf-basic-prof", "--interpreted-frames-native-stack"}, true},
		{[]string{"--perf-prof", "--interpreted-frames-native-stack"}, true},
		{nil, false},
	}
	if testing.Short() {
		cases = cases[1:2] // each reads all of node's tables, and package symbol reads both files
	}
	for _, c := range cases {
		cmd := exec.Command("node", append(append([]string{"--no-turbo-inlining"}, c.flags...), code)...)
		cmd.Dir = dir // where it writes its dump
		p := testprog.StartCmd(t, cmd)
		t.Cleanup(func() { os.Remove(fmt.Sprintf("/tmp/perf-%d.map", p.Pid)) })
		testprog.UntilNil(t, fmt.Sprint(c.flags), p.Pid, func() error {
			r := run(t, "trace", "--no-summary", "-d", "2s", "-n", "5", "-p", fmt.Sprint(p.Pid), "p "+inLibc(t, "write")+" stack")
			text := strings.Join(r.Lines, "\n")
			found := strings.Contains(text, "innerWork") && strings.Contains(text, "work.js:5") // the timer's
			if found != c.named {
				return fmt.Errorf("the functions have their names: %v", found)
			}
			return nil
		})
	}
}
