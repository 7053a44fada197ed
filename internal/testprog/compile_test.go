package testprog

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// A program is what its text, its flags and its place say: none is taken for another's. A test may
// change its own.
func TestCompile(t *testing.T) {
	status := func(path string) int {
		c := exec.Command(path)
		if err := c.Run(); c.ProcessState == nil {
			t.Fatal(err)
		}
		return c.ProcessState.ExitCode()
	}
	const text = "int main(void) { return STATUS; }\n"
	out := filepath.Join(t.TempDir(), "program")
	for _, c := range []struct {
		flag, text string
		want       int
	}{
		{"-DSTATUS=1", text, 1}, {"-DSTATUS=2", text, 2}, {"-DSTATUS=1", text, 1},
		{"-DSTATUS=1", "int main(void) { return STATUS + 2; }\n", 3},
	} {
		CompileText(t, out, []string{"gcc", c.flag}, "main.c", c.text)
		if got := status(out); got != c.want {
			t.Errorf("%s: the text ends with %d, want %d", c.flag, got, c.want)
		}
		source := filepath.Join(t.TempDir(), "main.c")
		if err := os.WriteFile(source, []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		t.Chdir(filepath.Dir(source))
		Compile(t, out, []string{"gcc", c.flag}, "main.c")
		if got := status(out); got != c.want {
			t.Errorf("%s: the file ends with %d, want %d", c.flag, got, c.want)
		}
		if err := os.WriteFile(out, []byte("#!/bin/false\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// What the same command would not make again is not kept.
func TestCompiledAgain(t *testing.T) {
	if !again([]string{"gcc", "-O2"}, []string{"-lm"}) {
		t.Error("plain flags are not known to make the same")
	}
	for _, flag := range []string{"-gsplit-dwarf", "-L" + t.TempDir(), filepath.Join(t.TempDir(), "library.so")} {
		if again([]string{"gcc"}, []string{flag}) {
			t.Errorf("%s makes the same program again", flag)
		}
	}
}
