// Threads that signals never leave alone, and that do with them what programs do.
//
//	storm LIBRARY [T]
//
// Each of T threads (8) has two timers that count the thread's own time, a
// millisecond each, so that it comes on however slow it is: SIGUSR1 on its stack,
// SIGUSR2 on one of its own (sigaltstack). The handlers look at what they
// interrupted: the program counter is in code that the program knows; in
// storm_wait it is an instruction's, and the registers are what they are before that
// one. They change it, too: storm_wait waits for a register that a handler sets in the
// context, and storm_deep is left by siglongjmp only.
//
// A round with count N: each thread calls storm_step N times, and storm_wait and
// storm_deep N/1000 times, while others fork, spawn programs, and load and unload
// the library, N/1000 times. It prints "step CALLS SUM", "wait CALLS", "deep CALLS",
// "forks N", "loads N", and "timers N", how many signals came.
#define _GNU_SOURCE
#include "prog.h"
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

#define MAX_THREADS 256
#define DEPTH 3

extern char **environ;

// storm_wait turns until its RESULT is not 0, which only a handler can bring about. On
// the way TIMES is K times TURNS; the labels are the instructions between which that
// changes. KEPT tells of the other registers that they are as they were left. It returns
// what came in RESULT, or 0 if a register is not as it was left.
#define K "0x5a5a5a5b"
unsigned long storm_wait(void);
#ifdef __x86_64__
#define REG_PC REG_RIP
#define RESULT REG_RAX
#define TURNS REG_RDX
#define TIMES REG_R8
#define KEPT(r) (r[REG_R13] == r[REG_RBX] + r[REG_RBP] && r[REG_R14] == r[REG_RBP] + r[REG_R12] && \
		 r[REG_RBX] == 0x1111111122222222)
#define BEGIN \
	"push %rbx\npush %rbp\npush %r12\npush %r13\npush %r14\npush %r15\n" \
	"movabs $0x1111111122222222, %rbx\nmovabs $0x3333333344444444, %rbp\n" \
	"movabs $0x5555555566666666, %r12\nlea (%rbx,%rbp), %r13\nlea (%rbp,%r12), %r14\nlea (%rbx,%r12), %r15\n" \
	"xor %eax, %eax\nxor %edx, %edx\nxor %r8d, %r8d\n"
#define LOOP \
	"storm_wait_1: lea 1(%rdx), %rdx\n" \
	"storm_wait_2: mov $" K ", %esi\n" \
	"storm_wait_3: add %rsi, %r8\n" \
	"storm_wait_4: test %rax, %rax\n"
#define END \
	"imul $" K ", %rdx, %rdx\nsub %rdx, %r8\n" \
	"lea (%rbx,%rbp), %rcx\nsub %r13, %rcx\nor %rcx, %r8\n" \
	"lea (%rbp,%r12), %rcx\nsub %r14, %rcx\nor %rcx, %r8\n" \
	"lea (%rbx,%r12), %rcx\nsub %r15, %rcx\nor %rcx, %r8\n" \
	"movabs $0x1111111122222222, %rcx\nsub %rbx, %rcx\nor %rcx, %r8\n" \
	"xor %ecx, %ecx\ntest %r8, %r8\ncmovne %rcx, %rax\n" \
	"pop %r15\npop %r14\npop %r13\npop %r12\npop %rbp\npop %rbx\n"
#else
#define REG_PC REG_EIP
#define RESULT REG_EAX
#define TURNS REG_EDX
#define TIMES REG_ECX
#define KEPT(r) (r[REG_EDI] == r[REG_EBX] + r[REG_EBP] && r[REG_EBX] == 0x11112222)
#define BEGIN \
	"push %ebx\npush %ebp\npush %esi\npush %edi\n" \
	"mov $0x11112222, %ebx\nmov $0x33334444, %ebp\nlea (%ebx,%ebp), %edi\n" \
	"xor %eax, %eax\nxor %edx, %edx\nxor %ecx, %ecx\n"
#define LOOP \
	"storm_wait_1: lea 1(%edx), %edx\n" \
	"storm_wait_2: mov $" K ", %esi\n" \
	"storm_wait_3: add %esi, %ecx\n" \
	"storm_wait_4: test %eax, %eax\n"
#define END \
	"imul $" K ", %edx, %edx\nsub %edx, %ecx\n" \
	"lea (%ebx,%ebp), %edx\nsub %edi, %edx\nor %edx, %ecx\n" \
	"mov $0x11112222, %edx\nsub %ebx, %edx\nor %edx, %ecx\n" \
	"xor %edx, %edx\ntest %ecx, %ecx\ncmovne %edx, %eax\n" \
	"pop %edi\npop %esi\npop %ebp\npop %ebx\n"
