// Functions whose parameters are of many types, for scripts that name them: what
// each was called with is known, and a round calls all N times.
#include <stdbool.h>
#include "prog.h"

enum colour { RED, GREEN = 5, BLUE = -1 };
struct flags { unsigned low : 3, high : 7; int sign : 4; const char *name; union { int x; float f; }; };
typedef struct { short z; char text[4]; unsigned char raw[3]; } plain;
struct tree { int key; struct tree *kids[2]; plain own; double weight; struct { long in; } deep; };
struct large { long v[6]; };

PROBED int params_kinds(enum colour c, bool yes, signed char s, plain *p) { return printf("params_kinds %d %d %d %d\n", c, yes, s, p->z); }

PROBED int params_flags(double d, const struct flags *f, float e, unsigned long n) { return printf("params_flags %g %d %g %lu\n", d, f->x, (double)e, n); }

PROBED int params_tree(struct large l, struct tree *t, void *anything, int (*fn)(void))
{
	return printf("params_tree %ld %d %d %d\n", l.v[5], t->kids[1]->key, anything == t, fn == NULL);
}

PROBED struct large params_large(int a) { return (struct large){{a, 2, 3, 4, 5, 6}}; }

int main(void)
{
	long n = 1;

	while (next_round(&n)) {
		for (long i = 0; i < n; i++) {
			struct flags f = {5, 100, -3, "a name", {7}};
			struct tree leaf = {4, {NULL, NULL}, {40, "lf", {1, 2, 3}}, 0, {8}}, root = {1, {NULL, &leaf}, {10, "rt", {0}}, 0, {9}};

			params_kinds(GREEN, true, -3, &leaf.own);
			params_flags(2.5, &f, 1.5f, 1UL << 63);
			params_tree((struct large){{1, 2, 3, 4, 5, 66}}, &root, &root, NULL);
			CHECK(params_large(17).v[0] == 17);
		}
	}
	return failures != 0;
}
