// A program that lives by its own signals, and looks at all that it is told of each:
// faults of every kind that it goes on from, real-time signals with values that wait in
// order, and signals that it sends itself. Its one thread does nothing else, so that whoever stops
// it finds it about to be given one. A handler that is told anything that is not so
// says what, and ends the program. A round with count N prints "faults N", "queued N
// SUM" and "sent N".
#define _GNU_SOURCE
#include "prog.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#ifdef __x86_64__
#define REG_PC REG_RIP
#define REG_DATA REG_RBX
#else
#define REG_PC REG_EIP
#define REG_DATA REG_EBX
#endif

enum { QUEUED = 12, KERNEL = 0x80 };

// What the next signal has to say, and where.
static volatile struct {
	int sig, code;
	uintptr_t addr, pc, skip;
} due;
static volatile unsigned long faults, queued, sum, sent;
static volatile int next_value;
static sigset_t own; // the mask outside of handlers

static void wrong(const char *what, long got, long want)
{
	printf("wrong: %s is %#lx, not %#lx; signal %d\n", what, got, want, due.sig);
	fflush(stdout);
	_exit(9);
}

#define IS(what, got, want) \
	do { \
		if ((long)(got) != (long)(want)) \
			wrong(what, (long)(got), (long)(want)); \
	} while (0)

static void check_mask(ucontext_t *uc)
{
	for (int sig = 1; sig <= SIGRTMAX; sig++)
		if (sigismember(&uc->uc_sigmask, sig) != sigismember(&own, sig))
			wrong("the mask, at a signal", sig, sigismember(&own, sig));
}

PROBED void si_fault(int sig, siginfo_t *info, void *context)
{
	ucontext_t *uc = context;

	IS("a fault's signal", sig, due.sig);
	IS("a fault's code", info->si_code, due.code);
	if (due.code != KERNEL)
		IS("a fault's address", info->si_addr, due.addr);
	IS("a fault's place", uc->uc_mcontext.gregs[REG_PC], due.pc);
	IS("a fault's register", uc->uc_mcontext.gregs[REG_DATA], (long)(due.addr ^ 0x5a5a));
	check_mask(uc);
	uc->uc_mcontext.gregs[REG_PC] += due.skip;
	faults++;
	due.sig = 0;
}

PROBED void si_queued(int sig, siginfo_t *info, void *context)
{
	(void)context;
	IS("the code of a queued signal", info->si_code, SI_QUEUE);
	IS("the sender of a queued signal", info->si_pid, getpid());
	IS("the value of a queued signal", info->si_value.sival_int, next_value);
	next_value++;
	queued++;
	sum += info->si_value.sival_int * (sig - SIGRTMIN + 1);
}

PROBED void si_sent(int sig, siginfo_t *info, void *context)
{
	IS("the code of a sent signal", info->si_code, sig == SIGUSR1 ? SI_USER : SI_TKILL);
	IS("the sender of a sent signal", info->si_pid, getpid());
	check_mask(context);
	sent++;
}

// Each instruction faults, with the address to be told of in one register and in another what
// a handler looks for.
#define FAULT(signal, reason, address, insn, ...) \
	do { \
		extern char before_##signal##_##reason[], after_##signal##_##reason[]; \
		due.sig = signal; \
		due.code = reason; \
		due.pc = (uintptr_t)before_##signal##_##reason; \
		due.skip = after_##signal##_##reason - before_##signal##_##reason; \
		due.addr = (uintptr_t)(address); \
		__asm__ volatile("before_" #signal "_" #reason ": " insn "\nafter_" #signal "_" #reason ":" \
				 : : "b"((uintptr_t)(address) ^ 0x5a5a), ##__VA_ARGS__ : "memory", "cc"); \
		IS("what is due after a fault", due.sig, 0); \
	} while (0)

static char *locked, *beyond;

__attribute__((noinline)) static void fault(void)
{
	FAULT(SIGSEGV, SEGV_ACCERR, locked + 40, "movb $1, (%1)", "r"(locked + 40));
	FAULT(SIGSEGV, SEGV_MAPERR, 0x10, "movb (%1), %%al", "r"((uintptr_t)0x10), "a"(0));
	FAULT(SIGBUS, BUS_ADRERR, beyond + 8, "movb (%1), %%al", "r"(beyond + 8), "a"(0));
	FAULT(SIGILL, ILL_ILLOPN, due.pc, "ud2");
	FAULT(SIGFPE, FPE_INTDIV, due.pc, "divl %1", "r"(0), "a"(1), "d"(0));
	FAULT(SIGSEGV, KERNEL, 0, "hlt");
}

static void queue(void)
{
	sigset_t blocked, old;

	sigemptyset(&blocked);
	sigaddset(&blocked, SIGRTMIN);
	sigaddset(&blocked, SIGRTMIN + 1);
	sigprocmask(SIG_BLOCK, &blocked, &old);
	next_value = 1;
	for (int i = 0; i < QUEUED; i++) // the lower number comes first
		if (sigqueue(getpid(), SIGRTMIN + i / (QUEUED / 2), (union sigval){.sival_int = i + 1}))
			wrong("sigqueue", errno, 0);
	sigprocmask(SIG_SETMASK, &old, NULL);
	IS("the next value", next_value, QUEUED + 1);
}

static void send(void)
{
	kill(getpid(), SIGUSR1);
	syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), SIGUSR2);
}

// A call with a result of its own, that whoever stops the program interrupts.
static void wait_a_little(void)
{
	struct timespec t = {0, 200000};

	if (nanosleep(&t, NULL) && errno != EINTR)
		wrong("nanosleep", errno, 0);
}

static void handle(int sig, void (*f)(int, siginfo_t *, void *))
{
	struct sigaction sa = {.sa_sigaction = f, .sa_flags = SA_SIGINFO | SA_RESTART};

	sigaddset(&sa.sa_mask, SIGRTMIN);
	sigaddset(&sa.sa_mask, SIGRTMIN + 1);
	CHECK(sigaction(sig, &sa, NULL) == 0);
}

int main(void)
{
	int file = memfd_create("short", 0);
	long n = 0;

	locked = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	beyond = mmap(NULL, 4096, PROT_READ, MAP_SHARED, file, 0);
	CHECK(locked != MAP_FAILED && beyond != MAP_FAILED);
	sigprocmask(SIG_BLOCK, NULL, &own);
	handle(SIGSEGV, si_fault);
	handle(SIGBUS, si_fault);
	handle(SIGILL, si_fault);
	handle(SIGFPE, si_fault);
	handle(SIGRTMIN, si_queued);
	handle(SIGRTMIN + 1, si_queued);
	handle(SIGUSR1, si_sent);
	handle(SIGUSR2, si_sent);
	while (next_round(&n)) {
		faults = queued = sum = sent = 0;
		for (long i = 0; i < n; i++) {
			fault();
			queue();
			send();
			if (i % 64 == 0)
				wait_a_little();
		}
		printf("faults %lu\n", faults);
		printf("queued %lu %lu\n", queued, sum);
		printf("sent %lu\n", sent);
	}
	return 0;
}
