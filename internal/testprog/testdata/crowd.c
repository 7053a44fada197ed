// Many threads at the same time, and many one after the other.
//
//	crowd [STACK]
//
// Each thread has a stack of STACK KiB (64). A round with count N begins N threads, which wait for each
// other; then each calls crowd_leaf 3 times, and they wait again. A round "N churn" has N threads come and go, 50 at
// a time, which each do the same. A round prints "calls CALLS SUM". A round "HOW lock" calls mlockall(HOW), and prints "locked 0" if that worked. A
// round "N limit" has the program lock N bytes at most from then on, without root's rights.
#include "prog.h"
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

PROBED unsigned long crowd_leaf(unsigned long a, long i) { BARRIER(); return a * 2862933555777941757UL + (unsigned long)i; }

enum { at_a_time = 50, calls = 3, most = 20000 };

static pthread_barrier_t here;
static int alone;

static void *one_of(void *seed)
{
	unsigned long sum = (unsigned long)seed;

	if (!alone)
		pthread_barrier_wait(&here);
	for (long i = 0; i < calls; i++)
		sum = crowd_leaf(sum, i);
	if (!alone)
		pthread_barrier_wait(&here);
	return (void *)sum;
}

int main(int argc, char **argv)
{
	static pthread_t t[most];
	pthread_attr_t attr;
	long n = 1;

	CHECK(!pthread_attr_init(&attr));
	CHECK(!pthread_attr_setstacksize(&attr, (size_t)arg(argc, argv, 1, 64) << 10));
	while (next_round(&n)) {
		unsigned long sum = 0;
		void *one;

		if (strstr(command, "lock")) {
			printf("locked %d\n", mlockall((int)n));
			continue;
		}
		if (strstr(command, "limit")) {
			struct rlimit most = { (rlim_t)n, (rlim_t)n };
			int failed = setrlimit(RLIMIT_MEMLOCK, &most) || setuid(65534);

			printf("limited %d\n", failed);
			continue;
		}
		alone = strstr(command, "churn") != NULL;
		if (n > most && !alone)
			return 2;
		if (!alone)
			CHECK(!pthread_barrier_init(&here, NULL, (unsigned)n));
		for (long i = 0; i < n; i++) {
			if (alone && i >= at_a_time) {
				CHECK(!pthread_join(t[i % at_a_time], &one));
				sum += (unsigned long)one;
			}
			CHECK(!pthread_create(&t[alone ? i % at_a_time : i], &attr, one_of, (void *)i));
		}
		for (long i = 0; i < (alone && n > at_a_time ? at_a_time : n); i++) {
			CHECK(!pthread_join(t[i], &one));
			sum += (unsigned long)one;
		}
		printf("calls %ld %lu\n", n * calls, sum);
	}
	return failures != 0;
}
