// Does what few programs do, to see whether a probe can tell.
//
//	exotic
//
// A round is the name of a case: it prints what came of it, and the state of signals that it leaves.
// "tame" does all cases that leave the program as it was; "names" lists those, and "names wild" the
// others, each of which is a program's last act or changes it for good. What is printed is the same in
// each run: no addresses, ids or times. Every case calls work() in the odd state that it is about.
//
// System calls are made by number: what is tested must not depend on what headers know.
#define _GNU_SOURCE
#include "prog.h"
#include <fcntl.h>
#include <fenv.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#if defined(__x86_64__)
#define NR(wide, narrow) wide
#else
#define NR(wide, narrow) narrow
#endif

enum {
	N_exit = NR(60, 1), N_arch_prctl = NR(158, 384), N_prctl = NR(157, 172), N_personality = NR(135, 136), N_seccomp = NR(317, 354),
	N_pkey_alloc = NR(330, 381), N_pkey_free = NR(331, 382), N_pkey_mprotect = NR(329, 380), N_mseal = 462,
	N_gettid = NR(186, 224), N_tgkill = NR(234, 270), N_rt_sigprocmask = NR(14, 175), N_rt_sigaction = NR(13, 174),
	N_sigqueueinfo = NR(129, 178), N_signalfd4 = NR(289, 327), N_eventfd2 = NR(290, 328), N_pidfd_open = 434, N_pidfd_send = 424,
	N_membarrier = NR(324, 375), N_getrandom = NR(318, 355), N_getcpu = NR(309, 318), N_mincore = NR(27, 218), N_close_range = 436,
	N_memfd_create = NR(319, 356), N_clone = NR(56, 120), N_futex = NR(202, 240), N_kcmp = NR(312, 349), N_capget = NR(125, 184),
	N_get_robust_list = NR(274, 312), N_process_vm_readv = NR(310, 347), N_sched_getattr = NR(315, 352), N_sysinfo = NR(99, 116),
	N_getppid = NR(110, 64), N_getuid = NR(102, 199), N_restart = NR(219, 0), N_tkill = NR(200, 238),
};

static volatile sig_atomic_t seen, code_seen, inside_blocked, times;
static void *volatile at;
static sigjmp_buf back;
static char page[8192] __attribute__((aligned(4096)));

// What is probed: it needs nothing that a thread may lack.
PROBED __attribute__((optimize("no-stack-protector"))) long work(long a)
{
	BARRIER();
	return a * 3 + 1;
}

// The same with a pointer that may be none.
PROBED long reads(const char *p)
{
	BARRIER();
	return p != 0;
}

// A bad pointer, where the signal of a fault is not blocked or ignored: else a read of it, like any
// fault, has the kernel change that.
static const char *bad = (char *)16;

static long works(void)
{
	long s = 0;

	for (int i = 0; i < 20; i++)
		s += work(i) + reads(i & 1 ? "text" : bad);
	return s;
}

static void avoid(int sig) { bad = sig == SIGSEGV ? "more text" : (char *)16; }

static int blocked(int sig)
{
	sigset_t set;

	sigprocmask(SIG_BLOCK, NULL, &set);
	return sigismember(&set, sig);
}

static void block(int how, int sig)
{
	sigset_t set;

	sigemptyset(&set);
	if (sig)
		sigaddset(&set, sig);
	else
		sigfillset(&set);
	sigprocmask(how, &set, NULL);
}

static void on(int sig, siginfo_t *info, void *context)
{
	(void)context;
	seen = sig;
	code_seen = info->si_code;
	inside_blocked = blocked(sig);
	times++;
	avoid(sig);
	works();
	avoid(0);
}

static void handle(int sig, int flags)
{
	struct sigaction a = {.sa_sigaction = on, .sa_flags = SA_SIGINFO | flags};

	sigaction(sig, &a, NULL);
	seen = code_seen = inside_blocked = times = 0;
}

static void usual(int sig)
{
	avoid(0);
	signal(sig, SIG_DFL);
	block(SIG_UNBLOCK, sig);
}

static int action(int sig) // 0 default, 1 ignored, 2 ours
{
	struct sigaction a;

	sigaction(sig, NULL, &a);
	return a.sa_handler == SIG_DFL ? 0 : a.sa_handler == SIG_IGN ? 1 : 2;
}

// The state of signals as the kernel tells it, without what a tracer's presence explains.
static void state(void)
{
	char line[256];
	FILE *f = fopen("/proc/self/status", "r");
	stack_t ss;

	sigaltstack(NULL, &ss);
	printf(" state");
	while (f && fgets(line, sizeof line, f)) {
		unsigned long long v;
		char name[16];

		if (sscanf(line, "Sig%15[A-Za-z]:\t%llx", name, &v) == 2 && strcmp(name, "Q"))
			printf(" %s=%llx", name, v & ~(1ULL << (SIGTRAP - 1)));
	}
	if (f)
		fclose(f);
	printf(" blocked-trap=%d alt=%d\n", blocked(SIGTRAP), ss.ss_flags);
}

// ---- Every signal, in every way ----

static const struct { const char *name; int number; } signals[] = {
	{"HUP", SIGHUP}, {"INT", SIGINT}, {"QUIT", SIGQUIT}, {"ILL", SIGILL}, {"TRAP", SIGTRAP}, {"ABRT", SIGABRT}, {"BUS", SIGBUS},
	{"FPE", SIGFPE}, {"USR1", SIGUSR1}, {"SEGV", SIGSEGV}, {"USR2", SIGUSR2}, {"PIPE", SIGPIPE}, {"ALRM", SIGALRM}, {"TERM", SIGTERM},
	{"STKFLT", 16}, {"CHLD", SIGCHLD}, {"CONT", SIGCONT}, {"TSTP", SIGTSTP}, {"TTIN", SIGTTIN}, {"TTOU", SIGTTOU}, {"URG", SIGURG},
	{"XCPU", SIGXCPU}, {"XFSZ", SIGXFSZ}, {"VTALRM", SIGVTALRM}, {"PROF", SIGPROF}, {"WINCH", SIGWINCH}, {"IO", SIGIO},
	{"PWR", SIGPWR}, {"SYS", SIGSYS}, {"RT40", 40}, {"RT64", 64},
};
enum { SIGNALS = sizeof signals / sizeof signals[0] };

