package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"kprobe/internal/testprog"
)

// A bpftrace user's first minute: a script on a command, a file with parameters, what is
// wrong shown with its place, and the binary under bpftrace's name.
func TestScript(t *testing.T) {
	text := `uprobe:jumpers:jumper { @[comm] = count(); } end { printf("over\n"); }`
	program := testprog.Build(t, "jumpers", "-O2")
	r := run(t, "script", "-e", text, "-c", program)
	if out := strings.Join(r.Lines, "\n"); !r.OK() || !strings.Contains(out, "over") {
		t.Errorf("%v", r)
	}
	file := filepath.Join(t.TempDir(), "x.bt")
	if err := os.WriteFile(file, []byte(`begin { printf("%s %d\n", $1, getopt("n", 1)); exit(); }`), 0o644); err != nil {
		t.Fatal(err)
	}
	r = run(t, "script", file, "a", "--", "--n=5")
	if out := strings.Join(r.Lines, "\n"); !r.OK() || !strings.HasPrefix(out, "a 5\n") {
		t.Errorf("%v", r)
	}
	r = run(t, "script", "-e", "begin { $x = }")
	if r.OK() || !strings.Contains(r.Stderr, "stdin:1:14-15: ERROR: syntax error, unexpected }\nbegin { $x = }\n             ~") {
		t.Errorf("%v", r)
	}
	link := filepath.Join(t.TempDir(), "bpftrace")
	if err := os.Symlink(tool(t).Path, link); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(link, "-B", "none", "-q", "-e", "BEGIN { print(1); exit(); }").Output(); err != nil || string(out) != "1\n\n\n" {
		t.Errorf("%q, %v", out, err)
	}
	for _, bad := range [][]string{{"script"}, {"script", "-e", text}, {"script", "-e", text, "-f", "xml"}, {"script", "-e", text, "-p", "1", "-c", "true"}, {"script", "/no/such"}, {"script", "-l"}} {
		if r := run(t, bad...); r.OK() {
			t.Errorf("%q is not refused", bad)
		}
	}
}
