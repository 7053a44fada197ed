/* What an optimizer copies once more where it has inlined it, each with a counter of its own. */
#include <stdio.h>
#include <stdlib.h>

static volatile long calls[5];
static volatile long sink;

#define OUTLINE __attribute__((noinline))

/* Called in a loop, whose rounds are unrolled. */
static inline int clamp(int v, int low, int high)
{
	calls[0]++;
	return v < low ? low : v > high ? high : v;
}

/* Called with what one branch knows and the other does not. */
static inline const char *known(const char *p, int n)
{
	calls[1]++;
	if (!p)
		return "none";
	for (int i = 0; i < n; i++) {
		sink += p[i];
		if (sink > 100000)
			puts("");
	}
	printf("%s", sink == -1 ? p : "");
	return p;
}

/* Calls another first, and a third one at its end. */
static inline long around(long v)
{
	long r = clamp(v, 1, 9);

	calls[2]++;
	if (v & 1)
		sink += r;
	return r + clamp(r - v, 2, 8);
}

/* Called in rounds of which nothing is left but the calls. */
static inline void tick(int v)
{
	calls[4]++;
	if (v & 1)
		sink += v;
}

/* Its test of b stands in both branches of the one before it. */
OUTLINE int pick(int a, int b)
{
	int r = 0;

	if (a > 3) {
		sink += a;
		r = b;
	}
	if (b > 2) /* in two branches */
		r += a;
	if (a > 3)
		sink--;
	calls[3]++;
	return r;
}

OUTLINE long sum(const int *v, int n)
{
	long s = 0;

	for (int i = 0; i < n; i++)
		s += clamp(v[i], 2, 40);
	for (int i = 0; i < n; i++)
		if (v[i] % 3)
			s += around(v[i]);
		else
			s -= around(i);
	return s;
}

int main(int argc, char **argv)
{
	int n = argc > 1 ? atoi(argv[1]) : 33, v[64];
	long s = 0;

	for (int i = 0; i < 64; i++)
		v[i] = i * 7 % 50;
	for (int i = 0; i < n; i++) {
		s += sum(v, i % 40) + pick(i % 8, i % 5);
		s += known(i % 5 ? "yes" : 0, 1)[0];
		s ^= known(i % 3 ? "no" : 0, 2)[0];
		for (int k = 0; k < 3; k++)
			tick(k);
	}
	printf("\nsum %ld\n", s);
	for (int i = 0; i < 5; i++)
		printf("%s %ld\n", (const char *[]){"clamp", "known", "around", "pick", "tick"}[i], calls[i]);
	return 0;
}