#endif
__asm__(".text\n.globl storm_wait\n.type storm_wait, @function\n"
	".globl storm_wait_1, storm_wait_2, storm_wait_3, storm_wait_4, storm_wait_5, storm_wait_6\n"
	"storm_wait:\n" BEGIN LOOP
	"storm_wait_5: je storm_wait_1\n"
	"storm_wait_6:\n" END
	"ret\n"
	".size storm_wait, . - storm_wait\n");
extern char storm_wait_1[], storm_wait_2[], storm_wait_3[], storm_wait_4[], storm_wait_5[], storm_wait_6[];

static struct { uintptr_t start, end; } code[256];
static int codes;
static const char *library;

// What a handler must know of its thread. It is of the initial-exec kind: no call.
static struct { volatile unsigned long pc, turns, times, flags; } first; // state that was wrong

static __thread volatile struct {
	sigjmp_buf *away; // where to go, if that is wanted
	unsigned long came, wrong;
} mine __attribute__((tls_model("initial-exec")));

static void read_code(void)
{
	FILE *f = fopen("/proc/self/maps", "r");
	char line[512], perms[5], path[256];
	unsigned long start, end;

	codes = 0;
	while (f && fgets(line, sizeof line, f))
		if (sscanf(line, "%lx-%lx %4s %*s %*s %*s %255s", &start, &end, perms, path) == 4 &&
		    perms[2] == 'x' && codes < 256) {
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

static void is_wrong(const greg_t *r)
{
	if (!mine.wrong++) {
		first.pc = (unsigned long)r[REG_PC], first.flags = (unsigned long)r[REG_EFL];
		first.turns = (unsigned long)r[TURNS], first.times = (unsigned long)r[TIMES];
	}
}

PROBED unsigned long storm_inner(unsigned long a) { BARRIER(); return a ^ 0x5555; }

// waiting tells whether a thread that is in the loop of storm_wait is in a state that
// it can be in there.
static int waiting(const greg_t *r)
{
	static char *const at[] = {storm_wait_1, storm_wait_2, storm_wait_3, storm_wait_4, storm_wait_5};
	unsigned long k = strtoul(K, NULL, 16), turns = (unsigned long)r[TURNS];

	for (int i = 0; i < 5; i++)
		if (at[i] == (char *)r[REG_PC])
			return (unsigned long)r[TIMES] == k * (i == 1 || i == 2 ? turns - 1 : turns) && KEPT(r);
	return 0;
}

PROBED void storm_handler(int sig, siginfo_t *info, void *context)
{
	ucontext_t *uc = context;
	greg_t *r = uc->uc_mcontext.gregs;
	char *pc = (char *)r[REG_PC];
	sigjmp_buf *away = mine.away;

	(void)sig, (void)info;
	mine.came++;
	if (storm_inner(storm_inner(7)) != 7 || r[REG_EFL] & 0x100)
		is_wrong(r);
	if (pc >= storm_wait_1 && pc < storm_wait_6) {
		if (!waiting(r))
			is_wrong(r);
		r[RESULT] = 42;
	} else if (!known((uintptr_t)pc)) {
		is_wrong(r);
	}
	if (away) {
		mine.away = NULL;
		siglongjmp(*away, 1);
	}
}

PROBED unsigned long storm_step(unsigned long a, unsigned long b)
{
	unsigned long flag = a > b;

	return (a << 1 | a >> (8 * sizeof a - 1)) + b * 3 + flag;
}

PROBED unsigned long storm_spin(unsigned long a) { BARRIER(); return a * 5 + 1; }

static volatile int returns; // it never does

PROBED unsigned long storm_deep(long depth, sigjmp_buf *back)
{
	unsigned long sum = 1;

	if (depth > 0)
		return storm_inner(storm_deep(depth - 1, back));
	mine.away = back; // not before all calls were made
	while (!returns)
		sum = storm_spin(sum);
	return sum;
}

// left_deep goes down and comes back by a handler's jump.
static int left_deep(void)
{
	sigjmp_buf back;

	if (sigsetjmp(back, 1))
		return 1;
	storm_deep(DEPTH, &back);
	return 0;
}

struct work {
	pthread_t thread;
	long rounds;
	unsigned long sum, came, wrong;
};

static timer_t timer_of(int sig)
{
	struct sigevent ev = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = sig};
	struct itimerspec ms = {{0, 1000000}, {0, 1000000}};
	timer_t id;

	ev.sigev_notify_thread_id = (int)syscall(SYS_gettid);
	if (timer_create(CLOCK_THREAD_CPUTIME_ID, &ev, &id) || timer_settime(id, 0, &ms, NULL))
		abort();
	return id;
}

static void *storm(void *p)
{
	struct work *w = p;
	stack_t alt = {.ss_size = 64 << 10}, none = {.ss_flags = SS_DISABLE};
	timer_t one, two;

	alt.ss_sp = malloc(alt.ss_size);
	if (!alt.ss_sp || sigaltstack(&alt, NULL))
		abort();
	mine.came = mine.wrong = 0;
	one = timer_of(SIGUSR1), two = timer_of(SIGUSR2);
	for (long i = 0; i < w->rounds; i++) {
		w->sum = storm_step(w->sum, (unsigned long)i);
		if (i % 1000 == 999) {
			w->wrong += storm_wait() != 42;
			w->wrong += !left_deep();
		}
	}
	timer_delete(one), timer_delete(two);
	sigaltstack(&none, NULL);
	free(alt.ss_sp);
	w->came = mine.came, w->wrong += mine.wrong;
	return NULL;
}

static void *forks(void *p)
{
	for (long i = 0; i < (long)p; i++) {
		static char *argv[] = {"true", NULL};
		int status = -1;
		pid_t pid = fork();

		if (pid == 0)
			_exit(storm_inner(storm_inner(9)) == 9 ? 7 : 1);
		if (pid < 0 || waitpid(pid, &status, 0) != pid || WEXITSTATUS(status) != 7)
			return (void *)1;
		if (posix_spawn(&pid, "/bin/true", NULL, NULL, argv, environ) ||
		    waitpid(pid, &status, 0) != pid || status != 0)
			return (void *)1;
	}
	return NULL;
}

static void *loads(void *p)
{
	for (long i = 0; i < (long)p; i++) {
		void *lib = dlopen(library, RTLD_NOW | RTLD_LOCAL);
		int (*call)(int) = lib ? (int (*)(int))dlsym(lib, "dlib_call") : NULL;

		if (!call || call((int)i) != (int)i * 2 + 101 || dlclose(lib))
			return (void *)1;
	}
	return NULL;
}

int main(int argc, char **argv)
{
	static struct work w[MAX_THREADS];
	struct sigaction sa = {.sa_sigaction = storm_handler, .sa_flags = SA_SIGINFO | SA_RESTART};
	long threads = arg(argc, argv, 2, 8), n = 1000;

	library = argc > 1 ? argv[1] : NULL;
	if (!library || threads < 1 || threads > MAX_THREADS)
		return 2;
	CHECK(!sigaction(SIGUSR1, &sa, NULL));
	sa.sa_flags |= SA_ONSTACK;
	CHECK(!sigaction(SIGUSR2, &sa, NULL));
	while (next_round(&n)) {
		unsigned long sum = 0, came = 0, wrong = 0;
		pthread_t others[2];
		void *failed[2];

		read_code();
		memset(w, 0, sizeof w);
		for (long i = 0; i < threads; i++) {
			w[i].sum = (unsigned long)i, w[i].rounds = n;
			CHECK(!pthread_create(&w[i].thread, NULL, storm, &w[i]));
		}
		CHECK(!pthread_create(&others[0], NULL, forks, (void *)(n / 1000)));
		CHECK(!pthread_create(&others[1], NULL, loads, (void *)(n / 1000)));
		for (long i = 0; i < threads; i++) {
			CHECK(!pthread_join(w[i].thread, NULL));
			sum += w[i].sum, came += w[i].came, wrong += w[i].wrong;
		}
		for (int i = 0; i < 2; i++)
			CHECK(!pthread_join(others[i], &failed[i]) && !failed[i]);
		CHECK(!wrong);
		if (wrong)
			printf("FAIL first of %lu at storm_wait%+ld (%#lx): turns %lu, times %#lx, flags %#lx\n", wrong,
			       (long)(first.pc - (uintptr_t)storm_wait), first.pc, first.turns, first.times, first.flags);
		printf("step %ld %lu\n", n * threads, sum);
		printf("wait %ld\n", n / 1000 * threads);
		printf("deep %ld\n", n / 1000 * threads * (DEPTH + 1));
		printf("forks %ld\n", n / 1000);
		printf("loads %ld\n", n / 1000);
		printf("timers %lu\n", came);
	}
	return failures != 0;
}
