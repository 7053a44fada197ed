package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"kprobe/internal/testprog"
)

// A command that comes to nothing leaves no file, and one that was there as it was. One that does not, writes over it.
func TestOutputOfFailures(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "jumpers", "-O2"))
	dir := t.TempDir()
	before := filepath.Join(dir, "before")
	for _, verb := range []string{"record", "trace"} {
		if err := os.WriteFile(before, []byte("as it was, and longer than what a short trace writes: "+fmt.Sprint(make([]int, 5000))), 0o644); err != nil {
			t.Fatal(err)
		}
		was, err := os.ReadFile(before)
		if err != nil {
			t.Fatal(err)
		}
		fresh := filepath.Join(dir, verb)
		for _, file := range []string{fresh, before} {
			refused(t, run(t, verb, "-o", file, "-p", fmt.Sprint(p.Pid), "p jumpers:nothing_of_this_name"), "nothing_of_this_name")
		}
		if b, err := os.ReadFile(fresh); !os.IsNotExist(err) {
			t.Errorf("%s has left a file of %d bytes, %v", verb, len(b), err)
		}
		if b, err := os.ReadFile(before); err != nil || string(b) != string(was) {
			t.Errorf("%s has left %d bytes in a file of %d, %v", verb, len(b), len(was), err)
		}
		if r := run(t, verb, "-o", before, "-d", "1ms", "-p", fmt.Sprint(p.Pid), "p jumper"); !r.OK() {
			t.Errorf("%s", r)
		}
		if b, err := os.ReadFile(before); err != nil || len(b) >= len(was) || string(b[:min(len(b), 9)]) == "as it was" {
			t.Errorf("%s has written %d bytes over %d, %.20q, %v", verb, len(b), len(was), b, err)
		}
	}
}