static void sent(int sig)
{
	handle(sig, 0);
	works();
	kill(getpid(), sig);
	// What a handler of SIGTRAP blocks is not the program's while it is probed.
	printf(" seen=%d code=%d blocked=%d,%d\n", seen == sig, code_seen, inside_blocked || sig == SIGTRAP, blocked(sig));
	usual(sig);
}

static void ignored(int sig)
{
	avoid(sig);
	signal(sig, SIG_IGN);
	works();
	usleep(3000);
	works();
	kill(getpid(), sig);
	works();
	if (sig == SIGTRAP)
		printf(" alive\n");
	else
		printf(" action=%d\n", action(sig));
	usual(sig);
}

static void pending(int sig)
{
	struct timespec soon = {1, 0};
	siginfo_t info;
	sigset_t set;

	avoid(sig);
	block(SIG_BLOCK, sig);
	works();
	printf(" blocked=%d", blocked(sig));
	works();
	kill(getpid(), sig);
	sigpending(&set);
	printf(",%d pending=%d", blocked(sig), sigismember(&set, sig));
	works();
	printf(" blocked=%d action=%d", blocked(sig), sig == SIGTRAP ? 0 : action(sig));
	sigemptyset(&set);
	sigaddset(&set, sig);
	printf(" got=%d\n", sigtimedwait(&set, &info, &soon) == sig);
	usual(sig);
}

static void handled_blocked(int sig)
{
	avoid(sig);
	handle(sig, SA_RESTART);
	block(SIG_BLOCK, sig);
	works();
	kill(getpid(), sig);
	printf(" early=%d", times);
	block(SIG_UNBLOCK, sig);
	printf(" times=%d\n", times);
	usual(sig);
}

static void nodefer(int sig)
{
	handle(sig, SA_NODEFER | SA_ONSTACK);
	works();
	raise(sig);
	printf(" blocked=%d times=%d\n", inside_blocked, times);
	usual(sig);
}

static void reset(int sig)
{
	handle(sig, SA_RESETHAND);
	raise(sig);
	printf(" times=%d", times);
	if (sig != SIGTRAP)
		printf(" action=%d", action(sig));
	putchar('\n');
	usual(sig);
}

static void fatal(int sig) // wild
{
	works();
	signal(sig, SIG_DFL);
	fflush(stdout);
	kill(getpid(), sig);
	printf(" alive\n");
}

// ---- Odd states, each for the time of some hits ----

static void everything_blocked(void)
{
	unsigned char all[8], have[8];

	avoid(SIGSEGV);
	memset(all, 0xff, 8);
	syscall(N_rt_sigprocmask, SIG_SETMASK, all, have, 8); // those of libc itself, too
	works();
	works();
	syscall(N_rt_sigprocmask, SIG_SETMASK, have, all, 8);
	avoid(0);
	for (int i = 0; i < 8; i++)
		printf(" %02x", all[i]);
	putchar('\n');
}

static void trap_alone_again(void)
{
	for (int i = 0; i < 5; i++) {
		works();
		block(SIG_BLOCK, SIGTRAP);
		works();
		printf(" %d", blocked(SIGTRAP));
		block(SIG_UNBLOCK, SIGTRAP);
		works();
		printf("%d", blocked(SIGTRAP));
	}
	putchar('\n');
}

static void altstack(void)
{
	static char memory[65536];
	stack_t s = {.ss_sp = memory, .ss_size = sizeof memory}, none = {.ss_flags = SS_DISABLE};

	sigaltstack(&s, NULL);
	handle(SIGUSR1, SA_ONSTACK);
	works();
	raise(SIGUSR1);
	printf(" times=%d\n", times);
	sigaltstack(&none, NULL);
	usual(SIGUSR1);
}

static void autodisarm(void)
{
	static char memory[65536];
	stack_t s = {.ss_sp = memory, .ss_size = sizeof memory, .ss_flags = (int)(1U << 31)}, none = {.ss_flags = SS_DISABLE};
	int r = sigaltstack(&s, NULL);

	handle(SIGUSR1, SA_ONSTACK);
	raise(SIGUSR1);
	printf(" %d times=%d\n", r, times);
	sigaltstack(&none, NULL);
	usual(SIGUSR1);
}

static void mend(int sig, siginfo_t *info, void *context)
{
	(void)context;
	seen = sig;
	code_seen = info->si_code;
	at = info->si_addr;
	mprotect(page, sizeof page, PROT_READ | PROT_WRITE);
	avoid(sig);
	works();
	avoid(0);
}

static void faults_mended(void)
{
	struct sigaction a = {.sa_sigaction = mend, .sa_flags = SA_SIGINFO};

	sigaction(SIGSEGV, &a, NULL);
	mprotect(page, sizeof page, PROT_NONE);
	works();
	((volatile char *)page)[4097] = 1;
	printf(" seen=%d code=%d at=%d\n", seen, code_seen, (int)((char *)at - page));
	usual(SIGSEGV);
}

static void jump_back(int sig)
{
	seen = sig;
	siglongjmp(back, 1);
}

static void jumps(int sig, void (*raise_it)(void))
{
	int n = 0;

	for (int i = 0; i < 3; i++) {
		signal(sig, jump_back);
		if (sigsetjmp(back, 1) == 0) {
			works();
			raise_it();
		} else {
			n++;
			works();
		}
	}
	printf(" %d times %d, blocked=%d\n", seen, n, blocked(sig));
	usual(sig);
}

static void do_segv(void) { char *volatile p = (char *)8; *(volatile char *)p = 1; }
static void do_fpe(void) { volatile int z = 0; z = 1 / z; }
static void do_ill(void) { __asm__ volatile("ud2"); }
static void do_hlt(void) { __asm__ volatile("hlt"); }
static void do_trap(void) { __asm__ volatile("int3"); }
static void do_int1(void) { __asm__ volatile(".byte 0xf1"); }
static void do_cli(void) { __asm__ volatile("cli"); }
static void do_abort(void) { abort(); }

