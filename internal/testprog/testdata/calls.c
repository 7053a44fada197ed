// Small programs by the hundred: a family of system calls, in a situation, in company.
//
//	calls FAMILY SITUATION COMPANY
//	calls names
//
// It prints what the calls give. "names" lists the combinations that have an answer which is the same each time. The families
// are functions of their own, and work is called between their calls.
#include "calls.h"
#include "calls_files.h"
#include "calls_memory.h"
#include "calls_processes.h"
#include "calls_signals.h"
#include "calls_library.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <ucontext.h>

enum {
	OWN = 1,     // deals with signals, or with what all of the process has: one thread does it, undisturbed
	MAKES = 2,   // makes threads or processes by the library: not in a child that has its parent's memory
	RAW = 4,     // leaves the library's locks as they are: not within a handler
};

static const struct { const char *name; void (*f)(void); int how; } families[] = {
#define F(f, how) {#f, f, how}
	F(pipes, 0), F(splices, 0), F(vectors, 0), F(files, 0), F(memory_files, 0), F(secrets, 0), F(seals, 0), F(event_counters, 0), F(epolls, 0),
	F(polls, 0), F(timer_files, 0), F(inotifies, OWN), F(unix_sockets, 0), F(descriptors_sent, 0), F(datagrams, 0), F(loopback, 0), F(netlink, 0),
	F(algorithms, 0), F(urings, 0), F(locks_of_files, OWN), F(leases, OWN), F(attributes, OWN), F(stats, 0), F(opens, 0), F(folders, OWN),
	F(asynchronous, OWN), F(terminals, OWN), F(cached, 0), F(handles, 0),
	F(mappings, 0), F(moves, 0), F(protections, 0), F(advice, 0), F(locked, OWN), F(pages, 0), F(keys, OWN), F(userfaults, OWN), F(sealed, OWN),
	F(sems, 0), F(queues, 0), F(segments, 0), F(posix_queues, OWN),
	F(forks, MAKES), F(vforks, MAKES), F(spawns, MAKES), F(shells, MAKES | RAW | OWN), F(memory_programs, MAKES), F(clones, MAKES), F(clones3, MAKES),
	F(pidfds, MAKES), F(stolen, MAKES), F(compares, 0), F(reads_child, MAKES), F(groups_of_processes, MAKES | OWN), F(job_control, MAKES | OWN),
	F(reaped, MAKES | OWN), F(traces, MAKES | OWN), F(namespaces, MAKES | OWN), F(landlocked, MAKES | OWN), F(filters, MAKES | OWN),
	F(notified, MAKES | OWN), F(users, MAKES | OWN), F(capabilities, 0), F(personalities, OWN), F(schedules, OWN), F(affinities, 0), F(limits, OWN),
	F(prctls, OWN), F(usage, 0), F(names, OWN), F(rings_of_keys, 0), F(perfs, 0), F(bpfs, 0), F(undumpable, MAKES | OWN),
	F(futexes, 0), F(requeues, MAKES | OWN), F(inherits, MAKES), F(robust, MAKES), F(barriers, 0), F(sleeps, 0), F(clocks, 0),
	F(queued, OWN), F(signal_files, OWN), F(waits_for_signal, OWN), F(suspends, OWN), F(alarms, OWN), F(timers, OWN), F(timer_threads, OWN | MAKES),
	F(to_threads, OWN | MAKES), F(faults, OWN), F(jumps_out, OWN), F(stacks_of_signals, OWN), F(stops, OWN | MAKES), F(dies, OWN | MAKES),
	F(cores, OWN | MAKES), F(coroutines, OWN), F(traps, OWN),
	F(sorts, 0), F(printed, RAW), F(streams, RAW), F(patterns, RAW), F(walks, RAW), F(zones, RAW | OWN), F(locales, RAW | OWN), F(libraries, RAW | OWN),
	F(passwords, RAW | OWN), F(addresses, RAW), F(threads, MAKES | RAW), F(cancels, MAKES | RAW), F(conditions, MAKES | RAW), F(aio, MAKES | RAW | OWN),
	F(traced_back, RAW), F(allocates, RAW), F(at_forks, MAKES | RAW | OWN), F(exits, MAKES | RAW), F(numbers, RAW),
};

static void (*family)(void);

static void once(void)
{
	say(" %ld", work(4));
	family();
	say(" %ld\n", work(5));
}

// ---- Situations ----

static volatile sig_atomic_t got, ticks;
static void counts(int sig) { got += sig; work(got); }

// A wait with a time limit that is made again each time would have no end: so ticks have one.
static void ticked(int sig)
{
	struct itimerval never = {{0, 0}, {0, 0}};

	work(++ticks);
	if (ticks == 100)
		setitimer(sig == SIGALRM ? ITIMER_REAL : ITIMER_PROF, &never, NULL);
}

