// Processes that come from a probed one. A round with count N makes N children in
// each way; each child calls child_work and exits with its result. Prints "WAY
// STATUSES-SUM". Run with "exec" as argument, it is the program that is exec'd.
#define _GNU_SOURCE
#include "prog.h"
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

PROBED int child_work(int n)
{
	int sum = 0;

	for (int i = 1; i <= n; i++)
		sum += i;
	return sum;
}

// reap waits for one child and returns its exit status, or -1.
static int reap(pid_t pid)
{
	int status;

	if (pid < 0 || waitpid(pid, &status, __WALL) != pid)
		return -1;
	if (WIFSIGNALED(status))
		printf("FAIL child killed by signal %d\n", WTERMSIG(status));
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static char *exec_argv[] = {"forks", "exec", NULL};

PROBED pid_t by_fork(void)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(child_work(4)); // 10
	return pid;
}

PROBED pid_t by_fork_exec(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		if (child_work(2) == 3)
			execv("/proc/self/exe", exec_argv);
		_exit(127);
	}
	return pid;
}

PROBED pid_t by_vfork(void)
{
	pid_t pid = vfork(); // the parent's memory, and its probes, until the exec

	if (pid == 0) {
		if (child_work(3) == 6)
			execv("/proc/self/exe", exec_argv);
		_exit(127);
	}
	return pid;
}

PROBED pid_t by_vfork_exit(void)
{
	pid_t pid = vfork();

	if (pid == 0)
		_exit(child_work(6)); // 21
	return pid;
}

PROBED pid_t by_spawn(void)
{
	pid_t pid;

	return posix_spawn(&pid, "/proc/self/exe", NULL, NULL, exec_argv, environ) ? -1 : pid;
}

static int cloned(void *p) { return child_work(*(int *)p); }

static pid_t by_flags(int flags)
{
	static _Alignas(16) char stack[1 << 16];
	static int n = 7; // 28

	return clone(cloned, stack + sizeof stack, flags, &n);
}

PROBED pid_t by_clone(void) { return by_flags(SIGCHLD); }

// Shares memory and is no thread: probes show in it, and nobody said that it is there.
PROBED pid_t by_clone_vm(void) { return by_flags(CLONE_VM | SIGCHLD); }

// A grandchild, of which the probed process hears nothing.
PROBED pid_t by_double_fork(void)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(reap(by_fork()) == 10 ? child_work(8) : 1); // 36
	return pid;
}

static const struct {
	const char *name;
	pid_t (*f)(void);
	int status;
} table[] = {
	{"fork", by_fork, 10}, {"fork_exec", by_fork_exec, 15}, {"vfork", by_vfork, 15},
	{"vfork_exit", by_vfork_exit, 21}, {"spawn", by_spawn, 15}, {"clone", by_clone, 28},
	{"clone_vm", by_clone_vm, 28}, {"double_fork", by_double_fork, 36},
};

int main(int argc, char **argv)
{
	long n = 1;

	if (argc > 1 && !strcmp(argv[1], "exec"))
		return child_work(5); // 15
	while (next_round(&n)) {
		for (unsigned i = 0; i < sizeof table / sizeof *table; i++) {
			long sum = 0;

			for (long k = 0; k < n; k++)
				sum += reap(table[i].f());
			CHECK(sum == table[i].status * n);
			printf("%s %ld\n", table[i].name, sum);
			fflush(stdout); // children must not inherit it unwritten
		}
		printf("work %d\n", child_work(10));
		fflush(stdout);
	}
	return failures != 0;
}
