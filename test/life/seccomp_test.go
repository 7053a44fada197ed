package life

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"kprobe"
	"kprobe/internal/testprog"
	"kprobe/target/ptrace"
	"kprobe/test/harness"
)

// filtered is a program under a filter that kills it for any call but those it
// needs, and those that are allowed on its command line.
const filtered = `
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

PROBED long work(long n) { BARRIER(); return n * 3; }

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define ALLOW BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
#define CALL(name) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 1), ALLOW
#define KILL BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)

static void filter(long call, int writable)
{
	struct sock_filter one[] = {
		LOAD(nr),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1), KILL,
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 0, 3),
		LOAD(args[2]), BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, writable ? SECCOMP_RET_KILL_PROCESS : SECCOMP_RET_ALLOW),
		ALLOW,
	};
	struct sock_filter list[] = {
		LOAD(arch), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0), KILL,
		LOAD(nr),
		CALL(read), CALL(write), CALL(exit_group), CALL(mmap), CALL(munmap), CALL(rt_sigaction), CALL(rt_sigreturn),
		CALL(brk), CALL(prctl), CALL(newfstatat), CALL(fstat), CALL(lseek), CALL(getrandom),
		KILL,
	};
	struct sock_fprog p = {sizeof list / sizeof *list, list};
	struct sock_fprog q = {sizeof one / sizeof *one, one};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &q))
		_exit(9);
}

int main(int argc, char **argv)
{
	filter(atol(argv[1]), argc > 2);
	while (next()) {
		long sum = 0;

		for (long i = 0; i < 100; i++)
			sum += work(i);
		printf("sum %ld\n", sum);
	}
	return 0;
}
`

// mayReadFilters tells whether this process may see what filters allow.
func mayReadFilters(t *testing.T) bool {
	t.Helper()
	b, err := os.ReadFile("/proc/self/status")
	harness.OK(t, err)
	for line := range strings.Lines(string(b)) {
		if v, is := strings.CutPrefix(line, "CapEff:"); is {
			caps, err := strconv.ParseUint(strings.TrimSpace(v), 16, 64)
			harness.OK(t, err)
			const sysAdmin = 21
			return caps&(1<<sysAdmin) != 0 && strings.Contains(string(b), "\nSeccomp:\t0\n")
		}
	}
	return false
}

// No call is made in a program whose filter would kill it for that: where the filter
// allows what we need, there are probes, and where it does not, or we cannot know, a
// refusal. The program lives either way.
func TestLifeUnderASeccompFilter(t *testing.T) {
	path := harness.Compile(t, "filtered", filtered)
	for _, c := range []struct {
		name    string
		args    []string
		allowed bool
	}{
		{"all is allowed", []string{"-1"}, true},
		{"no mmap", []string{strconv.Itoa(syscall.SYS_MMAP)}, false},
		{"no munmap", []string{strconv.Itoa(syscall.SYS_MUNMAP)}, false},
		{"no rt_sigaction", []string{strconv.Itoa(syscall.SYS_RT_SIGACTION)}, false},
		{"no rt_sigreturn", []string{strconv.Itoa(syscall.SYS_RT_SIGRETURN)}, false},
		{"no executable memory", []string{"-1", "writable"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := testprog.Start(t, path, c.args...)
			round := func() {
				t.Helper()
				p.Send("1")
				if got := p.Expect("sum"); got != "sum 14850" {
					t.Error(got)
				}
				p.Expect("done")
			}
			round()
			before, err := testprog.Look(p.Pid)
			harness.OK(t, err)
			target, err := ptrace.Attach(p.Pid)
			harness.OK(t, err)
			s, err := kprobe.Open(target, nil)
			harness.OK(t, err)
			kp := &kprobe.Kprobe{SymbolName: "work", PostHandler: func(*kprobe.Kprobe, *kprobe.Regs, uint64) {}}
			rp := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "work"}}
			err = errors.Join(s.RegisterKprobe(kp), s.RegisterKretprobe(rp))
			if c.allowed && mayReadFilters(t) {
				harness.OK(t, err)
				round()
				harness.Settle(t, s)
				if kp.Hits() != 100 || rp.Hits() != 100 {
					t.Errorf("%d hits, %d returns", kp.Hits(), rp.Hits())
				}
			} else {
				harness.Errno(t, err, syscall.EACCES)
				t.Log(err)
			}
			harness.OK(t, s.Close())
			for _, l := range before.Left() {
				t.Error(l)
			}
			round()
			if r := p.Result(); !r.OK() {
				t.Error(r)
			}
		})
	}
}

// restarted is a program that waits for a line in a call with a time limit, under a filter that kills it for the call by
// which the kernel goes on with that after a stop.
const restarted = `
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

PROBED long work(long n) { BARRIER(); return n * 3; }

int main(void)
{
	struct sock_filter list[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_restart_syscall, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog p = {sizeof list / sizeof *list, list};
	struct pollfd in = {0, POLLIN, 0};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p))
		_exit(9);
	setvbuf(stdin, NULL, _IONBF, 0);
	puts("ready");
	for (;;) {
		char c;

		fflush(stdout);
		if (poll(&in, 1, 1 << 30) != 1) {
			puts("woken for nothing");
			continue;
		}
		if (read(0, &c, 1) != 1)
			return 0;
		if (c == '\n')
			printf("answer %ld\n", work(14));
	}
}
`

// A stop does no harm to a program whose filter kills it for what the kernel has it do after a stop.
func TestLifeUnderAFilterOfRestarts(t *testing.T) {
	for _, flags := range [][]string{nil, {"-m32"}} {
		p := testprog.Start(t, harness.Compile(t, "restarted", restarted, flags...))
		answers := func() {
			t.Helper()
			p.Send("")
			if got := p.Line(); got != "answer 42" {
				t.Error(got)
			}
		}
		// waits returns when the program is in its call, where a stop interrupts it.
		waits := func() {
			t.Helper()
			testprog.Until(t, "the program waits", p.Pid, func() bool {
				b, err := os.ReadFile("/proc/" + strconv.Itoa(p.Pid) + "/syscall")
				harness.OK(t, err)
				nr, _, blocked := strings.Cut(string(b), " ")
				return blocked && (nr == "7" || nr == "168")
			})
		}
		answers()
		waits()
		target, err := ptrace.Attach(p.Pid)
		harness.OK(t, err)
		s, err := kprobe.Open(target, nil)
		harness.OK(t, err)
		kp := &kprobe.Kprobe{SymbolName: "work", PreHandler: func(*kprobe.Kprobe, *kprobe.Regs) int { return 0 }}
		err = s.RegisterKprobe(kp)
		if mayReadFilters(t) {
			harness.OK(t, err)
		} else {
			harness.Errno(t, err, syscall.EACCES)
		}
		answers()
		for range 3 {
			waits()
			harness.OK(t, p.Signal(syscall.SIGWINCH)) // which does nothing; but a process that is traced stops for it
			waits()
			harness.Settle(t, s)
			answers()
		}
		if n := kp.Hits(); err == nil && n != 4 {
			t.Errorf("%d hits", n)
		}
		waits()
		harness.OK(t, s.Close())
		answers()
		if r := p.Result(); !r.OK() {
			t.Errorf("%q: %v", flags, r)
		}
	}
}
