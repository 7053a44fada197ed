package life

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kprobe/internal/testprog"
	"kprobe/target/ptrace"
	"kprobe/test/harness"
)

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
		harness.CopyProgram(t, "/proc/self/exe", binary)
		harness.CopyProgram(t, path, program)

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
