// What a trap costs with nobody's engine around it. Three roles:
//
//	floor          each line on stdin, a count N, has a looping child stopped N
//	               times by a trap: waitpid, SETREGS, CONT. Prints "ns ELAPSED".
//	floor apart    the same, but the kernel places tracer and child: on a machine
//	               with an idle CPU it puts them on two.
//	floor child    waits for a line, then traps for ever: for tracers elsewhere.
//
// Else tracer and child share the CPU that the tracer is on, the best case there
// is: a stop is then two context switches and no wake-up of a halted CPU.
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void trap_for_ever(void)
{
	for (;;)
		__asm__ volatile("int3");
}

static void say(const char *line)
{
	puts(line);
	fflush(stdout);
}

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void stay_with(pid_t pid)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(sched_getcpu(), &set);
	if (sched_setaffinity(0, sizeof set, &set) || sched_setaffinity(pid, sizeof set, &set))
		die("sched_setaffinity");
}

static void next_trap(pid_t pid)
{
	int status;

	if (waitpid(pid, &status, __WALL) != pid)
		die("waitpid");
	if (!WIFSTOPPED(status) || WSTOPSIG(status) != SIGTRAP) {
		fprintf(stderr, "the child does not trap: status %#x\n", status);
		exit(1);
	}
}

static long long now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static pid_t trapping_child(void)
{
	pid_t pid = fork();

	if (pid < 0)
		die("fork");
	if (pid == 0) {
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
			die("PTRACE_TRACEME");
		trap_for_ever();
	}
	next_trap(pid);
	if (ptrace(PTRACE_SETOPTIONS, pid, NULL, PTRACE_O_EXITKILL))
		die("PTRACE_SETOPTIONS");
	return pid;
}

int main(int argc, char **argv)
{
	char line[64];
	struct user_regs_struct regs;
	cpu_set_t all;
	pid_t pid;
	int apart = argc > 1 && !strcmp(argv[1], "apart");

	if (argc > 1 && !strcmp(argv[1], "child")) {
		say("ready");
		if (!fgets(line, sizeof line, stdin))
			return 0;
		trap_for_ever();
	}
	sched_getaffinity(0, sizeof all, &all);
	pid = trapping_child();
	if (ptrace(PTRACE_GETREGS, pid, NULL, &regs))
		die("PTRACE_GETREGS");
	say("ready");
	while (fgets(line, sizeof line, stdin)) {
		long n = atol(line);
		long long from;

		// Each round chooses the CPU anew: another may be the idle one by now.
		sched_setaffinity(0, sizeof all, &all);
		sched_yield();
		if (!apart)
			stay_with(pid);
		from = now();
		for (long i = 0; i < n; i++) {
			if (ptrace(PTRACE_SETREGS, pid, NULL, &regs) || ptrace(PTRACE_CONT, pid, NULL, NULL))
				die("resume");
			next_trap(pid);
		}
		printf("ns %lld\n", now() - from);
		say("done");
	}
	return 0;
}
