// Families of calls.c: waiting, and signals.
#include <linux/futex.h>
#include <setjmp.h>
#include <sys/signalfd.h>
#include <ucontext.h>

static long futex(void *at, int op, long v, const void *timeout, void *other, long w) { return syscall(SYS_futex, at, op, v, timeout, other, w); }

static void futexes(void)
{
	int word = 5;
	struct timespec soon = {0, 2000000};

	R(futex(&word, FUTEX_WAIT, 4, NULL, NULL, 0));
	R(futex(&word, FUTEX_WAIT_PRIVATE, 5, &soon, NULL, 0));
	R(futex(&word, FUTEX_WAKE, 9, NULL, NULL, 0));
	R(futex(nowhere, FUTEX_WAKE, 1, NULL, NULL, 0));
	R(futex((char *)&word + 1, FUTEX_WAIT, 5, NULL, NULL, 0));
	word = 0;
	R(futex(&word, FUTEX_LOCK_PI, 0, NULL, NULL, 0));
	R(word != 0);
	R(futex(&word, FUTEX_LOCK_PI, 0, NULL, NULL, 0));
	R(futex(&word, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0));
	R(futex(&word, 99, 0, NULL, NULL, 0));
	R(syscall(N_waitv, NULL, 0, 0, NULL, 0));
}

static int requeue_words[2];
static void *sleeper(void *arg)
{
	while (__atomic_load_n(&requeue_words[0], __ATOMIC_SEQ_CST) == 0 && __atomic_load_n(&requeue_words[1], __ATOMIC_SEQ_CST) == 0)
		futex(&requeue_words[0], FUTEX_WAIT, 0, NULL, NULL, 0);
	return arg;
}

static void requeues(void)
{
	pthread_t t[3];

	requeue_words[0] = requeue_words[1] = 0;
	for (int i = 0; i < 3; i++)
		pthread_create(&t[i], NULL, sleeper, NULL);
	for (int moved = 0; moved < 3;)
		moved += futex(&requeue_words[0], FUTEX_CMP_REQUEUE, 0, (void *)3L, &requeue_words[1], 0);
	__atomic_store_n(&requeue_words[1], 1, __ATOMIC_SEQ_CST);
	R(futex(&requeue_words[1], FUTEX_WAKE, 9, NULL, NULL, 0) >= 0);
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
}

static void *inherited(void *arg) { R(pthread_mutex_lock(arg)); work(2); R(pthread_mutex_unlock(arg)); said.n = 0; return arg; }

static void inherits(void)
{
	pthread_mutexattr_t a;
	pthread_mutex_t m;
	pthread_t t;

	pthread_mutexattr_init(&a);
	R(pthread_mutexattr_setprotocol(&a, PTHREAD_PRIO_INHERIT));
	R(pthread_mutex_init(&m, &a));
	R(pthread_mutex_lock(&m));
	R(pthread_create(&t, NULL, inherited, &m));
	sched_yield();
	R(pthread_mutex_unlock(&m));
	R(pthread_join(t, NULL));
	pthread_mutex_destroy(&m);
}

static void *dies_with_lock(void *arg) { pthread_mutex_lock(arg); return arg; }

static void robust(void)
{
	pthread_mutexattr_t a;
	pthread_mutex_t m;
	pthread_t t;

	pthread_mutexattr_init(&a);
	R(pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST));
	R(pthread_mutex_init(&m, &a));
	R(pthread_create(&t, NULL, dies_with_lock, &m));
	R(pthread_join(t, NULL));
	R(pthread_mutex_lock(&m));
	R(pthread_mutex_consistent(&m));
	R(pthread_mutex_unlock(&m));
	pthread_mutex_destroy(&m);
}

static void barriers(void)
{
	R(syscall(SYS_membarrier, 0, 0, 0) > 0);
	R(syscall(SYS_membarrier, 1 << 4, 0, 0));
	R(syscall(SYS_membarrier, 1 << 3, 0, 0));
	R(syscall(SYS_membarrier, 77, 0, 0));
}

