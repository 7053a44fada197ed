// Variables that are left as computations only.
struct pair {
	unsigned short a;
	signed char b;
	long c;
};

__attribute__((noinline)) long work(long a, unsigned long b, struct pair *p) {
	long mul = a * 12, sum = a + b, less = a - b, neg = -a, not = ~a;
	long and = a & 0xff0, or = a | b, xor = a ^ b;
	long shl = a << 3, shra = a >> 2;
	unsigned long shr = b >> 3;
	long narrow = p->a * 2 + b;
	long deep = ((a * 3 - b) ^ (a << 2)) & 0xffff;
	int truth = a < 5;
	__asm__ volatile("nop" : : "r"(a), "r"(b), "r"(p) : "memory");
	return a;
}

struct two {
	int a, b;
};

__attribute__((noinline)) int parts(struct two p) {
	__asm__ volatile("" : : : "memory");
	return p.a * 3 + 1;
}

int main(void) {
	struct pair p = {65535, -3, 9};
	work(7, 100, &p);
	work(-7, -3ul, &p);
	return parts((struct two){-5, -6}) + parts((struct two){5, 6});
}
