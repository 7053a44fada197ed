// Integers of 16 bytes as arguments and results, which the program prints itself.
#include <stdio.h>

typedef __int128 I;
typedef unsigned __int128 U;
#define KEPT __attribute__((noinline, noclone))

volatile long sink;

static void half(U n) { printf(" %lx:%lx", (unsigned long)(n >> 64), (unsigned long)n); }

static void told(const char *name, U a, U b, U c)
{
	printf("%s", name);
	half(a), half(b), half(c);
	puts("");
}

KEPT I both(I x, U y) { sink += x; return x - (I)y; }
KEPT I behind(long a, long b, long c, long d, I x) { sink += x + a + b + c + d; return -x; }
KEPT I three(I x, I y, I z) { sink += x + y + z; return x + y + z; }

int main(void)
{
	I v = ((I)0x1122334455667788 << 64) | 0x99aabbccddeeff00ul;
	U w = ((U)0xdeadbeefcafef00dul << 64) | 7;

	for (int i = 0; i < 4; i++) {
		told("both", v, w, both(v, w));
		told("behind", v, 0, behind(1, 2, 3, 4, v));
		told("three", v, w, three(v, w, -v));
		v = -v + i;
		w ^= v;
	}
	return 0;
}