// clock_nanosleep returns its error, and a handler interrupts it whatever its flags.
static int slept(int error)
{
	errno = error;
	return error ? -1 : 0;
}

static void sleeps(void)
{
	struct timespec t = {0, 3000000}, past = {1, 0}, bad = {0, 2000000000};

	R(nanosleep(&t, &t));
	R(slept(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &past, NULL)));
	R(slept(clock_nanosleep(CLOCK_REALTIME, 0, &t, &t)));
	R(nanosleep(&bad, NULL));
	R(poll(NULL, 0, 3));
	struct timeval v = {0, 2000};
	R(select(0, NULL, NULL, NULL, &v));
	R(usleep(1000));
}

static void clocks(void)
{
	struct timespec t;
	struct timeval v;

	for (int c = 0; c < 12; c++)
		R(clock_gettime(c, &t));
	R(clock_getres(CLOCK_MONOTONIC, &t));
	R(gettimeofday(&v, NULL));
	R(syscall(SYS_clock_gettime, 1, &t));
	R(clock_gettime(99, &t));
	say(" %d", time(NULL) > 1000000);
}

static volatile sig_atomic_t heard, heard_value, heard_code, heard_order;
static void hears(int sig, siginfo_t *info, void *context)
{
	(void)context;
	heard = sig;
	heard_code = info->si_code;
	heard_value = info->si_value.sival_int;
	heard_order = heard_order * 7 + heard_value % 7;
	work(sig);
}

static void hear(int sig, int flags)
{
	struct sigaction a = {.sa_sigaction = hears, .sa_flags = SA_SIGINFO | flags};

	heard = heard_order = 0;
	sigaction(sig, &a, NULL);
}

static void hold(int how, int sig)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, sig);
	pthread_sigmask(how, &set, NULL);
}

static void queued(void)
{
	hear(SIGRTMIN, 0);
	hold(SIG_BLOCK, SIGRTMIN);
	for (int i = 0; i < 5; i++)
		R(sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = i}));
	sigset_t p;
	sigpending(&p);
	say(" %d", sigismember(&p, SIGRTMIN));
	hold(SIG_UNBLOCK, SIGRTMIN);
	say(" %d %d %d %d", heard - SIGRTMIN, heard_code, heard_value, heard_order);
	R(kill(getpid(), 99));
	R(sigqueue(getpid(), -1, (union sigval){0}));
}

static void signal_files(void)
{
	sigset_t set;
	struct signalfd_siginfo info;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	hold(SIG_BLOCK, SIGUSR1);
	int f = signalfd(-1, &set, SFD_NONBLOCK);
	R(read(f, &info, sizeof info));
	R(raise(SIGUSR1));
	R(read(f, &info, sizeof info));
	say(" %u %d", info.ssi_signo, info.ssi_code);
	close(f);
	hold(SIG_UNBLOCK, SIGUSR1);
}

static void waits_for_signal(void)
{
	sigset_t set;
	siginfo_t info;
	struct timespec soon = {0, 3000000};
	int sig = 0;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	sigaddset(&set, SIGRTMIN + 1);
	sigprocmask(SIG_BLOCK, &set, NULL);
	R(sigtimedwait(&set, &info, &soon));
	R(sigqueue(getpid(), SIGRTMIN + 1, (union sigval){.sival_int = 77}));
	R(raise(SIGUSR2));
	R(sigwait(&set, &sig));
	R(sig);
	R(sigwaitinfo(&set, &info) - SIGRTMIN);
	say(" %d %d", info.si_value.sival_int, info.si_code);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
}

static void suspends(void)
{
	sigset_t none, old;

	hear(SIGUSR1, 0);
	hold(SIG_BLOCK, SIGUSR1);
	R(raise(SIGUSR1));
	sigemptyset(&none);
	say(" %d", sigsuspend(&none) == -1 ? errno : 0);
	say(" %d", heard);
	R(raise(SIGUSR1));
	say(" %d", ppoll(NULL, 0, NULL, &none) == -1 ? errno : 0);
	sigprocmask(SIG_SETMASK, NULL, &old);
	R(sigismember(&old, SIGUSR1));
	hold(SIG_UNBLOCK, SIGUSR1);
}

