package harness

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

var passed = regexp.MustCompile(`(?m)^--- PASS: (\w+)`)

// AsAnOrdinaryUser runs tests of the suite once more, in a process of their own, without root's rights: what an ordinary user
// can do to his own processes is what root can. So many tests pass at least, and none may be skipped.
func AsAnOrdinaryUser(t *testing.T, least int, run, skip string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Log("the whole suite runs as an ordinary user here")
		return
	}
	// A folder that is the user's: the test binary, what it builds, the journals.
	home, err := os.MkdirTemp("", "kprobe-user-")
	OK(t, err)
	t.Cleanup(func() { os.RemoveAll(home) })
	OK(t, os.Chown(home, testprog.Nobody, testprog.Nobody))
	binary := filepath.Join(home, "kprobe.test")
	CopyProgram(t, "/proc/self/exe", binary)

	cmd := exec.Command(binary, "-test.v", "-test.run=^("+run+")$", "-test.skip=^("+skip+")$", "-test.timeout=10m")
	if testing.Short() {
		cmd.Args = append(cmd.Args, "-test.short")
	}
	cmd.Dir = home
	cmd.Env = append(os.Environ(), "TMPDIR="+home, "HOME="+home, "GOCACHE="+filepath.Join(home, "cache"), "CI=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: testprog.Nobody, Gid: testprog.Nobody}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, OfFailed(string(out)))
	}
	// Tests of watchpoints end where the machine has none: those are as many fewer.
	skipped, notHere := bytes.Count(out, []byte("--- SKIP")), 0
	if !testprog.Watches.On(t) {
		notHere = bytes.Count(out, []byte("--- SKIP: TestWatch"))
	}
	if skipped > notHere {
		t.Errorf("skipped as an ordinary user:\n%s", out)
	}
	n := len(passed.FindAll(out, -1))
	if n < least-notHere {
		t.Errorf("only %d tests ran, at least %d should:\n%s", n, least-notHere, out)
	}
	t.Logf("%d tests passed as user %d", n, testprog.Nobody)
}

// CopyProgram copies a program to where another user may run it.
func CopyProgram(t testing.TB, from, to string) {
	t.Helper()
	src, err := os.Open(from)
	OK(t, err)
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	OK(t, err)
	_, err = io.Copy(dst, src)
	OK(t, err)
	OK(t, dst.Close())
}
