package testprog

import (
	"io"
	"os"
	"os/exec"
	"testing"
)

// StartPiped starts a command that the test talks with: what is written to in is its input, its
// output is read from out, and what it complains of is the test's. Waiting for its end is the
// caller's.
func StartPiped(t testing.TB, cmd *exec.Cmd) (in io.WriteCloser, out io.ReadCloser) {
	t.Helper()
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if out, err = cmd.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return in, out
}
