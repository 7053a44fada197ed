package life

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"kprobe"
	"kprobe/internal/testprog"
	"kprobe/target/ptrace"
	"kprobe/test/harness"
)

const changesProgram = `
#include <unistd.h>
int main(int argc, char **argv)
{
	char left[20];
	if (argc == 4) {
		puts("ready");
		fflush(stdout);
	}
	long n = atol(argv[1]);
	if (n == 0)
		return 3;
	for (volatile long i = atol(argv[2]); i > 0; i--)
		;
	snprintf(left, sizeof left, "%ld", n - 1);
	execl(argv[0], argv[0], left, argv[2], NULL);
	return 4;
}
`

// A target that executes another program while somebody attaches to it, over and over, is
// attached to; one that ends meanwhile is told of in one way. It is never harmed.
func TestAttachToWhatChanges(t *testing.T) {
	path := harness.Compile(t, "changes", changesProgram)
	attached, said := 0, make(map[string]int)
	rnd := rand.New(rand.NewPCG(1, 13))
	rounds := 150
	if testing.Short() {
		rounds = 30
	}
	for range rounds {
		prog := testprog.Start(t, path, "20", fmt.Sprint(rnd.IntN(200000)), "first")
		time.Sleep(time.Duration(rnd.IntN(20000)) * time.Microsecond)
		p, err := ptrace.Attach(prog.Pid)
		if err == nil {
			var s *kprobe.Session
			if s, err = kprobe.Open(p, nil); err == nil {
				attached++
				harness.OK(t, s.Close())
			}
		}
		if err != nil {
			if !errors.Is(err, syscall.ESRCH) {
				t.Errorf("not ESRCH: %v", err)
			}
			said[strings.ReplaceAll(err.Error(), fmt.Sprint(prog.Pid), "N")]++
		}
		if status := prog.Wait(); status.ExitStatus() != 3 {
			t.Errorf("the program ended with %#x", status)
		}
	}
	if t.Logf("%d attached; %v", attached, said); len(said) > 1 {
		t.Errorf("it is said in %d ways that the program has ended", len(said))
	}
}

// dying ends, and its target knows it, just before the session's loop begins.
type dying struct{ *ptrace.Process }

func (d dying) Run(loop func()) {
	syscall.Kill(d.PID(), syscall.SIGKILL)
	d.Close()
	d.Process.Run(loop)
}

// A target that ends after it was looked at and before the session's loop has begun is told
// of as one that ended before.
func TestAttachToTheDying(t *testing.T) {
	prog := testprog.Start(t, harness.Compile(t, "changes", changesProgram), "1", "4000000000", "first")
	p, err := ptrace.Attach(prog.Pid)
	harness.OK(t, err)
	_, err = kprobe.Open(dying{p}, nil)
	if want := fmt.Sprintf("there is no process %d", prog.Pid); err == nil || err.Error() != want || !errors.Is(err, syscall.ESRCH) {
		t.Errorf("it is said: %v", err)
	}
	prog.Wait()
}
