// A loop of probed calls that signals interrupt at any instruction: SIGPROF every
// millisecond of work, SIGALRM every millisecond, SIGUSR1 from itself. The
// handlers call a probed function too, and check what they interrupted: the program
// counter is in code that the program knows, and single-step does not show. A round
// with count N prints "loop N SUM", "usr1 N" and how often the timers came. With an
// argument, the handlers do not look at where they came from, and signals may wait for
// a moment.
#define _GNU_SOURCE
#include "prog.h"
#include <signal.h>
#include <stdint.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

#if defined(__x86_64__) || defined(__i386__)
#define STEPS(uc) ((uc)->uc_mcontext.gregs[REG_EFL] & 0x100)
#else
#define STEPS(uc) 0
#endif
#if defined(__x86_64__)
#define PC_OF(uc) ((uintptr_t)(uc)->uc_mcontext.gregs[REG_RIP])
#elif defined(__i386__)
#define PC_OF(uc) ((uintptr_t)(uc)->uc_mcontext.gregs[REG_EIP])
#elif defined(__s390x__)
#define PC_OF(uc) ((uintptr_t)(uc)->uc_mcontext.psw.addr)
#elif defined(__powerpc64__)
#define PC_OF(uc) ((uintptr_t)(uc)->uc_mcontext.gp_regs[32])
#elif defined(__riscv)
#define PC_OF(uc) ((uintptr_t)(uc)->uc_mcontext.__gregs[REG_PC])
#else
#define PC_OF(uc) ((uintptr_t)(uc)->uc_mcontext.pc)
#endif

static volatile sig_atomic_t handled[65], wrong, traced, elsewhere;
static int anywhere;
static volatile uintptr_t where; // was the first of those

// The code that the program knows of: mapped files and the kernel's vdso. Code
// that somebody put beside it has no name in the maps.
static struct { uintptr_t start, end; } code[64];
static int codes;

static void read_code(void)
{
	FILE *f = fopen("/proc/self/maps", "r");
	char line[512], perms[5], path[256];
	unsigned long start, end;

	codes = 0;
	while (f && fgets(line, sizeof line, f))
		if (sscanf(line, "%lx-%lx %4s %*s %*s %*s %255s", &start, &end, perms, path) == 4 &&
		    perms[2] == 'x' && codes < 64) {
			code[codes].start = start;
			code[codes++].end = end;
		}
	if (f)
		fclose(f);
	CHECK(codes > 0);
}

static int known(uintptr_t pc)
{
	for (int i = 0; i < codes; i++)
		if (pc >= code[i].start && pc < code[i].end)
			return 1;
	return 0;
}

PROBED unsigned long sig_step(unsigned long a, unsigned long b)
{
	unsigned long flag = a > b;

	return (a << 1 | a >> (8 * sizeof a - 1)) + b * 3 + flag;
}

PROBED unsigned long sig_inner(unsigned long a) { BARRIER(); return a ^ 0x5555; }

PROBED void sig_handler(int sig, siginfo_t *info, void *context)
{
	ucontext_t *uc = context;
	uintptr_t pc = PC_OF(uc);

	(void)info;
	handled[sig]++;
	if (sig_inner(sig_inner(7)) != 7)
		wrong++;
	if (!anywhere && !known(pc) && !elsewhere++)
		where = pc;
	if (STEPS(uc))
		traced++;
}

PROBED unsigned long sig_loop(long n)
{
	unsigned long sum = 1;

	for (long i = 0; i < n; i++) {
		sum = sig_step(sum, (unsigned long)i);
		if (i % 1000 == 999)
			raise(SIGUSR1);
	}
	return sum;
}

// unblocked waits until the signals come, if somebody has blocked them.
static int unblocked(void)
{
	sigset_t set;

	for (int ms = 0; ms < 20000; ms++) {
		CHECK(!sigprocmask(SIG_BLOCK, NULL, &set));
		if (!sigismember(&set, SIGUSR1))
			return 1;
		usleep(1000);
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct sigaction sa = {.sa_sigaction = sig_handler, .sa_flags = SA_SIGINFO | SA_RESTART};
	static const int sigs[] = {SIGPROF, SIGALRM, SIGUSR1};
	struct itimerval ms = {{0, 1000}, {0, 1000}}, off = {{0, 0}, {0, 0}};
	long n = 1000000;

	(void)argv;
	anywhere = argc > 1;
	for (unsigned i = 0; i < sizeof sigs / sizeof *sigs; i++)
		CHECK(!sigaction(sigs[i], &sa, NULL));
	while (next_round(&n)) {
		unsigned long sum;

		read_code();
		if (anywhere)
			CHECK(unblocked());
		memset((void *)handled, 0, sizeof handled);
		CHECK(!setitimer(ITIMER_PROF, &ms, NULL));
		CHECK(!setitimer(ITIMER_REAL, &ms, NULL));
		sum = sig_loop(n);
		setitimer(ITIMER_PROF, &off, NULL);
		setitimer(ITIMER_REAL, &off, NULL);
		printf("loop %ld %lu\n", n, sum);
		if (!anywhere)
			printf("usr1 %d\n", (int)handled[SIGUSR1]);
		printf("timers %d %d\n", (int)handled[SIGPROF], (int)handled[SIGALRM]);
		CHECK(anywhere || handled[SIGUSR1] == n / 1000);
		CHECK(!wrong);
		CHECK(!traced);
		if (elsewhere)
			printf("interrupted at %#lx\n", (unsigned long)where);
		CHECK(!elsewhere);
	}
	return failures != 0;
}