static void j_segv(void) { jumps(SIGSEGV, do_segv); }
static void j_fpe(void) { jumps(SIGFPE, do_fpe); }
static void j_ill(void) { jumps(SIGILL, do_ill); }
static void j_hlt(void) { jumps(SIGSEGV, do_hlt); }
static void j_cli(void) { jumps(SIGSEGV, do_cli); }
static void j_trap(void) { jumps(SIGTRAP, do_trap); }
static void j_int1(void) { jumps(SIGTRAP, do_int1); }
static void j_abort(void) { jumps(SIGABRT, do_abort); }

static void own_traps(void)
{
	handle(SIGTRAP, 0);
	for (int i = 0; i < 4; i++) {
		works();
		do_trap();
	}
	printf(" times=%d code=%d\n", times, code_seen);
	usual(SIGTRAP);
}

// A handler that steps its own program.
static void on_step(int sig, siginfo_t *info, void *context)
{
	(void)sig, (void)info, (void)context;
	times++;
}

#if defined(__x86_64__)
#define FLAGS_SET(bit) __asm__ volatile("lea -128(%%rsp),%%rsp; pushfq; orl %0,(%%rsp); popfq; lea 128(%%rsp),%%rsp" ::"i"(bit) : "memory", "cc")
#define FLAGS_CLEAR(bit) __asm__ volatile("lea -128(%%rsp),%%rsp; pushfq; andl %0,(%%rsp); popfq; lea 128(%%rsp),%%rsp" ::"i"(~(bit)) : "memory", "cc")
#else
#define FLAGS_SET(bit) __asm__ volatile("pushfl; orl %0,(%%esp); popfl" ::"i"(bit) : "memory", "cc")
#define FLAGS_CLEAR(bit) __asm__ volatile("pushfl; andl %0,(%%esp); popfl" ::"i"(~(bit)) : "memory", "cc")
#endif

static long flags(void)
{
	long f;

#if defined(__x86_64__)
	__asm__ volatile("lea -128(%%rsp),%%rsp; pushfq; pop %0; lea 128(%%rsp),%%rsp" : "=r"(f)::"memory");
#else
	__asm__ volatile("pushfl; pop %0" : "=r"(f)::"memory");
#endif
	return f;
}

static void alignment_check(void)
{
	long s = 0, f;

	FLAGS_SET(1 << 18);
	s += work(1) + work(2) + work(3);
	f = flags();
	FLAGS_CLEAR(1 << 18);
	printf(" %ld ac=%d\n", s, !!(f & 1 << 18));
}

static void direction(void)
{
	long s = 0, f;

	FLAGS_SET(1 << 10);
	s += work(1) + reads("direction") + work(3) + reads((char *)16);
	f = flags();
	FLAGS_CLEAR(1 << 10);
	printf(" %ld df=%d\n", s, !!(f & 1 << 10));
}

static void identification(void)
{
	long f;

	FLAGS_SET(1 << 21);
	works();
	f = flags();
	FLAGS_CLEAR(1 << 21);
	printf(" id=%d\n", !!(f & 1 << 21));
}

static void rounding(void)
{
	volatile double third;
	int mode;

	fesetround(FE_UPWARD);
	works();
	third = 1.0 / 3;
	mode = fegetround() == FE_UPWARD;
	fesetround(FE_TONEAREST);
	printf(" %.20f %d\n", third, mode);
}

static void denormals(void)
{
	unsigned csr = 0, now;

	__asm__ volatile("stmxcsr %0" : "=m"(csr));
	now = csr | 0x8040;
	__asm__ volatile("ldmxcsr %0" ::"m"(now));
	works();
	__asm__ volatile("stmxcsr %0" : "=m"(now));
	__asm__ volatile("ldmxcsr %0" ::"m"(csr));
	printf(" %x\n", now & 0x8040);
}

static void float_traps(void)
{
	unsigned csr, on;

	__asm__ volatile("stmxcsr %0" : "=m"(csr));
	on = csr & ~(1u << 9); // division by zero
	signal(SIGFPE, jump_back);
	seen = 0;
	if (sigsetjmp(back, 1) == 0) {
		double zero = 0, x = 1;

		__asm__ volatile("ldmxcsr %0" ::"m"(on));
		works();
		__asm__ volatile("divsd %1,%0" : "+x"(x) : "x"(zero));
	}
	__asm__ volatile("ldmxcsr %0" ::"m"(csr));
	printf(" %d\n", seen == SIGFPE);
	usual(SIGFPE);
}

static void stack_of_x87(void)
{
	volatile long double sum = 0;
	long double a = 1, b = 2, c = 3, d = 4;

	__asm__ volatile("" : "+t"(a));
	works();
	sum = a + b + c + d;
	printf(" %Lf\n", sum);
}

// ---- What a program can switch off ----

int prctl(int, ...);

static void no_time(void)
{
	prctl(26, 2L);
	works();
	prctl(26, 1L);
	printf(" ok\n");
}

static void undumpable(void)
{
	int r = prctl(4, 0L);

	works();
	printf(" %d %d", r, prctl(3));
	prctl(4, 1L);
	works();
	printf(" %d\n", prctl(3));
}

static void personalities(void)
{
	long was = syscall(N_personality, 0xffffffffL);

	syscall(N_personality, was | 0x0400000L); // READ_IMPLIES_EXEC
	works();
	syscall(N_personality, was | 0x8000000L); // ADDR_LIMIT_32BIT's neighbour: SHORT_INODE and the like
	works();
	printf(" %d\n", syscall(N_personality, was) >= 0);
	syscall(N_personality, was);
}

static void own_name(void)
{
	char name[16] = {0};

	prctl(15, "\001odd \177 name");
	works();
	prctl(16, name);
	printf(" %s\n", name + 1);
	prctl(15, "exotic");
}

static void limited(int what, const char *how, long to)
{
	struct rlimit was, low;

	getrlimit(what, &was);
	low = was;
	low.rlim_cur = to;
	int r = setrlimit(what, &low);

	works();
	printf(" %s=%d", how, r);
	setrlimit(what, &was);
}

