// Every way a function comes back, or does not. A round with count N does each
// thing N times and prints its result.
#define _GNU_SOURCE
#include "prog.h"
#include "lasttell.h"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <ucontext.h>

PROBED long ret_fib(long n) { return n < 2 ? n : ret_fib(n - 1) + ret_fib(n - 2); }

PROBED long ret_ackermann(long m, long n)
{
	if (m == 0)
		return n + 1;
	if (n == 0)
		return ret_ackermann(m - 1, 1);
	return ret_ackermann(m - 1, ret_ackermann(m, n - 1));
}

PROBED int ret_odd(int n);
PROBED int ret_even(int n) { return n == 0 ? 1 : ret_odd(n - 1); }
PROBED int ret_odd(int n) { return n == 0 ? 0 : ret_even(n - 1); }

PROBED long ret_deep(long n)
{
	volatile long here = n; // a frame of its own at every level

	return n == 0 ? 0 : here + ret_deep(n - 1);
}

PROBED long ret_tail_end(long a) { BARRIER(); return a * 5 + 1; }
PROBED long ret_tail_mid(long a) { return ret_tail_end(a + 2); }
PROBED long ret_tail(long a) { return ret_tail_mid(a ^ 3); }

PROBED float ret_float(float a) { return a * 0.5f; }
PROBED double ret_double(double a) { return a + 0.25; }
PROBED long double ret_long_double(long double a) { return a * 3; }
#ifdef __SIZEOF_INT128__
typedef __int128 wide;
#else
typedef int64_t wide;
#endif
PROBED wide ret_int128(wide a) { return a * a; }
PROBED _Bool ret_bool(long a) { return a & 1; }
PROBED void ret_void(long *p) { *p += 7; }

struct two { long a; double b; };
struct nine { long v[9]; };
PROBED struct two ret_two(long a) { return (struct two){a, (double)a / 4}; }
PROBED struct nine ret_nine(long a)
{
	struct nine r;

	for (int i = 0; i < 9; i++)
		r.v[i] = a + i;
	return r;
}

// longjmp over frames that never return.
static jmp_buf out;

PROBED void ret_never(long n)
{
	if (n > 0)
		ret_never(n - 1);
	else
		longjmp(out, 1);
	BARRIER();
}

PROBED long ret_jumped(long deep)
{
	volatile long depth = deep; // gcc has another value in its stack slot by then (12.2, s390x)

	if (setjmp(out))
		return depth;
	ret_never(depth);
	return -1;
}

// A thread that ends inside.
PROBED void ret_exits(long n)
{
	if (n > 0)
		ret_exits(n - 1);
	else
		pthread_exit((void *)17);
	BARRIER();
}

static void *exiting(void *p)
{
	ret_exits(5);
	return p;
}

PROBED long ret_thread(void)
{
	pthread_t t;
	void *r = NULL;

	CHECK(!pthread_create(&t, NULL, exiting, NULL));
	CHECK(!pthread_join(t, &r));
	return (long)r;
}

// A handler on a stack of its own, which calls probed functions, and may leave by
// siglongjmp.
static sigjmp_buf from_handler;
static volatile int leave;
static volatile long handled;

PROBED void ret_handler(int sig)
{
	(void)sig;
	handled += ret_fib(7);
	if (leave)
		siglongjmp(from_handler, 1);
}

PROBED long ret_signalled(int leaves)
{
	handled = 0;
	leave = leaves;
	if (!sigsetjmp(from_handler, 1))
		raise(SIGUSR2);
	return handled;
}

// Coroutines: returns on one stack are interleaved with another's.
static ucontext_t main_uc, co_uc;
static long yielded;

PROBED long ret_yield(long v)
{
	yielded = v;
	swapcontext(&co_uc, &main_uc);
	return v + 1;
}

PROBED long ret_nested(long n) { return n == 0 ? ret_yield(0) : ret_yield(n) + ret_nested(n - 1); }

static long co_result;
static void coroutine(void) { co_result = ret_nested(4); }

PROBED long ret_coroutine(void)
{
	static char stack[1 << 17];
	long sum = 0;

	getcontext(&co_uc);
	co_uc.uc_stack.ss_sp = stack;
	co_uc.uc_stack.ss_size = sizeof stack;
	co_uc.uc_link = &main_uc;
	makecontext(&co_uc, coroutine, 0);
	for (int i = 0; i < 6; i++) { // five yields and the end
		swapcontext(&main_uc, &co_uc);
		sum += yielded + ret_fib(3);
	}
	return sum * 100 + co_result;
}

static int order(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

// Returns into a library and comes back from it.
PROBED int ret_callback(const void *a, const void *b) { int r = order(a, b); BARRIER(); return r; }

int main(void)
{
	static char stack[1 << 17];
	stack_t alt = {.ss_sp = stack, .ss_size = sizeof stack};
	struct sigaction sa = {.sa_handler = ret_handler, .sa_flags = SA_ONSTACK};
	long n = 1;

	tell_of_faults();
	CHECK(!sigaltstack(&alt, NULL));
	CHECK(!sigaction(SIGUSR2, &sa, NULL));
	while (next_round(&n)) {
		long fib = 0, ack = 0, parity = 0, deep = 0, tail = 0, ints = 0, structs = 0, jumped = 0;
		long thread = 0, signalled = 0, co = 0, sorted = 0;
		double floats = 0;

		for (long i = 0; i < n; i++) {
			int v[] = {5, 3, 9, 1, 7};

			fib += ret_fib(12);
			ack += ret_ackermann(2, 3);
			parity += ret_even(20) * 2 + ret_odd(20);
			deep += ret_deep(1000);
			tail += ret_tail(i);
			floats += (double)ret_float(3) + ret_double(2) + (double)ret_long_double(1.5L);
			ints += (long)(ret_int128((wide)1 << 5 * sizeof(wide) / 2) >> 4 * sizeof(wide)) + ret_bool(i);
			ret_void(&ints);
			structs += ret_two(8).a + (long)ret_two(8).b + ret_nine(3).v[8];
			jumped += ret_jumped(10);
			thread += ret_thread();
			signalled += ret_signalled(0) + ret_signalled(1);
			co += ret_coroutine();
			qsort(v, 5, sizeof *v, ret_callback);
			sorted += v[0] + v[4] * 10;
		}
		printf("fib %ld\nackermann %ld\nparity %ld\ndeep %ld\ntail %ld\n", fib, ack, parity, deep, tail);
		printf("floats %g\nints %ld\nstructs %ld\n", floats, ints, structs);
		printf("jumped %ld\nthread %ld\nsignalled %ld\ncoroutine %ld\nsorted %ld\n",
		       jumped, thread, signalled, co, sorted);
		CHECK(fib == 144 * n && ack == 9 * n && parity == 2 * n && deep == 500500 * n);
		CHECK(jumped == 10 * n && thread == 17 * n && signalled == 26 * n && sorted == 91 * n);
	}
	return failures != 0;
}
