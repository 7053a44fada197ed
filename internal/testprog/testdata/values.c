// Signals and the values that they were sent with.
//
// A round prints the values of all SIGUSR1 so far, in their order.
#include "prog.h"
#include <signal.h>

static int values[64];
static volatile sig_atomic_t n_values;

static void on_signal(int sig, siginfo_t *info, void *ctx)
{
	(void)sig, (void)ctx;
	if (n_values < 64)
		values[n_values++] = info->si_value.sival_int;
}

int main(void)
{
	struct sigaction sa = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART };
	long n = 0;

	CHECK(sigaction(SIGUSR1, &sa, NULL) == 0);
	while (next_round(&n)) {
		printf("values");
		for (int i = 0; i < n_values; i++)
			printf(" %d", values[i]);
		puts("");
	}
	return failures != 0;
}