static void limits(void)
{
	fflush(stdout);
	limited(RLIMIT_NOFILE, "files", 0);
	limited(RLIMIT_NPROC, "processes", 0);
	limited(RLIMIT_AS, "memory", 1 << 20);
	limited(RLIMIT_STACK, "stack", 1 << 14);
	limited(RLIMIT_DATA, "data", 0);
	limited(RLIMIT_MEMLOCK, "locked", 0);
	limited(RLIMIT_SIGPENDING, "pending", 0);
	limited(RLIMIT_CORE, "core", 0);
	putchar('\n');
}

static void keys(void)
{
	long key = syscall(N_pkey_alloc, 0L, 0L);

	if (key > 0) {
		syscall(N_pkey_mprotect, page, sizeof page, PROT_READ | PROT_WRITE, key);
		// No access by any key but 0, whose memory is everybody's.
		__asm__ volatile("xor %%ecx,%%ecx; xor %%edx,%%edx; wrpkru" ::"a"(0x55555554) : "ecx", "edx", "memory");
		works();
		__asm__ volatile("xor %%ecx,%%ecx; xor %%edx,%%edx; wrpkru" ::"a"(0) : "ecx", "edx", "memory");
		syscall(N_pkey_mprotect, page, sizeof page, PROT_READ | PROT_WRITE, 0L);
		syscall(N_pkey_free, key);
	}
	printf(" ok\n");
}

static void text_page(int prot)
{
	uintptr_t start = (uintptr_t)work & ~4095UL, end = ((uintptr_t)reads + 64 + 4095) & ~4095UL;

	int r = mprotect((void *)start, end - start, prot | PROT_EXEC);

	works();
	printf(" %d", r);
	mprotect((void *)start, end - start, PROT_READ | PROT_EXEC);
	works();
}

static void text_protections(void)
{
	text_page(PROT_READ | PROT_WRITE);
	text_page(PROT_READ);
	text_page(0);
	putchar('\n');
}

static void text_advice(void)
{
	uintptr_t start = (uintptr_t)work & ~4095UL;

	printf(" %d", madvise((void *)start, 4096, MADV_WILLNEED));
	works();
	printf(" %d", madvise((void *)start, 4096, MADV_RANDOM));
	works();
	printf(" %d", madvise((void *)start, 4096, MADV_NORMAL));
	works();
	printf(" %d\n", mlock((void *)start, 4096) & 0);
	munlock((void *)start, 4096);
	works();
}

// ---- Threads that are not libc's ----

static char stacks[4][65536] __attribute__((aligned(64)));
static volatile int done[4];
static volatile long sums[4];

__attribute__((optimize("no-stack-protector"))) static int bare(void *arg)
{
	long n = (long)arg, s = 0;

	for (int i = 0; i < 200; i++)
		s += work(i);
	sums[n] = s;
	done[n] = 1;
	__asm__ volatile(NR("syscall", "int $0x80") ::"a"(N_exit), NR("D", "b")(0) : "memory");
	return 0;
}

__attribute__((optimize("no-stack-protector"))) static void bare_threads(int flags, void *tls)
{
	memset((void *)done, 0, sizeof done);
	for (long i = 0; i < 4; i++)
		if (clone(bare, stacks[i] + sizeof stacks[i], flags | CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM,
			  (void *)i, NULL, tls, NULL) < 0)
			done[i] = 1;
	for (int i = 0; i < 4; i++)
		while (!done[i])
			sched_yield();
	usleep(2000);
	printf(" %ld %ld %ld %ld\n", sums[0], sums[1], sums[2], sums[3]);
}

static void threads_without_tls(void) { bare_threads(0, NULL); }

#if defined(__x86_64__)
static void threads_of_null(void) { bare_threads(CLONE_SETTLS, NULL); }
static void threads_of_garbage(void) { bare_threads(CLONE_SETTLS, (void *)0x123456789a0); }
static void threads_of_odd(void) { bare_threads(CLONE_SETTLS, page + 1); }

static unsigned long base(void)
{
	unsigned long b;

	syscall(N_arch_prctl, 0x1003, &b);
	return b;
}

// For the time of some hits the thread has another fs base; nothing else runs meanwhile.
__attribute__((noinline, optimize("no-stack-protector"))) static long with_base(unsigned long other, unsigned long own)
{
	long s = 0, r;

	__asm__ volatile("syscall" : "=a"(r) : "a"(N_arch_prctl), "D"(0x1002), "S"(other) : "rcx", "r11", "memory");
	for (int i = 0; i < 50; i++)
		s += work(i);
	__asm__ volatile("syscall" : "=a"(r) : "a"(N_arch_prctl), "D"(0x1002), "S"(own) : "rcx", "r11", "memory");
	return s;
}

static void odd_bases(void)
{
	unsigned long own = base(), *word = (unsigned long *)page;

	printf(" %ld", with_base(0, own));
	printf(" %ld", with_base(0x10000, own));
	printf(" %ld", with_base(0x7ffffffff000, own));
	*word = 0;
	printf(" %ld", with_base((unsigned long)page, own));
	*word = own; // another thread's word: itself, seen from elsewhere
	printf(" %ld", with_base((unsigned long)page, own));
	*word = (unsigned long)page;
	printf(" %ld", with_base((unsigned long)page, own));
	printf(" %ld", with_base((unsigned long)page + 1, own));
	printf(" %ld\n", with_base((unsigned long)page + 4093, own));
	works();
}

static void gs_base(void)
{
	unsigned long gs = 0;

	syscall(N_arch_prctl, 0x1001, page);
	works();
	syscall(N_arch_prctl, 0x1004, &gs);
	printf(" %d\n", gs == (unsigned long)page);
	syscall(N_arch_prctl, 0x1001, 0L);
}

static void calls_of_32_bits(void)
{
	long id;

	__asm__ volatile("int $0x80" : "=a"(id) : "a"(20) : "memory", "r8", "r9", "r10", "r11");
	works();
	printf(" %d\n", id == getpid());
}
#else
static void gs_selector(void)
{
	unsigned short own, none = 0;
	long s = 0;

	__asm__ volatile("mov %%gs,%0" : "=r"(own));
	__asm__ volatile("mov %0,%%gs" ::"r"(none));
	for (int i = 0; i < 50; i++)
		s += work(i);
	__asm__ volatile("mov %0,%%gs" ::"r"(own));
	printf(" %ld\n", s);
}
#endif

