// What an optimizer makes much of: variables that move between registers, memory and nowhere.
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind { NONE = -1, LEAF = 3, NODE = 70000 };
struct flags { unsigned a : 3; int b : 7; bool c : 1; uint64_t wide : 40; };
struct item {
	struct item *next, *child;
	enum kind kind;
	union { double d; long n; float f[2]; } as;
	struct flags flags;
	char name[12];
	int8_t tiny;
	uint16_t small;
};
struct pair { long first, second; };

static __thread unsigned depth;
static unsigned long rounds;
double scale = 1.5;
const int primes[] = {2, 3, 5, 7, 11};

static struct pair divided(long a, long b)
{
	struct pair p = {a / b, a % b};

	return p;
}

static inline long mixed(long a, int shift)
{
	long low = a & 0xffff, high = a >> shift;

	for (int i = 0; i < 2; i++) {
		long low2 = low * 31 + i;

		high ^= low2;
	}
	return high + low;
}

__attribute__((noinline)) static struct item *made(struct item *next, long n, enum kind kind)
{
	struct item *it = calloc(1, sizeof *it);

	it->next = next;
	it->kind = kind;
	it->flags = (struct flags){n & 7, -(int)(n & 31), n & 1, (uint64_t)n << 20};
	it->tiny = -n;
	it->small = n * 77;
	snprintf(it->name, sizeof it->name, "item%ld", n);
	if (kind == NODE)
		it->as.d = sqrt((double)n) * scale;
	else
		it->as.n = mixed(n, 3);
	return it;
}

__attribute__((noinline)) static long walked(const struct item *it, int level, int a, int b, int c, int d, short e, unsigned char f)
{
	long sum = 0;

	depth++;
	for (const struct item *p = it; p; p = p->next) {
		static long visits;
		long own = p->kind == LEAF ? p->as.n : (long)p->as.d;

		visits++;
		if (p->child)
			own += walked(p->child, level + 1, b, a, d, c, e + 1, f - 1);
		struct pair q = divided(own, primes[(level + a) % 5]);
		sum += q.first * q.second + e * f + mixed(c, b & 7) - d;
	}
	depth--;
	return sum;
}

__attribute__((noinline)) static struct item *sorted(struct item *it)
{
	struct item *out = NULL;

	while (it) {
		struct item *rest = it->next, **at = &out;

		while (*at && strcmp((*at)->name, it->name) < 0)
			at = &(*at)->next;
		it->next = *at;
		*at = it;
		it = rest;
	}
	return out;
}

__attribute__((noinline)) static double mean(const struct item *it, float weight)
{
	double sum = 0;
	int n = 0;

	for (; it; it = it->next, n++)
		sum += it->kind == NODE ? it->as.d * weight : (double)it->flags.b;
	return n ? sum / n : NAN;
}

int main(int argc, char **argv)
{
	long total = argc;

	for (long r = 0; r < 6; r++) {
		struct item *list = NULL;

		for (long i = 0; i < 9; i++) {
			list = made(list, i * 7 + r, i % 2 ? LEAF : NODE);
			if (i % 4 == 3)
				list->child = made(made(NULL, i, NODE), -i, LEAF);
		}
		list = sorted(list);
		total += walked(list, 0, r, 2, 3, 4, -5, 200);
		rounds += total & 3;
		total ^= (long)mean(list, 0.5f);
	}
	printf("%s %ld %lu\n", argv[0] ? "sum" : "", total, rounds);
	return 0;
}
