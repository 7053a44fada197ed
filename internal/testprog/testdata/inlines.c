// Functions that are inlined in places: gone in three, and nowhere by itself; both in one, and by itself. A round has N calls of each kind.
#include "prog.h"

static volatile int sink;

static inline __attribute__((always_inline)) int gone(int a)
{
	sink += a;
	return a * 3;
}

static inline __attribute__((always_inline)) int both(int a)
{
	sink ^= a;
	for (int i = 0; i < 3; i++)
		sink += i;
	return a + sink;
}

PROBED int once(int a) { return gone(a) + 1; }

PROBED int twice(int a) { return gone(a) + gone(a + 1); }

int (*volatile kept)(int) = both;

int main(void)
{
	long n = 1;

	while (next_round(&n))
		for (long i = 0; i < n; i++) {
			once(1);
			twice(2);
			sink += both(3);
			kept(4);
		}
	return failures != 0;
}