static void inside(int sig) { (void)sig; once(); }
static void skips(int sig, siginfo_t *info, void *context)
{
	static __thread volatile char *fine;

	(void)sig, (void)info, (void)context;
	if (!fine) {
		fine = "";
		once();
	}
	mprotect((void *)((uintptr_t)info->si_addr & ~4095UL), 4096, PROT_READ);
}

static void handle(int sig, void (*f)(int), int flags)
{
	struct sigaction a = {.sa_handler = f, .sa_flags = flags};

	sigaction(sig, &a, NULL);
}

static void plain(void) { once(); }

static void blocked(void)
{
	sigset_t all, old;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &old);
	once();
	sigprocmask(SIG_SETMASK, &old, NULL);
}

static void ticking(int flags)
{
	struct itimerval often = {{0, 700}, {0, 700}}, never = {{0, 0}, {0, 0}};

	handle(SIGALRM, ticked, flags);
	setitimer(ITIMER_REAL, &often, NULL);
	once();
	setitimer(ITIMER_REAL, &never, NULL);
}

static void restarted(void) { ticking(SA_RESTART); }
static void interrupted(void) { ticking(0); }

static void profiled(void)
{
	struct itimerval often = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};

	handle(SIGPROF, ticked, SA_RESTART);
	setitimer(ITIMER_PROF, &often, NULL);
	once();
	setitimer(ITIMER_PROF, &never, NULL);
}

static void in_handler(void) { handle(SIGUSR2, inside, SA_NODEFER); raise(SIGUSR2); }

static void on_signal_stack(void)
{
	stack_t own = {.ss_sp = area(1 << 18), .ss_size = 1 << 18}, none = {.ss_flags = SS_DISABLE};

	sigaltstack(&own, NULL);
	handle(SIGUSR2, inside, SA_ONSTACK);
	raise(SIGUSR2);
	sigaltstack(&none, NULL);
}

static void in_fault(void)
{
	struct sigaction a = {.sa_sigaction = skips, .sa_flags = SA_SIGINFO | SA_NODEFER};
	volatile char *p = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	sigaction(SIGSEGV, &a, NULL);
	say(" %d", *p);
	signal(SIGSEGV, SIG_DFL);
}

static void on_context(void)
{
	ucontext_t back, there;

	getcontext(&there);
	there.uc_stack.ss_sp = area(1 << 18);
	there.uc_stack.ss_size = 1 << 18;
	there.uc_link = &back;
	makecontext(&there, once, 0);
	swapcontext(&back, &there);
}

static void ignoring(void)
{
	for (int sig = 1; sig < 32; sig++)
		if (sig != SIGKILL && sig != SIGSTOP && sig != SIGABRT && sig != SIGTRAP && sig != SIGSEGV)
			signal(sig, SIG_IGN);
	once();
}

static void pending(void)
{
	sigset_t some, old;

	got = 0;
	sigemptyset(&some);
	for (int sig = SIGRTMIN + 5; sig < SIGRTMIN + 8; sig++) {
		sigaddset(&some, sig);
		handle(sig, counts, 0);
	}
	pthread_sigmask(SIG_BLOCK, &some, &old);
	for (int i = 0; i < 6; i++)
		raise(SIGRTMIN + 5 + i % 3);
	once();
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	say(" got %d", got - 6 * SIGRTMIN);
}

static void trapping(void)
{
	got = 0;
	handle(SIGTRAP, counts, SA_NODEFER); // a handler that meets a trap with the signal blocked is lost (docs/LIMITS.md)
	raise(SIGTRAP);
	once();
	__asm__ volatile("int3");
	work(1);
	raise(SIGTRAP);
	say(" got %d", got);
	signal(SIGTRAP, SIG_DFL);
}

