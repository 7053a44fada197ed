// One function in a tight loop, and detours of it made by hand: the least that a
// jump probe can cost here.
//
//	hot [none|count|registers|record|return]
//
// Each line on stdin, "N [T]", has T threads (1) call hot N times each. Prints
// "ns ELAPSED": the processor time of the slowest of them, so that other programs'
// work does not count.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

typedef unsigned long word;

word hot(word a, word b);
extern char floor_count[], floor_registers[], floor_record[], floor_return[];
word floor_sum;

// All that is in the frame, added up: what the program beside it does, too.
__attribute__((noinline, used)) void floor_handler(const word *regs)
{
	word sum = 0;

#pragma GCC unroll 15
	for (int i = 0; i < 15; i++)
		sum += regs[i + 1];
	floor_sum += sum;
}

static void lead(const char *to)
{
	char *at = (char *)hot, *page = (char *)((word)at & ~4095ul);
	int rel = (int)(to - (at + 5));

	if (mprotect(page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC))
		exit(1);
	at[0] = (char)0xe9;
	memcpy(at + 1, &rel, 4);
	mprotect(page, 8192, PROT_READ | PROT_EXEC);
}

static word (*volatile call)(word, word) = hot;
static long n;
static pthread_barrier_t begin;

static void *run(void *out)
{
	word (*f)(word, word) = call, sum = 0;
	struct timespec from, to;

	pthread_barrier_wait(&begin);
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
	for (long i = 0; i < n; i++)
		sum += f((word)i & 511, sum);
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
	*(long *)out = (to.tv_sec - from.tv_sec) * 1000000000L + (to.tv_nsec - from.tv_nsec);
	return (void *)sum;
}

int main(int argc, char **argv)
{
	static const struct { const char *name, *code; } floors[] = {
		{ "count", floor_count }, { "registers", floor_registers }, { "record", floor_record }, { "return", floor_return },
	};
	enum { MOST = 8 };
	char line[64];

	for (unsigned i = 0; argc > 1 && i < sizeof floors / sizeof *floors; i++)
		if (!strcmp(argv[1], floors[i].name))
			lead(floors[i].code);
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		long threads = 1, ns[MOST] = { 0 }, worst = 0;
		pthread_t t[MOST];

		if (sscanf(line, "%ld %ld", &n, &threads) < 1 || threads < 1 || threads > MOST)
			return 1;
		pthread_barrier_init(&begin, NULL, (unsigned)threads);
		for (long i = 1; i < threads; i++)
			if (pthread_create(&t[i], NULL, run, &ns[i]))
				return 1;
		run(&ns[0]);
		for (long i = 1; i < threads; i++)
			pthread_join(t[i], NULL);
		for (long i = 0; i < threads; i++)
			if (ns[i] > worst)
				worst = ns[i];
		printf("ns %ld\n", worst);
		puts("done");
		fflush(stdout);
	}
	return 0;
}