static int child_of_clone(void *arg)
{
	(void)arg;
	works();
	_exit(work(6));
}

static void cloned(int flags)
{
	int status = 0, pid = clone(child_of_clone, stacks[0] + sizeof stacks[0], flags | SIGCHLD, NULL);

	works();
	if (pid > 0)
		waitpid(pid, &status, 0);
	printf(" %d %x\n", pid > 0, status);
}

static void clone_plain(void) { cloned(0); }
static void clone_files(void) { cloned(CLONE_FILES | CLONE_FS); }
static void clone_vfork(void) { cloned(CLONE_VM | CLONE_VFORK); }
static void clone_memory(void) { cloned(CLONE_VM); }
static void clone_handlers(void) { cloned(CLONE_VM | CLONE_SIGHAND); }

static void *threaded(void *arg)
{
	works();
	return arg;
}

static void many_threads(void)
{
	pthread_t t[8];

	for (int round = 0; round < 3; round++) {
		for (long i = 0; i < 8; i++)
			pthread_create(&t[i], NULL, threaded, (void *)i);
		works();
		for (int i = 0; i < 8; i++)
			pthread_join(t[i], NULL);
	}
	printf(" ok\n");
}

static void cancelled(void)
{
	pthread_t t;
	void *r;

	pthread_create(&t, NULL, (void *(*)(void *))pause, NULL);
	works();
	pthread_cancel(t);
	pthread_join(t, &r);
	printf(" %d\n", r == PTHREAD_CANCELED);
}

// ---- Processes ----

static int child(void (*f)(void))
{
	int status = 0, pid;

	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		works();
		f();
		_exit(3);
	}
	works();
	waitpid(pid, &status, 0);
	return status;
}

static void c_works(void) { works(); }
static void fork_exits(void) { printf(" %x\n", child(c_works)); }
static void c_abort(void) { signal(SIGABRT, SIG_DFL); prctl(4, 0L); abort(); }
static void fork_aborts(void) { printf(" %x\n", child(c_abort) & 0x7f); }
static void c_trap(void) { signal(SIGTRAP, SIG_DFL); prctl(4, 0L); do_trap(); }
static void fork_traps(void) { printf(" %x\n", child(c_trap) & 0x7f); }
static void c_segv(void) { prctl(4, 0L); do_segv(); }
static void fork_faults(void) { printf(" %x\n", child(c_segv) & 0x7f); }
static void c_nested(void) { _exit(child(c_works) >> 8); }
static void fork_nested(void) { printf(" %x\n", child(c_nested)); }
static void c_exec(void) { execl("/bin/true", "true", (char *)0); }
static void fork_executes(void) { printf(" %x\n", child(c_exec)); }
static void c_noexec(void) { execl("/nonexistent", "x", (char *)0); works(); }
static void fork_fails_to_execute(void) { printf(" %x\n", child(c_noexec)); }
static void c_strict(void) { prctl(22, 1L); works(); syscall(N_exit, 5L); }
static void fork_strict(void) { printf(" %x\n", child(c_strict)); }
static void c_stops(void) { raise(SIGSTOP); works(); _exit(9); }

static void fork_stops(void)
{
	int status, pid, n = 0;

	fflush(stdout);
	if ((pid = fork()) == 0)
		c_stops();
	while (waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status) && n++ < 3)
		kill(pid, SIGCONT);
	printf(" %d %x\n", n, status);
}

static void vforked(void)
{
	int status, pid = vfork();

	if (pid == 0) {
		work(1);
		_exit(7);
	}
	works();
	waitpid(pid, &status, 0);
	printf(" %x\n", status);
}

static void vfork_executes(void)
{
	int status, pid = vfork();

	if (pid == 0) {
		execl("/bin/true", "true", (char *)0);
		_exit(7);
	}
	waitpid(pid, &status, 0);
	printf(" %x\n", status);
}

static void spawned(void) { printf(" %d\n", system("exit 5") >> 8); }

static void piped(void)
{
	char line[64] = "";
	FILE *f = popen("echo a b c | tr a-z A-Z", "r");

	if (f && !fgets(line, sizeof line, f))
		line[0] = 0;
	printf(" %d %s", pclose(f), line);
}

static void children_ignored(void)
{
	int pid;

	signal(SIGCHLD, SIG_IGN);
	fflush(stdout);
	if ((pid = fork()) == 0)
		_exit(work(0));
	works();
	pid = waitpid(pid, NULL, 0);
	printf(" %d\n", pid == -1 && errno == ECHILD);
	usual(SIGCHLD);
}

static void child_tells(void)
{
	handle(SIGCHLD, SA_RESTART);
	int status = child(c_works);

	printf(" %x times=%d code=%d\n", status, times, code_seen);
	usual(SIGCHLD);
}

// ---- System calls that wait, and what ends them ----

static void alarmed(void (*wait)(void), int flags)
{
	struct itimerval t = {.it_value = {0, 20000}};

	handle(SIGALRM, flags);
	setitimer(ITIMER_REAL, &t, NULL);
	errno = 0;
	wait();
	printf(" errno=%d times=%d\n", errno, times);
	usual(SIGALRM);
}

static void w_pause(void) { pause(); }
static void w_sleep(void) { struct timespec t = {10, 0}; nanosleep(&t, NULL); }
static void w_poll(void) { poll(NULL, 0, 10000); }
static void w_select(void) { struct timeval t = {10, 0}; select(0, NULL, NULL, NULL, &t); }
static void w_suspend(void) { sigset_t s; sigemptyset(&s); sigsuspend(&s); }
static void w_ppoll(void) { sigset_t s; sigemptyset(&s); ppoll(NULL, 0, NULL, &s); }
static void w_futex(void) { static int word; syscall(N_futex, &word, 0L, 0L, NULL, NULL, 0L); }
static void w_read(void)
{
	int p[2];
	char c;

	if (pipe(p) == 0 && read(p[0], &c, 1) < 0)
		BARRIER();
	int e = errno;

	close(p[0]);
	close(p[1]);
	errno = e;
}
static void w_lock(void)
{
	int s[2];
	char c;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0 && recv(s[0], &c, 1, 0) < 0)
		BARRIER();
	int e = errno;

	close(s[0]);
	close(s[1]);
	errno = e;
}
static void i_pause(void) { alarmed(w_pause, 0); }
static void i_sleep(void) { alarmed(w_sleep, SA_RESTART); }
static void i_poll(void) { alarmed(w_poll, SA_RESTART); }
static void i_select(void) { alarmed(w_select, 0); }
static void i_suspend(void) { alarmed(w_suspend, SA_RESTART); }
static void i_ppoll(void) { alarmed(w_ppoll, 0); }
static void i_futex(void) { alarmed(w_futex, 0); }
static void i_read(void) { alarmed(w_read, 0); }
static void i_recv(void) { alarmed(w_lock, 0); }

