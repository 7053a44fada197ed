// Runs as two processes that have one memory and one thread pointer, as after clone with CLONE_VM alone.
//
//	twins
//
// "stranger" starts a thread whose thread pointer leads nowhere. "pair" starts the other process, which
// prints "child", and ends that thread. Both call outer() until there is a line to read; then "twins" tells
// how many calls gave something wrong, the child's status, which is 300 where none did, and "calls" how many there were.
#define _GNU_SOURCE
#include "prog.h"
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__x86_64__)
enum { N_poll = 7, N_exit = 60, SETTLS = CLONE_SETTLS };
#define CALL(n, a, b, c) ({ long r = n; __asm__ volatile("syscall" : "+a"(r) : "D"((long)a), "S"((long)b), "d"((long)c) : "rcx", "r11", "memory"); r; })
#else
enum { N_poll = 168, N_exit = 1, SETTLS = 0 };
#define CALL(n, a, b, c) ({ long r = n; __asm__ volatile("int $0x80" : "+a"(r) : "b"((long)a), "c"((long)b), "d"((long)c) : "memory"); r; })
#endif

static char stacks[2][65536] __attribute__((aligned(64)));
static volatile int parted, leave;
static volatile long made[2];

PROBED __attribute__((optimize("no-stack-protector"))) long work(long a)
{
	BARRIER();
	return a * 3 + 1;
}

PROBED __attribute__((optimize("no-stack-protector"))) long outer(long a)
{
	long r = work(a);

	BARRIER();
	return r + work(a + 1);
}

// As many calls as a look at the input is worth. It answers how many gave something else.
__attribute__((optimize("no-stack-protector"))) static int calls(int who, long from)
{
	int wrong = 0;

	for (long i = 0; i < 1000; i++, made[who]++)
		wrong += outer(from + i) != 6 * (from + i) + 5;
	return wrong;
}

// It sleeps nearly always, and outside of all probes.
__attribute__((optimize("no-stack-protector"))) static int stranger(void *arg)
{
	(void)arg;
	while (!leave)
		CALL(N_poll, 0, 0, 1);
	CALL(N_exit, 0, 0, 0);
	return 0;
}

static int child(void *arg)
{
	int wrong = 0;

	(void)arg;
	if (write(1, "child\n", 6) != 6)
		_exit(1);
	while (!parted)
		wrong += calls(1, 1000000);
	_exit(wrong ? 2 : 3);
}

static void pair(void)
{
	struct pollfd in = {.fd = 0, .events = POLLIN};
	int status = 0, wrong = 0, pid;

	parted = made[0] = made[1] = 0;
	pid = clone(child, stacks[0] + sizeof stacks[0], CLONE_VM | SIGCHLD, NULL);
	leave = 1;
	while (poll(&in, 1, 0) == 0)
		wrong += calls(0, 0);
	parted = 1;
	CHECK(waitpid(pid, &status, 0) == pid);
	printf("twins %d %x\n", wrong, status);
	printf("calls %ld\n", made[0] + made[1]);
}

int main(void)
{
	long n = 0;

	while (next_round(&n)) {
		if (!strcmp(command, "pair")) {
			pair();
		} else if (!strcmp(command, "stranger")) {
			leave = 0;
			CHECK(clone(stranger, stacks[1] + sizeof stacks[1],
				    SETTLS | CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM, NULL, NULL,
				    (void *)0x123456789a0, NULL) > 0);
		}
	}
	return failures != 0;
}