static void filter(unsigned number, unsigned then)
{
	struct sock_filter f[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
				  BPF_STMT(BPF_RET | BPF_K, then), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
	struct sock_fprog prog = {4, f};

	R(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	R(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog));
}

static void filtered(void) { filter(SYS_getpgid, SECCOMP_RET_ERRNO | 77); once(); R(getpgid(0)); }

static void trapped_by_filter(void)
{
	got = 0;
	handle(SIGSYS, counts, 0);
	filter(SYS_getpgid, SECCOMP_RET_TRAP);
	once();
	getpgid(0);
	say(" got %d", got);
	work(2);
}

static void of_low_rank(void) { nice(10); once(); }
static void small_stack(void)
{
	struct rlimit r = {1 << 16, 1 << 16};

	setrlimit(RLIMIT_STACK, &r);
	once();
}

// LONELY: the library blocks all signals in threads that begin and end. A trap that one of them meets then has the kernel forget what
// another has set for SIGTRAP.
enum { FOR_ALL = 1, OF_PROCESS = 2, HANDLER = 4, LONELY = 8 };
static const struct { const char *name; void (*f)(void); int how; } situations[] = {
	{"plain", plain, FOR_ALL}, {"blocked", blocked, 0}, {"restarted", restarted, OF_PROCESS}, {"interrupted", interrupted, OF_PROCESS},
	{"profiled", profiled, OF_PROCESS}, {"in_handler", in_handler, HANDLER | OF_PROCESS}, {"on_signal_stack", on_signal_stack, HANDLER | OF_PROCESS},
	{"in_fault", in_fault, HANDLER | OF_PROCESS}, {"on_context", on_context, FOR_ALL}, {"ignoring", ignoring, OF_PROCESS},
	{"pending", pending, OF_PROCESS}, {"trapping", trapping, OF_PROCESS | LONELY}, {"filtered", filtered, FOR_ALL},
	{"trapped_by_filter", trapped_by_filter, OF_PROCESS}, {"of_low_rank", of_low_rank, FOR_ALL}, {"small_stack", small_stack, FOR_ALL | OF_PROCESS},
};

static void (*situation)(void);

// ---- Company ----

static void alone(void) { situation(); tell(); }

static void *thread(void *arg) { (void)arg; situation(); tell(); return NULL; }

static void of_thread(void)
{
	pthread_t t;

	pthread_create(&t, NULL, thread, NULL);
	pthread_join(t, NULL);
}

static pthread_barrier_t together;
static pthread_mutex_t telling = PTHREAD_MUTEX_INITIALIZER;

static void *one_of_four(void *arg)
{
	pthread_barrier_wait(&together);
	situation();
	pthread_mutex_lock(&telling);
	tell();
	pthread_mutex_unlock(&telling);
	return arg;
}

static void of_four(void)
{
	pthread_t t[4];

	pthread_barrier_init(&together, NULL, 4);
	for (int i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, one_of_four, NULL);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
}

static int child(void *arg) { (void)arg; situation(); tell(); _exit(work(3)); }

static void of_child(void)
{
	pid_t pid = fork();

	if (pid == 0)
		child(NULL);
	waited(pid);
	tell();
}

static void of_grandchild(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		of_child();
		_exit(12);
	}
	waited(pid);
	tell();
}

static void of_borrower(void)
{
	char *stack = area(1 << 18);

	waited(clone(child, stack + (1 << 18), CLONE_VM | CLONE_VFORK | SIGCHLD, NULL));
	tell();
}

// The first thread loads a library while it ends. A child that is made meanwhile has that half done.
static void *survivor(void *first)
{
	pthread_join(*(pthread_t *)first, NULL);
	situation();
	tell();
	exit(21);
}

static void of_survivor(void)
{
	static pthread_t first;
	pthread_t t;

	first = pthread_self();
	pthread_create(&t, NULL, survivor, &first);
	pthread_exit(NULL);
}

enum { MANY = 1, BORROWS = 2, THREAD = 4 };
static const struct { const char *name; void (*f)(void); int how; } companies[] = {
	{"alone", alone, 0}, {"thread", of_thread, THREAD}, {"four", of_four, MANY | THREAD}, {"child", of_child, 0}, {"grandchild", of_grandchild, 0},
	{"borrower", of_borrower, BORROWS}, {"survivor", of_survivor, THREAD},
};

// Some have no answer that is the same each time, or none at all.
static int fits(int f, int s, int c)
{
	int fam = families[f].how, sit = situations[s].how, com = companies[c].how;

	if (fam & OWN && (!(sit & FOR_ALL) || com & (MANY | THREAD)))
		return 0;
	if (com & BORROWS && (fam & (MAKES | RAW | OWN) || sit & OF_PROCESS))
		return 0;
	if (fam & RAW && sit & HANDLER)
		return 0;
	if (fam & MAKES && sit & HANDLER)
		return 0;
	if (com & THREAD && sit & LONELY)
		return 0;
	return !(com & MANY && sit & OF_PROCESS);
}

#define EACH(i, table) for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)

int main(int argc, char **argv)
{
	struct rlimit none = {0, 0};
	sigset_t nothing;

	sigemptyset(&nothing);
	setrlimit(RLIMIT_CORE, &none);
	sigprocmask(SIG_SETMASK, &nothing, NULL); // whatever is inherited: a shell has what it puts into the background ignore SIGINT
	for (int sig = 1; sig < 65; sig++)
		signal(sig, SIG_DFL);
	setvbuf(stdout, NULL, _IONBF, 0);
	EACH(f, families)
		EACH(s, situations)
			EACH(c, companies)
				if (argc == 2 && fits(f, s, c))
					printf("%s %s %s\n", families[f].name, situations[s].name, companies[c].name);
				else if (argc == 4 && !strcmp(argv[1], families[f].name) && !strcmp(argv[2], situations[s].name) && !strcmp(argv[3], companies[c].name)) {
					family = families[f].f;
					situation = situations[s].f;
					companies[c].f();
				}
	return argc == 1;
}
