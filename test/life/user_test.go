package life

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"kprobe/internal/testprog"
	"kprobe/target/ptrace"
	"kprobe/test/harness"
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
	harness.OK(t, err)
	t.Cleanup(func() { os.RemoveAll(home) })
	harness.OK(t, os.Chown(home, testprog.Nobody, testprog.Nobody))
	binary := filepath.Join(home, "kprobe.test")
	copyProgram(t, "/proc/self/exe", binary)

	cmd := exec.Command(binary, "-test.v", "-test.run", userTests, "-test.timeout", "10m",
		"-test.skip", "^TestConformReturnRefused$") // plans only, and builds a Go program with an empty cache
	if testing.Short() {
		cmd.Args = append(cmd.Args, "-test.short")
	}
	cmd.Dir = home
	cmd.Env = append(os.Environ(), "TMPDIR="+home, "HOME="+home, "GOCACHE="+filepath.Join(home, "cache"), "CI=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: testprog.Nobody, Gid: testprog.Nobody}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	// Tests of watchpoints end where the machine has none: those are as many fewer.
	skipped, notHere := bytes.Count(out, []byte("--- SKIP")), 0
	if !testprog.Watches.On(t) {
		notHere = bytes.Count(out, []byte("--- SKIP: TestWatch"))
	}
	if skipped > notHere {
		t.Errorf("skipped as an ordinary user:\n%s", out)
	}
	const atLeast = 50
	if n := len(passed.FindAll(out, -1)); n < atLeast-notHere {
		t.Errorf("only %d tests ran, at least %d should:\n%s", n, atLeast-notHere, out)
	}
	t.Logf("%d tests passed as user %d", len(passed.FindAll(out, -1)), testprog.Nobody)
}

func copyProgram(t testing.TB, from, to string) {
	t.Helper()
	src, err := os.Open(from)
	harness.OK(t, err)
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	harness.OK(t, err)
	_, err = io.Copy(dst, src)
	harness.OK(t, err)
	harness.OK(t, dst.Close())
}

// A process that makes itself undumpable is out of its user's reach, and of his guardian's when
// the controller is killed. It works as it is; its journal stays, for root.
func TestKilledControllerOfAnUndumpableProcess(t *testing.T) {
	path := harness.Compile(t, "undumpable", `
#include <sys/prctl.h>
PROBED int work(int n) { BARRIER(); return n * 3 + 1; }
int main(void)
{
	int sum;

	while (next()) {
		if (*line)
			prctl(PR_SET_DUMPABLE, 0);
		sum = 0;
		for (int i = 0; i < 1000; i++)
			sum += work(i);
		printf("%d\n", sum);
	}
	return 0;
}
`)
	for _, functions := range []string{"work", "count!work"} {
		home, err := os.MkdirTemp("", "kprobe-user-")
		harness.OK(t, err)
		t.Cleanup(func() { os.RemoveAll(home) })
		harness.OK(t, os.Chmod(home, 0o755))
		binary, program := filepath.Join(home, "kprobe.test"), filepath.Join(home, "undumpable")
		copyProgram(t, "/proc/self/exe", binary)
		copyProgram(t, path, program)

		p := testprog.StartCmd(t, testprog.AsUser(t, program))
		p.Expect("ready")
		want := p.Round("")
		cmd := testprog.AsUser(t, binary)
		cmd.Env = append(os.Environ(), fmt.Sprintf("KPROBE_TEST_CONTROLLER=%d", p.Pid), "KPROBE_TEST_FUNCTIONS="+functions)
		var said bytes.Buffer
		cmd.Stderr = &said
		out, err := cmd.StdoutPipe()
		harness.OK(t, err)
		harness.OK(t, cmd.Start())
		if line, err := bufio.NewReader(out).ReadString('\n'); line != "armed\n" {
			t.Fatalf("the controller said %q (%v)", line, err)
		}
		if got := p.Round("undumpable"); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", functions, got, want)
		}
		harness.OK(t, cmd.Process.Kill())
		cmd.Wait() // for its guardian, too, which has its standard error
		if !strings.Contains(said.String(), "cannot be looked into") {
			t.Errorf("%s: the guardian said %q", functions, &said)
		}
		if got := p.Round(""); !slices.Equal(got, want) {
			t.Errorf("%s: afterwards %q, want %q", functions, got, want)
		}
		if os.Getuid() == 0 { // who may restore it
			all, err := ptrace.Recover(p.Pid)
			if err != nil || len(all) != 1 || all[0].Err != nil {
				t.Errorf("%s: recovered %v, %v", functions, all, err)
			}
			harness.Restored(t, p.Pid)
		}
		if got := p.Round(""); !slices.Equal(got, want) {
			t.Errorf("%s: restored %q, want %q", functions, got, want)
		}
		harness.Ends(t, p)
	}
}