static void short_sleep(void)
{
	struct timespec t = {0, 5000000}, left = {1, 1};

	works();
	printf(" %d\n", nanosleep(&t, &left));
}

static void virtual_timer(void)
{
	struct itimerval t = {.it_value = {0, 5000}}, none = {0};

	handle(SIGVTALRM, SA_RESTART);
	setitimer(ITIMER_VIRTUAL, &t, NULL);
	for (long i = 0; !times && i < 2000000000; i++)
		work(i);
	setitimer(ITIMER_VIRTUAL, &none, NULL);
	printf(" %d\n", times);
	usual(SIGVTALRM);
}

static void profiled(void)
{
	struct sigaction a = {.sa_sigaction = on_step, .sa_flags = SA_SIGINFO | SA_RESTART};
	struct itimerval t = {{0, 1000}, {0, 1000}}, none = {0};

	sigaction(SIGPROF, &a, NULL);
	times = 0;
	setitimer(ITIMER_PROF, &t, NULL);
	for (long i = 0; times < 20 && i < 2000000000; i++)
		works();
	setitimer(ITIMER_PROF, &none, NULL);
	printf(" %d\n", times >= 20);
	usual(SIGPROF);
}

static void stormed(void)
{
	struct sigaction a = {.sa_sigaction = on_step, .sa_flags = SA_SIGINFO | SA_RESTART};
	struct itimerval t = {{0, 1000}, {0, 1000}}, none = {0};
	long s = 0;

	sigaction(SIGALRM, &a, NULL);
	times = 0;
	setitimer(ITIMER_REAL, &t, NULL);
	for (int i = 0; times < 50 && i < 100000000; i++)
		s |= work(i) ^ (i * 3L + 1);
	setitimer(ITIMER_REAL, &none, NULL);
	printf(" %ld %d\n", s, times >= 50);
	usual(SIGALRM);
}

// ---- Signals with a story ----

static void queued(void)
{
	union sigval v = {.sival_int = 42};
	struct timespec soon = {1, 0};
	siginfo_t info = {0};
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, 41);
	sigprocmask(SIG_BLOCK, &set, NULL);
	for (int i = 0; i < 3; i++, v.sival_int++) {
		works();
		sigqueue(getpid(), 41, v);
	}
	for (int i = 0; i < 3; i++) {
		sigtimedwait(&set, &info, &soon);
		printf(" %d:%d", info.si_value.sival_int, info.si_code);
		works();
	}
	putchar('\n');
	usual(41);
}

static void to_a_thread(void)
{
	handle(SIGUSR2, 0);
	syscall(N_tgkill, getpid(), syscall(N_gettid), SIGUSR2);
	printf(" times=%d code=%d\n", times, code_seen);
	usual(SIGUSR2);
}

static void by_descriptor(void)
{
	unsigned char mask[8] = {0}, info[128];

	mask[(SIGUSR1 - 1) / 8] = 1 << ((SIGUSR1 - 1) % 8);
	block(SIG_BLOCK, SIGUSR1);
	int fd = syscall(N_signalfd4, -1L, mask, 8L, 0L);

	works();
	kill(getpid(), SIGUSR1);
	printf(" %d", (int)read(fd, info, sizeof info));
	printf(" %d\n", info[0]);
	close(fd);
	usual(SIGUSR1);
}

static void by_pidfd(void)
{
	handle(SIGUSR1, 0);
	int fd = syscall(N_pidfd_open, (long)getpid(), 0L);

	works();
	printf(" %ld", syscall(N_pidfd_send, fd, (long)SIGUSR1, NULL, 0L));
	printf(" times=%d\n", times);
	close(fd);
	usual(SIGUSR1);
}

// A handler that has its program go on elsewhere, with another mask and other registers.
static void edit(int sig, siginfo_t *info, void *context)
{
	ucontext_t *u = context;

	(void)sig, (void)info;
	sigaddset(&u->uc_sigmask, SIGUSR2);
	works();
}

static void mask_edited(void)
{
	struct sigaction a = {.sa_sigaction = edit, .sa_flags = SA_SIGINFO};

	sigaction(SIGUSR1, &a, NULL);
	works();
	raise(SIGUSR1);
	works();
	printf(" %d\n", blocked(SIGUSR2));
	usual(SIGUSR1);
	usual(SIGUSR2);
}

static void nest(int sig)
{
	times++;
	works();
	if (sig < 45)
		raise(sig + 1);
	works();
}

static void nested(void)
{
	times = 0;
	for (int s = 36; s <= 45; s++)
		signal(s, nest);
	raise(36);
	printf(" %d\n", times);
	for (int s = 36; s <= 45; s++)
		usual(s);
}

static void stepped_by_itself(void)
{
	struct sigaction a = {.sa_sigaction = on_step, .sa_flags = SA_SIGINFO};

	sigaction(SIGTRAP, &a, NULL);
	times = 0;
	FLAGS_SET(1 << 8);
	__asm__ volatile("nop; nop; nop; nop");
	FLAGS_CLEAR(1 << 8);
	printf(" %d\n", times > 4);
	usual(SIGTRAP);
}

// ---- Calls that have a result and nothing else ----