static void alarms(void)
{
	struct itimerval soon = {{0, 0}, {0, 3000}}, left;

	hear(SIGALRM, 0);
	R(setitimer(ITIMER_REAL, &soon, NULL));
	say(" %d %d", pause(), errno);
	say(" %d", heard);
	R(getitimer(ITIMER_REAL, &left));
	R(left.it_value.tv_usec);
	hear(SIGVTALRM, SA_RESTART);
	R(setitimer(ITIMER_VIRTUAL, &soon, NULL));
	while (!heard)
		work(1);
	say(" %d", heard);
	hear(SIGALRM, SA_RESETHAND);
	ualarm(2000, 0);
	while (!heard)
		usleep(500);
	say(" %d", heard);
}

static void timers(void)
{
	timer_t t;
	struct sigevent e = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 2, .sigev_value = {.sival_int = 31}};
	struct itimerspec soon = {{0, 0}, {0, 3000000}};

	hear(SIGRTMIN + 2, 0);
	R(timer_create(CLOCK_MONOTONIC, &e, &t));
	R(timer_settime(t, 0, &soon, NULL));
	while (!heard)
		usleep(300);
	say(" %d %d %d", heard - SIGRTMIN, heard_code, heard_value);
	R(timer_getoverrun(t));
	R(timer_delete(t));
	R(timer_create(99, &e, &t));
}

static volatile int expired;
static void expires(union sigval v) { work(v.sival_int); __atomic_store_n(&expired, v.sival_int, __ATOMIC_SEQ_CST); }

static void timer_threads(void)
{
	timer_t t;
	struct sigevent e = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = expires, .sigev_value = {.sival_int = 41}};
	struct itimerspec soon = {{0, 0}, {0, 2000000}};

	expired = 0;
	R(timer_create(CLOCK_REALTIME, &e, &t));
	R(timer_settime(t, 0, &soon, NULL));
	while (!__atomic_load_n(&expired, __ATOMIC_SEQ_CST))
		usleep(500);
	R(expired);
	R(timer_delete(t));
}

static void *waits_a_while(void *arg)
{
	while (!__atomic_load_n((int *)arg, __ATOMIC_SEQ_CST))
		usleep(300);
	return arg;
}

static void to_threads(void)
{
	pthread_t t;
	int over = 0;

	hear(SIGUSR1, SA_RESTART);
	pthread_create(&t, NULL, waits_a_while, &over);
	R(pthread_kill(t, SIGUSR1));
	while (!heard)
		usleep(300);
	say(" %d %d", heard, heard_code);
	R(syscall(SYS_tgkill, getpid(), 1, SIGUSR1));
	__atomic_store_n(&over, 1, __ATOMIC_SEQ_CST);
	pthread_join(t, NULL);
	R(syscall(SYS_tkill, getpid(), SIGUSR1));
	say(" %d", heard_code);
}

static sigjmp_buf out_of_it;
static void leaves(int sig) { work(sig); siglongjmp(out_of_it, sig); }

static void faults(void)
{
	static const int sigs[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};
	int f = memory_file("");
	volatile char *beyond = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, f, 0);
	volatile int zero = 0;

	for (int i = 0; i < 4; i++)
		signal(sigs[i], leaves);
	for (volatile int i = 0; i < 12; i++) {
		int sig = sigsetjmp(out_of_it, 1);

		if (sig)
			say(" %d", sig);
		else if (i % 4 == 0)
			*nowhere = 1;
		else if (i % 4 == 1)
			beyond[5] = 2;
		else if (i % 4 == 2)
			__asm__ volatile("ud2");
		else
			say(" %d", 1 / zero);
	}
	for (int i = 0; i < 4; i++)
		signal(sigs[i], SIG_DFL);
	close(f);
}

