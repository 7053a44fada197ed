// Enumerations with and without a sign, whole and of some bits.
enum flags { READ = 1, WRITE = 2, RUN = 4 };
enum high { ONE = 1, TOP = 0x80000000u };
enum low { LESS = -1, SAME, MORE };

struct held {
	enum flags f : 3;
	enum low l : 2;
	enum high h;
	unsigned pad;
};

__attribute__((noinline)) void look(struct held *p, enum high v, enum low w, struct held by) {
	__asm__ volatile("" : : "r"(p), "r"(v), "r"(w), "r"(&by) : "memory");
}

__attribute__((noinline)) enum high last(int n) { __asm__ volatile("" : : : "memory"); return n ? TOP : ONE; }

__attribute__((noinline)) unsigned ret_first(int n) { __asm__ volatile("" : : : "memory"); return n; }
__attribute__((noinline)) int ret_second(int n) { __asm__ volatile("" : : : "memory"); return n; }
__attribute__((noinline)) double ret_third(int n) { __asm__ volatile("" : : : "memory"); return n; }

int main(void) {
	ret_first(-16);
	ret_second(-16);
	ret_third(-16);
	struct held a = {RUN, LESS, TOP, 1}, b = {READ | RUN, MORE, 0x90000001u, 2};
	look(&a, TOP, LESS, b);
	look(&b, 0x90000001u, MORE, a);
	return last(0) == last(1);
}
