// Parameters of all the kinds of places that x86-64's C ABI has.
struct mixed { int n; double d; };
struct large { long v[5]; };
enum side { LEFT, RIGHT = 6 };
__attribute__((noinline)) int passed(struct mixed m, double d, struct large l, enum side s, char c, float f, long last) {
	__asm__ volatile("" ::"r"(&m), "r"(&l) : "memory");
	return m.n + (int)d + l.v[1] + s + c + (int)f + last;
}
int main(void) {
	struct mixed m = {7, 1.5};
	struct large l = {{1, 2, 3, 4, 5}};
	return passed(m, 2.5, l, RIGHT, 'c', 3.5f, 99) == 0;
}
