// Processes that begin, change and end in unusual ways. A round's line names one:
//
//	thread_exec     a thread that is not the leader executes the program anew
//	leader_exit     the leader ends; its threads work on, and end the process
//	leader_leaves   the leader ends; a thread takes the commands from now on
//	leader_vforks   the leader ends; a thread has vfork children, which work too
//	exit_group      the process ends with status 7 while its threads work
//	vfork_fails     a vfork child's exec fails
//	traced_child    a child asks to be traced by its parent (PTRACE_TRACEME)
//	raw_child       the same by a system call of its own, and by libc's syscall
//	syscall_child
//	pushed_child    by one with a number that comes from the stack, and by a function of its own that makes any
//	wrapped_child
//	vfork_traced    the same as traced_child by a child of vfork, which then executes a program
//	attach_child    a child is traced by its parent, which asks for it: PTRACE_ATTACH,
//	seize_child     or PTRACE_SEIZE
//	catch_traps     a handler for SIGTRAP is set; trap: it is sent, child_trap: to a child
//	ignore_traps    it is ignored
//	fork_within     a function asks for a line and forks; parent and child return from it
//	children N      N children by fork, one after the other, each of which works
//	work N          N calls
#define _GNU_SOURCE
#include "prog.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

PROBED unsigned long live_work(unsigned long n)
{
	BARRIER();
	return n * 3 + 1;
}

static _Atomic int stop;

static long raw_trace_me(void)
{
	long r;

#ifdef __x86_64__
	register long r10 __asm__("r10") = 0;

	__asm__ volatile("mov $101, %%eax; syscall" : "=a"(r) : "D"(PTRACE_TRACEME), "S"(0), "d"(0), "r"(r10) : "rcx", "r11", "memory");
#else
	r = ptrace(PTRACE_TRACEME, 0, 0, 0);
#endif
	return r;
}

static long pushed_trace_me(void)
{
	long r;

#ifdef __x86_64__
	register long r10 __asm__("r10") = 0;

	__asm__ volatile("sub $256, %%rsp; push $101; mov %%rsp, %%rcx; 1: dec %%rcx; cmp %%rsp, %%rcx; jae 1b; pop %%rax; add $256, %%rsp; syscall"
			 : "=a"(r) : "D"(PTRACE_TRACEME), "S"(0), "d"(0), "r"(r10) : "rcx", "r11", "memory");
#else
	r = ptrace(PTRACE_TRACEME, 0, 0, 0);
#endif
	return r;
}

static long __attribute__((noinline, noclone)) make(long number, long a, long b)
{
#ifdef __x86_64__
	register long r10 __asm__("r10") = 0;
	long r;

	__asm__ volatile("syscall" : "=a"(r) : "0"(number), "D"(a), "S"(b), "d"(0), "r"(r10) : "rcx", "r11", "memory");
	return r;
#else
	return syscall(number, a, b, 0, 0);
#endif
}

// Its tracer is its parent, or nobody: it stops itself for it.
static void trace_me(char how)
{
	if (how == 'r')
		raw_trace_me();
	else if (how == 'p')
		pushed_trace_me();
	else if (how == 'w')
		make(SYS_ptrace, PTRACE_TRACEME, make(SYS_getpid, 0, 0));
	else if (how == 's')
		syscall(SYS_ptrace, PTRACE_TRACEME, 0, 0, 0);
	else if (ptrace(PTRACE_TRACEME, 0, 0, 0))
		_exit(90 + (errno == EPERM));
	raise(SIGSTOP);
}

static unsigned long work(long n)
{
	unsigned long sum = 0;

	for (long i = 0; i < n; i++)
		sum += live_work((unsigned long)i);
	return sum;
}

static void *works_on(void *p)
{
	for (unsigned long n = 0; !stop; n++)
		CHECK(live_work(n) == n * 3 + 1);
	return p;
}

static void *executes(void *p)
{
	char *argv[] = {"lives", NULL};

	execv("/proc/thread-self/exe", argv); // the process's own is the first thread's
	return p;
}

static void *ends(void *p)
{
	usleep(20000); // the leader is a zombie by now
	printf("worked %lu\n", work(1000));
	fflush(stdout);
	exit(failures ? 1 : 5);
	return p;
}

static int status_of(pid_t pid);

static void *vforks(void *p)
{
	int good = 0;

	usleep(20000);
	for (int i = 0; i < 20; i++) {
		pid_t pid = vfork();

		if (pid == 0) {
			char *argv[] = {"true", NULL};

			if (live_work(1) == 4)
				execv("/bin/true", argv);
			_exit(8);
		}
		good += status_of(pid) == 0 && live_work(2) == 7;
	}
	printf("vforked %d\n", good);
	fflush(stdout);
	getchar();
	return ends(p);
}

// What calls it is under way in both.
PROBED pid_t live_forks(void)
{
	pid_t pid;

	printf("within\n");
	fflush(stdout);
	getchar();
	pid = fork();
	BARRIER();
	return pid;
}

PROBED pid_t live_around(void)
{
	pid_t pid = live_forks();

	BARRIER();
	return pid;
}

static int serve(void);

// The leader is a zombie when this says that the round is done.
static void *serves(void *p)
{
	usleep(20000);
	exit(serve());
	return p;
}

