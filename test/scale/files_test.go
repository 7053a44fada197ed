package scale_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"kprobe/internal/testprog"
	"kprobe/symbol"
)

// What is known of a file serves all processes that have it mapped; a file that has another's
// name is another.
func TestFilesAreReadOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "prog")
	fileOf := func(name string, source string) *symbol.File {
		t.Helper()
		b, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		os.Remove(path)
		if err := os.WriteFile(path, b, 0o755); err != nil {
			t.Fatal(err)
		}
		p := testprog.StartCmd(t, exec.Command(path))
		p.Expect("ready")
		s := attach(t, p.Pid, nil)
		ms := s.Symbols().ModulesNamed(name)
		if len(ms) != 1 || ms[0].File == nil {
			t.Fatalf("%s: %v", name, ms)
		}
		return ms[0].File
	}
	remaps, many := testprog.Build(t, "remaps", "-O2"), testprog.Build(t, "manyfns", "-O2")
	libc := fileOf("libc.so.6", remaps)
	if libc != fileOf("libc.so.6", many) {
		t.Error("the library of two processes is read twice")
	}
	if first, second := fileOf("prog", remaps), fileOf("prog", many); first == second || len(second.Lookup("many_7")) != 1 {
		t.Error("a file is taken for the one that had its name before")
	}
}
