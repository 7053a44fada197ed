// What a process and a kernel can be asked to do alike, for the tests that hold
// both to kprobes.txt: this is built as a program (prog.h) and as a module of the
// kernel (conform.h). A round is one of the words below, and a number.
#ifdef MODULE
#include "conform.h"
#else
#include "prog.h"
#include <pthread.h>
#include <unistd.h>

#define say printf

struct thread {
	pthread_t id;
	long (*run)(long);
	long arg, result;
};

static void *enter_thread(void *p)
{
	struct thread *t = p;

	t->result = t->run(t->arg);
	return NULL;
}

static void spawn(struct thread *t) { CHECK(!pthread_create(&t->id, NULL, enter_thread, t)); }
static void join(struct thread *t) { CHECK(!pthread_join(t->id, NULL)); }
static void nap(void) { usleep(1000); }
#endif

PROBED long jumper(long a, long b) { return a * 3 + b; }

// Its calls can be counted: each is one, whatever the optimizer would like.
PROBED long fib(long n)
{
	long a, b;

	if (n < 2)
		return n;
	a = fib(n - 1);
	BARRIER();
	b = fib(n - 2);
	BARRIER();
	return a + b;
}

PROBED long deep(long n)
{
	long below = n > 1 ? deep(n - 1) : 0;

	BARRIER();
	return below + n;
}

PROBED int args_ints(int a, unsigned b, long c, unsigned char d, short e, long long f)
{
	return say("args_ints %d %u %ld %u %d %lld\n", a, b, c, d, e, f);
}

PROBED int args_many(int a, int b, int c, int d, int e, int f, int g, long h, signed char i)
{
	return say("args_many %d %d %d %d %d %d %d %ld %d\n", a, b, c, d, e, f, g, h, i);
}

static char text[] = "hello, world"; // a handler may change it

PROBED int args_string(const char *s, unsigned long n) { return say("args_string %.*s\n", (int)n, s); }

static volatile int go, inside;

PROBED long waits(long n)
{
	inside = 1;
	while (!go)
		nap();
	return n * 2;
}

static struct thread waiting = {.run = waits, .arg = 21};

PROBED long hammer_leaf(long n) { BARRIER(); return n + 1; }

static long hammer(long n)
{
	long sum = 0;

	for (long i = 0; i < n; i++)
		sum += hammer_leaf(i);
	return sum;
}

static struct thread hammers[2] = {{.run = hammer}, {.run = hammer}};

static void play(const char *what, long n)
{
	long r = 0;

	switch (what[0]) {
	case 'j':
		for (long i = 0; i < n; i++)
			r = jumper(r, i);
		say("jumper %ld %ld\n", n, r);
		break;
	case 'f':
		say("fib %ld %ld\n", n, fib(n));
		break;
	case 'd':
		say("deep %ld %ld\n", n, deep(n));
		break;
	case 'a':
		args_ints(-1, 4000000000u, -123456789012L, 200, -300, 0x7fffffffffffffffLL);
		args_many(1, 2, 3, 4, 5, 6, 7, 800000000L, -9);
		args_string(text, sizeof text - 1);
		break;
	case 'e':
		go = inside = 0;
		spawn(&waiting);
		while (!inside)
			nap();
		say("inside\n");
		break;
	case 'l':
		go = 1;
		join(&waiting);
		say("returned %ld\n", waiting.result);
		break;
	case 'h':
		for (int i = 0; i < 2; i++) {
			hammers[i].arg = n;
			spawn(&hammers[i]);
		}
		for (int i = 0; i < 2; i++) {
			join(&hammers[i]);
			say("hammer %ld\n", hammers[i].result);
		}
		break;
	}
}

#ifndef MODULE
int main(void)
{
	long ignored;

	while (next_round(&ignored)) {
		char *number = strchr(command, ' ');

		play(command, number ? atol(number) : 0);
	}
	return failures != 0;
}
#endif
