package kprobe_test

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"

	"kprobe/internal/testprog"
)

// What an ordinary user can do to his own processes is what root can: these tests
// run once more without root's rights, none may be skipped.
const userTests = "^Test(HitsAreCounted|PostHandlerSeesTheEffect|ReturnProbe|StartedProgramWaits|KilledControllerLeavesAHealthyTarget|NoTrapOutlivesItsController|EveryInstructionOfEveryClass|Watch.*|Conform.*)$"

var passed = regexp.MustCompile(`(?m)^--- PASS: (\w+)`)

func TestAsAnOrdinaryUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Log("the whole suite runs as an ordinary user here")
		return
	}
	// A folder that is the user's: the test binary, what it builds, the journals.
	home, err := os.MkdirTemp("", "kprobe-user-")
	ok(t, err)
	t.Cleanup(func() { os.RemoveAll(home) })
	ok(t, os.Chown(home, testprog.Nobody, testprog.Nobody))
	binary := filepath.Join(home, "kprobe.test")
	copyProgram(t, "/proc/self/exe", binary)

	cmd := exec.Command(binary, "-test.v", "-test.run", userTests, "-test.timeout", "10m",
		"-test.skip", "^TestConformReturnRefused$") // plans only, and builds a Go program with an empty cache
	cmd.Dir = home
	cmd.Env = append(os.Environ(), "TMPDIR="+home, "HOME="+home, "GOCACHE="+filepath.Join(home, "cache"), "CI=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: testprog.Nobody, Gid: testprog.Nobody}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if bytes.Contains(out, []byte("--- SKIP")) {
		t.Errorf("skipped as an ordinary user:\n%s", out)
	}
	const atLeast = 50
	if n := len(passed.FindAll(out, -1)); n < atLeast {
		t.Errorf("only %d tests ran, at least %d should:\n%s", n, atLeast, out)
	}
	t.Logf("%d tests passed as user %d", len(passed.FindAll(out, -1)), testprog.Nobody)
}

func copyProgram(t testing.TB, from, to string) {
	t.Helper()
	src, err := os.Open(from)
	ok(t, err)
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	ok(t, err)
	_, err = io.Copy(dst, src)
	ok(t, err)
	ok(t, dst.Close())
}
