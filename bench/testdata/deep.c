// A function that is called eight deep: what a stack costs.
//
// Each line on stdin, "N T", has it called N times. Prints "ns ELAPSED", processor time.
#include <stdio.h>
#include <time.h>

typedef unsigned long word;

__attribute__((noinline, noclone)) word deepest(word a, word b)
{
	__asm__ volatile("" : "+r"(a), "+r"(b));
	return a + b;
}

static word turns(long n)
{
	word sum = 0;

	for (long i = 0; i < n; i++)
		sum += deepest((word)i & 511, sum);
	return sum;
}

#define LEVEL(name, next) \
	__attribute__((noinline, noclone)) static word name(long n) { word w = next(n); __asm__ volatile("" : "+r"(w)); return w; }
LEVEL(level1, turns)
LEVEL(level2, level1)
LEVEL(level3, level2)
LEVEL(level4, level3)

int main(void)
{
	struct timespec from, to;
	volatile word sum = 0;
	long n;

	puts("ready");
	fflush(stdout);
	while (scanf("%ld %*d", &n) == 1) {
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
		sum += level4(n);
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
		printf("ns %ld\ndone\n", (to.tv_sec - from.tv_sec) * 1000000000L + (to.tv_nsec - from.tv_nsec));
		fflush(stdout);
	}
	return 0;
}
