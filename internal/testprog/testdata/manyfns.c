// A round with count N calls each of MANY functions (10,000, but for -DMANY=M) N times and
// prints "many CALLS SUM"; see manyfns.S.
#include "prog.h"

#ifndef MANY
#define MANY 10000
#endif
extern unsigned long (*const many_table[MANY])(unsigned long);

int main(void)
{
	long n = 1;

	while (next_round(&n)) {
		unsigned long sum = 0;

		for (long k = 0; k < n; k++)
			for (int i = 0; i < MANY; i++)
				sum = many_table[i](sum);
		printf("many %ld %lu\n", n * MANY, sum);
		CHECK(sum == (unsigned long)n * (MANY - 1UL) * MANY / 2);
	}
	return failures != 0;
}