static void membarriers(void) { printf(" %d\n", syscall(N_membarrier, 0L, 0L, 0L) > 0); works(); }
static void random_bytes(void) { char b[8]; printf(" %ld\n", syscall(N_getrandom, b, 8L, 0L)); works(); }
static void cpu_number(void) { unsigned c = 99999; printf(" %ld %d\n", syscall(N_getcpu, &c, NULL, NULL), c < 99999); works(); }
static void capabilities(void) { unsigned h[2] = {0x20080522, 0}, d[6]; printf(" %ld\n", syscall(N_capget, h, d)); works(); }
static void robust(void) { void *p; size_t n; printf(" %ld\n", syscall(N_get_robust_list, 0L, &p, &n)); works(); }
static void attributes(void) { char b[64]; printf(" %ld\n", syscall(N_sched_getattr, 0L, b, 48L, 0L)); works(); }
static void resident(void) { unsigned char v[2] = {0}; page[0] = page[4096] = 1; printf(" %ld %d\n", syscall(N_mincore, page, 8192L, v), v[0] & v[1] & 1); works(); }
static void closed_range(void) { int fd = dup(1); printf(" %ld", syscall(N_close_range, (long)fd, (long)fd, 0L)); printf(" %d\n", close(fd)); works(); }

static void reads_itself(void)
{
	volatile long word = 0, own = 77;
	struct iovec to = {(void *)&word, sizeof word}, from = {(void *)&own, sizeof own};
	int fd = open("/proc/self/mem", O_RDWR | O_CLOEXEC);

	works();
	printf(" %d", syscall(N_process_vm_readv, (long)getpid(), &to, 1L, &from, 1L, 0L) == sizeof own);
	printf(" %ld", word);
	printf(" %d", pwrite(fd, (void *)&word, sizeof word, (off_t)(uintptr_t)page) == sizeof word);
	printf(" %ld\n", *(long *)page);
	close(fd);
}

static void code_in_memory(void)
{
	static const unsigned char ret[] = {0xb8, 42, 0, 0, 0, 0xc3};
	int fd = syscall(N_memfd_create, "code", 0L);

	if (fd < 0 || write(fd, ret, sizeof ret) != sizeof ret)
		return;
	int (*f)(void) = (int (*)(void))mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);

	works();
	printf(" %d\n", f());
	munmap((void *)f, 4096);
	close(fd);
}

static void moved_memory(void)
{
	char *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	p[0] = 5;
	works();
	p = mremap(p, 8192, 1 << 20, MREMAP_MAYMOVE);
	works();
	printf(" %d", p[0]);
	printf(" %d\n", munmap(p, 1 << 20));
}

// ---- What cannot be undone ----

static void strict(void)
{
	works();
	printf(" strict\n");
	fflush(stdout);
	prctl(22, 1L);
	works();
	syscall(N_exit, 5L);
}

static void strict_broken(void)
{
	printf(" strict\n");
	fflush(stdout);
	prctl(22, 1L);
	works();
	getppid();
	syscall(N_getppid);
}

struct filter { unsigned short code; unsigned char jt, jf; unsigned k; };

static int filtered(int number, unsigned then)
{
	struct filter f[] = {{0x20, 0, 0, 0}, {0x15, 0, 1, number}, {0x06, 0, 0, then}, {0x06, 0, 0, 0x7fff0000}};
	struct { unsigned short n; struct filter *f; } prog = {4, f};

	prctl(38, 1L, 0L, 0L, 0L);
	return prctl(22, 2L, &prog);
}

static void filter_errno(void) { printf(" %d", filtered(N_getppid, 0x00050000 | 99)); works(); printf(" %ld %d\n", syscall(N_getppid), errno); }
static void filter_kills(void) { printf(" %d\n", filtered(N_getppid, 0x80000000)); fflush(stdout); works(); syscall(N_getppid); }
static void filter_thread(void) { printf(" %d\n", filtered(N_getppid, 0)); fflush(stdout); works(); syscall(N_getppid); }
static void filter_id(void) { printf(" %d\n", filtered(N_gettid, 0x80000000)); fflush(stdout); works(); many_threads(); }
static void filter_traps(void)
{
	handle(SIGSYS, 0);
	printf(" %d", filtered(N_getppid, 0x00030000));
	works();
	syscall(N_getppid);
	printf(" %d %d\n", seen == SIGSYS, code_seen);
}

static void new_privileges(void) { printf(" %d", prctl(38, 1L, 0L, 0L, 0L)); works(); printf(" %d\n", prctl(39, 0L, 0L, 0L, 0L)); }
static void no_new_text(void) { printf(" %d\n", prctl(65, 1L, 0L, 0L, 0L)); works(); many_threads(); }

static void sealed(void)
{
	uintptr_t start = (uintptr_t)work & ~4095UL;
	long r = syscall(N_mseal, start, 4096L, 0L);

	works();
	printf(" %d\n", r == 0 || errno == ENOSYS || errno == EPERM);
}

static void locked_in_memory(void) { printf(" %d\n", mlockall(MCL_CURRENT) & 0); works(); munlockall(); }
static void exits_in_thread(void)
{
	pthread_t t;

	pthread_create(&t, NULL, (void *(*)(void *))work, NULL);
	pthread_join(t, NULL);
	fflush(stdout);
	_exit(work(13));
}

static void *leaves(void *arg) { (void)arg; usleep(1000); works(); exit(41); }
static void first_thread_leaves(void)
{
	pthread_t t;

	pthread_create(&t, NULL, leaves, NULL);
	works();
	pthread_exit(NULL);
}

static void at_the_end(void) { works(); printf("at exit\n"); }
static void exits(void) { atexit(at_the_end); exit(6); }
static void aborts(void) { works(); fflush(stdout); prctl(4, 0L); abort(); }
static void dies_of_a_fault(void) { works(); prctl(4, 0L); do_segv(); }
static void dies_of_a_fault_blocked(void) { avoid(SIGSEGV); block(SIG_BLOCK, 0); works(); prctl(4, 0L); do_segv(); }
static void dies_of_a_fault_ignored(void) { avoid(SIGSEGV); signal(SIGSEGV, SIG_IGN); works(); prctl(4, 0L); do_segv(); }
static void dies_of_a_trap(void) { works(); prctl(4, 0L); do_trap(); }
static void dies_of_a_trap_ignored(void) { signal(SIGTRAP, SIG_IGN); works(); prctl(4, 0L); do_trap(); }

