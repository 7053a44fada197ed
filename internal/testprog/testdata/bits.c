// Bit-fields where compilers put them: across the words of their type, in packed structures, of signed types and of enumerations.
#include <stdbool.h>
#include "prog.h"

// What stands between the lines of dashes is also read as a script's own declarations.
// ----
enum sign { MINUS = -2, PLUS = 1 };
enum shade { DARK, DIM, PALE, LIGHT };
struct crossing { unsigned a : 20, b : 20; unsigned long c : 40, d : 30; int s : 5; enum sign e : 3; enum shade u : 2; _Bool f : 1; enum sign whole; };
struct tight { unsigned char x : 3; unsigned y : 30; int z : 31; enum sign e : 2; unsigned long v : 61; long w : 64; char t; } __attribute__((packed));
struct wide { short a : 9, b : 9; long long q : 33; int : 0; long long r : 40; char k; int : 3; char l; };
union either { int n : 9; unsigned char c; };
struct placed { char c; int n __attribute__((packed)); short s __attribute__((aligned(16))); union either e; } __attribute__((aligned(32)));
// ----

PROBED int bits_all(struct crossing *c, struct tight *t, struct wide *w, struct placed *p)
{
	return printf("bits_all %d %d %d %d\n", c->s, t->z, w->a, p->n);
}

int main(void)
{
	struct crossing c = {0xabcde, 0x54321, 0x123456789aUL, 0x2bcdef01, -7, MINUS, LIGHT, true, MINUS};
	struct tight t = {5, 0x2aaaaaab, -123456789, MINUS, 0x1edcba9876543210UL, -0x123456789abcdef0L, 'Q'};
	struct wide w = {-200, 255, -4000000000LL, 0x7fffffffffLL, 'k', 'l'};
	struct placed p = {'c', -5, -6, {-3}};
	long n = 1;

	while (next_round(&n))
		for (long i = 0; i < n; i++)
			bits_all(&c, &t, &w, &p);
	return failures != 0;
}
