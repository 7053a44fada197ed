// Calls that end in every way a C function's can.
#include <setjmp.h>
#include <stdio.h>

#define NOINLINE __attribute__((noinline, noclone))

struct point { int x, y; };
struct node { const char *name; struct point at; struct node *next; double w; };

static jmp_buf env;

NOINLINE int leaf(int n, const char *s) { asm volatile(""); return n * 2 + (s[0] == 'x'); }
NOINLINE int jumper(int n) { asm volatile(""); if (n > 2) longjmp(env, n); return jumper(n + 1) + 1; }
NOINLINE int tail2(int n) { asm volatile(""); return leaf(n, "tail"); }
NOINLINE int tail1(int n) { asm volatile(""); return tail2(n + 1); }
NOINLINE double mean(double d, float f) { asm volatile(""); return (d + f) / 2; }
NOINLINE struct point moved(struct node *n) { struct point p = n->at; p.x++; asm volatile(""); return p; }
NOINLINE int rec(int n) { int r = n ? rec(n - 1) : 0; asm volatile("" : "+r"(r)); return r + n; }
NOINLINE int outer(int n) { volatile int k = 0; if (!setjmp(env)) k = jumper(0); leaf(k, "x"); return tail1(n); }
NOINLINE void nothing(void) { asm volatile(""); }

int main(void)
{
	struct node b = {"b", {3, 4}, 0, 2.5}, a = {"a", {1, 2}, &b, 1.5};
	int s = 0;

	for (int i = 0; i < 3; i++) {
		s += outer(i);
		s += rec(3);
		s += moved(&a).x;
		s += mean(1.5, 2.5f);
		nothing();
	}
	printf("%d\n", s);
	return 0;
}
