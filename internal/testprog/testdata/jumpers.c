// One small function called in a tight loop: the place to measure a hit. A round
// with count N calls it N times and prints "jumper N SUM" and "ns ELAPSED".
#include "prog.h"
#include <time.h>

PROBED unsigned long jumper(unsigned long a, unsigned long b) { return a * 3 + b; }

int main(void)
{
	long n = 1000000;

	while (next_round(&n)) {
		struct timespec from, to;
		unsigned long sum = 0;

		clock_gettime(CLOCK_MONOTONIC, &from);
		for (long i = 0; i < n; i++)
			sum = jumper(sum, (unsigned long)i);
		clock_gettime(CLOCK_MONOTONIC, &to);
		printf("jumper %ld %lu\n", n, sum);
		printf("ns %lld\n", (to.tv_sec - from.tv_sec) * 1000000000LL + (to.tv_nsec - from.tv_nsec));
	}
	return 0;
}
