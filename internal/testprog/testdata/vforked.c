// Waits for a child of vfork, which has its memory and its thread pointer meanwhile.
//
//	vforked
//
// A round: a thread is started that has no thread pointer, or one that leads nowhere, and soon ends. The child prints "child" and calls work() until there is a line for it to read. Then the
// process calls outer(), which takes a while, and prints what that gave.
#define _GNU_SOURCE
#include "prog.h"
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static char stack[65536] __attribute__((aligned(64))), other[65536] __attribute__((aligned(64)));

PROBED __attribute__((optimize("no-stack-protector"))) long work(long a)
{
	BARRIER();
	return a * 3 + 1;
}

PROBED long outer(long a)
{
	usleep(100000);
	return work(a) + 1;
}

#if defined(__x86_64__)
enum { N_poll = 7, N_exit = 60, SETTLS = CLONE_SETTLS };
#define CALL "syscall"
#define IN1 "D"
#define IN2 "S"
#define IN3 "d"
#else
enum { N_poll = 168, N_exit = 1, SETTLS = 0 };
#define CALL "int $0x80"
#define IN1 "b"
#define IN2 "c"
#define IN3 "d"
#endif

__attribute__((optimize("no-stack-protector"))) static int stranger(void *arg)
{
	long r = N_poll;

	work(1);
	__asm__ volatile(CALL : "+a"(r) : IN1(arg), IN2(0L), IN3(200L) : "memory"
#if defined(__x86_64__)
			 , "rcx", "r11"
#endif
	);
	work(2);
	__asm__ volatile(CALL ::"a"((long)N_exit), IN1(0L) : "memory");
	return 0;
}

static int child(void *arg)
{
	struct pollfd in = {.fd = 0, .events = POLLIN};
	char line[16];
	long s = 0;

	(void)arg;
	if (write(1, "child\n", 6) != 6)
		_exit(1);
	while (poll(&in, 1, 1) == 0)
		s += work(s);
	_exit(read(0, line, sizeof line) > 0 ? 0 : 2);
}

int main(void)
{
	long n = 0;

	while (next_round(&n)) {
		clone(stranger, other + sizeof other, SETTLS | CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM,
		      NULL, NULL, (void *)0x123456789a0, NULL);
		int status = -1, pid = clone(child, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, NULL);
		long o = outer(n);

		CHECK(waitpid(pid, &status, 0) == pid && status == 0);
		printf("outer %ld\n", o);
	}
	return failures != 0;
}