static void jumps_out(void)
{
	signal(SIGUSR1, leaves);
	for (volatile int i = 0; i < 5; i++)
		if (sigsetjmp(out_of_it, i & 1) == 0)
			raise(SIGUSR1);
		else
			hold(SIG_UNBLOCK, SIGUSR1), say(" back %d", i);
	signal(SIGABRT, leaves);
	if (sigsetjmp(out_of_it, 1) == 0)
		raise(SIGABRT);
	signal(SIGABRT, SIG_DFL);
	signal(SIGUSR1, SIG_DFL);
}

static void stacks_of_signals(void)
{
	stack_t s = {.ss_size = 1 << 17, .ss_sp = area(1 << 17)}, now, none = {.ss_flags = SS_DISABLE}, small = {.ss_size = 10};

	R(sigaltstack(&s, NULL));
	hear(SIGUSR1, SA_ONSTACK | SA_NODEFER);
	R(raise(SIGUSR1));
	R(sigaltstack(NULL, &now));
	say(" %d %d", now.ss_flags, now.ss_size == 1 << 17);
	R(sigaltstack(&small, NULL));
	R(sigaltstack(&none, NULL));
	R(raise(SIGUSR1));
	say(" %d", heard);
}

static void stops(void)
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		raise(SIGSTOP);
		raise(SIGTSTP);
		_exit(work(8));
	}
	for (int i = 0; i < 2; i++) {
		AGAIN(waitpid(pid, &status, WUNTRACED));
		say(" %#x", status);
		R(kill(pid, SIGCONT));
	}
	waited(pid);
}

static void dies(void)
{
	static const int sigs[] = {SIGHUP, SIGINT, SIGQUIT, SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGKILL, SIGUSR1, SIGSEGV, SIGPIPE,
				   SIGALRM, SIGTERM, SIGXCPU, SIGSYS, 40, 64, SIGCHLD, SIGURG, SIGWINCH};

	for (size_t i = 0; i < sizeof sigs / sizeof sigs[0]; i++)
		IN_CHILD(signal(sigs[i], SIG_DFL); raise(sigs[i]); _exit(work(1)));
}

static void cores(void)
{
	IN_CHILD(*nowhere = 1);
	IN_CHILD(__asm__ volatile("ud2"));
	IN_CHILD(__asm__ volatile("int3"));
	IN_CHILD(__asm__ volatile("hlt"));
	IN_CHILD(hold(SIG_BLOCK, SIGSEGV); *nowhere = 1);
	IN_CHILD(signal(SIGSEGV, SIG_IGN); *nowhere = 1);
	IN_CHILD(signal(SIGPIPE, SIG_DFL); int p[2]; if (pipe(p)) _exit(1); close(p[0]); if (write(p[1], "x", 1)) _exit(2));
}

static ucontext_t main_context, routine[3];
static int turn;
static void routine_runs(int n)
{
	for (int i = 0; i < 4; i++) {
		say(" %d%d", n, i);
		work(turn++);
		swapcontext(&routine[n], &routine[(n + 1) % 3]);
	}
	setcontext(&main_context);
}

static void coroutines(void)
{
	for (int i = 0; i < 3; i++) {
		getcontext(&routine[i]);
		routine[i].uc_stack.ss_sp = area(1 << 17);
		routine[i].uc_stack.ss_size = 1 << 17;
		routine[i].uc_link = &main_context;
		makecontext(&routine[i], (void (*)(void))routine_runs, 1, i);
	}
	R(swapcontext(&main_context, &routine[0]));
}

static void traps(void)
{
	hear(SIGTRAP, 0);
	for (int i = 0; i < 3; i++) {
		heard = 0;
		__asm__ volatile("int3");
		say(" %d", heard);
		work(i);
		heard = 0;
		raise(SIGTRAP);
		say(" %d", heard);
	}
	signal(SIGTRAP, SIG_IGN);
	raise(SIGTRAP);
	work(1);
	signal(SIGTRAP, SIG_DFL);
}
