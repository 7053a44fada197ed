// stacks.c: all that makes a stack hard to walk, over and over: deep recursion, calls by way of the
// PLT and from within libc, frames of a size that only shows at run time, frames that are aligned anew, calls that
// end in jumps, a signal's handler, longjmp.
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEEP __attribute__((noinline, noclone))

volatile unsigned long sum;
static jmp_buf back;

KEEP void leaf(unsigned long n)
{
	sum += n;
}

KEEP void tail(unsigned long n) // ends in a jump where that is optimized
{
	sum ^= n;
	leaf(n + 1);
}

KEEP void sized(unsigned long n)
{
	volatile char room[n % 200 + 1];
	memset((char *)room, (int)n, sizeof room);
	leaf(room[n % sizeof room]);
	sum += room[0];
}

KEEP void aligned(unsigned long n)
{
	volatile unsigned long v[8] __attribute__((aligned(64)));
	for (int i = 0; i < 8; i++)
		v[i] = n * i;
	sized(v[3]);
	sum += v[7];
}

static KEEP int order(const void *a, const void *b)
{
	leaf(*(const unsigned char *)a);
	return *(const unsigned char *)a - *(const unsigned char *)b;
}

KEEP void sorts(unsigned long n)
{
	unsigned char all[8];
	for (int i = 0; i < 8; i++)
		all[i] = (unsigned char)(n * 37 + i * 101);
	qsort(all, sizeof all, 1, order);
	sum += all[0];
}

KEEP void prints(unsigned long n)
{
	char line[64];
	snprintf(line, sizeof line, "%lu %s %g", n, "text", n / 3.0);
	sum += strlen(line);
}

KEEP void deep(unsigned long n, unsigned long how)
{
	volatile unsigned long here = n;
	if (n > 0) {
		deep(n - 1, how);
		sum += here;
		return;
	}
	switch (how % 7) {
	case 0: leaf(how); break;
	case 1: sized(how); break;
	case 2: aligned(how); break;
	case 3: sorts(how); break;
	case 4: prints(how); break;
	case 5: raise(SIGUSR1); break;
	case 6: longjmp(back, 1);
	}
	sum += here;
}

static KEEP void handler(int sig)
{
	tail(sig);
	sum++;
}

KEEP void round_of(unsigned long i)
{
	if (setjmp(back) == 0)
		deep(i % 29, i);
	tail(i);
}

int main(void)
{
	signal(SIGUSR1, handler);
	for (unsigned long i = 0;; i++)
		round_of(i);
}
