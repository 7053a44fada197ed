/* A function that calls itself 200 times. */
#include <stdio.h>

static volatile long sink;

__attribute__((noinline, noclone)) void leaf(void) { sink++; }

__attribute__((noinline, noclone)) long deep(long n)
{
	long r = n;

	if (n)
		r += deep(n - 1);
	else
		leaf();
	sink += r;
	return r ^ sink;
}

int main(void)
{
	printf("%ld\n", deep(200));
	return 0;
}
