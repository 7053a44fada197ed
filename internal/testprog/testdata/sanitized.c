// Allocates and frees in threads, made with a sanitizer, which takes addresses for itself before main.
//
//	sanitized
//
// It prints the sum of what its calls of work() answer, and ends with status 4.
#include "prog.h"
#include <pthread.h>
#include <stdlib.h>

PROBED long work(long n)
{
	long *all = malloc((n + 1) * sizeof *all), sum = 0;
	for (long i = 0; i <= n; i++)
		all[i] = i;
	for (long i = 0; i <= n; i++)
		sum += all[i];
	free(all);
	return sum;
}

static void *thread(void *n) { return (void *)work((long)n); }

int main(void)
{
	long sum = 0;
	for (long i = 0; i < 20; i++) {
		pthread_t t;
		void *result;
		pthread_create(&t, NULL, thread, (void *)i);
		pthread_join(t, &result);
		sum += (long)result;
	}
	printf("%ld\n", sum);
	return 4;
}
