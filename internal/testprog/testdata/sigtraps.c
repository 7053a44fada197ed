// A program that uses SIGTRAP itself. A round's line has words, each of which is done in turn by the first thread:
//
//	default ignore handle  its action for the signal
//	once                   a handler for one signal, after which it has the default
//	block unblock          whether it blocks the signal
//	raise kill             it sends the signal to itself, or to the process
//	break                  it executes a breakpoint of the program's own
//	spot                   the signal waits, blocked, for a thread that stands for a while just behind a breakpoint's byte, which it has
//	                       not executed
//	pester                 another thread sends it to the first
//	nest                   its handler calls the probed functions from now on
//	fork                   a child does the words that follow, and ends
//	vfork                  a child in the same memory blocks all signals, has the default action, and calls a probed function
//	alarm                  a timer's signal interrupts whatever the threads do, from now on
//	spin                   work and short, many times
//	work short             it calls a probed function; the first instruction of short's is no longer than a breakpoint
//	state                  what the program has: the mask, what waits, what was delivered, of which kind
//	storm WORD PAUSE       a thread does this, with a pause of so many microseconds, until
//	calm                   which says how often it did, and how many were delivered
//
// With an argument there is a thread beside the first, which has nothing to do and blocks all signals.
#define _GNU_SOURCE
#include "prog.h"
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

PROBED unsigned long traps_work(unsigned long n)
{
	BARRIER();
	return n * 3 + 1;
}

#if defined(__x86_64__)
__asm__(".text\n.globl traps_short\n.type traps_short, @function\n"
	"traps_short:\tpush %rbx\n\tlea 1(%rdi,%rdi,2), %rax\n\tpop %rbx\n\tret\n.size traps_short, .-traps_short\n");
unsigned long traps_short(unsigned long n);
#else
PROBED unsigned long traps_short(unsigned long n)
{
	BARRIER();
	return n * 3 + 1;
}
#endif

// A breakpoint, and what a handler has to add to the program counter behind it.
#if defined(__x86_64__) || defined(__i386__)
#define BREAK() __asm__ volatile("int3" ::: "memory")
#define BEHIND(uc)
#elif defined(__aarch64__)
#define BREAK() __asm__ volatile("brk #7" ::: "memory")
#define BEHIND(uc) ((uc)->uc_mcontext.pc += 4)
#elif defined(__riscv)
#define BREAK() __asm__ volatile(".option push\n.option norvc\nebreak\n.option pop" ::: "memory")
#define BEHIND(uc) ((uc)->uc_mcontext.__gregs[REG_PC] += 4)
#endif

static _Atomic long sent, broken, others;
static _Atomic int nesting;

static void on_trap(int sig, siginfo_t *info, void *context)
{
	if (nesting)
		CHECK(traps_work(3) == 10 && traps_short(4) == 13);
	if (info->si_code <= 0) {
		if (info->si_pid == getpid())
			sent++;
		else
			others++;
		return;
	}
#ifdef BREAK
	BEHIND((ucontext_t *)context);
#endif
	broken++;
}

static void act(void (*handler)(int, siginfo_t *, void *), void (*plain)(int), int flags)
{
	struct sigaction a = {.sa_flags = SA_RESTART | flags};

	if (handler) {
		a.sa_sigaction = handler;
		a.sa_flags |= SA_SIGINFO;
	} else {
		a.sa_handler = plain;
	}
	sigaction(SIGTRAP, &a, NULL);
}

static void mask(int how)
{
	sigset_t s;

	sigemptyset(&s);
	sigaddset(&s, SIGTRAP);
	pthread_sigmask(how, &s, NULL);
}

static int has(const char *name)
{
	FILE *f = fopen("/proc/thread-self/status", "r");
	char line[256];
	unsigned long long set = 0;
	size_t n = strlen(name);

	while (f && fgets(line, sizeof line, f))
		if (!strncmp(line, name, n) && line[n] == ':')
			set = strtoull(line + n + 1, NULL, 16);
	if (f)
		fclose(f);
	return set >> (SIGTRAP - 1) & 1;
}

static _Atomic unsigned long calls;

static void work(unsigned long (*f)(unsigned long))
{
	unsigned long n = ++calls;

	CHECK(f(n) == n * 3 + 1);
}

static void spot(void)
{
	mask(SIG_BLOCK);
	raise(SIGTRAP);
#if defined(__x86_64__) || defined(__i386__)
	unsigned n = 20000000;

	__asm__ volatile("jmp 1f\n\t.byte 0xcc\n1:\tdec %0\n\tjnz 1b" : "+r"(n)::"cc");
#endif
}

