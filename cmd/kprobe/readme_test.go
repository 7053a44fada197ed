package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"kprobe/internal/testprog"
)

// What the README shows is what works: its program is built and probes a process.
func TestReadmeExample(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(readme), "```go\n")
	program, _, ok := strings.Cut(rest, "```\n")
	if !ok {
		t.Fatal("no Go program in README.md")
	}
	dir := t.TempDir()
	source := filepath.Join(dir, "main.go")
	if err := os.WriteFile(source, []byte(program), 0o644); err != nil {
		t.Fatal(err)
	}
	example := filepath.Join(dir, "example")
	if out, err := exec.Command("go", "build", "-ldflags=-w", "-o", example, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	p := testprog.Start(t, testprog.Build(t, "jumpers", "-O2"))
	k := testprog.StartCmd(t, exec.Command(example, fmt.Sprint(p.Pid), "jumper"))
	if got := k.Line(); !regexp.MustCompile(`^3 probes, [1-9]\d* ranges`).MatchString(got) {
		t.Errorf("%q", got)
	}
	p.Round("5")
	k.Signal(syscall.SIGINT)
	r := k.Result()
	for says, n := range map[string]int{
		"kprobe at 0x": 5, "is done, PC 0x": 5, "it returned ": 5, "called with (": 5, "called with (0, 0)": 1, "5 hits, 0 missed": 1,
	} {
		if count(r.Lines, says) != n {
			t.Errorf("%q not %d times: %s", says, n, r)
		}
	}
	checkUntouched(t, p.Pid)
}

// The commands and flags that the README names exist.
func TestReadmeCommands(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	first := "    go run ./cmd/kprobe trace 'p:libc.so.6:getenv name=+0(%di):string' -- date\n"
	if at := strings.Index(string(readme), first); at < 0 || strings.Contains(string(readme)[:at], "\n    ") {
		t.Error("the quick start is not the first command")
	}
	for _, m := range regexp.MustCompile("`kprobe (\\w+) ").FindAllStringSubmatch(string(readme), -1) {
		if c, _, err := root().Find([]string{m[1]}); err != nil || c.Name() != m[1] {
			t.Errorf("there is no %q: %v", m[1], err)
		}
	}
}
