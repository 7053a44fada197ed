/*
 * Calls that are under way on other stacks: coroutines, each of which is suspended before, in and behind calls of f_call
 * that lie in each other.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <ucontext.h>

typedef uint64_t u64;
extern u64 f_call(u64, u64), f_lea(u64, u64);

/* What f_call does while it is in progress, in place of what it does else. */
extern u64 (*meanwhile)(u64, u64);

enum { MANY = 12, DEPTH = 20, SIZE = 32 << 10 };

static struct coroutine {
	ucontext_t here;
	int over;
} coroutines[MANY], *current;
static ucontext_t resumer;
static u64 begun, returned;

static void yield(void) { swapcontext(&current->here, &resumer); }

static void call(u64 depth)
{
	begun++;
	if (f_call(depth, 7) != depth + 7) abort();
	returned++;
}

static u64 within(u64 a, u64 b)
{
	yield();
	if (a) call(a - 1);
	yield();
	return a + b;
}

static void body(void)
{
	call(DEPTH - 1);
	current->over = 1;
}

static void begin(struct coroutine *c, char *stack)
{
	getcontext(&c->here);
	c->here.uc_stack.ss_sp = stack, c->here.uc_stack.ss_size = SIZE, c->here.uc_link = &resumer;
	c->over = 0;
	makecontext(&c->here, body, 0);
}

static void resume(struct coroutine *c)
{
	current = c;
	swapcontext(&resumer, &c->here);
}

/* A second thread that resumes coroutines. */
static pthread_barrier_t turn;
static struct coroutine *turns;

static void *resuming(void *p)
{
	for (;;) {
		pthread_barrier_wait(&turn);
		if (!turns) return p;
		resume(turns);
		pthread_barrier_wait(&turn);
	}
}

static void elsewhere(struct coroutine *c)
{
	turns = c;
	pthread_barrier_wait(&turn);
	if (c) pthread_barrier_wait(&turn);
}

enum { CARVED = 1, MOVED = 2, DROPPED = 4 };

/* The stacks are a part of this one; coroutines go on on two threads by turns; some are dropped in the middle, and
 * their stacks used for others. Gives how many calls began, in the upper half, and how many returned. */
u64 run_coroutines(u64 how, u64 rounds)
{
	char part[how & CARVED ? MANY * SIZE : 1], *stacks = how & CARVED ? part : malloc(MANY * SIZE);
	pthread_t second;
	u64 n = 0;
	begun = returned = 0;
	meanwhile = within;
	if (how & MOVED) {
		pthread_barrier_init(&turn, NULL, 2);
		pthread_create(&second, NULL, resuming, NULL);
	}
	for (u64 round = 0; round < rounds; round++) {
		for (int i = 0; i < MANY; i++) begin(&coroutines[i], stacks + i * SIZE);
		for (int left = 1; left;) {
			left = 0;
			for (int i = 0; i < MANY; i++) {
				struct coroutine *c = &coroutines[i];
				if (c->over) continue;
				left = 1, n++;
				if (how & DROPPED && n % 101 == 0) begin(c, stacks + i * SIZE);
				if (how & MOVED && n % 3) elsewhere(c);
				else resume(c);
				if (f_lea(n, 1) != n + 1) abort();
			}
		}
	}
	if (how & MOVED) {
		elsewhere(NULL);
		pthread_join(second, NULL);
	}
	meanwhile = NULL;
	if (stacks != part) free(stacks);
	return begun << 32 | returned;
}