static void once(const char *word)
{
	if (!strcmp(word, "spot"))
		spot();
	if (!strcmp(word, "raise"))
		syscall(SYS_tgkill, getpid(), (int)syscall(SYS_gettid), SIGTRAP);
	else if (!strcmp(word, "pester"))
		syscall(SYS_tgkill, getpid(), getpid(), SIGTRAP);
	else if (!strcmp(word, "kill"))
		kill(getpid(), SIGTRAP);
	else if (!strcmp(word, "break"))
#ifdef BREAK
		BREAK();
#else
		raise(SIGTRAP);
#endif
}

static void on_alarm(int sig) { work(traps_short); }

static void alarms(void)
{
	struct sigaction a = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
	struct itimerval often = {{0, 500}, {0, 500}};

	sigaction(SIGALRM, &a, NULL);
	setitimer(ITIMER_REAL, &often, NULL);
}

static _Atomic int calm;
static pthread_t storming;
static char what[16];
static long pause_us;

static void *storms(void *p)
{
	long n = 0;

	while (!calm) {
		once(what);
		n++;
		CHECK(traps_work(7) == 22);
		if (pause_us)
			usleep((useconds_t)pause_us);
	}
	return (void *)n;
}

static void *idles(void *p)
{
	for (;;)
		pause();
	return p;
}

static void forks(void)
{
	int status = 0;
	pid_t child;

	fflush(stdout);
	child = fork();
	if (!child)
		return;
	waitpid(child, &status, 0);
	printf("child ended %d %d\n", WIFSIGNALED(status) ? WTERMSIG(status) : 0, WEXITSTATUS(status));
	while (strtok(NULL, " "))
		;
}

static void vforks(void)
{
	sigset_t all, before;
	int status = 0;
	pid_t child;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	child = vfork();
	if (!child) {
		act(NULL, SIG_DFL, 0);
		_exit(traps_work(5) != 16);
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	waitpid(child, &status, 0);
	printf("vfork child ended %d %d\n", WIFSIGNALED(status) ? WTERMSIG(status) : 0, WEXITSTATUS(status));
}

static void did(const char *word)
{
	if (!strcmp(word, "default"))
		act(NULL, SIG_DFL, 0);
	else if (!strcmp(word, "ignore"))
		act(NULL, SIG_IGN, 0);
	else if (!strcmp(word, "handle"))
		act(on_trap, NULL, 0);
	else if (!strcmp(word, "once"))
		act(on_trap, NULL, (int)SA_RESETHAND);
	else if (!strcmp(word, "block"))
		mask(SIG_BLOCK);
	else if (!strcmp(word, "unblock"))
		mask(SIG_UNBLOCK);
	else if (!strcmp(word, "work"))
		work(traps_work);
	else if (!strcmp(word, "short"))
		work(traps_short);
	else if (!strcmp(word, "spin"))
		for (int i = 0; i < 300; i++) {
			work(traps_work);
			work(traps_short);
		}
	else if (!strcmp(word, "alarm"))
		alarms();
	else if (!strcmp(word, "nest"))
		nesting = 1;
	else if (!strcmp(word, "fork"))
		forks();
	else if (!strcmp(word, "vfork"))
		vforks();
	else if (!strcmp(word, "state"))
		printf("blocked %d, waits %d %d, delivered %ld %ld %ld\n", has("SigBlk"), has("SigPnd"), has("ShdPnd"), sent, broken, others);
	else
		once(word);
}

int main(int argc, char **argv)
{
	long n;
	void *raised;
	pthread_t idle;
	pid_t first = getpid();

	if (arg(argc, argv, 1, 0)) {
		sigset_t all, before;

		sigfillset(&all);
		pthread_sigmask(SIG_SETMASK, &all, &before);
		pthread_create(&idle, NULL, idles, NULL);
		pthread_sigmask(SIG_SETMASK, &before, NULL);
	}
	while (next_round(&n)) {
		if (sscanf(command, "storm %15s %ld", what, &pause_us) == 2) {
			calm = 0;
			sent = broken = others = 0;
			pthread_create(&storming, NULL, storms, NULL);
		} else if (!strcmp(command, "calm")) {
			calm = 1;
			pthread_join(storming, &raised);
			printf("did %ld, delivered %ld %ld %ld\n", (long)raised, sent, broken, others);
		} else {
			for (char *word = strtok(command, " "); word; word = strtok(NULL, " "))
				did(word);
			if (getpid() != first) {
				fflush(stdout);
				_exit(failures != 0);
			}
		}
		fflush(stdout);
	}
	return failures != 0;
}
