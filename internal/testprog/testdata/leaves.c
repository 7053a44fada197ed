// Calls that are left by longjmp, one of which has ended in a jump to the other: both have one place on the stack, and what was
// put there stays, since all else is done far above. A round with count N prints "shallow SUM".
#include "prog.h"
#include <setjmp.h>

static jmp_buf back;

#define OPAQUE __attribute__((noipa, noinline, used, visibility("default")))

OPAQUE long leaves_last(long n)
{
	if (n >= 0)
		longjmp(back, 1);
	return n;
}

OPAQUE long leaves_first(long n) { return leaves_last(n); } // a jump

OPAQUE long shallow(long n)
{
	BARRIER();
	return n * 3 + 1;
}

OPAQUE void deep(long n)
{
	volatile char room[65536];

	room[0] = n;
	leaves_first(n);
	room[1] = n;
}

int main(void)
{
	long n = 1;

	while (next_round(&n)) {
		static volatile long i, sum;

		sum = 0;
		for (i = 0; i < n; i++) {
			if (setjmp(back) == 0)
				deep(i);
			sum += shallow(i);
		}
		printf("shallow %ld\n", sum);
	}
	return failures != 0;
}
