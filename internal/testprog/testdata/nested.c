// Calls that lie in each other, and calls under way on several stacks:
//
//	nested deep N         N calls in one
//	nested apart N        N coroutines, each suspended in 30 calls that lie in each other
//	nested carved N       the same; their stacks are parts of main's
//	nested leave N        N times, calls that longjmp leaves
#include "prog.h"
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

enum { DEPTH = 30, SIZE = 64 << 10, MOST = 64 };

PROBED long deep(long n)
{
	volatile long here = n; // a frame of its own at every level

	return n <= 1 ? 1 : deep(here - 1) + 1;
}

static ucontext_t mine, coroutines[MOST];
static int over[MOST];
static long sum;

PROBED long step(int i, int depth)
{
	swapcontext(&coroutines[i], &mine);
	long sum = depth > 1 ? step(i, depth - 1) + 1 : 1;
	swapcontext(&coroutines[i], &mine);
	return sum;
}

static void body(int i)
{
	sum += step(i, DEPTH);
	over[i] = 1;
}

// One turn of all coroutines: a call that is over while they go on.
PROBED int turn(int n)
{
	int left = 0;

	for (int i = 0; i < n; i++) {
		if (!over[i])
			swapcontext(&mine, &coroutines[i]);
		left += !over[i];
	}
	return left;
}

static void rounds(int n, char *stacks)
{
	for (int i = 0; i < n; i++) {
		getcontext(&coroutines[i]);
		coroutines[i].uc_stack = (stack_t){ .ss_sp = stacks + i * SIZE, .ss_size = SIZE };
		coroutines[i].uc_link = &mine;
		makecontext(&coroutines[i], (void (*)(void))body, 1, i);
	}
	while (turn(n))
		;
}

static jmp_buf out;

PROBED long leave(long n)
{
	volatile long here = n;

	if (n == 0)
		longjmp(out, 1);
	return here > 0 ? leave(here - 1) + 1 : 0;
}

int main(int argc, char **argv)
{
	const char *what = argc > 2 ? argv[1] : "deep";
	int n = argc > 2 ? atoi(argv[2]) : 1;

	if (!strcmp(what, "deep")) {
		sum = deep(n);
	} else if (!strcmp(what, "apart")) {
		rounds(n, malloc((size_t)n * SIZE));
	} else if (!strcmp(what, "carved")) {
		char stacks[n * SIZE];
		rounds(n, stacks);
	} else {
		for (volatile int i = 0; i < n; i++)
			if (!setjmp(out))
				leave(i % 7);
	}
	printf("%ld\n", sum);
	return 0;
}
