package sacred_test

import (
	"context"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"kprobe/internal/testprog"
)

// stressors are those of stress-ng's programs that do what few do, and end soon: with signals and stacks of theirs, with
// processes and threads, with what a process may switch off, with memory, and with descriptors.
var stressors = strings.Fields(`
	alarm bad-altstack context far-branch itimer longjmp sigabrt sigchld sigfd sigfpe sigio signal signest sigpending
	sigpipe sigq sigrt sigsegv sigsuspend sigtrap stackmmap timer timerfd
	clone daemon exec exit-group fork kill kcmp pidfd pthread ptrace session spawn vfork wait zombie
	cap env nice personality prctl regs rlimit rseq schedpolicy seccomp set usersyscall vdso
	dynlib funcret madvise membarrier memfd mincore mlock mprotect mremap munmap pkey remap userfaultfd
	aio epoll eventfd futex inotify io-uring mq poll sem-sysv sockfd splice tee`)

// patience is what each has: some are told to end in two seconds.
const patience = 3 * time.Minute

// Programs that others have written to try a kernel look at what their calls give: with a probe on every function
// of libc whose name begins like those of their calls (mmap, pthread_create, sigaction) in all of their processes they find
// it as without, and end with the same status. Without SOAK every second one is run.
func TestStressors(t *testing.T) {
	path, err := exec.LookPath("stress-ng")
	testprog.Need(t, "stress-ng", err == nil)
	known, err := exec.Command(path, "--stressors").Output()
	if err != nil {
		t.Fatal(err)
	}
	command := testprog.Command(t, "kprobe/cmd/kprobe")
	every := 2
	switch {
	case testprog.Soak(t, 0) > 0:
		every = 1
	case testing.Short():
		every = 36
	}
	for i, name := range stressors {
		if i%every != 0 || !slices.Contains(strings.Fields(string(known)), name) {
			continue // a version of stress-ng has what it has
		}
		t.Run(name, func(t *testing.T) {
			args := []string{path, "--" + name, "1", "--" + name + "-ops", "5", "--timeout", "2", "--verify", "--oomable"}
			dir := t.TempDir()
			run := func(words ...string) (status int, said string) {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				c := exec.CommandContext(ctx, words[0], words[1:]...)
				c.Dir, c.SysProcAttr = dir, &syscall.SysProcAttr{Setpgid: true}
				c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
				out, _ := c.CombinedOutput()
				if ctx.Err() != nil {
					t.Errorf("%v does not end\n%s", words, out)
				}
				return c.ProcessState.ExitCode(), string(out)
			}
			want, said := run(args...)
			if want != 0 {
				t.Logf("it ends with %d here: %s", want, said)
			}
			got, said := run(append([]string{command, "trace", "--follow", "--no-summary", "--output", "/dev/null", "p libc.so.6:[mps]*", "--"}, args...)...)
			if got != want {
				t.Errorf("probed it ends with %d, else with %d\n%s", got, want, said)
			}
		})
	}
}
