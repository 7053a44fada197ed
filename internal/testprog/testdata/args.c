// Functions called with known arguments of every passing class, for fetch
// arguments, entry handlers and jprobes. A round calls each N times and prints
// what each saw last.
#include "prog.h"

struct pair { int a, b; };             // in one register
struct mixed { double d; long n; };    // one of each class
struct large { long v[6]; };           // on the stack
struct node { struct node *next; int value; char name[12]; };

PROBED int args_ints(int a, unsigned b, long c, unsigned char d, short e, long long f)
{
	return printf("args_ints %d %u %ld %u %d %lld\n", a, b, c, d, e, f);
}

PROBED int args_many(int a, int b, int c, int d, int e, int f, int g, long h, signed char i)
{
	return printf("args_many %d %d %d %d %d %d %d %ld %d\n", a, b, c, d, e, f, g, h, i);
}

PROBED int args_string(const char *s, size_t n) { return printf("args_string %.*s\n", (int)n, s); }

PROBED double args_float(double a, float b, int c, double d)
{
	printf("args_float %g %g %d %g\n", a, (double)b, c, d);
	return a + (double)b + c + d;
}

PROBED struct pair args_struct(struct pair p, struct mixed m, struct large l, int last)
{
	struct pair r = {p.b, p.a + last};

	printf("args_struct %d %d %g %ld %ld %d\n", p.a, p.b, m.d, m.n, l.v[5], last);
	return r;
}

PROBED int args_pointer(struct node *n, int **pp)
{
	return printf("args_pointer %d %s %d\n", n->next->value, n->next->name, **pp);
}

PROBED int args_none(void) { return printf("args_none\n"); }

// Reads its arguments again after a call has spoilt the registers.
PROBED long args_kept(long a, long b)
{
	args_none();
	return a * 10 + b;
}

int main(void)
{
	long n = 1;

	while (next_round(&n)) {
		for (long i = 0; i < n; i++) {
			struct node second = {NULL, 4711, "second"}, first = {&second, 1, "first"};
			int value = -42, *p = &value;
			struct pair r;

			args_ints(-1, 4000000000u, -123456789012L, 200, -300, 0x7fffffffffffffffLL);
			args_many(1, 2, 3, 4, 5, 6, 7, 800000000L, -9);
			args_string("hello, world", 12);
			args_string("", 0);
			CHECK(args_float(1.5, 2.25f, 3, -4.0) == 2.75);
			r = args_struct((struct pair){11, 22}, (struct mixed){0.5, 33},
					(struct large){{1, 2, 3, 4, 5, 66}}, 77);
			CHECK(r.a == 22 && r.b == 88);
			args_pointer(&first, &p);
			CHECK(args_kept(5, 6) == 56);
		}
	}
	return failures != 0;
}
