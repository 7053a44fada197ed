// A process whose children are sent signals from their first instruction on. A round with count N makes N of them, one after
// another, and prints "statuses SUM, handled RUNS": 99 for each that blocks what its parent blocks, and how often handlers ran.
// Run with "quiet" as argument, it sends none.
#define _GNU_SOURCE
#include "prog.h"
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static struct {
	volatile long handled;
	volatile int over; // the parent sends no more
} *shared;

PROBED void handled(void)
{
	__atomic_fetch_add(&shared->handled, 1, __ATOMIC_SEQ_CST);
}

static void handler(int sig)
{
	(void)sig;
	handled();
}

static int child(void)
{
	sigset_t blocked;

	while (!shared->over)
		usleep(100);
	sigprocmask(SIG_SETMASK, NULL, &blocked);
	for (int sig = 1; sig < 32; sig++)
		if (sigismember(&blocked, sig) != (sig == SIGUSR2))
			return sig;
	return 99;
}

int main(int argc, char **argv)
{
	int quiet = argc > 1 && !strcmp(argv[1], "quiet");
	sigset_t usr2;
	long n = 0;

	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	signal(SIGUSR1, handler);
	sigemptyset(&usr2);
	sigaddset(&usr2, SIGUSR2);
	sigprocmask(SIG_BLOCK, &usr2, NULL);
	while (next_round(&n)) {
		int sum = 0, status;

		shared->handled = 0;
		for (long k = 0; k < n; k++) {
			shared->over = 0;
			pid_t pid = fork();

			if (pid == 0)
				_exit(child());
			for (int i = 0; !quiet && i < 2000; i++) {
				kill(pid, SIGUSR1);
				usleep(10);
			}
			shared->over = 1;
			CHECK(waitpid(pid, &status, 0) == pid);
			sum += WIFEXITED(status) ? WEXITSTATUS(status) : -1;
		}
		printf("statuses %d, handled %ld\n", sum, shared->handled);
	}
	return failures != 0;
}
