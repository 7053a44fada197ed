// A function and who calls it: a round of n has often call it 3 times n, and seldom n times.
#include "prog.h"

PROBED long work(long n) { BARRIER(); return n + 1; }

PROBED long often(long n)
{
	for (int i = 0; i < 3; i++)
		n = work(n) + 1;
	return n;
}

PROBED long seldom(long n) { return 2 * work(n) + 1; }

int main(void)
{
	long rounds = 0;

	while (next_round(&rounds)) {
		long sum = 0;

		for (long i = 0; i < rounds; i++)
			sum += often(i) + seldom(i);
		printf("sum %ld\n", sum);
	}
	return 0;
}
