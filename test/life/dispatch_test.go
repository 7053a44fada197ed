package life

import (
	"errors"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"kprobe"
	"kprobe/internal/faults"
	"kprobe/internal/testprog"
	"kprobe/target/ptrace"
	"kprobe/test/harness"
)

// dispatching is a program that has its system calls handed back to it (PR_SET_SYSCALL_USER_DISPATCH): all, all but those of
// a piece of its code, or those behind that piece. In a round it makes none until it gets SIGUSR1, and calls work meanwhile.
const dispatching = `
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#endif

static volatile char blocks;
static volatile int go, asked;

PROBED long work(long n) { BARRIER(); return n * 3; }

/* getpid without libc; a call of ours needs one with a return right behind it */
long direct(void);
extern char direct_end[];
__asm__("direct: mov $39, %eax; syscall; nop; ret\n direct_end: nop");

static void answer(int s, siginfo_t *i, void *u)
{
	blocks = 0; /* the return from here is a system call, too */
	if (i->si_code == 2) { /* SYS_USER_DISPATCH */
		asked++;
		((ucontext_t *)u)->uc_mcontext.gregs[REG_RAX] = 77;
	}
}

static void goes(int s) { blocks = 0; go = 1; }

static void dispatch(char which)
{
	unsigned long start = (unsigned long)direct, end = (unsigned long)direct_end;
	int bad;

	if (which == 'a')
		bad = prctl(PR_SET_SYSCALL_USER_DISPATCH, 1, 0, 0, &blocks);
	else if (which == 'o')
		bad = prctl(PR_SET_SYSCALL_USER_DISPATCH, 1, start, end - start, &blocks);
	else
		bad = prctl(PR_SET_SYSCALL_USER_DISPATCH, 2, end, (1UL << 47) - end, &blocks);
	if (bad) {
		next();
		puts("cannot");
		exit(0);
	}
}

int main(int argc, char **argv)
{
	struct sigaction sys = {.sa_sigaction = answer, .sa_flags = SA_SIGINFO}, usr = {.sa_handler = goes};

	sigaction(SIGSYS, &sys, 0);
	sigaction(SIGUSR1, &usr, 0);
	if (argc == 2)
		dispatch(argv[1][0]);
	while (next()) {
		long n = 0, r, d;

		if (argc > 2)
			dispatch(argv[1][0]); /* as late as now */
		puts("blocks");
		fflush(stdout);
		go = asked = 0;
		for (blocks = 1; !go; n++)
			work(n);
		blocks = 1;
		r = syscall(SYS_getppid);
		blocks = 1;
		d = direct();
		blocks = 0;
		printf("libc %ld, direct %s, asked %d\n", r, d == getpid() ? "right" : d == 77 ? "77" : "wrong", asked);
	}
	return 0;
}
`

// A program that has its system calls handed back to it is not probed: whether the kernel tells of it, or a call of ours
// is handed back. Where it begins with that later, the session goes as ever. The program lives, and keeps its handler.
func TestLifeUnderSyscallDispatch(t *testing.T) {
	testprog.SyscallDispatch.Need(t)
	path := harness.Compile(t, "dispatching", dispatching)
	for _, c := range []struct {
		name, which string
		says        string
		untold      bool
	}{
		{"all", "a", "libc 77, direct 77, asked 2", false},
		{"all, untold", "a", "libc 77, direct 77, asked 2", true},
		{"other", "o", "libc 77, direct right, asked 1", false},
		{"behind", "b", "libc 77, direct right, asked 1", false},
	} {
		for _, late := range []bool{false, true} {
			name, args := c.name, []string{c.which}
			if late {
				name, args = name+", later", append(args, "later")
			}
			t.Run(name, func(t *testing.T) {
				if c.untold {
					faults.Inject = func(c faults.Call) error {
						if c.Name == "ptrace" && c.Request == unix.PTRACE_GET_SYSCALL_USER_DISPATCH_CONFIG {
							return unix.EIO
						}
						return nil
					}
					defer func() { faults.Inject = nil }()
				}
				p := testprog.Start(t, path, args...)
				before, err := testprog.Look(p.Pid)
				harness.OK(t, err)
				kp := &kprobe.Kprobe{SymbolName: "work", PostHandler: func(*kprobe.Kprobe, *kprobe.Regs, uint64) {}}
				rp := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "work"}}
				var s *kprobe.Session
				register := func() error {
					target, err := ptrace.Attach(p.Pid)
					harness.OK(t, err)
					s, err = kprobe.Open(target, nil)
					harness.OK(t, err)
					return errors.Join(s.RegisterKprobe(kp), s.RegisterKretprobe(rp))
				}
				if late {
					harness.OK(t, register())
				}
				p.Send("1")
				if p.Line() == "cannot" {
					t.Log("the kernel does not have this mode")
					if late {
						s.Close()
					}
					return
				}
				if late {
					testprog.Until(t, "work returns", p.Pid, func() bool { return rp.Hits() > 0 && kp.Hits() > 0 })
				} else {
					harness.Errno(t, register(), syscall.EACCES)
				}
				if err := s.Close(); err != nil && !(late && c.untold) { // our memory cannot be unmapped
					t.Error(err)
				}
				if !late || !c.untold {
					for _, l := range before.LeftThere() {
						t.Error(l)
					}
				}
				harness.OK(t, p.Signal(syscall.SIGUSR1))
				if got := p.Expect("libc"); got != c.says {
					t.Errorf("it says %q, not %q", got, c.says)
				}
				p.Expect("done")
				if r := p.Result(); !r.OK() {
					t.Error(r)
				}
			})
		}
	}
}
