#include <math.h>

struct point {
	int n;
	double d;
	float f;
};

__attribute__((noinline)) void look(struct point *p, long n, long k) { __asm__ volatile("" : : "r"(p), "r"(n), "r"(k) : "memory"); }

int main(void) {
	static struct point all[] = {{0, -2.5, 0.1f}, {1, 0, -0.0f}, {2, 6.5, 1e30f}, {3, NAN, INFINITY}};
	for (int i = 0; i < 4; i++)
		look(&all[i], i, i & 1);
}