static int status_of(pid_t pid)
{
	int status;

	if (pid < 0 || waitpid(pid, &status, __WALL) != pid)
		return -1;
	return status;
}

static volatile sig_atomic_t trapped;

static void on_trap(int sig)
{
	trapped++;
}

static int serve(void)
{
	long n = 1;
	pthread_t t[3];

	while (next_round(&n)) {
		if (!strcmp(command, "thread_exec")) {
			pthread_create(&t[0], NULL, executes, NULL);
			pthread_join(t[0], NULL);
		} else if (!strcmp(command, "leader_exit")) {
			pthread_create(&t[0], NULL, ends, NULL);
			pthread_exit(NULL);
		} else if (!strcmp(command, "leader_vforks")) {
			pthread_create(&t[0], NULL, vforks, NULL);
			pthread_exit(NULL);
		} else if (!strcmp(command, "leader_leaves")) {
			pthread_create(&t[0], NULL, serves, NULL);
			pthread_exit(NULL);
		} else if (!strcmp(command, "exit_group")) {
			for (int i = 0; i < 3; i++)
				pthread_create(&t[i], NULL, works_on, NULL);
			work(10); // while they are at their probes: each call waits for its turn
			_exit(7);
		} else if (!strcmp(command, "fork_within")) {
			pid_t pid = live_around();

			if (pid == 0)
				_exit(live_work(1) == 4 ? 6 : 8);
			printf("fork_within %d\n", WEXITSTATUS(status_of(pid)));
		} else if (!strcmp(command, "vfork_fails")) {
			pid_t pid = vfork();

			if (pid == 0) {
				char *argv[] = {"none", NULL};

				execv("/nonexistent/program", argv);
				_exit(errno == ENOENT && live_work(1) == 4 ? 3 : 4);
			}
			printf("vfork_fails %d\n", WEXITSTATUS(status_of(pid)));
		} else if (!strcmp(command, "traced_child") || !strcmp(command, "raw_child") || !strcmp(command, "syscall_child") ||
			   !strcmp(command, "pushed_child") || !strcmp(command, "wrapped_child")) {
			pid_t pid = fork();
			int status;

			if (pid == 0) {
				trace_me(command[0]);
				_exit(live_work(1) == 4 ? 6 : 8);
			}
			status = status_of(pid);
			if (WIFSTOPPED(status)) {
				ptrace(PTRACE_CONT, pid, 0, 0);
				status = status_of(pid);
			}
			printf("%s %d\n", command, WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
		} else if (!strcmp(command, "vfork_traced")) {
			char *argv[] = {"true", NULL};
			pid_t pid = vfork();
			int status;

			if (pid == 0) {
				if (ptrace(PTRACE_TRACEME, 0, 0, 0))
					_exit(90 + (errno == EPERM));
				execv("/bin/true", argv);
				_exit(8);
			}
			status = status_of(pid); // SIGTRAP of the exec
			if (WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP) {
				ptrace(PTRACE_CONT, pid, 0, 0);
				status = status_of(pid) + (6 << 8);
			}
			printf("vfork_traced %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
		} else if (!strcmp(command, "attach_child") || !strcmp(command, "seize_child")) {
			int seize = command[0] == 's', status;
			pid_t pid = fork();

			if (pid == 0)
				for (;;)
					pause();
			if (ptrace(seize ? PTRACE_SEIZE : PTRACE_ATTACH, pid, 0, 0)) {
				printf("%s %d\n", command, 90 + (errno == EPERM));
				kill(pid, SIGKILL);
				status_of(pid);
				continue;
			}
			if (seize)
				ptrace(PTRACE_INTERRUPT, pid, 0, 0);
			status = status_of(pid);
			kill(pid, SIGTERM);
			ptrace(PTRACE_DETACH, pid, 0, 0);
			printf("%s %d\n", command, WIFSTOPPED(status) && WTERMSIG(status_of(pid)) == SIGTERM ? 6 : 8);
		} else if (!strcmp(command, "catch_traps")) {
			signal(SIGTRAP, on_trap);
		} else if (!strcmp(command, "ignore_traps")) {
			signal(SIGTRAP, SIG_IGN);
		} else if (!strcmp(command, "trap")) {
			raise(SIGTRAP);
			printf("trapped %d\n", (int)trapped);
		} else if (!strcmp(command, "child_trap")) {
			pid_t pid = fork();

			if (pid == 0) {
				raise(SIGTRAP);
				_exit(trapped == 1 ? 9 : 8);
			}
			printf("child_trap %x\n", status_of(pid));
		} else if (sscanf(command, "children %ld", &n) == 1) {
			int good = 0;

			for (long i = 0; i < n; i++) {
				pid_t pid = fork();

				if (pid == 0)
					_exit(work(20) == 590 ? 11 : 12);
				int status = status_of(pid);
				if (WIFEXITED(status) && WEXITSTATUS(status) == 11)
					good++;
				else
					printf("FAIL child's status %x\n", status);
			}
			printf("children %d\n", good);
		} else if (sscanf(command, "work %ld", &n) == 1) {
			printf("worked %lu\n", work(n));
		}
		fflush(stdout);
	}
	return failures != 0;
}

int main(void)
{
	return serve();
}
