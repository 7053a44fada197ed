/* Functions that the compiler puts into sections of their own: main, what runs rarely, the rare parts of others. */
#include <signal.h>
#include <stdio.h>

static volatile long sink;

__attribute__((noinline, cold)) void rare(int n) { sink += n; }

__attribute__((noinline)) int work(int n)
{
	if (n == 3) {
		rare(n);
		sink++;
		rare(n + 1);
	}
	sink += n;
	return n;
}

static void handler(int sig)
{
	rare(sig);
	sink++;
}

int main(void)
{
	signal(SIGUSR1, handler);
	for (int i = 0; i < 5; i++)
		work(i);
	raise(SIGUSR1);
	printf("%ld\n", sink);
	return 0;
}