static void executes(const char *how)
{
	char *argv[] = {"exotic", (char *)how, NULL};

	works();
	fflush(stdout);
	execv("/proc/self/exe", argv);
	printf(" not executed\n");
}

static void executes_itself(void) { executes("again"); }
static void executes_blocked(void) { block(SIG_BLOCK, SIGUSR1); block(SIG_BLOCK, SIGTRAP); executes("again"); }
static void executes_ignoring(void) { signal(SIGUSR1, SIG_IGN); signal(SIGTRAP, SIG_IGN); executes("again"); }
static void *executes_from_thread(void *arg) { executes("again"); return arg; }
static void thread_executes(void)
{
	pthread_t t;

	pthread_create(&t, NULL, executes_from_thread, NULL);
	pthread_join(t, NULL);
}

// ---- The table ----

static const struct { const char *name; void (*f)(void); int wild; } cases[] = {
#define T(f) {#f, f, 0}
#define W(f) {#f, f, 1}
	T(everything_blocked), T(trap_alone_again), T(altstack), T(autodisarm), T(faults_mended), T(j_segv), T(j_fpe), T(j_ill), T(j_hlt),
	T(j_cli), T(j_trap), T(j_int1), T(j_abort), T(own_traps), T(alignment_check), T(direction), T(identification), T(rounding),
	T(denormals), T(float_traps), T(stack_of_x87), T(no_time), T(undumpable), T(personalities), T(own_name), T(limits), T(keys),
	T(text_protections), T(text_advice), T(threads_without_tls),
#if defined(__x86_64__)
	T(threads_of_null), T(threads_of_garbage), T(threads_of_odd), T(odd_bases), T(gs_base), T(calls_of_32_bits),
#else
	T(gs_selector),
#endif
	T(clone_plain), T(clone_files), T(clone_vfork), T(clone_memory), T(clone_handlers), T(many_threads), T(cancelled), T(fork_exits),
	T(fork_aborts), T(fork_traps), T(fork_faults), T(fork_nested), T(fork_executes), T(fork_fails_to_execute), T(fork_strict),
	T(fork_stops), T(vforked), T(vfork_executes), T(spawned), T(piped), T(children_ignored), T(child_tells), T(i_pause), T(i_sleep),
	T(i_poll), T(i_select), T(i_suspend), T(i_ppoll), T(i_futex), T(i_read), T(i_recv), T(short_sleep), T(virtual_timer), T(profiled),
	T(stormed), T(queued), T(to_a_thread), T(by_descriptor), T(by_pidfd), T(mask_edited), T(nested), T(stepped_by_itself),
	T(membarriers), T(random_bytes), T(cpu_number), T(capabilities), T(robust), T(attributes), T(resident), T(closed_range),
	T(reads_itself), T(code_in_memory), T(moved_memory),
	W(strict), W(strict_broken), W(filter_errno), W(filter_kills), W(filter_thread), W(filter_id), W(filter_traps), W(new_privileges),
	W(no_new_text), W(sealed), W(locked_in_memory), W(exits_in_thread), W(first_thread_leaves), W(exits), W(aborts), W(dies_of_a_fault),
	W(dies_of_a_fault_blocked), W(dies_of_a_fault_ignored), W(dies_of_a_trap), W(dies_of_a_trap_ignored), W(executes_itself),
	W(executes_blocked), W(executes_ignoring), W(thread_executes),
};

static const struct { const char *name; void (*f)(int); int wild; } ways[] = {
	{"sent", sent, 0}, {"ignored", ignored, 0}, {"pending", pending, 0}, {"handled_blocked", handled_blocked, 0},
	{"nodefer", nodefer, 0}, {"reset", reset, 0}, {"fatal", fatal, 1},
};

// Stops and continues are the shell's affair, and its way to be told of the child is.
static int fits(int way, int sig)
{
	if (sig == SIGTSTP || sig == SIGTTIN || sig == SIGTTOU)
		return !ways[way].wild;
	// A handler of SIGTRAP that was set since the last trap is lost where the next is met with the signal blocked.
	return !(sig == SIGABRT && way == 1) && !(sig == SIGTRAP && way == 3);
}

static int run(const char *name, int kind)
{
	char own[64];
	int n = 0;

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
		if (name ? !strcmp(name, cases[i].name) : cases[i].wild == kind) {
			printf("%s", cases[i].name);
			cases[i].f();
			state();
			n++;
		}
	for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++)
		for (int i = 0; i < SIGNALS; i++) {
			snprintf(own, sizeof own, "%s-%s", ways[w].name, signals[i].name);
			if (fits(w, signals[i].number) && (name ? !strcmp(name, own) : ways[w].wild == kind)) {
				printf("%s", own);
				ways[w].f(signals[i].number);
				state();
				n++;
			}
		}
	return n;
}

static void list(int wild)
{
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
		if (cases[i].wild == wild)
			puts(cases[i].name);
	for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++)
		for (int i = 0; i < SIGNALS; i++)
			if (ways[w].wild == wild && fits(w, signals[i].number))
				printf("%s-%s\n", ways[w].name, signals[i].name);
}

int main(int argc, char **argv)
{
	struct rlimit none = {0, 0};
	long n = 0;

	setrlimit(RLIMIT_CORE, &none);
	if (argc > 1) { // executed by itself
		unsigned long long mask;
		char line[256];
		FILE *f = fopen("/proc/self/status", "r");

		printf("%s %ld\n", argv[1], works());
		while (f && fgets(line, sizeof line, f))
			if (sscanf(line, "Sig%*[BI]%*[lg]%*[kn]:%llx", &mask) == 1)
				printf("%.6s %llx\n", line, mask & ~(1ULL << (SIGTRAP - 1)));
		return 0;
	}
	while (next_round(&n)) {
		if (!strcmp(command, "names"))
			list(0);
		else if (!strcmp(command, "names wild"))
			list(1);
		else if (!run(strcmp(command, "tame") ? command : NULL, 0))
			printf("no case %s\n", command);
		fflush(stdout);
	}
	return failures != 0;
}
