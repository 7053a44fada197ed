// Threads that hammer the same functions, and threads that come and go.
//
//	threads [T]
//
// A round with count N has T threads (4) call hammer_add, hammer_mul and
// hammer_leaf N times each, while another starts and joins churners, one after
// the other, N/100 of them and at least one, each of which calls churner once. It
// prints "hammer CALLS SUM" and "churn CALLS".
#include "prog.h"
#include <pthread.h>

PROBED unsigned long hammer_add(unsigned long a, unsigned long b) { BARRIER(); return a + b; }
PROBED unsigned long hammer_mul(unsigned long a) { BARRIER(); return a * 2862933555777941757UL + 3037000493UL; }
PROBED unsigned long hammer_leaf(unsigned long a) { return a ^ (a >> 7); }

static long rounds;
static long churned; // by one thread at a time

PROBED void *churner(void *p)
{
	churned++;
	return p;
}

static void *hammer(void *seed)
{
	unsigned long sum = (unsigned long)seed;

	for (long i = 0; i < rounds; i++)
		sum = hammer_leaf(hammer_mul(hammer_add(sum, (unsigned long)i)));
	return (void *)sum;
}

static void *churn(void *n)
{
	for (long i = 0; i < (long)n; i++) {
		pthread_t t;
		void *back;
		long token = i;

		if (pthread_create(&t, NULL, churner, &token) || pthread_join(t, &back) ||
		    back != &token)
			return (void *)1;
	}
	return NULL;
}

int main(int argc, char **argv)
{
	long nthreads = arg(argc, argv, 1, 4);
	pthread_t t[256], c;

	rounds = 1000;
	if (nthreads < 1 || nthreads > 256)
		return 2;
	while (next_round(&rounds)) {
		unsigned long sum = 0, churners = (unsigned long)(rounds / 100 + 1);
		void *one;

		churned = 0;
		CHECK(!pthread_create(&c, NULL, churn, (void *)churners));
		for (long i = 0; i < nthreads; i++)
			CHECK(!pthread_create(&t[i], NULL, hammer, (void *)(i * 1000003)));
		for (long i = 0; i < nthreads; i++) {
			CHECK(!pthread_join(t[i], &one));
			sum += (unsigned long)one;
		}
		CHECK(!pthread_join(c, &one) && !one);
		CHECK(churned == (long)churners);
		printf("hammer %ld %lu\n", rounds * nthreads, sum);
		printf("churn %ld\n", churned);
	}
	return failures != 0;
}
